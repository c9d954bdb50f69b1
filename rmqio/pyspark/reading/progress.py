"""How far a stream is behind, from Spark's progress: figures that Spark's own sources report as metrics.

Spark has no such hook for a source that is written in Python, so they are computed on the driver from the offsets in
each progress.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from rmqio import prometheus, telemetry
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.pyspark.reading.position import Position

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far one source of the format `rocketmq` was behind when a micro-batch ended, in messages."""

    by_queue: dict[MessageQueue, int]
    rows: int
    """The rows that the micro-batch read."""
    input_rows_per_s: float
    processed_rows_per_s: float

    @property
    def total(self) -> int:
        return sum(self.by_queue.values())

    @property
    def min(self) -> int:
        return min(self.by_queue.values(), default=0)

    @property
    def max(self) -> int:
        return max(self.by_queue.values(), default=0)

    @property
    def avg(self) -> float:
        return self.total / len(self.by_queue) if self.by_queue else 0.0


def lags(progress: Any) -> list[SourceLag]:
    """Return the lag of each source of the format `rocketmq`, in the order of the query's sources.

    A queue whose broker did not answer is left out: Spark's latest offset does not have it.

    Args:
      progress: a `StreamingQueryProgress`, as `query.lastProgress` and listeners have it; None, as before the first
        micro-batch: there is no lag yet.
    """
    if progress is None:
        return []
    found = []
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        given = source if isinstance(source, dict) else _fields(source)
        try:
            end, latest = _numbers(given["endOffset"]), _numbers(given["latestOffset"])
        except LocalError:
            continue  # of another format
        behind = {queue: max(0, latest[queue] - offset) for queue, offset in end.items() if queue in latest}
        found.append(
            SourceLag(
                behind,
                int(given["numInputRows"]),
                float(given["inputRowsPerSecond"] or 0),
                float(given["processedRowsPerSecond"] or 0),
            )
        )
    return found


def _fields(source: Any) -> dict[str, Any]:
    """Return the fields of a `SourceProgress`."""
    names = ("endOffset", "latestOffset", "numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")
    return {name: getattr(source, name) for name in names}


def _numbers(offsets: Any) -> dict[MessageQueue, int]:
    """Parse the offsets of a progress: JSON as text, or parsed already. Raises `LocalError` for another format."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError as error:
            raise LocalError(f"{offsets!r:.100} is not JSON") from error
    if not isinstance(offsets, dict):
        raise LocalError(f"{offsets!r:.100} are not offsets of the format rocketmq")
    return Position.of(offsets).numbers


class LagListener(StreamingQueryListener):
    """Keeps the lag of each query of a session, logs it (INFO), and exports it as `lag_messages` to Prometheus.

    `spark.streams.addListener(LagListener())`. Prometheus: if RMQIO_PROMETHEUS is set on the driver (docs/metrics.md).
    """

    def __init__(self) -> None:
        prometheus.start_from_environment()
        self.latest: dict[str, list[SourceLag]] = {}
        """The lags of each query's sources at its last progress, by the query's id."""

    def onQueryStarted(self, event: Any) -> None:
        self.latest[str(event.id)] = []

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        self.latest[str(progress.id)] = found = lags(progress)
        for lag in found:
            for queue, behind in lag.by_queue.items():
                telemetry.record("lag_messages", (queue.topic, queue.broker, str(queue.queue_id)), behind)
            _LOGGER.info(
                "query %s: %d messages behind in %d queues (min %d, max %d, avg %.1f); read %d rows, %.1f rows/s",
                progress.name or progress.id, lag.total, len(lag.by_queue), lag.min, lag.max, lag.avg, lag.rows,
                lag.processed_rows_per_s,
            )  # fmt: skip

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: an idle query has read everything that its last progress knew of."""

    def onQueryTerminated(self, event: Any) -> None:
        self.latest.pop(str(event.id), None)
