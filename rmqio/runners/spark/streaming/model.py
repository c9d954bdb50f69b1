"""Values that the driver and the worker of a level send to each other, and the figures that are made of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

from rmqio.runners.spark.model import StageTask, TaskReport
from rmqio.runners.spark.streaming.micro_batch import Fields, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rmqio.runners.spark.bootstrap import Bootstrap


# Figures about a micro-batch: for the line that `--progress` prints, and for Spark's own progress.
#
# The module runs in tasks and in the driver, and does not import Beam.

OBSERVED: Final = "rmqio"
"""The name under which Spark's StreamingQueryProgress shows the figures, in `observedMetrics`."""
_IDLE_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one micro-batch."""

    batch: int
    rows: int
    """The number of records that the sources planned."""
    seconds: float
    """How long the micro-batch took."""
    watermark: int | None
    """The least watermark of all levels' inputs, in microseconds. None: nothing in the pipeline uses event time."""
    lag: Mapping[str, int]
    """The number of records that were left after the micro-batch, by topic."""

    def line(self, now: float) -> str:
        """Returns the figures as a line of text. `now`: seconds since the epoch."""
        rate = f", {self.rows / self.seconds:,.0f}/s" if self.rows and self.seconds > 0 else ""
        parts = [f"micro-batch {self.batch}: {self.rows:,} rows in {self.seconds:.1f} s{rate}"]
        if self.watermark is not None:
            parts.append(f"watermark {_time(self.watermark, now)}")
        parts += [f"{name}: {left:,} behind" for name, left in sorted(self.lag.items())]
        return "; ".join(parts)


class ProgressLog:
    """Decides which micro-batches are worth a line: those with rows, and one without rows now and then."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")

    def is_worth(self, figures: Figures, now: float) -> bool:
        """Returns whether to print a line for the micro-batch now. `now`: seconds of any clock."""
        if not figures.rows and now - self._printed_at < _IDLE_EVERY_S:
            return False
        self._printed_at = now
        return True


def shown(report: LevelReport) -> dict[str, object]:
    """Returns the part of a report that Spark's progress shows."""
    if report.level:
        return {"watermark_us": report.watermark, "late": report.late}
    if report.planned is None:
        return {}
    return {"rows": report.planned.rows, "lag": report.planned.lag}


def observed() -> list[Column]:
    """Returns columns for `DataFrame.observe` over the rows of reports: sums and bounds of the values of `shown`."""
    from pyspark.sql import functions as F

    def field(name: str, kind: str) -> Column:
        return F.get_json_object(F.col("key").cast("string"), f"$.{name}").cast(kind)

    return [
        F.sum(field("rows", "bigint")).alias("rows"),
        F.min(field("watermark_us", "bigint")).alias("watermark_us"),
        F.sum(field("late", "bigint")).alias("late"),
        F.max(field("lag", "string")).alias("lag"),
    ]


def _time(micros: int, now: float) -> str:
    try:
        text = dt.datetime.fromtimestamp(micros / 1e6, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return "not yet known" if micros < 0 else "at its end"
    if micros < 0:
        return "not yet known"
    behind = now - micros / 1e6
    return f"{text} ({behind:,.0f} s behind)" if behind >= 0 else text


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
