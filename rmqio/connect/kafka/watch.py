"""Finds the partitions of topics: once, or again and again while an endless read runs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration

from rmqio.connect.kafka.client import Cluster
from rmqio.connect.kafka.ranges import Partition, partitions_of, unread
from rmqio.connect.sink.outage import outage_of
from rmqio.errors import RmqioError, WireError
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.parts import QueueWatermark, QueueWatermarks

_LOGGER: Final = logging.getLogger("rmqio.connect.kafka")
_RESUME_MS: Final = 1_000
"""The watermark follows the clock in steps of this."""


class Seen(NamedTuple):
    """The partitions that an endless read has found, and when it last looked, in Unix milliseconds."""

    partitions: frozenset[Partition] = frozenset()
    looked_ms: int | None = None

    def __bool__(self) -> bool:
        return True  # Beam drops a residual that is false


class FindFn(beam.DoFn):
    """Emits the partitions of topics once. Says if the read can read nothing of a topic that holds messages."""

    def __init__(self, cluster: Cluster, start: StartFrom, stop: StopAt | None, start_advice: str) -> None:
        self._cluster, self._start, self._stop, self._advice = cluster, start, stop, start_advice

    def process(self, topic: str) -> Iterator[Partition]:
        partitions = partitions_of(self._cluster, topic)
        why = unread(self._cluster, topic, partitions, self._start, self._stop, self._advice)
        if why:
            _LOGGER.warning("%s", why)
        yield from partitions


class WatchFn(beam.DoFn, RestrictionProvider):
    """Emits the partitions of topics, and looks for new ones every `interval_ms`. Each partition comes once.

    Known partitions are in the restriction, so a pipeline that goes on from a checkpoint reads none twice. A look that
    fails is repeated a second later; the first one must succeed.

    The output watermark follows the clock, since it would hold back all reads otherwise. Each read holds back its own
    messages.
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str], interval_ms: int) -> None:
        self._cluster, self._topics, self._interval_ms = cluster, tuple(topics), interval_ms

    def initial_restriction(self, element: bytes) -> Seen:
        return Seen()

    def create_tracker(self, restriction: Seen) -> SeenTracker:
        return SeenTracker(restriction)

    def restriction_coder(self) -> SeenCoder:
        return SeenCoder()

    def restriction_size(self, element: bytes, restriction: Seen) -> float:
        return 1.0

    def truncate(self, element: bytes, restriction: Seen) -> Seen | None:
        return None

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        element: bytes,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008 (Beam's way to declare it)
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(QueueWatermarks()),  # noqa: B008
    ) -> Iterable[Any]:
        return self._look(tracker, estimator)

    def _look(self, tracker: Any, estimator: QueueWatermark) -> Iterator[Any]:
        seen: Seen = tracker.current_restriction()
        now_ms = int(time.time() * 1000)
        if seen.looked_ms is None or not 0 <= now_ms - seen.looked_ms < self._interval_ms:
            there = self._there(is_first=seen.looked_ms is None)
            # A claim also when nothing is new: it keeps the time of the look.
            if there is not None and tracker.try_claim(Seen(seen.partitions | there, now_ms)):
                for partition in sorted(there - seen.partitions):
                    found = partition if seen.looked_ms is None else partition._replace(is_new=True)
                    if found.is_new:
                        _LOGGER.info("%s is new: it is read from its beginning", partition)
                    yield TimestampedValue(found, MIN_TIMESTAMP)
        estimator.advance(now_ms)
        tracker.defer_remainder(Duration(micros=1000 * min(self._interval_ms, _RESUME_MS)))

    def _there(self, *, is_first: bool) -> frozenset[Partition] | None:
        try:
            return frozenset(each for topic in self._topics for each in partitions_of(self._cluster, topic))
        except RmqioError as error:
            if is_first:
                raise
            # Known partitions are read on: they are what says when the cluster is back.
            outage_of(self._cluster.shown).failed(f"partitions could not be looked up: {error}")
            return None


class SeenTracker(RestrictionTracker):
    """Claims the state after a look. The residual of a checkpoint is all that is not known yet."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._checkpointed = False

    def current_restriction(self) -> Seen:
        return self._seen

    def try_claim(self, position: Seen) -> bool:
        if self._checkpointed:
            return False
        self._seen = position
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Seen, Seen] | None:
        if self._checkpointed or fraction_of_remainder > 0:
            return None
        self._checkpointed = True
        return self._seen, self._seen

    def check_done(self) -> None:
        if not self._checkpointed:
            raise ValueError("the search for partitions ended without a checkpoint")

    def is_bounded(self) -> bool:
        return False

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=float(len(self._seen.partitions)), remaining=1.0)


class SeenCoder(Coder):
    """JSON: the time of the last look, and the numbers of the partitions of each topic."""

    def encode(self, value: Seen) -> bytes:
        topics: dict[str, list[int]] = {}
        for partition in sorted(value.partitions):
            topics.setdefault(partition.topic, []).append(partition.number)
        return json.dumps({"looked_ms": value.looked_ms, "topics": topics}).encode()

    def decode(self, encoded: bytes) -> Seen:
        try:
            found = json.loads(encoded)
            partitions = [Partition(topic, number) for topic, all_ in found["topics"].items() for number in all_]
            return Seen(frozenset(partitions), found["looked_ms"])
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise WireError(f"not a set of partitions: {error}") from error

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Seen
