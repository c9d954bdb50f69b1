"""How far a stream has read, as its checkpoint keeps it, and how far it is behind, as metrics."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from rmqio import prometheus, telemetry
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.pyspark.read_options import QueueNumbers, queue_numbers

# How far a stream has read, as Spark keeps it in its checkpoint: JSON.

_NEW: Final = "(new)"
_FIRST: Final = "(first)"
_BEGAN: Final = "(began)"
_WAITING: Final = "(waiting)"
_MARKS: Final = (_NEW, _FIRST, _BEGAN, _WAITING)
"""Names beside those of topics; no topic can have such a name."""


@dataclass(frozen=True, slots=True)
class Position:
    """The offset at which reading resumes in each queue, and the rule for queues that are found later."""

    numbers: QueueNumbers
    began_ms: int | None = None
    """When the stream began, in Unix milliseconds; None: the checkpoint is of an older version."""
    waiting: frozenset[MessageQueue] = frozenset()
    """Queues that existed then, and whose broker has not answered since."""
    is_new: bool = False
    """Whether the stream begins here."""
    first: QueueNumbers | None = None
    """At the end of the first micro-batch: where it began. Spark asks for the beginning again until it is done."""

    @classmethod
    def of(cls, offsets: Mapping[str, Any]) -> Position:
        """Reads Spark's JSON. Raises `LocalError` for JSON that is not of this format."""
        complaint = f"the checkpoint's offsets {offsets} are not of the format rocketmq"

        def numbers(found: Mapping[str, Any]) -> QueueNumbers:
            return queue_numbers(found, complaint)

        return cls(
            numbers({name: value for name, value in offsets.items() if name not in _MARKS}),
            offsets.get(_BEGAN),
            frozenset(numbers(offsets.get(_WAITING, {}))),
            bool(offsets.get(_NEW)),
            numbers(offsets[_FIRST]) if _FIRST in offsets else None,
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the JSON that Spark keeps."""
        found = as_json(self.numbers)
        if self.began_ms is not None:
            found[_BEGAN] = self.began_ms
        if self.waiting:
            found[_WAITING] = as_json(dict.fromkeys(self.waiting, 0))
        if self.is_new:
            found[_NEW] = True
        if self.first is not None:
            found[_FIRST] = as_json(self.first)
        return found


def as_json(numbers: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Returns offsets by topic, broker and queue id, as startingOffsets takes them."""
    found: dict[str, Any] = {}
    for queue, number in sorted(numbers.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = number
    return found


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
