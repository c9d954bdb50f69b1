"""The state of streams on Spark, without Spark: what a level keeps in its buckets after some micro-batches.

Flink's state of a DoFn has the same bytes, in other places.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import trigger
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows

from rmqio import Message, Record
from rmqio.audit.sketch import Hop, Key
from rmqio.audit.transform import TotalsFn
from rmqio.rules import Correlate, CorrelationKind, CorrelationRule, Match
from rmqio.runners.spark import SparkRunner
from rmqio.skew.batches import BoundedGroupIntoBatches
from rmqio.sql import SqlTransform, element_time
from rmqio.transforms.deduplicate import DropDuplicates
from tests.helpers.at_rest.streams import Totals
from tests.helpers.at_rest.things import RECORD
from tests.helpers.spark.spark_stream import Stream

KEPT: Final = [("a", 1, 1), ("b", 2, 2), ("a", 3, 12), ("a", 5, 14), ("b", 4, 15)]
"""Key, value and second of the elements before the stream stops."""
LATER: Final = [("a", 7, 16), ("b", 6, 18), ("a", 9, 27), ("b", 8, 33)]
BEFORE_S, AFTER_S = 13, 10_000
"""How far the watermark is when the stream stops, and in the end."""


class Row(NamedTuple):
    """A row of SQL. `ts` is added."""

    k: str
    n: int


def _row(element: tuple[str, int]) -> Row:
    return Row(*element)


class _Through(beam.PTransform):
    """A function as a transform."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def expand(self, pairs: Any) -> Any:
        return self._function(pairs)


def _sql(query: str) -> Any:
    def through(pairs: Any) -> Any:
        rows = pairs | "Rows" >> beam.Map(_row).with_output_types(Row)
        rows.is_bounded = False
        # Of the clock, and the data are kept for years.
        settings = {"table.exec.state.ttl": "36500 d"}
        found = rows | SqlTransform(query, rowtime=element_time("ts"), settings=settings)
        return found | "Plain" >> beam.Map(_plain)

    return _Through(through)


def _correlated(pairs: Any) -> Any:
    rule = CorrelationRule("c", CorrelationKind.EVENT_COUNT, ("r1",), 20_000, ("u",), "gte", 3)
    matches = pairs | "Match" >> beam.Map(_match).with_output_types(Match)
    return (matches | Correlate([rule])).correlated | "List" >> beam.Map(_list)


def _list(found: Any) -> list[Any]:
    return list(found)


def _plain(found: Any) -> Any:
    return json.loads(json.dumps(tuple(found), default=str))


_AGGREGATES: Final = (
    "COUNT(*) AS c, SUM(n) AS a1, AVG(n) AS a2, MIN(n) AS a3, MAX(n) AS a4, STDDEV_POP(n) AS a5, SUM(n / 2e0) AS a6, "
    "COUNT(DISTINCT n) AS a7, LISTAGG(CAST(n AS STRING)) AS a8, FIRST_VALUE(n) AS a9, LAST_VALUE(n) AS a10, "
    "ARRAY_AGG(n) AS a11, JSON_ARRAYAGG(CAST(n AS STRING)) AS a12, SUM(CAST(n AS DECIMAL(30, 10))) AS a13"
)
_BY_WINDOW: Final = "GROUP BY k, window_start, window_end"
SQL: Final[dict[str, str]] = {
    name: f"SELECT k, window_start AS s, {_AGGREGATES} FROM TABLE({name}(TABLE PCOLLECTION, {arguments})) {_BY_WINDOW}"
    for name, arguments in {
        "TUMBLE": "DESCRIPTOR(ts), INTERVAL '10' SECOND",
        "HOP": "DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND",
        "CUMULATE": "DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND",
    }.items()
} | {
    "SESSION": f"SELECT k, window_start AS s, {_AGGREGATES} FROM TABLE(SESSION(TABLE PCOLLECTION PARTITION BY k, "
    f"DESCRIPTOR(ts), INTERVAL '8' SECOND)) {_BY_WINDOW}",
    "OVER": "SELECT k, n, SUM(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING "
    "AND CURRENT ROW) AS s, COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING "
    "AND CURRENT ROW) AS c FROM PCOLLECTION",
    "join": "SELECT x.k, x.n, y.n AS m FROM PCOLLECTION AS x JOIN PCOLLECTION AS y ON x.k = y.k",
    "interval join": "SELECT x.k, x.n, y.n AS m FROM PCOLLECTION AS x LEFT JOIN PCOLLECTION AS y ON x.k = y.k "
    "AND y.n > x.n AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '5' SECOND",
    "IN": "SELECT k, n FROM PCOLLECTION AS x WHERE n + 2 IN (SELECT n FROM PCOLLECTION AS y WHERE y.k = x.k)",
    "first row": "SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, n / 5 ORDER BY ts) AS r "
    "FROM PCOLLECTION) WHERE r = 1",
    "first rows of windows": "SELECT k, n, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
    "ORDER BY n) AS r FROM TABLE(TUMBLE(TABLE PCOLLECTION, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE r <= 2",
}  # fmt: skip


def _listed(element: tuple[Any, Any], window: Any = beam.DoFn.WindowParam) -> Any:
    found = element[1]
    return [element[0], found if isinstance(found, int) else sorted(found), str(window)]


def _grouped(windowfn: Any, **more: Any) -> Any:
    return beam.WindowInto(windowfn, **more) | beam.GroupByKey() | beam.Map(_listed)


def _record(element: tuple[str, int]) -> Record:
    return RECORD._replace(raw_properties=b"UNIQ_KEY\x01%d\x02" % (element[1] // 4))


def _match(element: tuple[str, int]) -> Match:
    return Match(json.dumps({"u": element[0], "n": element[1]}).encode(), "r1", "T", "high", (), "v1", ())


def _total(element: tuple[str, int]) -> tuple[str, tuple[int, ...]]:
    key = Key("run", "Read", "orders", "broker-a", 0, 0, 0, "")
    return key.text(), (1, element[1], 5, 5, 5)


def _body(message: Message) -> str:
    return message.body.decode()


STREAMS: Final[dict[str, Callable[[], Any]]] = {
    "GroupByKey in fixed windows": lambda: _grouped(FixedWindows(10)),
    "GroupByKey in sessions": lambda: _grouped(Sessions(8)),
    "GroupByKey with a trigger": lambda: _grouped(
        FixedWindows(20), trigger=trigger.AfterWatermark(early=trigger.AfterCount(2), late=trigger.AfterCount(1)),
        accumulation_mode=trigger.AccumulationMode.ACCUMULATING, allowed_lateness=100,
    ),
    "CombinePerKey in sliding windows": lambda: beam.WindowInto(SlidingWindows(10, 5))
    | beam.CombinePerKey(sum) | beam.Map(_listed),
    "state and timers": lambda: beam.WindowInto(FixedWindows(10)) | beam.ParDo(Totals()) | beam.Map(_body),
    "BoundedGroupIntoBatches": lambda: beam.WindowInto(FixedWindows(10)) | BoundedGroupIntoBatches(3)
    | beam.Map(_listed),
    "DropDuplicates": lambda: beam.Map(_record).with_output_types(Record) | DropDuplicates(within_ms=60_000)
    | beam.Map(lambda record: record.raw_properties.decode()),
    "Correlate": lambda: _Through(_correlated),
    "totals of an audit": lambda: beam.Map(_total) | beam.ParDo(TotalsFn(Hop("Read", 0, ()))) | beam.Map(_body),
    **{f"SQL: {name}": functools.partial(_sql, query) for name, query in SQL.items()},
}  # fmt: skip


def fresh(name: str) -> Stream:
    """Returns a stream that has no state."""
    return Stream(STREAMS[name](), beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(["--streaming"])))


def begun(name: str) -> Stream:
    """Returns a stream that has stopped."""
    stream = fresh(name)
    stream.values(KEPT, BEFORE_S, clock=100)
    return stream


def written(name: str) -> dict[str, Any]:
    """Returns the state of a stream that has stopped, and what it gives when it goes on. Numbers are hexadecimal."""
    stream = begun(name)
    state = {
        f"{level}/{bucket}": {name.hex(): value.hex() for name, value in sorted(entries.items())}
        for (level, bucket), entries in stream.entries.items()
    }
    found = rest(stream)
    if found == rest(fresh(name)):
        raise SystemExit(f"{name}: it gives the same without its state")
    return {"state": state, "rest": found}


def resumed(name: str, found: dict[str, dict[str, str]]) -> Stream:
    """Returns a stream with the state of one that has stopped."""
    stream = fresh(name)
    for (level, bucket), entries in stream.entries.items():
        for each, value in found[f"{level}/{bucket}"].items():
            entries.put(bytes.fromhex(each), bytes.fromhex(value))
    return stream


def rest(stream: Stream) -> list[str]:
    """Goes on with a stream. Returns what it gives from then on."""
    found = stream.values(LATER, 20, clock=101) + stream.values([], AFTER_S, clock=102)
    return sorted(map(repr, found))
