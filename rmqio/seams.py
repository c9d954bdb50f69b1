"""The former name of `rmqio.interfaces`; it will be removed in the release after the next."""

from __future__ import annotations

import warnings
from typing import Any

from rmqio import interfaces

warnings.warn("rmqio.seams is rmqio.interfaces now", DeprecationWarning, stacklevel=2)


def __getattr__(name: str) -> Any:
    return getattr(interfaces, {"Fetched": "FetchedBatch"}.get(name, name))
