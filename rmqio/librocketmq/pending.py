"""Messages that a thread sends, one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rmqio.errors import RequestTimeout, RmqioError
from rmqio.model import MessageQueue, SendResult


class PendingMessages:
    """`interfaces.PendingSend`; also what `InFlight` asks of those that it keeps.

    Args:
      queue: where to.
      message_count: how many.
      send: sends them, in a thread of its own.
    """

    def __init__(self, queue: MessageQueue, message_count: int, send: Callable[[], list[SendResult]]) -> None:
        self.queue = queue
        self.message_count = message_count
        self.is_retrieved = False
        """Whether `result` has told the outcome to anybody."""
        self._send = send
        self._outcome: list[SendResult] | BaseException | None = None
        self._settled = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin, unless it has failed already."""
        if not self.is_settled:
            # A daemon: others are waited for at the end of a process before anybody can tell them to stop.
            threading.Thread(target=self._run, name=f"librocketmq to {self.queue}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._finish(self._send())
        except BaseException as error:  # noqa: BLE001  # `result` raises it
            self._finish(error)

    def _finish(self, outcome: list[SendResult] | BaseException) -> None:
        """The first outcome counts."""
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
        self._settled.set()

    def fail_like(self, predecessor: PendingMessages | None) -> None:
        """Fail with the error of another, if there is one, unsent."""
        if predecessor is not None and predecessor.error is not None:
            self._finish(predecessor.error)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known."""
        return self._settled.is_set()

    @property
    def is_done(self) -> bool:
        return self.is_settled

    @property
    def error(self) -> RmqioError | None:
        """The final error, if that is the outcome."""
        return self._outcome if isinstance(self._outcome, RmqioError) else None

    def settle(self, deadline: float | None = None) -> None:
        """Wait for the outcome, no longer than until `deadline` on the monotonic clock: then it is `RequestTimeout`.

        Raises nothing.
        """
        if not self._settled.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            self._finish(RequestTimeout(f"send of {self.message_count} messages to {self.queue}: no answer in time"))

    def result(self) -> list[SendResult]:
        self.settle()
        self.is_retrieved = True
        assert self._outcome is not None  # settled
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome
