"""`ReadFromKafka`: reads messages of Kafka, without Java."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder, TupleCoder, VarIntCoder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider, WatermarkEstimatorProvider
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration

from rmqio.connect.kafka.client import Cluster, KafkaAway
from rmqio.connect.kafka.consumers import Consumers, Partition, check_start, partitions_of, range_of, unread
from rmqio.connect.kafka.records import KafkaRecord
from rmqio.connect.outage import outage_of
from rmqio.errors import LocalError, RmqioError, WireError
from rmqio.interfaces import ENDLESS_READ
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.parts import (
    Claim,
    QueueRange,
    QueueRangeCoder,
    QueueRangeTracker,
    QueueWatermark,
    QueueWatermarks,
    beam_timestamp,
    is_in_process,
    observe_process,
)

# Finds the partitions of topics: once, or again and again while an endless read runs.

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


# The watermark of a partition, with the time since when nothing is left of it.

State = tuple[int, int]
"""The watermark in microseconds; and since when the partition is read to its end, in Unix milliseconds, or -1."""


class PartitionWatermark(QueueWatermark):
    """A `QueueWatermark` whose state also says since when the partition is read to its end.

    A runner keeps the state from one bundle to the next. It need not keep the DoFn: Spark makes one for each
    micro-batch.
    """

    def __init__(self, micros: int, quiet_since_ms: int) -> None:
        super().__init__(micros)
        self.quiet_since_ms = quiet_since_ms

    def get_estimator_state(self) -> State:  # type: ignore[override]
        return super().get_estimator_state(), self.quiet_since_ms

    def heard(self) -> None:
        """State that the partition had messages."""
        self.quiet_since_ms = -1

    def quiet(self, now_ms: int) -> int:
        """State that the partition is read to its end. Returns for how many milliseconds it has been."""
        if not 0 <= self.quiet_since_ms <= now_ms:
            self.quiet_since_ms = now_ms
        return now_ms - self.quiet_since_ms


class PartitionWatermarks(WatermarkEstimatorProvider):
    """Creates `PartitionWatermark`s."""

    def initial_estimator_state(self, element: object, restriction: object) -> State:
        return QueueWatermarks().initial_estimator_state(element, restriction), -1

    def create_watermark_estimator(self, estimator_state: State) -> PartitionWatermark:
        return PartitionWatermark(*estimator_state)

    def estimator_state_coder(self) -> Coder:
        return TupleCoder([VarIntCoder(), VarIntCoder()])


# The splittable DoFn that reads one partition.

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


class ReadFromKafka(beam.PTransform):
    """Reads the messages of topics as `KafkaRecord`s, with their times as timestamps.

    The position of each partition is in the runner's checkpoint: after a restart, the read goes on there. Nothing is
    committed to Kafka, and no consumer group is used. Delivery is that of the runner: each message once in its state.

    Args:
      bootstrap_servers: such as `host:9092`, several separated by commas.
      topic: a name, or several.
      start: `StartFrom.earliest()`, `.latest()` or `.timestamp(...)`, resolved once.
      stop: `StopAt.latest()` or `.timestamp(...)`: the read ends there. None: it never ends.
      config: options of librdkafka, such as `{"security.protocol": "SASL_SSL", "isolation.level": "read_committed"}`.
        A password is in an environment variable or a file: `sasl.password_env`, `sasl.password_file`.
      max_out_of_orderness_ms: how much older than the newest message of a partition later ones can be.
      idle_timeout_ms: a partition that has been read to its end for so long does not hold back the watermark.
      give_up_after_s: a read that ends fails if a partition does not answer for so long. One that never ends waits.
      discovery_interval_ms: how often an endless read looks for new partitions, which it reads from their beginning; 0:
        only at the start, as always on the Direct runner.

    Raises `LocalError` when it is built, and on a worker if a topic does not exist.
    """

    start_advice: str = "give start=StartFrom.earliest()"
    """What to give if the read can read nothing, in the words of whoever built the pipeline."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | Sequence[str],
        *,
        start: StartFrom | None = None,
        stop: StopAt | None = None,
        config: Mapping[str, Any] | None = None,
        max_out_of_orderness_ms: int = 0,
        idle_timeout_ms: int = 10_000,
        give_up_after_s: float = 120.0,
        discovery_interval_ms: int = 30_000,
    ) -> None:
        super().__init__()
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics or any(not isinstance(each, str) or not each for each in topics):
            raise LocalError(f"topic is {topic!r}; it must be a name, or a list of names")
        topics = list(dict.fromkeys(topics))  # each message is read once
        start = start or StartFrom.earliest()
        check_start(start, stop)
        for name, value in (
            ("max_out_of_orderness_ms", max_out_of_orderness_ms),
            ("idle_timeout_ms", idle_timeout_ms),
            ("discovery_interval_ms", discovery_interval_ms),
        ):
            if not isinstance(value, int) or value < 0:
                raise LocalError(f"{name} is {value!r}; it must be milliseconds, at least 0")
        defaults = {"queued.max.messages.kbytes": 16_384}  # of each partition; the client's default is 64 MiB
        cluster = Cluster.of(bootstrap_servers, {**defaults, **(config or {})})
        self._topics, self._discovery_interval_ms = topics, discovery_interval_ms
        self._config = KafkaReadConfig(cluster, start, stop, max_out_of_orderness_ms, idle_timeout_ms, give_up_after_s)

    def expand(self, pipeline: Any) -> Any:
        is_endless, cluster = self._config.stop is None, self._config.cluster
        kind = UnboundedPartitionFn if is_endless else BoundedPartitionFn
        # The in-process runner would finish the steps before the read first, and this one never ends.
        watches = is_endless and self._discovery_interval_ms > 0 and not is_in_process(pipeline.pipeline)
        if watches:
            find = beam.ParDo(WatchFn(cluster, self._topics, self._discovery_interval_ms))
            begun = pipeline | "Start" >> beam.Impulse()
        else:
            find = beam.ParDo(FindFn(cluster, self._config.start, self._config.stop, self.start_advice))
            begun = pipeline | "Topics" >> beam.Create(self._topics)
        partitions = begun | "Partitions" >> find.with_output_types(Partition)
        spread = partitions | "Spread" >> beam.Reshuffle()
        return spread | "Read" >> beam.ParDo(kind(self._config)).with_output_types(KafkaRecord)

    def annotations(self) -> dict[str, Any]:
        found: dict[str, Any] = super().annotations()
        return found if self._config.stop is not None else {**found, ENDLESS_READ: b""}

    def display_data(self) -> dict[str, Any]:
        config = self._config
        shown = {
            "bootstrap_servers": config.cluster.servers,
            "topic": ", ".join(self._topics),
            "start": str(config.start),
            "stop": None if config.stop is None else str(config.stop),
        }
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}
