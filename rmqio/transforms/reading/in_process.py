"""The endless read for the in-process runner: one element that finds its queues itself and reads them all.

That runner finishes the steps before a read before it reads, so with an endless discovery (`WatchFn`) it would never
read. It also buffers the input of a Flatten until both sides have ended, so a second read beside the first one does not
help. Each queue is read by the same code as elsewhere; only the bookkeeping is for several queues.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.options.pipeline_options import DirectOptions

from rmqio.errors import WireError
from rmqio.model import MessageQueue
from rmqio.transforms.reading.discovery import DiscoveryConfig, Known, Look, look
from rmqio.transforms.reading.options import ReadConfig
from rmqio.transforms.reading.read_fn import RESUME_DELAY, ReadQueueFn
from rmqio.transforms.reading.restriction import (
    Claim,
    QueueDescriptor,
    QueueRange,
    QueueRangeTracker,
    QueueWatermark,
    QueueWatermarks,
)
from rmqio.transforms.shared import backlog, shared_client

_LOOK_AGAIN_MS = 1_000
"""Interval between looks while the broker of a queue does not answer."""


class Subscribed(NamedTuple):
    """The known queues, and what is left of each."""

    known: Known
    ranges: tuple[tuple[MessageQueue, QueueRange], ...] = ()


class QueueClaim(NamedTuple):
    """A claim in one of the queues."""

    queue: MessageQueue
    claim: Claim


class SubscribedTracker(RestrictionTracker):
    """One `QueueRangeTracker` per queue. Only checkpoints are possible, and always are: discovery never ends."""

    def __init__(self, restriction: Subscribed) -> None:
        self._known = restriction.known
        self._trackers = {queue: QueueRangeTracker(left) for queue, left in restriction.ranges}
        self._checkpointed = False

    def current_restriction(self) -> Subscribed:
        return Subscribed(self._known, tuple((q, t.current_restriction()) for q, t in self._trackers.items()))

    def try_claim(self, position: Look | QueueClaim) -> bool:
        if isinstance(position, QueueClaim):
            return self._trackers[position.queue].try_claim(position.claim)
        if self._checkpointed:
            return False
        self._known = self._known.after(position)
        for queue, start in position.starts.items():
            self._trackers[queue] = QueueRangeTracker(QueueRange(start))
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Subscribed, Subscribed] | None:
        if self._checkpointed or fraction_of_remainder > 0:
            return None
        self._checkpointed = True
        left = [(queue, tracker.try_split(0)) for queue, tracker in self._trackers.items()]
        residual = Subscribed(self._known, tuple((queue, split[1]) for queue, split in left if split))
        return self.current_restriction(), residual

    def check_done(self) -> None:
        if not self._checkpointed:
            raise ValueError("the read of a subscription ended without a checkpoint")

    def is_bounded(self) -> bool:
        return False

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=float(len(self._known)), remaining=1.0)


class SubscribedCoder(Coder):
    """Sorted JSON: there is only one per read."""

    def encode(self, value: Subscribed) -> bytes:
        known = value.known
        fields = {"known": sorted(known), "began_ms": known.began_ms, "ranges": sorted(value.ranges)}
        return json.dumps(fields | {"waiting": sorted(known.waiting), "away": sorted(known.away)}).encode()

    def decode(self, encoded: bytes) -> Subscribed:
        try:
            fields = json.loads(encoded)
            names = ("known", "waiting", "away")
            queues, waiting, away = ([MessageQueue(*each) for each in fields[name]] for name in names)
            known = Known(queues, fields["began_ms"], waiting, away)
            ranges = tuple((MessageQueue(*queue), QueueRange(*left)) for queue, left in fields["ranges"])
        except (ValueError, KeyError, TypeError) as error:
            raise WireError(f"not a restriction of a subscription: {error!r}") from error
        return Subscribed(known, ranges)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Subscribed

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class _OneQueue:
    """The tracker's view of one queue, for `ReadQueueFn`. Its rest is deferred together with the others."""

    def __init__(self, tracker: Any, queue: MessageQueue, restriction: QueueRange) -> None:
        self._tracker, self._queue, self._restriction = tracker, queue, restriction

    def current_restriction(self) -> QueueRange:
        return self._restriction

    def try_claim(self, claim: Claim) -> bool:
        claimed: bool = self._tracker.try_claim(QueueClaim(self._queue, claim))
        if not claimed:  # the runner has made a checkpoint: the range ends there
            self._restriction = dict(self._tracker.current_restriction().ranges)[self._queue]
        return claimed

    def defer_remainder(self, deferred_time: Any = None) -> None:
        """Does nothing: see the class."""


class ReadSubscriptionFn(ReadQueueFn):
    """Looks for queues at the start and every `interval_ms`, and reads the queues that it has found, in turn.

    `StartFrom.resolve` decides where each queue starts, whenever it is found. The watermark is the minimum of the
    queues' watermarks. It does not advance while the broker of another queue does not answer.
    """

    def __init__(self, config: ReadConfig, discovery: DiscoveryConfig) -> None:
        super().__init__(config)
        self._discovery = discovery
        self._looked_at = float("-inf")
        self._is_waiting = False
        self._watermarks: dict[MessageQueue, QueueWatermark] = {}

    def initial_restriction(self, element: bytes) -> Subscribed:  # type: ignore[override]
        return Subscribed(Known())

    def create_tracker(self, restriction: Subscribed) -> SubscribedTracker:  # type: ignore[override]
        return SubscribedTracker(restriction)

    def restriction_coder(self) -> SubscribedCoder:
        return SubscribedCoder()

    def restriction_size(self, element: bytes, restriction: Subscribed) -> float:  # type: ignore[override]
        known = ((backlog(self._config.factory, queue), left.start) for queue, left in restriction.ranges)
        return sum(max(0, one.end - start) * one.message_bytes for one, start in known)

    def truncate(self, element: bytes, restriction: Subscribed) -> None:  # type: ignore[override]
        return None

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        element: bytes,
        finalizer: Any = beam.DoFn.BundleFinalizerParam,
        window: Any = beam.DoFn.WindowParam,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(QueueWatermarks()),  # noqa: B008
    ) -> Iterator[Any]:
        interval_ms = (
            min(self._discovery.interval_ms, _LOOK_AGAIN_MS) if self._is_waiting else self._discovery.interval_ms
        )
        if (time.monotonic() - self._looked_at) * 1000 >= interval_ms:
            self._looked_at = time.monotonic()
            self._look(tracker)
        ranges = tracker.current_restriction().ranges
        for queue, left in ranges:
            watermark = self._watermarks.setdefault(queue, QueueWatermarks().new())
            yield from self._read(QueueDescriptor(queue), finalizer, _OneQueue(tracker, queue, left), watermark, window)
        if ranges and not self._is_waiting:
            estimator.advance(min(self._watermarks[queue].milliseconds for queue, _ in ranges))
        if not ranges:
            time.sleep(self._config.options.poll_timeout_ms / 1000)
        tracker.defer_remainder(RESUME_DELAY)

    def _look(self, tracker: Any) -> None:
        client = shared_client(self._config.factory)
        known = tracker.current_restriction().known
        found = look(self._discovery, client, known, was_waiting=self._is_waiting)
        tracker.try_claim(found)
        self._is_waiting = found.is_waiting


_IN_PROCESS_RUNNERS = ("FnApiRunner", "DirectRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner")


def is_in_process(pipeline: Any) -> bool:
    """Whether the pipeline's runner needs an endless read as one element."""
    return type(getattr(pipeline, "runner", None)).__name__ in _IN_PROCESS_RUNNERS


def is_alone(pipeline: Any) -> bool:
    """Whether one process, which keeps no checkpoint, runs everything."""
    return is_in_process(pipeline) and pipeline.options.view_as(DirectOptions).direct_num_workers == 1


def reads_of(pcoll: Any) -> tuple[str, ...]:
    """The ids of the reads of RocketMQ from which all elements come, if one process runs all; none if some do not."""
    found = reads_before(pcoll)
    if None in found or not is_alone(pcoll.pipeline):
        return ()
    return tuple(sorted({each.read_id for each in found}))


def reads_before(pcoll: Any) -> list[Any]:
    """The reads of RocketMQ from which elements come; None for each source of another kind."""
    found: list[Any] = []
    waiting, seen = [pcoll.producer], set()
    while waiting:
        applied = waiting.pop()
        if applied in seen:
            continue
        seen.add(applied)
        read = _read_of(applied)
        before = [each.producer for each in applied.inputs if each.producer is not None]
        if read is not None or not before:
            found.append(read)
        else:
            waiting += before
    return found


def _read_of(applied: Any) -> Any:
    """The read that a transform is a part of."""
    while applied is not None:
        if hasattr(applied.transform, "read_id"):
            return applied.transform
        applied = applied.parent
    return None
