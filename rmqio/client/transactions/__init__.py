"""Transactional messages: half messages, their commits and rollbacks, and the broker's checks.

Users import the producer and its answers from `rmqio.client`; the same names in here are deprecated.
"""

from __future__ import annotations

import warnings
from typing import Any

_MOVED = ("COMMIT", "ROLLBACK", "UNKNOWN", "TransactionProducer")


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'rmqio.client.transactions' has no attribute {name!r}")
    warnings.warn(f"rmqio.client.transactions.{name} is rmqio.client.{name} now", DeprecationWarning, stacklevel=2)
    from rmqio import client

    return getattr(client, name)
