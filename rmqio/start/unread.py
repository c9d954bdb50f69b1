"""A read that ends and begins at the end of each queue: it reads nothing, and almost nobody wants that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqio.interfaces import OffsetLookup, QueueClient
from rmqio.model import MessageQueue
from rmqio.start.lookups import resolve_all


def unread(
    queues: Sequence[MessageQueue],
    client: QueueClient,
    *,
    begins_at_end: Callable[[MessageQueue, OffsetLookup], bool],
    stop: Callable[[MessageQueue, OffsetLookup], int | None],
) -> int:
    """Returns how many messages the queues hold of which a read can read none; 0: it can read, or there are none.

    Errors of brokers are left to the read.

    Args:
      begins_at_end: whether the read begins at the end of a queue since nothing says otherwise.
      stop: the first offset not to read; None: the queue is not read.
    """

    def skipped(queue: MessageQueue, lookup: OffsetLookup) -> int | None:
        end_at = stop(queue, lookup)
        if end_at is None:
            return 0
        if not begins_at_end(queue, lookup) or end_at > lookup.max_offset(queue):
            return None
        return max(0, end_at - lookup.min_offset(queue))

    total = 0
    for each in resolve_all(queues, client, skipped).values():
        if not isinstance(each, int):
            return 0
        total += each
    return total


def why_unread(count: int, what: str, group: str | None, advice: str) -> str:
    """The warning for `count` messages of `what`. `group`: the group without an offset; None: the start is latest."""
    cause = "it begins at the latest offset"
    if group is not None:
        cause = f"consumer group {group!r} has no offset there, so it begins at the end of each queue"
        advice = f"Check the name of the group. If it is new: {advice}"
    return f"the read of {what} reads none of {count} messages: {cause}, and it ends where it begins. {advice}"
