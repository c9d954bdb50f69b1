"""Shared by the tests of the read: topics with known messages, bounded pipelines, and a DoFn that is driven by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar
from unittest import mock

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.sdf_utils import (
    RestrictionTrackerView,
    ThreadsafeRestrictionTracker,
    ThreadsafeWatermarkEstimator,
)
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import (
    MessageQueue,
    QueueDescriptor,
    ReadAllFromRocketMQ,
    ReadFromRocketMQ,
    ReadOptions,
    Record,
    StartFrom,
    StopAt,
)
from rmqio.errors import SerdeError
from rmqio.model import MessageFilter
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.topics import Subscription
from rmqio.transforms.reading.discovery import DiscoveryConfig
from rmqio.transforms.reading.in_process import ReadSubscriptionFn, Subscribed
from rmqio.transforms.reading.options import ReadConfig
from rmqio.transforms.reading.read_fn import BoundedReadFn, ReadQueueFn, UnboundedReadFn
from rmqio.transforms.reading.record_batches import RecordBatch, UnbatchFn
from rmqio.transforms.reading.restriction import QueueRange, QueueWatermarks, beam_timestamp, timestamp_function
from rmqio.transforms.shared import close_shared_clients, shared_client
from tests.helpers.waiting import patience

QUICK = ReadOptions(poll_timeout_ms=1)
T0 = 1_700_000_000_000
"""The Unix time of message 0: message `n` of a queue is born at T0 + n seconds and stored half a second later."""

# ---- clusters and messages ------------------------------------------------------------------------------------------


@contextmanager
def clean_cluster(**arguments: Any) -> Iterator[InMemoryCluster]:
    """Yields a cluster and asserts that everything was closed. Reads of it begin at T0, before all messages."""
    with InMemoryCluster(**arguments) as made, read_begins_at(T0):
        yield made
        close_shared_clients()
        assert made.open_clients == 0
        assert made.open_readers == 0


@contextmanager
def given_up(cluster: InMemoryCluster, reason: str) -> Iterator[None]:
    """Fails the polls of an endless pipeline that does not end. From outside, the runner's threads would outlive it."""
    timer = threading.Timer(45 * patience(), cluster.fail_next, ["poll", Stop(reason), 1_000_000])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def read_begins_at(unix_ms: int) -> Iterator[None]:
    """Starts reads at this time: queues that are found later count as late from then on."""
    with mock.patch("rmqio.transforms.reading.discovery.now_ms", return_value=unix_ms):
        yield


def clocked_cluster(**arguments: Any) -> Any:
    """Yields a cluster whose waits take no time."""
    return clean_cluster(clock=ManualClock(), **arguments)


def fill(cluster: InMemoryCluster, *counts: int, topic: str = "t", **fields: Any) -> tuple[MessageQueue, ...]:
    """Fills a topic with a queue for each count. Bodies are `topic/queue/offset`."""
    queues = cluster.create_topic(topic, len(counts))
    for queue, count in zip(queues, counts, strict=True):
        append(cluster, queue, count, **fields)
    return queues


def append(cluster: InMemoryCluster, queue: MessageQueue, count: int, **fields: Any) -> None:
    begin = cluster.stored_queue(queue).end
    for number in range(begin, begin + count):
        cluster.append(
            queue.topic,
            body_of(queue, number),
            queue_id=queue.queue_id,
            born_ms=T0 + number * 1000,
            store_ms=T0 + number * 1000 + 500,
            **fields,
        )


def body_of(queue: MessageQueue, offset: int) -> bytes:
    return f"{queue.topic}/{queue.queue_id}/{offset}".encode()


def bodies(queue: MessageQueue, offsets: Iterable[int]) -> list[bytes]:
    return [body_of(queue, offset) for offset in offsets]


def body(record: Record) -> bytes:
    return record.body


def odd_fails(record: Record) -> bytes:
    if record.queue_offset % 2:
        raise SerdeError("an odd one")
    return record.body


# ---- pipelines ------------------------------------------------------------------------------------------------------


def read(cluster: InMemoryCluster, topic: Any = "t", **arguments: Any) -> ReadFromRocketMQ:
    """Returns a bounded read of everything, unless the arguments differ."""
    defaults: dict[str, Any] = {
        "start": StartFrom.earliest(),
        "stop": StopAt.latest(),
        "options": QUICK,
        "client_factory": InMemoryClientFactory(cluster.name),
    }
    return ReadFromRocketMQ(topic, **defaults | arguments)


def read_all(cluster: InMemoryCluster, **arguments: Any) -> ReadAllFromRocketMQ:
    defaults: dict[str, Any] = {
        "start": StartFrom.earliest(),
        "stop": StopAt.latest(),
        "options": QUICK,
        "client_factory": InMemoryClientFactory(cluster.name),
    }
    return ReadAllFromRocketMQ(**defaults | arguments)


def run_bodies(transform: ReadFromRocketMQ, expected: list[bytes]) -> Any:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | transform | beam.Map(body), equal_to(expected))
    return pipeline.result


def counters(result: Any) -> dict[str, int]:
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["counters"]
    return {counter.key.metric.name: counter.committed for counter in found}


class Stop(Exception):
    """Ends an unbounded pipeline."""


class Script:
    """The actions of a sink after so many elements. Found by name, since the sink is pickled, within one process."""

    named: dict[str, Script] = {}  # noqa: RUF012 (a registry)

    def __init__(self, name: str, steps: dict[int, Callable[[], object]], stop_after: int) -> None:
        self.steps, self.stop_after = steps, stop_after
        self.elements: list[Any] = []
        self.named[name] = self


class ScriptedSink(beam.DoFn):
    """Keeps the elements, runs the script with its name, and raises `Stop` at the end."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, element: Any) -> None:
        script = Script.named[self._name]
        script.elements.append(element)
        count = len(script.elements)
        if count in script.steps:
            script.steps[count]()
        if count >= script.stop_after:
            raise Stop(f"after {count} elements")


# ---- by hand --------------------------------------------------------------------------------------------------------


class Finalizer:
    """Keeps the callbacks that a bundle registers. `finalize` acts as the runner's commit."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def register(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def finalize(self) -> None:
        for callback in self.callbacks:
            callback()
        self.callbacks.clear()


def read_config(cluster: InMemoryCluster, **changes: Any) -> ReadConfig:
    """Returns the configuration of an unbounded read from the start by group g, unless the changes differ."""
    fields: dict[str, Any] = {
        "factory": InMemoryClientFactory(cluster.name),
        "group": "g",
        "start": StartFrom.earliest(),
        "stop": None,
        "message_filter": MessageFilter(),
        "deserializer": body,
        "timestamp_of": timestamp_function("born"),
        "options": QUICK,
    }
    return ReadConfig(**fields | changes)


def elements_of(runs: Iterable[WindowedValue], deserializer: Any = body) -> list[Any]:
    """Returns what the next step makes of the runs. Each run must be ordered and have its earliest timestamp."""
    fn = UnbatchFn(deserializer, batches=False, errors_to_output=False)
    elements: list[Any] = []
    for run in runs:
        assert isinstance(run, WindowedValue)
        assert isinstance(run.value, RecordBatch)
        offsets = [record.queue_offset for record in run.value.records]
        assert offsets == sorted(set(offsets))
        assert run.timestamp == beam_timestamp(min(run.value.stamps))
        elements += [output.value for output in fn.process(run.value, window=GlobalWindow())]
    return elements


Fn = TypeVar("Fn", bound=ReadQueueFn)


class Bundles(Generic[Fn]):
    """Runs a reading DoFn without a runner, and keeps its runs, its waits and the callbacks that it registers."""

    def __init__(self, fn: Fn, config: ReadConfig) -> None:
        self.fn, self.config = fn, config
        self.finalizer = Finalizer()
        self.waits: list[tuple[int, int]] = []
        """The waits of the last bundle: for how many queues, and for how long."""
        self.runs: list[WindowedValue] = []
        """The runs of the last bundle."""
        self.fn.setup()
        client: Any = shared_client(config.factory)
        wait = client.wait

        def counted(readers: Iterable[Any], timeout_ms: int) -> bool:
            waited = list(readers)
            self.waits.append((len(waited), timeout_ms))
            done: bool = wait(waited, timeout_ms)
            return done

        client.wait = counted

    @property
    def sizes(self) -> list[int]:
        """The number of records in each run of the last bundle."""
        return [len(run.value.records) for run in self.runs]

    def _start_bundle(self) -> None:
        self.waits.clear()
        self.runs.clear()
        self.fn.start_bundle()

    def _open(self, restriction: Any) -> ThreadsafeRestrictionTracker:
        """Returns a tracker of the restriction after a round trip through its coder."""
        coder = self.fn.restriction_coder()
        return ThreadsafeRestrictionTracker(self.fn.create_tracker(coder.decode(coder.encode(restriction))))

    def _process(self, element: Any, tracker: ThreadsafeRestrictionTracker, estimator: Any) -> Iterator[WindowedValue]:
        return iter(
            self.fn.process(
                element,
                finalizer=self.finalizer,
                tracker=RestrictionTrackerView(tracker),
                estimator=ThreadsafeWatermarkEstimator(estimator),
                window=GlobalWindow(),
            )
        )


class QueueBundles(Bundles[ReadQueueFn]):
    """Drives the DoFn over several queues as a worker does: in turn, with the residuals of the previous bundle."""

    def __init__(self, cluster: InMemoryCluster, queues: Iterable[MessageQueue], **changes: Any) -> None:
        config = read_config(cluster, **changes)
        super().__init__(UnboundedReadFn(config) if config.stop is None else BoundedReadFn(config), config)
        provider = QueueWatermarks()
        self.estimators = {
            queue: provider.create_watermark_estimator(provider.initial_estimator_state(None, None)) for queue in queues
        }
        self.left = {queue: self.fn.initial_restriction(QueueDescriptor(queue)) for queue in queues}

    def bundle(self, *queues: MessageQueue) -> list[Any]:
        """Runs one bundle over some queues, or over all. Returns the elements in order."""
        self._start_bundle()
        for queue in queues or tuple(self.left):
            tracker = self._open(self.left[queue])
            self.runs += self._process(QueueDescriptor(queue), tracker, self.estimators[queue])
            tracker.check_done()
            status = tracker.deferred_status()
            self.left[queue] = status[0] if status else QueueRange(0, 0)
        return elements_of(self.runs, self.config.deserializer)

    def begin(self, queue: MessageQueue) -> tuple[Iterator[WindowedValue], ThreadsafeRestrictionTracker]:
        """Begins a bundle over one queue, which the caller runs step by step.

        Returns its runs and the runner's side of its tracker.
        """
        self._start_bundle()
        tracker = self._open(self.left[queue])
        return self._process(QueueDescriptor(queue), tracker, self.estimators[queue]), tracker

    def watermark(self, queue: MessageQueue) -> Timestamp:
        return self.estimators[queue].current_watermark()


class SubscriptionBundles(Bundles[ReadSubscriptionFn]):
    """Drives the DoFn that finds its queues itself, with the residual of the previous bundle."""

    def __init__(
        self,
        cluster: InMemoryCluster,
        what: Any = "t",
        *,
        interval_ms: int = 0,
        new_queue_start: Literal["earliest", "latest"] = "earliest",
        **changes: Any,
    ) -> None:
        config = read_config(cluster, **changes)
        discovery = DiscoveryConfig(
            subscription=Subscription.of(what),
            factory=config.factory,
            group=config.group,
            start=config.start,
            stop=None,
            interval_ms=interval_ms,
            new_queue_start=new_queue_start,
        )
        super().__init__(ReadSubscriptionFn(config, discovery), config)
        self.estimator = QueueWatermarks().new()
        self.left: Subscribed = self.fn.initial_restriction(b"")

    def begin(self) -> tuple[Iterator[WindowedValue], ThreadsafeRestrictionTracker]:
        """Begins a bundle that the caller runs step by step."""
        self._start_bundle()
        tracker = self._open(self.left)
        return self._process(b"", tracker, self.estimator), tracker

    def bundle(self) -> list[Any]:
        """Runs one bundle. Returns the elements in order."""
        outputs, tracker = self.begin()
        self.runs += outputs
        tracker.check_done()
        status = tracker.deferred_status()
        assert status, "an unbounded read must leave a residual"
        self.left = status[0]
        return elements_of(self.runs, self.config.deserializer)

    @property
    def starts(self) -> dict[MessageQueue, int]:
        """The offset at which each queue continues."""
        return {queue: left.start for queue, left in self.left.ranges}

    @property
    def watermark(self) -> Timestamp:
        return self.estimator.current_watermark()
