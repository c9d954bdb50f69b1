"""The metrics as data: every name that a runner, an exporter or the docs show is defined here.

Code that counts also calls the process's `Recorder`, if there is one. This is how an exporter gets the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

NAMESPACE: Final = "rmqio"
"""Beam's namespace, and the first word of an exporter's names."""


class Kind(Enum):
    """How the values of a metric are combined."""

    COUNTER = "counter"
    """The values are added up."""
    GAUGE = "gauge"
    """The newest value counts."""
    DISTRIBUTION = "distribution"
    """Count, sum, minimum and maximum; an exporter shows a histogram."""


QUEUE: Final = ("topic", "broker", "queue")
BROKER: Final = ("topic", "broker")
TOPIC: Final = ("topic",)
SINK: Final = ("sink",)
SHUFFLE: Final = ("shuffle",)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `labels` are for exporters. Beam has no labels, so those of a gauge are part of its name."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    meaning: str


_C, _G, _D = Kind.COUNTER, Kind.GAUGE, Kind.DISTRIBUTION

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric("records_read", _C, "messages", QUEUE, "emitted to the pipeline, including failures to decode"),
        Metric("bytes_read", _C, "bytes", QUEUE, "as stored by the broker (compressed, with properties)"),
        Metric("pull_latency_ms", _D, "ms", BROKER, "from sending a pull to decoding its answer, long polls included"),
        Metric("pull_retries", _C, "pulls", QUEUE, "retried after no answer or a transient error"),
        Metric("paced_ms", _C, "ms", QUEUE, "waited because of `max_records_per_second`; not where a runner plans"),
        Metric("decode_failures", _C, "messages", TOPIC, "sent to the error output, or failed the pipeline"),
        Metric("duplicates_dropped", _C, "messages", TOPIC, "dropped by `DropDuplicates`"),
        Metric("offsets_skipped", _C, "offsets", QUEUE, "gaps: lost on the broker, and skipped as the options permit"),
        Metric("lag_messages", _G, "messages", QUEUE, "not read yet, as of the broker's last answer"),
        Metric("lag_bytes", _G, "bytes", QUEUE, "`lag_messages` times the mean stored size of recent messages"),
        Metric("lag_seconds", _G, "s", QUEUE, "since the last message read was stored; 0 at the queue's end"),
        Metric("watermark_lag_seconds", _G, "s", QUEUE, "the clock minus the queue's watermark"),
        Metric("source_idle_seconds", _G, "s", QUEUE, "since a message was last read; 0 while messages arrive"),
        Metric("last_answer_timestamp_seconds", _G, "s", BROKER, "Unix time of the broker's last answer to a pull"),
        Metric("commits", _C, "offsets", QUEUE, "group offsets set"),
        Metric("commit_failures", _C, "offsets", QUEUE, "group offsets refused, or the broker was unreachable"),
        Metric("messages_sent", _C, "messages", QUEUE, "acknowledged by a broker"),
        Metric("bytes_sent", _C, "bytes", QUEUE, "bodies of acknowledged messages, before compression"),
        Metric("batches_sent", _C, "requests", QUEUE, "acknowledged by a broker"),
        Metric("send_latency_ms", _D, "ms", BROKER, "from sending a batch to its acknowledgement, retries included"),
        Metric("weak_acknowledgements", _C, "messages", QUEUE, "stored, but not confirmed on disk or by a replica"),
        Metric("send_retries", _C, "requests", (), "sent again after a transient failure"),
        Metric("busy_answers", _C, "requests", (), "answered SYSTEM_BUSY or FLOW_CONTROL; also in `send_retries`"),
        Metric("throttled_ms", _C, "ms", (), "waited before sends to brokers that were busy"),
        Metric("messages_already_there", _C, "messages", QUEUE, "found by an exactly-once write, and not sent again"),
        Metric("unknown_outcomes", _C, "requests", (), "ended without an answer: a retry may store messages twice"),
        Metric("traces_dropped", _C, "entries", TOPIC, "of the message trace, by an exporter only: not sent"),
        Metric("send_failures", _C, "messages", (), "sent to the output `failed`"),
        Metric("dead_letters", _C, "messages", TOPIC, "acknowledged in a dead-letter topic; also in `messages_sent`"),
        Metric("claims_written", _C, "messages", TOPIC, "whose bodies went to the folder of a claim check"),
        Metric("claims_read", _C, "messages", TOPIC, "whose bodies came from the folder of a claim check"),
        Metric("lookups", _C, "elements", (), "looked up by `Enrich`"),
        Metric("lookups_missing", _C, "elements", (), "looked up by `Enrich`, and their key has no row"),
        Metric("lookup_failures", _C, "elements", (), "sent to the errors of `Enrich`, or failed the pipeline"),
        Metric("internal_errors", _C, "rows", (), "bad by an unexpected exception, whose stack is in the log"),
        Metric("heaviest_key_percent", _G, "percent", SHUFFLE, "of a worker's elements, those of its heaviest key"),
        Metric("rows_written", _C, "rows", SINK, "by a sink of `rmqio.connect`"),
        Metric("row_batches_written", _C, "requests", SINK, "by a sink of `rmqio.connect`"),
        Metric("row_failures", _C, "rows", SINK, "refused by a sink: to the output `failed`, or failed the bundle"),
        Metric("row_write_retries", _C, "requests", SINK, "written again after a transient failure"),
        Metric("row_write_latency_ms", _D, "ms", SINK, "of a batch until the sink has it, retries included"),
        Metric("table_refreshes", _C, "loads", (), "of a table of `Enrich`, by an exporter only: after the first one"),
        Metric("table_refresh_failures", _C, "loads", (), "that failed; an exporter only. The last version stays"),
    )
}


class Recorder(Protocol):
    """Receives every value. Called per batch, by any thread. Must be quick and must not raise."""

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """`value` is a counter's increment, a gauge's new value, or a distribution's sample. One label per name."""
        ...


recorder: Recorder | None = None
"""This process's recorder; read the variable each time. None: there is no recorder."""


def install(new: Recorder | None) -> None:
    """Set this process's recorder; None: remove it."""
    global recorder
    recorder = new


def record(name: str, labels: tuple[str, ...], value: float) -> None:
    """Call the recorder, if there is one. For code without Beam; the transforms use `transforms.metrics`."""
    if recorder is not None:
        recorder.record(METRICS[name], labels, value)
