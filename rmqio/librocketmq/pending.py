"""Messages that a thread sends one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rmqio.errors import RequestTimeout, RmqioError, counted
from rmqio.model import MessageQueue, SendResult


class PendingMessages:
    """`interfaces.PendingSend`; also has the attributes that `InFlight` needs.

    Args:
      queue: the target queue.
      message_count: the number of messages.
      send: sends them, in a separate thread.
    """

    def __init__(self, queue: MessageQueue, message_count: int, send: Callable[[], list[SendResult]]) -> None:
        self.queue = queue
        self.message_count = message_count
        self.is_retrieved = False
        """Whether `result` has reported the outcome to anybody."""
        self._send = send
        self._outcome: list[SendResult] | BaseException | None = None
        self._settled = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start, unless it has already failed."""
        if not self.is_settled:
            # A daemon: other threads are joined at the end of a process before anybody can tell them to stop.
            threading.Thread(target=self._run, name=f"librocketmq to {self.queue}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._finish(self._send())
        except BaseException as error:  # noqa: BLE001  # `result` raises it
            self._finish(error)

    def _finish(self, outcome: list[SendResult] | BaseException) -> None:
        """Set the outcome; the first one counts."""
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
        self._settled.set()

    def fail_like(self, predecessor: PendingMessages | None) -> None:
        """Fail with the predecessor's error, if any, without sending."""
        if predecessor is not None and predecessor.error is not None:
            self._finish(predecessor.error)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known."""
        return self._settled.is_set()

    def is_done(self) -> bool:
        return self.is_settled

    @property
    def error(self) -> RmqioError | None:
        """The final error, if that is the outcome."""
        return self._outcome if isinstance(self._outcome, RmqioError) else None

    def settle(self, deadline: float | None = None) -> None:
        """Wait for the outcome, but not beyond `deadline` on the monotonic clock: then it is `RequestTimeout`.

        Raises nothing.
        """
        if not self._settled.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            sent = counted(self.message_count, "message")
            self._finish(RequestTimeout(f"send of {sent} to {self.queue}: no answer in time"))

    def result(self) -> list[SendResult]:
        self.settle()
        self.is_retrieved = True
        assert self._outcome is not None  # settled
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome
