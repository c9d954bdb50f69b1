"""The splittable DoFn that reads one partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration

from rmqio.connect.kafka.client import Cluster, KafkaAway
from rmqio.connect.kafka.consumers import Consumers
from rmqio.connect.kafka.ranges import Partition, range_of
from rmqio.connect.kafka.watermark import PartitionWatermark, PartitionWatermarks
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.parts import (
    Claim,
    QueueRange,
    QueueRangeCoder,
    QueueRangeTracker,
    beam_timestamp,
    observe_process,
)

_COUNT: Final = 2_000
_BUNDLE_RECORDS: Final = 20_000
_BUNDLE_S: Final = 1.0
_RESUME: Final = Duration(micros=10_000)


@dataclass(frozen=True)
class KafkaReadConfig:
    """The configuration of the transform, checked and picklable."""

    cluster: Cluster
    start: StartFrom
    stop: StopAt | None
    max_out_of_orderness_ms: int
    idle_timeout_ms: int
    give_up_after_s: float


class ReadPartitionFn(beam.DoFn, RestrictionProvider):
    """Reads one partition. Beam must know when a pipeline is built which subclass it is: bounded or unbounded.

    Initial restriction: start and stop, resolved to offsets by the broker, once. A partition that was added while the
    pipeline ran is read from its beginning.

    Checkpoint and resume: a bundle ends itself after so many records or so much time, or when nothing is there. The
    position is the runner's; nothing is committed to Kafka.

    Watermark: follows the newest timestamp of the partition minus `max_out_of_orderness_ms`. A partition that has been
    read to its end for `idle_timeout_ms` follows the clock.
    """

    def __init__(self, config: KafkaReadConfig) -> None:
        self._config = config
        self._consumers: Consumers | None = None

    # -- restriction provider: also called where no `setup` has run ---------------------------------------------------

    def initial_restriction(self, element: Partition) -> QueueRange:
        start = StartFrom.earliest() if element.is_new else self._config.start
        return range_of(self._config.cluster, element, start, self._config.stop)

    def create_tracker(self, restriction: QueueRange) -> QueueRangeTracker:
        return QueueRangeTracker(restriction)

    def restriction_coder(self) -> QueueRangeCoder:
        return QueueRangeCoder()

    def restriction_size(self, element: Partition, restriction: QueueRange) -> float:
        return 1.0 if restriction.stop is None else float(max(0, restriction.stop - restriction.start))

    def truncate(self, element: Partition, restriction: QueueRange) -> QueueRange | None:
        """On drain, an endless read stops at its position."""
        return restriction if restriction.stop is not None else None

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        observe_process()
        config = self._config
        self._consumers = Consumers(config.cluster, None if config.stop is None else config.give_up_after_s)

    def teardown(self) -> None:
        if self._consumers is not None:
            self._consumers.close()
            self._consumers = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, element: Partition, tracker: Any, estimator: PartitionWatermark) -> Iterator[Any]:
        assert self._consumers is not None
        config, restriction = self._config, tracker.current_restriction()
        position, emitted, began = restriction.start, 0, time.monotonic()
        answered = began
        bounded = restriction.stop is not None
        while not (bounded and position >= restriction.stop):
            found = self._consumers.fetch(element, position, count=_COUNT, wait_s=0.2)
            now = time.monotonic()
            stop = tracker.current_restriction().stop
            records = [each for each in found.records if stop is None or each.offset < stop]
            reached = found.next_offset if stop is None else min(found.next_offset, stop)
            if reached > position:
                # A refused claim means that a split has taken the tail: then only the part that is left is emitted.
                while reached > position and not tracker.try_claim(Claim(reached - 1, len(records), found.next_offset)):
                    stop = tracker.current_restriction().stop
                    records = [each for each in records if each.offset < stop]
                    reached = min(reached, stop)
                if reached <= position:
                    break
                position = reached
                for record in records:
                    yield TimestampedValue(record, beam_timestamp(max(0, record.timestamp_ms)))
                if records:
                    emitted += len(records)
                    estimator.advance(max(each.timestamp_ms for each in records) - config.max_out_of_orderness_ms)
                    estimator.heard()
            if reached != found.next_offset:  # the rest was fetched for nobody
                self._consumers.release(element)
            if found.records or found.at_end:
                answered = now
            if found.at_end:
                self._follow_clock(estimator)
            if bounded and tracker.current_restriction().stop == position:
                break
            if bounded and now - answered > config.give_up_after_s:
                what = f"{element} of kafka://{config.cluster.servers}"
                refusal = self._consumers.refusal(element)
                raise KafkaAway(f"{what}: no answer for {now - answered:.0f} s{refusal}")
            if not bounded and (not found.records or emitted >= _BUNDLE_RECORDS or now - began > _BUNDLE_S):
                break
        if bounded and tracker.current_restriction().stop == position:
            self._consumers.release(element)
        else:
            tracker.defer_remainder(_RESUME)

    def _follow_clock(self, estimator: PartitionWatermark) -> None:
        now_ms = int(time.time() * 1000)
        if estimator.quiet(now_ms) >= self._config.idle_timeout_ms:
            estimator.advance(now_ms - self._config.max_out_of_orderness_ms)


class BoundedPartitionFn(ReadPartitionFn):
    """Reads one partition up to a stop that is known when the pipeline starts."""

    def process(
        self,
        element: Partition,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008 (Beam's way to declare it)
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(PartitionWatermarks()),  # noqa: B008
    ) -> Iterable[Any]:
        return self._read(element, tracker, estimator)


class UnboundedPartitionFn(ReadPartitionFn):
    """Reads one partition without end."""

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        element: Partition,
        tracker: Any = beam.DoFn.RestrictionParam(),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(PartitionWatermarks()),  # noqa: B008
    ) -> Iterable[Any]:
        return self._read(element, tracker, estimator)
