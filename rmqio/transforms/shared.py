"""State that the workers of one process share: a client per factory, and the backlog of each queue.

Connections survive neither a fork nor a pickle, so the process that uses them creates them here on first use.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from dataclasses import dataclass

from rmqio.errors import RmqioError
from rmqio.interfaces import ClientFactory, OffsetQuery, QueueClient
from rmqio.model import MessageQueue

_LOGGER = logging.getLogger(__name__)

_lock = threading.Lock()
_clients: dict[tuple[int, ClientFactory], QueueClient] = {}
_backlogs: dict[tuple[ClientFactory, MessageQueue], Backlog] = {}

_DEFAULT_MESSAGE_BYTES = 1024.0


def shared_client(factory: ClientFactory) -> QueueClient:
    """This process's client of a factory; equal factories share one. It lives until the process ends."""
    key = (os.getpid(), factory)
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = factory.queue_client()
        return client


def close_shared_clients() -> None:
    """Close the clients that this process has created. The next use creates new ones."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        clients = [_clients.pop(key) for key in mine]
        _backlogs.clear()
    for client in clients:
        client.close()


def _forget_after_fork() -> None:
    # The parent's sockets and lock must not be touched.
    global _lock
    _lock = threading.Lock()
    _clients.clear()
    _backlogs.clear()


atexit.register(close_shared_clients)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


@dataclass
class Backlog:
    """The end of a queue and its mean message size, as last seen by this process."""

    end: int
    message_bytes: float


def note_backlog(factory: ClientFactory, queue: MessageQueue, end: int, message_bytes: float | None) -> None:
    """Remember the end and the mean size from a pull's answer."""
    known = _backlogs.get((factory, queue))
    mean = known.message_bytes if known else _DEFAULT_MESSAGE_BYTES
    if message_bytes is not None:
        mean = message_bytes if known is None else 0.8 * mean + 0.2 * message_bytes
    _backlogs[factory, queue] = Backlog(end, mean)


def backlog(factory: ClientFactory, queue: MessageQueue, *, ask: bool = True) -> Backlog:
    """Return the known backlog of a queue. If nothing is known, `ask` queries the broker, once.

    Each pull's answer updates it. Runners also ask for sizes while a broker is down, which a read survives: this must
    then neither fail nor wait repeatedly.
    """
    known = _backlogs.get((factory, queue))
    if known is not None:
        return known
    end = 0
    if ask:
        (answer,) = shared_client(factory).look_up([OffsetQuery(queue, "max")])
        if isinstance(answer, RmqioError):
            _LOGGER.info("%s: its size is unknown: %s", queue, answer)
        else:
            end = answer or 0
        note_backlog(factory, queue, end, None)
    return Backlog(end, _DEFAULT_MESSAGE_BYTES)
