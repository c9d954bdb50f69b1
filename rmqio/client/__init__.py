"""The remoting client: reading queues by offset, sending messages, transactions, administration.

Names resolve on first use (PEP 562), so that importing the factory does not import the sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.client.admin import Admin
    from rmqio.client.client import RemotingQueueClient
    from rmqio.client.factory import RemotingClientFactory
    from rmqio.client.producer import RemotingProducer
    from rmqio.client.transactions import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer

_HOMES = {
    "COMMIT": "transactions",
    "ROLLBACK": "transactions",
    "UNKNOWN": "transactions",
    "Admin": "admin",
    "RemotingClientFactory": "factory",
    "RemotingProducer": "producer",
    "RemotingQueueClient": "client",
    "TransactionProducer": "transactions",
}

__all__ = [
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "Admin",
    "RemotingClientFactory",
    "RemotingProducer",
    "RemotingQueueClient",
    "TransactionProducer",
]


__getattr__ = lazy_names(__name__, _HOMES, keep_in=globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
