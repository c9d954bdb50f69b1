"""Frames: everything that is shown at one time, as values and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqio.command_line.contents import QueueState


@dataclass(frozen=True, slots=True)
class Target:
    """The topics, the group and the exporter to watch."""

    topics: tuple[str, ...]
    group: str | None = None
    dead_letter_topics: tuple[str, ...] = ()
    metrics_url: str | None = None


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue. While its broker is away, the offsets are those of its last answer."""

    state: QueueState
    is_away: bool
    in_per_s: float | None
    out_per_s: float | None
    committed_ms: int | None
    """When the group's offset was seen to move; None: it has not while we look."""
    curve: tuple[float | None, ...]
    """The lag at each poll, oldest first; without a group, the messages that came per second."""

    def fields(self, now_ms: int) -> dict[str, Any]:
        """Return the fields of the JSON."""
        state = self.state
        return {
            "topic": state.queue.topic,
            "broker": state.queue.broker,
            "queue_id": state.queue.queue_id,
            "is_away": self.is_away,
            "min_offset": state.min_offset,
            "max_offset": state.max_offset,
            "committed_offset": state.committed,
            "lag_messages": state.lag,
            "lag_ms": state.lag_ms(now_ms),
            "lost_messages": state.lost,
            "in_per_s": self.in_per_s,
            "out_per_s": self.out_per_s,
            "committed_ms": self.committed_ms,
        }


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker, as its last answer or its silence shows it. Times are Unix milliseconds by our clock."""

    broker: str
    is_up: bool
    since_ms: int
    """Since when it has been so, as far as we have looked."""
    answered_ms: int | None
    committed_ms: int | None
    """When an offset of the group was last seen to move there."""
    error: str | None


@dataclass(frozen=True, slots=True)
class DeadLettersView:
    """A dead-letter topic."""

    topic: str
    messages: int | None
    """None: the topic does not exist, or no broker has answered yet."""
    new: int | None
    """Messages that came while we look."""
    per_s: float | None


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The pipeline's own metrics, from its exporter."""

    url: str
    answered_ms: int | None
    error: str | None
    lag_s: float | None
    """The read furthest behind: how old its last message is, in seconds."""
    watermark_lag_s: float | None
    """How far the slowest watermark is behind the clock."""
    read_per_s: float | None
    sent_per_s: float | None
    errors: Mapping[str, float]
    """The counters of errors that are not zero, by name."""
    new_errors: float
    """How much they grew while we look."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the queues."""

    messages: int
    lag: int | None
    lag_ms: int | None
    """How long the oldest unread message has waited."""
    in_per_s: float | None
    out_per_s: float | None
    dead_letters: int | None

    def point(self, now_ms: int, pipeline: PipelineView | None) -> dict[str, Any]:
        """Return what the plots over time show."""
        found: dict[str, Any] = {
            "time_ms": now_ms,
            "lag_messages": self.lag,
            "lag_ms": self.lag_ms,
            "in_per_s": self.in_per_s,
            "out_per_s": self.out_per_s,
            "dead_letters": self.dead_letters,
        }
        if pipeline is not None:
            found |= {"pipeline_lag_s": pipeline.lag_s, "watermark_lag_s": pipeline.watermark_lag_s}
        return found


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that is shown at one time."""

    time_ms: int
    target: Target
    queues: tuple[QueueView, ...]
    brokers: tuple[BrokerView, ...]
    dead_letters: tuple[DeadLettersView, ...]
    pipeline: PipelineView | None
    total: Totals
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all brokers, and the exporter, have answered."""
        return all(broker.is_up for broker in self.brokers) and (self.pipeline is None or self.pipeline.error is None)

    def fields(self) -> dict[str, Any]:
        """Return the JSON of `--json` and of the page."""
        return {
            "time_ms": self.time_ms,
            "topics": list(self.target.topics),
            "group": self.target.group,
            "total": {
                "messages": self.total.messages,
                "lag_messages": self.total.lag,
                "lag_ms": self.total.lag_ms,
                "in_per_s": self.total.in_per_s,
                "out_per_s": self.total.out_per_s,
                "dead_letters": self.total.dead_letters,
            },
            "queues": [queue.fields(self.time_ms) for queue in self.queues],
            "brokers": [dataclasses.asdict(broker) for broker in self.brokers],
            "dead_letters": [dataclasses.asdict(letters) for letters in self.dead_letters],
            "pipeline": None if self.pipeline is None else dataclasses.asdict(self.pipeline),
            "notes": list(self.notes),
        }
