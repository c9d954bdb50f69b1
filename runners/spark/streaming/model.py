"""What the driver tells the worker of a level: plain values that pickle.

Rows are those of bounded pipelines, (channel, bucket, key, value); the channels below are the runner's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

from rmqio.runners.spark.model import StageTask, TaskReport
from rmqio.runners.spark.streaming.micro_batch import MicroBatch

MIN: Final = int(MIN_TIMESTAMP.micros)
MAX: Final = int(MAX_TIMESTAMP.micros)
"""Watermarks are microseconds."""


@dataclass(frozen=True, slots=True)
class StreamStage:
    """A stage of a level, and the channels that it reads."""

    task: StageTask
    channels: tuple[int, ...]
    sides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The channels of each side input."""
    defers: bool = False
    """Whether it begins with a splittable DoFn, whose remainders are kept in state."""


@dataclass(frozen=True, slots=True)
class LevelTask:
    """All stages between two shuffles, in topological order."""

    run: str
    """Of the query; what a worker keeps for it goes by this."""
    number: int
    stages: tuple[StreamStage, ...]
    made: Mapping[int, int]
    """Channels that are written here, and by which of the stages."""
    local: frozenset[int]
    """Channels that are written and read here."""
    spread: frozenset[int]
    """Channels that are written here for every bucket of a later level: side inputs."""
    later: tuple[int, ...]
    """Channels that are known here and read by later levels."""
    sources: Mapping[int, tuple[int, ...]]
    """Of the channels that level 0 writes: the sources that they come from."""
    learned: Mapping[int, tuple[int, str]]
    """Channels of what reads have learned of event time: the source, and the coder's id."""
    buckets: tuple[int, ...]
    """The bucket column's value, by number: chosen so that Spark spreads them evenly."""
    bootstrap: Any = None


class Learned(NamedTuple):
    """What a source's reads have learned of its parts in a micro-batch."""

    watermarks: dict[str, int]
    """Microseconds."""
    cuts: dict[str, int]
    """Parts that were not read as far as was planned, and how far they were."""


@dataclass(slots=True)
class LevelReport:
    """What a bucket of a level, or a task of level 0, tells the driver of a micro-batch."""

    level: int
    bucket: int
    tasks: dict[int, TaskReport]
    """By stage."""
    watermark: int = MAX
    """The least of what has come in."""
    pending: bool = False
    """Whether something waits that is not for a watermark."""
    late: int = 0
    """Elements that were dropped."""
    planned: MicroBatch | None = None
    """From the one task of level 0 that was given it."""
    cuts: dict[int, dict[str, int]] = field(default_factory=dict)
    """From level 0, by source: parts that were not read as far as was planned, and how far they were."""
