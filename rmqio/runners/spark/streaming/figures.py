"""Figures about a micro-batch: for the line that `--progress` prints, and for Spark's own progress.

The module runs in tasks and in the driver, and does not import Beam.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rmqio.runners.spark.streaming.model import LevelReport

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
