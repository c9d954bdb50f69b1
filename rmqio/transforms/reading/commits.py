"""Commits of group offsets: when a bundle is final, by absolute position, never backwards.

They show operators and later pipelines how far the group has got. Recovery never depends on them: a broker keeps a
commit only in memory for up to five seconds, and the runner has the position in its own state.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rmqio import repeats, telemetry
from rmqio.errors import CommitIgnored, GroupOffsetReset, QueueGone, RmqioError, TopicNotExist
from rmqio.interfaces import ClientFactory, OffsetQuery, QueueClient
from rmqio.logs import event
from rmqio.model import MessageQueue
from rmqio.transforms.metrics import observe_process, queue_labels
from rmqio.transforms.shared import shared_client

_LOGGER = logging.getLogger(__name__)
_WARN_EVERY_S = 60.0
_PATIENCE_S = 20.0
"""How long the last commits of queues wait for their broker: no later commit would repair them."""
_RETRY_S = 0.2


@dataclass
class _Table:
    """The offsets that this process has committed for one group."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    times: dict[MessageQueue, float] = field(default_factory=dict)
    unsaved: dict[MessageQueue, int] = field(default_factory=dict)
    """Offsets that could not be committed; the next commit tries them again."""
    done: int = 0
    failed: int = 0
    warned_at: float = float("-inf")
    patient_until: dict[str, float] = field(default_factory=dict)
    """When the wait for a broker ends or ended. All of its queues share one wait, until none of them fails."""
    reset: GroupOffsetReset | None = None
    """The next read raises it, because an exception of a finalizer is lost."""


_tables: dict[tuple[ClientFactory, str], _Table] = {}


def _table(factory: ClientFactory, group: str) -> _Table:
    return _tables.setdefault((factory, group), _Table())


def begin_reading(factory: ClientFactory, group: str) -> None:
    """Reset the table when a reader starts: the group's offsets may have changed since this process last looked."""
    table = _table(factory, group)
    with table.lock:
        table.offsets.clear()
        table.times.clear()
        table.unsaved.clear()
        table.patient_until.clear()
        table.reset = None


def commit_position(
    factory: ClientFactory,
    group: str,
    queue: MessageQueue,
    offset: int,
    on_reset: Literal["refuse", "honour"] = "refuse",
    is_last: bool = False,
    read_id: str = "",
) -> None:
    """The finalizer's callback, picklable as a partial: `commit_positions` for one queue, now or when the pipeline has
    ended, as the runner wants (`endings`). To honour a reset, commits must notice it while the pipeline runs.
    """
    commit = functools.partial(commit_positions, factory, group, {queue: offset}, on_reset, is_last=is_last)
    if on_reset == "honour" or not repeats.waits_for_end(read_id, (factory, group, queue), offset, commit):
        commit()


def commit_positions(
    factory: ClientFactory,
    group: str,
    offsets: Mapping[MessageQueue, int],
    on_reset: Literal["refuse", "honour"] = "refuse",
    *,
    is_last: bool = False,
) -> None:
    """Commits the offsets of queues, all at once. A failure is logged and counted. The group's next commit repairs it,
    whatever its queue: a queue that has been read to its stop has no further commit of its own.

    The commit waits once for a broker that does not answer, and then skips it until it answers (`QueueClient.look_up`).

    Args:
      is_last: these queues are read to their end, so there may be no next commit: wait for their brokers.
    """
    observe_process()  # on Spark this is the driver, which has no DoFn to set up
    table = _table(factory, group)
    with table.lock:
        for queue, offset in offsets.items():
            table.unsaved[queue] = max(offset, table.unsaved.get(queue, -1))
        failures = _try_all(table, factory, group, on_reset)
    while is_last and _is_waited_for(table, {queue: failures[queue] for queue in offsets if queue in failures}):
        time.sleep(_RETRY_S)  # without the lock, which other queues' bundles need
        with table.lock:
            failures = _try_all(table, factory, group, on_reset)
    with table.lock:
        for queue, error in failures.items():
            table.failed += 1
            telemetry.record("commit_failures", queue_labels(queue), 1)
            if time.monotonic() - table.warned_at > _WARN_EVERY_S:
                table.warned_at = time.monotonic()
                wanted = table.unsaved.get(queue, offsets.get(queue, -1))
                text = "offset %d of %s was not committed for group %s: %s"
                fields = event(queue=queue, offset=wanted, group=group, error=error)
                _LOGGER.warning(text, wanted, queue, group, error, extra=fields)


def _try_all(table: _Table, factory: ClientFactory, group: str, on_reset: str) -> dict[MessageQueue, RmqioError]:
    """Commits what is uncommitted. Returns the failures, which stay uncommitted unless they were reset."""
    wanted, table.unsaved = table.unsaved, {}
    try:
        failures = _commit(table, factory, group, wanted, on_reset)
    except RmqioError as error:
        failures = dict.fromkeys(wanted, error)
    except BaseException:
        table.unsaved = wanted
        raise
    for broker in {queue.broker for queue in wanted} - {queue.broker for queue in failures}:
        table.patient_until.pop(broker, None)
    for queue in failures:
        if table.reset is None or queue != table.reset.queue:  # a reset must not be committed over
            table.unsaved[queue] = wanted[queue]
    return failures


def _is_waited_for(table: _Table, failures: Mapping[MessageQueue, RmqioError]) -> bool:
    """Whether a broker that may come back still has time to do so. The wait is for all of them at once."""
    now = time.monotonic()
    brokers = {queue.broker for queue, error in failures.items() if getattr(error, "retriable", False)}
    with table.lock:
        ends = [table.patient_until.setdefault(broker, now + _PATIENCE_S) for broker in brokers]
    return any(now < end for end in ends)


def _commit(
    table: _Table, factory: ClientFactory, group: str, wanted: Mapping[MessageQueue, int], on_reset: str
) -> dict[MessageQueue, RmqioError]:
    """Commits offsets that are ahead of the committed ones. Returns the failures."""
    client = shared_client(factory)
    first = [queue for queue in wanted if queue not in table.offsets]
    asked = [OffsetQuery(queue, "committed", group=group) for queue in first]
    known: dict[MessageQueue, int | RmqioError | None] = dict(table.offsets)
    known |= dict(zip(first, client.look_up(asked) if asked else (), strict=True))
    failed = {queue: each for queue in wanted if isinstance(each := known[queue], RmqioError)}
    ahead = {
        queue: offset for queue, offset in wanted.items() if queue not in failed and _is_ahead(offset, known[queue])
    }
    errors = dict(client.commit_offsets(group, ahead)) if ahead else {}
    for queue, error in errors.items():
        try:
            if not isinstance(error, CommitIgnored):
                raise error
            _commit_over_reset(table, client, group, queue, ahead[queue], on_reset, is_first=queue in first)
        except RmqioError as final:
            failed[queue] = final
    for queue, offset in wanted.items():
        if isinstance(failed.get(queue), TopicNotExist | QueueGone):
            repeats.note_commit((factory, group), queue, math.inf)  # a restart does not read it
        if queue in failed:
            continue
        if queue in ahead:
            table.done += 1
            telemetry.record("commits", queue_labels(queue), 1)
        before = known[queue]
        table.offsets[queue] = offset if queue in ahead or not isinstance(before, int) else before
        repeats.note_commit((factory, group), queue, table.offsets[queue])
        table.times[queue] = time.monotonic()
    return failed


def _is_ahead(offset: int, known: int | RmqioError | None) -> bool:
    return not isinstance(known, int) or offset > known


def _commit_over_reset(
    table: _Table, client: QueueClient, group: str, queue: MessageQueue, offset: int, on_reset: str, *, is_first: bool
) -> None:
    # A reset that is found at the first commit is older than this read, which has started from it if its start is the
    # group's offsets.
    if on_reset == "honour" and not is_first:
        table.reset = GroupOffsetReset(group, queue, client.committed_offset(group, queue))
        raise CommitIgnored(group, queue, offset)
    reset = client.take_reset(group, queue)
    if not is_first:
        text = "%s: the offset of group %s was reset to %s; reading continues at %d (refused)"
        _LOGGER.warning(text, queue, group, reset, offset, extra=event(queue=queue, offset=offset, group=group))
    client.commit_offset(group, queue, offset)


def is_commit_due(factory: ClientFactory, group: str, queue: MessageQueue, offset: int, interval_ms: int) -> bool:
    """Whether there is something to commit, and the last commit of the queue is at least `interval_ms` ago."""
    table = _table(factory, group)
    if offset <= table.offsets.get(queue, -1):
        return False
    return (time.monotonic() - table.times.get(queue, float("-inf"))) * 1000 >= interval_ms


def raise_reset(factory: ClientFactory, group: str) -> None:
    """Raise `GroupOffsetReset` if a commit has found a reset that must be honoured."""
    reset = _table(factory, group).reset
    if reset is not None:
        raise reset


def take_counts(factory: ClientFactory, group: str) -> tuple[int, int]:
    """Commits done and failed since the last call. Finalizers run outside of bundles, where metrics do not count."""
    table = _table(factory, group)
    with table.lock:
        counts = table.done, table.failed
        table.done = table.failed = 0
    return counts
