"""Group offsets: committed when a bundle is final, by absolute position, never backwards.

They tell operators and later pipelines how far the group has got. Recovery never depends on them: a broker keeps a
commit in memory for up to five seconds, and the runner has the position in its own state.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Literal

from rmqio import telemetry
from rmqio.errors import CommitIgnored, GroupOffsetReset, RmqioError
from rmqio.logs import event
from rmqio.model import MessageQueue
from rmqio.seams import ClientFactory
from rmqio.transforms.metrics import observe_process, queue_labels
from rmqio.transforms.shared import shared_client

_LOGGER = logging.getLogger(__name__)
_WARN_EVERY_S = 60.0


@dataclass
class _Table:
    """What this process has committed for one group."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    offsets: dict[MessageQueue, int] = field(default_factory=dict)
    times: dict[MessageQueue, float] = field(default_factory=dict)
    unsaved: dict[MessageQueue, int] = field(default_factory=dict)
    """What could not be committed, to be tried again with the next commit."""
    done: int = 0
    failed: int = 0
    warned_at: float = float("-inf")
    reset: GroupOffsetReset | None = None
    """To be raised by the next read: what a finalizer raises is lost."""


_tables: dict[tuple[ClientFactory, str], _Table] = {}


def _table(factory: ClientFactory, group: str) -> _Table:
    return _tables.setdefault((factory, group), _Table())


def begin_reading(factory: ClientFactory, group: str) -> None:
    """A reader starts: what the group has committed may have changed since this process last looked."""
    table = _table(factory, group)
    with table.lock:
        table.offsets.clear()
        table.times.clear()
        table.unsaved.clear()
        table.reset = None


def commit_position(
    factory: ClientFactory,
    group: str,
    queue: MessageQueue,
    offset: int,
    on_reset: Literal["refuse", "honour"] = "refuse",
) -> None:
    """The finalizer's callback. Picklable as a partial. A failure is logged and counted, and repaired by the group's
    next commit, of whichever queue: one that has been read to its stop has no further commit of its own.
    """
    observe_process()  # on Spark this is the driver, which has no DoFn to set up
    table = _table(factory, group)
    with table.lock:
        table.unsaved[queue] = max(offset, table.unsaved.get(queue, -1))
        failing: set[str] = set()
        # This queue's first: it may be the only one whose broker answers.
        for other in sorted(table.unsaved, key=lambda one: one != queue):
            if other.broker in failing:
                continue  # one wait for a broker that is down is enough
            wanted = table.unsaved.pop(other)
            try:
                _commit(table, factory, group, other, wanted, on_reset)
            except RmqioError as error:
                if table.reset is None:  # else it is not to be committed over
                    table.unsaved[other] = wanted
                failing.add(other.broker)
                table.failed += 1
                telemetry.record("commit_failures", queue_labels(other), 1)
                if time.monotonic() - table.warned_at > _WARN_EVERY_S:
                    table.warned_at = time.monotonic()
                    text = "offset %d of %s was not committed for group %s: %s"
                    fields = event(queue=other, offset=wanted, group=group, error=error)
                    _LOGGER.warning(text, wanted, other, group, error, extra=fields)


def _commit(table: _Table, factory: ClientFactory, group: str, queue: MessageQueue, offset: int, on_reset: str) -> None:
    client = shared_client(factory)
    known = table.offsets.get(queue)
    is_first = known is None
    if known is None:
        known = client.committed_offset(group, queue)
    if known is None or offset > known:
        try:
            client.commit_offset(group, queue, offset)
        except CommitIgnored:
            # Found at the first commit, the reset is older than this read, which has started from it if it
            # was told to start from the group's offsets.
            if on_reset == "honour" and not is_first:
                table.reset = GroupOffsetReset(group, queue, client.committed_offset(group, queue))
                raise
            reset = client.take_reset(group, queue)
            if not is_first:
                text = "%s: the offset of group %s was reset to %s; reading goes on at %d (refused)"
                _LOGGER.warning(text, queue, group, reset, offset, extra=event(queue=queue, offset=offset, group=group))
            client.commit_offset(group, queue, offset)
        table.done += 1
        telemetry.record("commits", queue_labels(queue), 1)
        known = offset
    table.offsets[queue] = known
    table.times[queue] = time.monotonic()


def is_commit_due(factory: ClientFactory, group: str, queue: MessageQueue, offset: int, interval_ms: int) -> bool:
    """Whether there is something to commit and the last commit of the queue is `interval_ms` ago."""
    table = _table(factory, group)
    if offset <= table.offsets.get(queue, -1):
        return False
    return (time.monotonic() - table.times.get(queue, float("-inf"))) * 1000 >= interval_ms


def raise_reset(factory: ClientFactory, group: str) -> None:
    """Raise `GroupOffsetReset` if a commit has found one that is to be honoured."""
    reset = _table(factory, group).reset
    if reset is not None:
        raise reset


def take_counts(factory: ClientFactory, group: str) -> tuple[int, int]:
    """Commits done and failed since the last call; finalizers run outside of a bundle, where metrics do not count."""
    table = _table(factory, group)
    with table.lock:
        counts = table.done, table.failed
        table.done = table.failed = 0
    return counts
