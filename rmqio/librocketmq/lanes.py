"""Producers of the library, each used by one thread at a time."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rmqio.errors import LocalError, TransportError
from rmqio.librocketmq.library import Library, SentTo
from rmqio.options import ClientOptions
from rmqio.wire.messages.batch import MAX_MESSAGE_BYTES

_LOG_ERRORS: Final = 2
_NO_LIMIT: Final = 2**31 - 1

_names = itertools.count()
_started_in: int | None = None
"""The process in which the library has started its threads."""


def check_process() -> None:
    """Raise `LocalError` in a fork of a process in which the library has run.

    The library's threads are gone there, its locks may be held forever, and it would reuse its parent's ids.
    """
    if _started_in not in (None, os.getpid()):
        raise LocalError(
            f"backend 'librocketmq': the library runs in process {_started_in}, and cannot be used in its fork "
            f"{os.getpid()}; start the process with another method ('spawn'), or fork before the first "
            "message is sent"
        )


class Lane:
    """One producer of the library, with its own threads and connections.

    Threads do not share it: a send that finds another one connecting fails at once, and ids are generated without a
    lock.

    Raises `TransportError` when it does not start.
    """

    def __init__(self, library: Library, options: ClientOptions, group: str) -> None:
        global _started_in
        check_process()
        self._library = library
        c = library.c
        self._producer: int = c.CreateProducer(group.encode())
        if not self._producer:
            raise TransportError("librocketmq could not create a producer")
        self._set("SetProducerLogLevel", _LOG_ERRORS)  # first: the default writes a file at once
        # By default all producers of a process share their connections, and each group can exist only once.
        self._set("SetProducerInstanceName", f"rmqio-{os.getpid()}-{next(_names)}".encode())
        self._set("SetProducerNameServerAddress", ";".join(options.name_servers).encode())
        self._set("SetProducerSendMsgTimeout", options.request_timeout_ms)
        self._set("SetProducerMaxMessageSize", MAX_MESSAGE_BYTES)
        self._set("SetProducerCompressMsgBodyOverHowmuch", options.compress_over_bytes or _NO_LIMIT)
        self._set("SetProducerCompressLevel", options.compression_level)
        source = options.security.source
        if source is not None:
            credentials = source.get()
            keys = (credentials.access_key, credentials.secret_key, "")
            self._set("SetProducerSessionCredentials", *(key.encode() for key in keys))
        _started_in = os.getpid()
        self._set("StartProducer")

    def send(
        self, topic: bytes, body: bytes, properties: Sequence[tuple[bytes, bytes]], index: int, count: int
    ) -> tuple[int, int] | str | None:
        """Send a message to the queue at `index` of `count` and wait; return the status and the offset in the queue.

        A string is the library's reason for a failure; the outcome is unknown. None: the library knows another number
        of queues; nothing was stored.
        """
        c = self._library.c
        message = c.CreateMessage(topic)
        try:
            c.SetByteMessageBody(message, body, len(body))
            for name, value in properties:
                c.SetMessageProperty(message, name, value)
            sent = SentTo()
            status = self._library.send(self._producer, message, index, count, sent)
            if status is None:
                return None
            return (sent.status, sent.offset) if status == 0 else self._library.error_text()
        finally:
            c.DestroyMessage(message)

    def close(self) -> None:
        """Stop its threads and connections. The object itself remains: newer libraries crash when they free it."""
        self._library.c.ShutdownProducer(self._producer)

    def _set(self, function: str, *values: object) -> None:
        status = getattr(self._library.c, function)(self._producer, *values)
        if status != 0:
            raise TransportError(f"librocketmq: {function} fails: {self._library.error_text()}")


class Lanes:
    """Lanes for sending threads, created when all are in use. Thread-safe.

    Args:
      make: creates a lane.
      limit: the maximum number of lanes; further threads wait.
    """

    def __init__(self, make: Callable[[], Lane], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._free: list[Lane] = []
        self._count = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @contextmanager
    def lane(self) -> Iterator[Lane]:
        """Yield a lane for the `with` block. Raises the errors of creating one, and `LocalError` after `close`."""
        lane = self._take()
        try:
            yield lane
        finally:
            with self._changed:
                self._free.append(lane)
                self._changed.notify_all()

    def renew(self) -> None:
        """Close unused lanes: new ones look up routes again, which old ones do only every 30 s."""
        while True:
            with self._changed:
                if not self._free:
                    return
                lane = self._free.pop()
                self._count -= 1
                self._changed.notify_all()
            lane.close()

    def close(self) -> None:
        """Wait for lanes in use, each for at most the time of a send, and close all. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: len(self._free) == self._count)
        self.renew()

    def _take(self) -> Lane:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._count < self._limit or self._is_closed)
            if self._is_closed:
                raise LocalError("this producer is closed")
            if self._free:
                return self._free.pop()
            self._count += 1
        try:
            return self._make()
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
            raise
