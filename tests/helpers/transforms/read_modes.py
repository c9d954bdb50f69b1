"""A read as its runners run it, without runners: the transforms of each mode, driven bundle by bundle."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import apache_beam as beam
from apache_beam.runners.sdf_utils import (
    RestrictionTrackerView,
    ThreadsafeRestrictionTracker,
    ThreadsafeWatermarkEstimator,
)
from apache_beam.transforms.window import GlobalWindow

from rmqio import MessageQueue, QueueDescriptor, ReadAllFromRocketMQ, ReadFromRocketMQ, ReadOptions, StartFrom, StopAt
from rmqio.model import Record
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.topics import Subscription
from rmqio.transforms.reading.discovery import DescribeFn, DiscoverFn, WatchFn
from rmqio.transforms.reading.in_process import ReadSubscriptionFn
from rmqio.transforms.reading.planned import WATERMARKS_TAG, QueuePlanner, ReadRangesFn, queue_of
from rmqio.transforms.reading.read_fn import BoundedReadFn, UnboundedReadFn
from rmqio.transforms.reading.restriction import QueueWatermarks
from tests.helpers.transforms.reading import Finalizer

DIRECT: Final = "direct"
"""Unbounded, in Beam's in-process runner: one element that finds its queues."""
ENDS: Final = "ends"
"""Bounded: the Direct runner, Spark, Flink as a batch job and as a stream."""
STREAM: Final = "stream"
"""Unbounded, on Flink: discovery, and a splittable DoFn for each queue."""
PLANNED: Final = "planned"
"""Spark with --streaming: the driver plans ranges, and tasks read them."""
ALL: Final = "all"
"""`ReadAllFromRocketMQ`, on any runner."""
MODES: Final = (DIRECT, ENDS, STREAM, PLANNED, ALL)
REFUSED: Final = {
    "max_records_per_bundle": (PLANNED,),
    "max_bundle_ms": (PLANNED,),
    "discovery_interval_ms": (ENDS, ALL),
    "new_queue_start": (ENDS, ALL),
    "max_num_records": (ALL,),
    "splits_per_queue": (DIRECT, STREAM, PLANNED, ALL),
    "topic": (ALL,),
}
"""The options that have no effect in some modes."""
BOUNDED_ONLY: Final = {"splits_per_queue"}
"""The options that a read with an end has on every runner that does not plan, `ReadAllFromRocketMQ` included."""
NO_LIMITS: Final = SimpleNamespace(max_records=None, max_bytes=None, may_cut=False)


class Reading:
    """A read of topic `t` by group `g` in one of the modes. A bundle of `PLANNED` is a micro-batch.

    The end of `ENDS` is beyond the existing messages, so it waits like the other modes.
    """

    def __init__(self, mode: str, cluster: InMemoryCluster, options: dict[str, Any], **arguments: Any) -> None:
        defaults: dict[str, Any] = {
            "consumer_group": "g",
            "start": StartFrom.earliest(),
            "options": ReadOptions(**{"poll_timeout_ms": 1} | options),
            "client_factory": InMemoryClientFactory(cluster.name),
        }
        if mode == ENDS:
            queues = cluster.permitted_queues("t", 4)
            defaults["stop"] = StopAt.offsets(dict.fromkeys(queues, 1_000_000))
        given = defaults | arguments
        self.mode, self.cluster = mode, cluster
        self.transform = ReadAllFromRocketMQ(**given) if mode == ALL else ReadFromRocketMQ("t", **given)
        self.config = self.transform._config
        self.discovery = self.transform._discovery(Subscription.of("t"))
        self.finalizer = Finalizer()
        self.watermarks: dict[str, int] = {}
        """The watermarks of queues in milliseconds, as far as they are reported."""
        self._open()

    def _open(self) -> None:
        self.planner = QueuePlanner(self.config, self.discovery)
        self.position: Any = None
        self._watch = WatchFn(self.discovery)
        self._known = self._watch.initial_restriction(b"")
        self._left: dict[QueueDescriptor, Any] = {}
        self._estimators: dict[Any, Any] = {}
        makers: dict[str, Any] = {
            DIRECT: lambda: ReadSubscriptionFn(self.config, self.discovery),
            ENDS: lambda: BoundedReadFn(self.config),
            PLANNED: lambda: ReadRangesFn(self.config),
        }
        self.fn: Any = makers.get(self.mode, lambda: UnboundedReadFn(self.config))()
        self.fn.setup()
        self._has_looked = False

    def close(self) -> None:
        self.fn.teardown()

    @property
    def starts(self) -> dict[MessageQueue, int]:
        """The offset at which each known queue continues."""
        if self.mode == PLANNED:
            return {queue_of(name): each["at"] for name, each in self.position["queues"].items()}
        if self.mode == DIRECT:
            return {queue: left.start for queue, left in self._left[b""].ranges}  # type: ignore[index]
        return {descriptor.queue: left.start for descriptor, left in self._left.items()}

    def bundle(self) -> list[Record]:
        """Returns the records that a bundle reads from all queues."""
        if self.mode == PLANNED:
            return self._micro_batch()
        elements: list[Any] = [b""] if self.mode == DIRECT else self._look()
        self.fn.start_bundle()
        found: list[Record] = []
        for element in elements:
            found += self._run(self.fn, element, self._left)
        return found

    def commit(self) -> None:
        """Acts as a runner that has committed the bundle."""
        if self.mode == PLANNED:
            self.planner.committed(self.position)
        self.finalizer.finalize()

    def _look(self) -> list[QueueDescriptor]:
        """Returns the known queues, after another look if the mode makes one."""
        found: list[QueueDescriptor] = []
        if self.mode == STREAM and self.discovery.interval_ms:
            tracker = ThreadsafeRestrictionTracker(self._watch.create_tracker(self._known))
            outputs = self._watch.process(b"", RestrictionTrackerView(tracker), ThreadsafeWatermarkEstimator(_new()))
            found = [output.value for output in outputs]
            tracker.check_done()
            self._known = tracker.deferred_status()[0]
        elif not self._has_looked:
            fn = DescribeFn(self.config) if self.mode == ALL else DiscoverFn(self.discovery)
            found = list(fn.process("t" if self.mode == ALL else b""))  # type: ignore[arg-type]
        self._has_looked = True
        for descriptor in found:
            self._left[descriptor] = self.fn.initial_restriction(descriptor)
        return list(self._left)

    def _run(self, fn: Any, element: Any, left: dict[Any, Any]) -> list[Record]:
        if element not in left:
            left[element] = fn.initial_restriction(element)
        estimator = self._estimators.setdefault(element, _new())
        tracker = ThreadsafeRestrictionTracker(fn.create_tracker(left[element]))
        outputs = fn.process(
            element,
            finalizer=self.finalizer,
            tracker=RestrictionTrackerView(tracker),
            estimator=ThreadsafeWatermarkEstimator(estimator),
            window=GlobalWindow(),
        )
        found = _records(outputs)
        tracker.check_done()
        left[element] = tracker.deferred_status()[0]
        self.watermarks[str(element)] = estimator.milliseconds
        return found

    def _micro_batch(self) -> list[Record]:
        before = self.position
        self.position = self.planner.advance(before, NO_LIMITS, False)
        self.watermarks |= {
            name: micros // 1000
            for name, micros in self.planner.partitions(self.position).items()
            if micros is not None
        }
        found: list[Record] = []
        for element, _ in self.planner.elements(before, self.position):
            self.fn.start_bundle()
            outputs = list(self.fn.process(element, window=GlobalWindow()))
            told = [each.value for each in outputs if isinstance(each, beam.pvalue.TaggedOutput)]
            assert all(each.tag == WATERMARKS_TAG for each in outputs if isinstance(each, beam.pvalue.TaggedOutput))
            self.watermarks |= {name: micros // 1000 for name, micros, _ in told}
            found += _records(each for each in outputs if not isinstance(each, beam.pvalue.TaggedOutput))
        return found


def _records(outputs: Iterator[Any]) -> list[Record]:
    return [record for output in outputs for record in output.value.records]


def _new() -> Any:
    return QueueWatermarks().new()
