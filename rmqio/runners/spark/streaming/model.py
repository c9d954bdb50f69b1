"""Values that the driver and the worker of a level send to each other: plain values that can be pickled.

Rows are the same as in bounded pipelines: (channel, bucket, key, value). See channels.py for the runner's own channels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

from rmqio.runners.spark.model import StageTask, TaskReport
from rmqio.runners.spark.streaming.json_fields import Fields
from rmqio.runners.spark.streaming.micro_batch import MicroBatch

if TYPE_CHECKING:
    from rmqio.runners.spark.bootstrap import Bootstrap

MIN: Final = int(MIN_TIMESTAMP.micros)
MAX: Final = int(MAX_TIMESTAMP.micros)
"""The bounds of watermarks, which are in microseconds."""


@dataclass(frozen=True, slots=True)
class StreamStage:
    """A stage of a level, and the channels that it reads."""

    task: StageTask
    channels: tuple[int, ...]
    sides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The channels of each side input."""
    defers: bool = False
    """Whether the stage begins with a splittable DoFn, whose residuals are kept in state."""


@dataclass(frozen=True, slots=True)
class LevelTask:
    """All stages between two shuffles, in topological order."""

    run: str
    """The run of the query. A worker keeps its levels under this name."""
    number: int
    stages: tuple[StreamStage, ...]
    made: Mapping[int, int]
    """The channels that this level writes, with the index of the stage that writes each."""
    local: frozenset[int]
    """The channels that this level both writes and reads."""
    spread: frozenset[int]
    """The channels that this level writes to every bucket of a later level: side inputs."""
    later: tuple[int, ...]
    """The channels that this level knows and that later levels read."""
    sources: Mapping[int, tuple[int, ...]]
    """For each channel that level 0 writes: the sources from which its elements come."""
    learned: Mapping[int, tuple[int, str]]
    """The channels with what reads have learned about event time: the source of each, and the id of its coder."""
    buckets: tuple[int, ...]
    """The values of the bucket column, by bucket number. They are chosen so that Spark spreads them evenly."""
    bootstrap: Bootstrap | None = None


class Learned(NamedTuple):
    """The watermarks and cuts that the reads of a source have learned in a micro-batch, by part."""

    watermarks: Mapping[str, int]
    """Time in microseconds."""
    cuts: Mapping[str, int]
    """How far each part was read that was not read to its planned end."""

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        fields = Fields.decode_array("Learned", encoded, cls._fields)
        return cls(fields.nested("watermarks").values(int), fields.nested("cuts").values(int))

    def encode(self) -> bytes:
        return json.dumps(self).encode()


@dataclass(slots=True)
class LevelReport:
    """The report of a bucket of a level, or of a task of level 0, to the driver about a micro-batch."""

    level: int
    bucket: int
    tasks: dict[int, TaskReport]
    """By stage id."""
    watermark: int = MAX
    """The least watermark of the inputs."""
    pending: bool = False
    """Whether anything waits for something other than a watermark."""
    late: int = 0
    """The number of elements that were dropped."""
    planned: MicroBatch | None = None
    """Set by the one task of level 0 that receives it."""
    cuts: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Set by level 0, by source: how far each part was read that was not read to its planned end."""
