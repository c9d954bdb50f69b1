"""The transforms' metrics: each value goes to Beam's metric, and to the process's recorder if an exporter is on.

Names, units and meanings are in `rmqio.telemetry`. Metrics are updated per pulled or sent batch, never per message.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from apache_beam.metrics import Metrics
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio import internal_errors, logs, prometheus, telemetry
from rmqio.interfaces import SKEW_NAMESPACE
from rmqio.model import MessageQueue
from rmqio.telemetry import METRICS, NAMESPACE, Kind, Metric

_observed_pid = 0
_ANSWERED = "last_answer_timestamp_seconds"
_NO_WATERMARK = int(MIN_TIMESTAMP.micros)


internal_errors.counters.append(Metrics.counter(NAMESPACE, "internal_errors").inc)


def observe_process() -> None:
    """Turn on the export and structured logs that the environment asks for. Called in `setup` of a DoFn, so that it
    happens in each process in which a runner reads or writes. Once per process, also after a fork.
    """
    global _observed_pid
    if _observed_pid == os.getpid():
        return
    _observed_pid = os.getpid()
    logs.configure_from_environment()
    prometheus.start_from_environment()


class Count:
    """A counter."""

    __slots__ = ("_inc", "_metric")

    def __init__(self, name: str) -> None:
        self._metric = _metric(name, Kind.COUNTER)
        self._inc = Metrics.counter(NAMESPACE, name).inc

    def add(self, count: int, labels: tuple[str, ...]) -> None:
        self._inc(count)
        if telemetry.recorder is not None:
            telemetry.recorder.record(self._metric, labels, count)

    def add_told(self, count: int) -> None:
        """Add to Beam's counter only: the recorder got the value when it happened, outside of a bundle."""
        self._inc(count)


class Latency:
    """A distribution of milliseconds."""

    __slots__ = ("_metric", "_update")

    def __init__(self, name: str) -> None:
        self._metric = _metric(name, Kind.DISTRIBUTION)
        self._update = Metrics.distribution(NAMESPACE, name).update

    def add(self, milliseconds: float, labels: tuple[str, ...]) -> None:
        self._update(round(milliseconds))
        if telemetry.recorder is not None:
            telemetry.recorder.record(self._metric, labels, milliseconds)


class Share:
    """The percentage of a worker's elements that the heaviest key of a shuffle has."""

    __slots__ = ("_labels", "_metric", "_set")

    def __init__(self, shuffle: str) -> None:
        self._labels = (shuffle,)
        self._metric = _metric("heaviest_key_percent", Kind.GAUGE)
        self._set = Metrics.gauge(NAMESPACE, f"heaviest_key_percent.{shuffle}").set

    def set(self, percent: float) -> None:
        self._set(round(percent))
        if telemetry.recorder is not None:
            telemetry.recorder.record(self._metric, self._labels, percent)


class QueueGauges:
    """The gauges of one queue: how far reading is behind.

    While a broker does not answer, `lag_seconds` grows with the clock from the last known state, even if that was the
    queue's end, so that an outage shows. `lag_messages` and `lag_bytes` keep their last known values.
    """

    __slots__ = ("_at", "_clock", "_count", "_gauges", "_labels", "_read_at")

    def __init__(self, queue: MessageQueue, clock: Callable[[], float] = time.time) -> None:
        self._labels = queue_labels(queue)
        self._clock = clock
        self._at = clock()
        """When the last message read was stored, or when the queue was last known to be at its end."""
        self._count = Metrics.counter(SKEW_NAMESPACE, json.dumps(["queue", "/".join(self._labels)])).inc
        self._read_at = self._at
        """When a message was last read, or reading began."""
        self._gauges = []
        for name in ("lag_messages", "lag_bytes", "lag_seconds", "watermark_lag_seconds", "source_idle_seconds"):
            beams = Metrics.gauge(NAMESPACE, ".".join((name, *self._labels)))
            self._gauges.append((_metric(name, Kind.GAUGE), beams.set))

    def count(self, records: int) -> None:
        """Count records that were read. A counter of its own for each queue: see `rmqio.skew.SkewReport`."""
        self._count(records)

    def read(self, left: int, mean_bytes: float, stored_ms: int | None) -> None:
        """Record an answer. `stored_ms`: store time of its last message; None: a filter let none through."""
        if stored_ms is not None:
            self._at = stored_ms / 1000
            self._read_at = self._clock()
            self._idle()
        if left <= 0:
            self.at_end()
        else:
            self._set(left, left * mean_bytes, self._clock() - self._at)

    def at_end(self) -> None:
        """Record that the broker reported the end of the queue."""
        self._at = self._clock()
        self._set(0, 0, 0)
        self._idle()

    def no_answer(self) -> None:
        """Record that no answer arrived although one was expected."""
        self._tell(self._gauges[2], self._clock() - self._at)
        self._idle()

    def watermark(self, micros: int) -> None:
        """Record the watermark at the end of a bundle. One that has not moved yet says nothing."""
        if micros > _NO_WATERMARK:
            self._tell(self._gauges[3], self._clock() - micros / 1_000_000)

    def _idle(self) -> None:
        self._tell(self._gauges[4], self._clock() - self._read_at)

    def _set(self, *values: float) -> None:
        for gauge, value in zip(self._gauges, values, strict=False):
            self._tell(gauge, value)

    def _tell(self, gauge: tuple[Metric, Any], value: float) -> None:
        metric, set_beams = gauge
        value = max(0, value)  # the broker's clock may be ahead of ours
        set_beams(round(value))
        if telemetry.recorder is not None:
            telemetry.recorder.record(metric, self._labels, value)


class ReadMetrics:
    """The metrics of a reading DoFn."""

    def __init__(self) -> None:
        self.records_read = Count("records_read")
        self.bytes_read = Count("bytes_read")
        self.offsets_skipped = Count("offsets_skipped")
        self.pull_retries = Count("pull_retries")
        self.pull_latency = Latency("pull_latency_ms")
        self.paced = Count("paced_ms")
        self.commits = Count("commits")
        self.commit_failures = Count("commit_failures")
        self._gauges: dict[MessageQueue, QueueGauges] = {}
        self._answered: dict[tuple[str, str], float] = {}

    def answered(self, queue: MessageQueue, at: float | None) -> None:
        """Record when the queue's broker last answered, in Unix seconds; None: the reader does not know."""
        labels = queue[:2]
        if at is None or at <= self._answered.get(labels, 0.0):
            return
        self._answered[labels] = at
        Metrics.gauge(NAMESPACE, ".".join((_ANSWERED, *labels))).set(round(at))
        telemetry.record(_ANSWERED, labels, at)

    def gauges(self, queue: MessageQueue) -> QueueGauges:
        found = self._gauges.get(queue)
        if found is None:
            found = self._gauges[queue] = QueueGauges(queue)
        return found


def queue_labels(queue: MessageQueue) -> tuple[str, str, str]:
    """The label values for `telemetry.QUEUE`."""
    return queue.topic, queue.broker, str(queue.queue_id)


def _metric(name: str, kind: Kind) -> Metric:
    metric = METRICS[name]
    assert metric.kind is kind
    return metric
