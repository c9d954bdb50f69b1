"""A read that ends, and begins at the end of queues: it reads nothing there, and almost nobody wants that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqio.errors import counted
from rmqio.interfaces import OffsetLookup, QueueClient
from rmqio.model import MessageQueue
from rmqio.start.lookups import resolve_all


def unread(
    what: str,
    queues: Sequence[MessageQueue],
    client: QueueClient,
    *,
    begins_at_end: Callable[[MessageQueue, OffsetLookup], bool],
    stop: Callable[[MessageQueue, OffsetLookup], int | None],
    group: str | None,
    advice: str,
) -> str:
    """Returns a warning if queues hold messages of which a read can read none; empty: it can, or there are none.

    A read that begins at the offsets of a group is warned of for each queue without one, since the others do not show
    that it misses messages; any other read if it can read nothing at all. Errors of brokers are left to the read.

    Args:
      begins_at_end: whether the read begins at the end of a queue since nothing says otherwise.
      stop: the first offset not to read; None: the queue is not read.
      group: the group at whose offsets the read begins; None: it uses none.
      advice: what to give to read these messages.
    """

    def skipped(queue: MessageQueue, lookup: OffsetLookup) -> int | None:
        end_at = stop(queue, lookup)
        if end_at is None:
            return 0
        if not begins_at_end(queue, lookup) or end_at > lookup.max_offset(queue):
            return None
        return max(0, end_at - lookup.min_offset(queue))

    found = [*resolve_all(queues, client, skipped).values()]
    counts = [each for each in found if isinstance(each, int)]
    if len(counts) < len(found) and (group is None or any(isinstance(each, Exception) for each in found)):
        return ""
    return why_unread(counts, counted(len(found), "queue"), what, group, advice)


def why_unread(counts: Sequence[int], of: str, what: str, group: str | None, advice: str) -> str:
    """The warning for messages of `what` that are not read, by queue; empty: there are none.

    `of`: all queues. `group`: the group without an offset; None: the start is latest.
    """
    holding = [count for count in counts if count]
    if not holding:
        return ""
    cause = "it begins at the latest offset"
    if group is not None:
        cause = f"consumer group {group!r} has no offset there, so it begins at the end of each"
        advice = f"Check the name of the group. If it is new, or the queues are: {advice}"
    return (
        f"the read of {what} reads none of {counted(sum(holding), 'message')} in {len(holding)} of {of}: {cause}, "
        f"and it ends where it begins. {advice}"
    )
