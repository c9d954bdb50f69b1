"""The endless read as the in-process runner needs it: one element that finds its queues itself and reads them all.

That runner finishes what precedes a read before it reads, so an endless discovery in front of it (`WatchFn`) would
never let it read; and it buffers what goes through a Flatten until both sides have ended, so a second read beside the
first one does not help. Each queue is read by the same code as elsewhere; only the bookkeeping is for many.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker

from rmqio.errors import RmqioError, WireError
from rmqio.model import MessageQueue
from rmqio.start import StartFrom
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.discovery import DiscoveryConfig, Known
from rmqio.transforms.read_fn import RESUME_DELAY, ReadConfig, ReadQueueFn
from rmqio.transforms.restriction import Claim, QueueRange, QueueRangeTracker
from rmqio.transforms.shared import backlog, shared_client
from rmqio.transforms.watermark import QueueWatermark, QueueWatermarks

_LOGGER = logging.getLogger(__name__)


class Subscribed(NamedTuple):
    """The queues that are known, and what is left of each."""

    known: Known
    ranges: tuple[tuple[MessageQueue, QueueRange], ...] = ()


class Found(NamedTuple):
    """A claim: these queues are ours from these offsets on."""

    starts: Mapping[MessageQueue, int]


class QueueClaim(NamedTuple):
    """A claim within one of the queues."""

    queue: MessageQueue
    claim: Claim


class SubscribedTracker(RestrictionTracker):
    """One `QueueRangeTracker` per queue found. Only checkpoints, and those always: the looking never ends."""

    def __init__(self, restriction: Subscribed) -> None:
        self._known = restriction.known
        self._trackers = {queue: QueueRangeTracker(left) for queue, left in restriction.ranges}
        self._checkpointed = False

    def current_restriction(self) -> Subscribed:
        return Subscribed(self._known, tuple((q, t.current_restriction()) for q, t in self._trackers.items()))

    def try_claim(self, position: Found | QueueClaim) -> bool:
        if isinstance(position, QueueClaim):
            return self._trackers[position.queue].try_claim(position.claim)
        if self._checkpointed:
            return False
        self._known = Known(self._known | frozenset(position.starts))
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
    """JSON, sorted: there is one of these per read."""

    def encode(self, value: Subscribed) -> bytes:
        return json.dumps({"known": sorted(value.known), "ranges": sorted(value.ranges)}).encode()

    def decode(self, encoded: bytes) -> Subscribed:
        try:
            fields = json.loads(encoded)
            known = Known(MessageQueue(*queue) for queue in fields["known"])
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
    """The tracker's view of one queue, for `ReadQueueFn`; what is left is deferred with all the others."""

    def __init__(self, tracker: Any, queue: MessageQueue, restriction: QueueRange) -> None:
        self._tracker, self._queue, self._restriction = tracker, queue, restriction

    def current_restriction(self) -> QueueRange:
        return self._restriction

    def try_claim(self, claim: Claim) -> bool:
        claimed: bool = self._tracker.try_claim(QueueClaim(self._queue, claim))
        if not claimed:  # the runner has made a checkpoint: the range ends where it did
            self._restriction = dict(self._tracker.current_restriction().ranges)[self._queue]
        return claimed

    def defer_remainder(self, deferred_time: Any = None) -> None:
        """Nothing: see the class."""


class ReadSubscriptionFn(ReadQueueFn):
    """Looks for queues at once and every `interval_ms`, and reads those it has found, in turn.

    The first ones start where the start strategy says, later ones where `new_queue_start` says. The watermark is the
    least of the queues'.
    """

    def __init__(self, config: ReadConfig, discovery: DiscoveryConfig) -> None:
        super().__init__(config)
        self._discovery = discovery
        self._looked_at = float("-inf")
        self._has_looked = False
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
        if (time.monotonic() - self._looked_at) * 1000 >= self._discovery.interval_ms:
            self._looked_at = time.monotonic()
            self._look(tracker)
        ranges = tracker.current_restriction().ranges
        for queue, left in ranges:
            watermark = self._watermarks.setdefault(queue, QueueWatermarks().new())
            yield from self._read(QueueDescriptor(queue), finalizer, _OneQueue(tracker, queue, left), watermark, window)
        if ranges:
            estimator.advance(min(self._watermarks[queue].milliseconds for queue, _ in ranges))
        else:
            time.sleep(self._config.options.poll_timeout_ms / 1000)
        tracker.defer_remainder(RESUME_DELAY)

    def _look(self, tracker: Any) -> None:
        known = tracker.current_restriction().known
        try:
            found = self._find(known)
        except RmqioError as error:
            if known.is_empty:
                raise
            # The queues that are known are read on; the next look may succeed.
            _LOGGER.warning("%s: queues could not be looked up: %s", self._discovery.subscription, error)
            return
        is_late, self._has_looked = self._has_looked or not known.is_empty, True
        if found and tracker.try_claim(Found(found)) and is_late:
            queues = ", ".join(map(str, found))
            _LOGGER.info("%s: found %d new queues: %s", self._discovery.subscription, len(found), queues)

    def _find(self, known: Known) -> dict[MessageQueue, int]:
        client = shared_client(self._config.factory)
        queues = self._discovery.subscription.find_queues(client, missing_ok=not known.is_empty)
        if known.is_empty and not self._has_looked:
            first = super().initial_restriction
            return {queue: first(QueueDescriptor(queue)).start for queue in queues}
        start = StartFrom.latest() if self._discovery.new_queue_start == "latest" else StartFrom.earliest()
        return {q: start.resolve(q, client, group=None) for q in queues if q not in known}


_IN_PROCESS_RUNNERS = ("FnApiRunner", "DirectRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner")


def is_in_process(pipeline: Any) -> bool:
    """Whether a pipeline's runner is one that takes an endless read in one element only."""
    return type(getattr(pipeline, "runner", None)).__name__ in _IN_PROCESS_RUNNERS
