"""The metrics, as data: every name that a runner, an exporter or the docs show is one of these.

Whatever counts also tells the process's `Recorder`, if there is one: that is how an exporter hears of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

NAMESPACE: Final = "rmqio"
"""Beam's, and the first word of an exporter's names."""


class Kind(Enum):
    """How values of a metric come together."""

    COUNTER = "counter"
    """They are added up."""
    GAUGE = "gauge"
    """The newest one counts."""
    DISTRIBUTION = "distribution"
    """Count, sum, least and greatest; an exporter makes a histogram of them."""


QUEUE: Final = ("topic", "broker", "queue")
BROKER: Final = ("topic", "broker")
TOPIC: Final = ("topic",)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `labels` are an exporter's; Beam has none, and puts those of a gauge into its name."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    meaning: str


_C, _G, _D = Kind.COUNTER, Kind.GAUGE, Kind.DISTRIBUTION

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric("records_read", _C, "messages", QUEUE, "handed to the pipeline, failures to decode included"),
        Metric("bytes_read", _C, "bytes", QUEUE, "as stored by the broker (compressed, with properties)"),
        Metric("pull_latency_ms", _D, "ms", BROKER, "from sending a pull to its answer, decoded; held ones too"),
        Metric("pull_retries", _C, "pulls", QUEUE, "tried again after no answer, or one that may be better later"),
        Metric("decode_failures", _C, "messages", TOPIC, "went to the error output, or failed the pipeline"),
        Metric("duplicates_dropped", _C, "messages", TOPIC, "dropped by `DropDuplicates`"),
        Metric("offsets_skipped", _C, "offsets", QUEUE, "gaps: lost on the broker, skipped as the options permit"),
        Metric("lag_messages", _G, "messages", QUEUE, "not read yet, as of the broker's last answer"),
        Metric("lag_bytes", _G, "bytes", QUEUE, "the same by the mean stored size of the messages read lately"),
        Metric("lag_seconds", _G, "s", QUEUE, "since the last message read was stored; 0 at the end of the queue"),
        Metric("commits", _C, "offsets", QUEUE, "group offsets set"),
        Metric("commit_failures", _C, "offsets", QUEUE, "group offsets refused, or the broker was unreachable"),
        Metric("messages_sent", _C, "messages", QUEUE, "acknowledged by a broker"),
        Metric("bytes_sent", _C, "bytes", QUEUE, "bodies of what was acknowledged, as they were given"),
        Metric("batches_sent", _C, "requests", QUEUE, "acknowledged by a broker"),
        Metric("send_latency_ms", _D, "ms", BROKER, "from sending a batch to its acknowledgement, retries included"),
        Metric("weak_acknowledgements", _C, "messages", QUEUE, "stored, but not confirmed on disk or by a replica"),
        Metric("send_retries", _C, "requests", (), "sent again after a failure that may pass"),
        Metric("messages_already_there", _C, "messages", QUEUE, "found by an exactly-once write, and not sent again"),
        Metric("unknown_outcomes", _C, "requests", (), "broke off without an answer: sent again, they may be twice"),
        Metric("send_failures", _C, "messages", (), "went to `.failed`"),
        Metric("dead_letters", _C, "messages", TOPIC, "acknowledged in a dead-letter topic; among `messages_sent` too"),
    )
}


class Recorder(Protocol):
    """Hears of every value. Called per batch, by any thread; must be quick and raise nothing."""

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """A counter grew by, a gauge is, or a distribution saw, `value`. As many labels as the metric has names."""
        ...


recorder: Recorder | None = None
"""This process's; read it anew each time. None: nobody listens."""


def install(new: Recorder | None) -> None:
    """Make it this process's recorder; None: none."""
    global recorder
    recorder = new


def record(name: str, labels: tuple[str, ...], value: float) -> None:
    """Tell the recorder, if there is one. For who knows no Beam; the transforms count by `transforms.metrics`."""
    if recorder is not None:
        recorder.record(METRICS[name], labels, value)
