"""A producer's batches in flight."""

from __future__ import annotations

import threading

from rmqio.client.sending.pending import PendingRequest


class InFlight:
    """Limits the number of batches in flight and keeps failed ones until their failure is reported. Thread-safe.

    Args:
      limit: the maximum at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: list[PendingRequest] = []
        """The batches in flight, in order of admission."""
        self._failed: list[PendingRequest] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pending)

    def admit(self, pending: PendingRequest, *, ordered: bool) -> None:
        """Admit a batch. First await the oldest while there are too many, and all to its queue if `ordered`.

        An ordered batch after an unretrieved failure to its queue fails too: if sent, it would overtake the failed one.
        """
        while True:
            with self._lock:
                self._sort_out()
                awaited = self._in_the_way(pending, ordered)
                if awaited is None:
                    self._pending.append(pending)
                    if ordered:
                        pending.fail_like(next((other for other in self._failed if other.queue == pending.queue), None))
                    return
            awaited.settle()

    def remove(self, pending: PendingRequest) -> None:
        """Forget a batch that was never sent."""
        with self._lock:
            self._pending = [other for other in self._pending if other is not pending]

    def drain(self, deadline: float) -> None:
        """Await all batches, but not beyond `deadline`."""
        while True:
            with self._lock:
                self._sort_out()
                if not self._pending:
                    return
                oldest = self._pending[0]
            oldest.settle(deadline)

    def unretrieved(self) -> list[PendingRequest]:
        """Return the failed batches whose failure has not been reported to anybody."""
        with self._lock:
            self._sort_out()
            return list(self._failed)

    def _in_the_way(self, pending: PendingRequest, ordered: bool) -> PendingRequest | None:
        if len(self._pending) >= self._limit:
            return self._pending[0]
        if ordered:
            return next((other for other in self._pending if other.queue == pending.queue), None)
        return None

    def _sort_out(self) -> None:
        settled = [pending for pending in self._pending if pending.is_settled]
        if settled:
            self._pending = [pending for pending in self._pending if not pending.is_settled]
            self._failed += [pending for pending in settled if pending.error is not None]
        if self._failed:
            self._failed = [pending for pending in self._failed if not pending.is_retrieved]
