"""Beam metrics of the read, all in the namespace `rmqio`; the docs list them by these names."""

from __future__ import annotations

from apache_beam.metrics import Metrics

from rmqio.model import MessageQueue

NAMESPACE = "rmqio"


class ReadMetrics:
    """Counters, distributions and gauges of one reading DoFn. Updated per pulled batch, never per message."""

    def __init__(self) -> None:
        self.records_read = Metrics.counter(NAMESPACE, "records_read")
        self.bytes_read = Metrics.counter(NAMESPACE, "bytes_read")
        self.decode_failures = Metrics.counter(NAMESPACE, "decode_failures")
        self.offsets_skipped = Metrics.counter(NAMESPACE, "offsets_skipped")
        self.commits = Metrics.counter(NAMESPACE, "commits")
        self.commit_failures = Metrics.counter(NAMESPACE, "commit_failures")
        self.pull_latency_ms = Metrics.distribution(NAMESPACE, "pull_latency_ms")
        self._lag: dict[MessageQueue, Metrics.DelegatingGauge] = {}

    def set_lag(self, queue: MessageQueue, messages: int) -> None:
        """How many messages of a queue are not read yet."""
        gauge = self._lag.get(queue)
        if gauge is None:
            name = f"lag_messages.{queue.topic}.{queue.broker}.{queue.queue_id}"
            gauge = self._lag[queue] = Metrics.gauge(NAMESPACE, name)
        gauge.set(messages)
