"""The results of a batch, which are made when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import overload

from rmqio.model import MessageQueue, SendResult, SendStatus
from rmqio.wire.messages.batch import send_results

_status = itemgetter(SendResult._fields.index("status"))  # by position: runs per message


class BatchResults(Sequence[SendResult]):
    """One result per message of a batch that was stored, in order. Equals a list of them.

    Most senders only want to know that a batch was stored, and making its results takes as long as encoding it.

    Args:
      queue: where it was stored, from `first_offset` on.
      ids: the unique ids of its messages.
      offset_ids: the broker's ids, as its answer has them: separated by commas. There can be fewer, or none.
      is_inner: whether the batch is one record, so that there is one broker's id for all.
    """

    __slots__ = ("_ids", "_is_inner", "_made", "_offset_ids", "_recall_handle", "first_offset", "queue", "status")

    def __init__(
        self,
        queue: MessageQueue,
        first_offset: int,
        ids: Sequence[str],
        offset_ids: str,
        status: SendStatus,
        *,
        is_inner: bool = False,
        recall_handle: str | None = None,
    ) -> None:
        self.queue = queue
        self.first_offset = first_offset
        self.status = status
        self._ids = ids
        self._offset_ids = offset_ids
        self._is_inner = is_inner
        self._recall_handle = recall_handle
        self._made: list[SendResult] | None = None

    def all(self) -> list[SendResult]:
        """The results as a list; always the same one."""
        made = self._made
        if made is None:
            made = self._made = self._make()
        return made

    def _make(self) -> list[SendResult]:
        count = len(self._ids)
        offset_ids = self._offset_ids.split(",") if self._offset_ids else []
        if self._is_inner:
            offset_ids *= count
        if len(offset_ids) < count:  # a broker that returns fewer ids has still stored all messages
            offset_ids += [""] * (count - len(offset_ids))
        results = send_results(self.queue, self.first_offset, self._ids, offset_ids, self.status)
        handle = self._recall_handle
        return results if handle is None else [result._replace(recall_handle=handle) for result in results]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[SendResult]:
        return iter(self.all())

    @overload
    def __getitem__(self, at: int) -> SendResult: ...
    @overload
    def __getitem__(self, at: slice) -> list[SendResult]: ...
    def __getitem__(self, at: int | slice) -> SendResult | list[SendResult]:
        return self.all()[at]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BatchResults):
            other = other.all()
        return self.all() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(self.all())

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self.all(),)


def common_queue(results: Sequence[SendResult]) -> MessageQueue:
    """The queue of the first result."""
    return results.queue if isinstance(results, BatchResults) else results[0].queue


def weak_count(results: Sequence[SendResult]) -> int:
    """How many messages were stored without the acknowledgement that the broker is set up for."""
    if isinstance(results, BatchResults):
        return 0 if results.status is SendStatus.OK else len(results)
    # Each message has its own status: not every producer stores a batch with one request.
    return len(results) - [*map(_status, results)].count(SendStatus.OK)
