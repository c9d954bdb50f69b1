"""A query gives the same rows over messages, batches of them, rows and files: each form of query."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio import Record, StartFrom, StopAt
from rmqio.batches import Batch
from rmqio.runners import options
from rmqio.sql import SqlTransform, element_time
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax.statements import CreateView
from rmqio.transforms.parts import BatchConstraint
from tests.helpers.oracles import queries
from tests.helpers.transforms.records import record_of
from tests.unit.sql.transform.row_kinds import Event, Pair, Untimed
from tests.unit.sql.transform.support import pipeline, run

__all__ = ["pipeline"]

_TYPES: Final = {
    "f": "DOUBLE", "b": "BOOLEAN", "d": "DATE", "x": "BYTES", "a": "ARRAY<STRING>", "g": "MAP<STRING, BIGINT>",
    "r": "ROW<n BIGINT, w STRING>",
}  # fmt: skip
_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "f": [0.1, 0.0, -1e300, 5e-324], "b": [True, False], "d": [dt.date(1, 1, 1), dt.date(2024, 3, 31)],
    "x": [b"", b"\0\xff", b"ab"], "a": [[], ["a", None], ["\u00e4", "b"]], "g": [{}, {"a": None}, {"b": 2, "a": 1}],
    "r": [{"n": None, "w": None}, {"n": 1, "w": "a"}, {"n": 2**63 - 1, "w": ""}],
}  # fmt: skip
_COLUMNS: Final = (
    "(id BIGINT NOT NULL, k STRING, v BIGINT, m DECIMAL(38, 18), "
    f"{', '.join(map(' '.join, _TYPES.items()))}, ts {{}}, WATERMARK FOR ts AS ts)"
)
LOCAL, INSTANT = (_COLUMNS.format(each) for each in ("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"))
SETTINGS: Final = {"table.exec.state.ttl": "1 h", "table.local-time-zone": "Europe/Berlin"}
_WINDOWS: Final = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_O, _P, _OF_BOTH = map(_WINDOWS.format, ("o", "p", "u"))
_HOPS, _STEPS = (
    _O.replace("TUMBLE", each).replace("ts), ", "ts), INTERVAL '5' SECOND, ") for each in ("HOP", "CUMULATE")
)
_SAME: Final = "l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
_NEAR: Final = "o.k = p.k AND p.ts BETWEEN o.ts - INTERVAL '3' SECOND AND o.ts + INTERVAL '2' SECOND"
_NULL_KEYS: Final = "(SELECT *, MAP[k, v] AS h FROM {0}) AS {0}"
_BOTH: Final = "CREATE VIEW u AS SELECT * FROM o WHERE v > 1 UNION ALL SELECT * FROM p;\n"


def _first(key: str, order: str, limit: str, table: str = "o") -> str:
    rank = f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {order}) AS rn"
    return f"SELECT id, k, rn FROM (SELECT *, {rank} FROM {table}) WHERE {limit}"


FORMS: Final = {
    "the first two": _first("k", "v DESC, id", "rn <= 2"),
    "keep first": _first("k", "ts", "rn = 1"),
    "keep last": _first("k", "ts DESC", "rn = 1"),
    "the first one that comes": "SELECT k, n FROM (SELECT k, 1 AS n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY "
    "PROCTIME()) AS rn FROM o) WHERE rn = 1",
    "the first two of windows": _first("window_start, window_end, k", "v DESC, id", "rn <= 2", _STEPS),
    "the first of windows of a view": _BOTH + _first("window_start, window_end", "m, id", "rn = 1", _OF_BOTH),
    "each type": f"SELECT id, ts, {', '.join(_TYPES)} FROM o",
    "each type as text": f"SELECT id, {', '.join(f'CAST({each} AS STRING) AS {each}' for each in _TYPES)}, "
    "CAST(CAST(ts AS TIMESTAMP_LTZ(3)) AS STRING) AS ts FROM o",
    "parts": "SELECT id, a[2] AS a, g['a'] AS g, r.w, CARDINALITY(g) AS c, DECODE(x, 'ISO-8859-1') AS x, f / 3 AS f, "
    "EXTRACT(DAY FROM d) AS d, NOT b AS b FROM o",
    "groups by each type": f"SELECT f, b, d, x, COUNT(*) AS n FROM {_HOPS} GROUP BY window_start, window_end, "
    "GROUPING SETS (f, b, d, x)",
    "aggregates of each type": "SELECT k, MIN(f) AS f, MAX(d) AS d, SUM(f) AS s, COUNT(DISTINCT x) AS x, "
    "COUNT(DISTINCT b) AS b, LAST_VALUE(a) AS a, FIRST_VALUE(g) AS g, COUNT(r) AS r FROM o GROUP BY k, "
    "SESSION(ts, INTERVAL '2' SECOND)",
    "a join by many types": "SELECT l.id, r.id AS other, l.x, r.a, l.g, r.r "
    f"FROM (SELECT * FROM {_O}) AS l FULL JOIN (SELECT * FROM {_P}) AS r ON l.f = r.f AND l.b = r.b AND l.d = r.d AND "
    "l.window_start = r.window_start AND l.window_end = r.window_end",
    "a join by bytes, arrays and rows": "SELECT o.id, p.id AS other, MAP_KEYS(o.h) AS one, p.h[p.k] AS two FROM "
    f"{_NULL_KEYS.format('o')} LEFT JOIN {_NULL_KEYS.format('p')} ON o.x = p.x AND o.a = p.a AND o.r = p.r",
    "an interval join": f"SELECT o.id, p.id AS other FROM o JOIN p ON {_NEAR}",
    "an outer interval join": f"SELECT o.id, p.id AS other, p.m FROM o FULL JOIN p ON {_NEAR}",
    "rows of OVER": "SELECT id, SUM(v) OVER w AS s, MIN(d) OVER w AS d, LAST_VALUE(g) OVER w AS g FROM o WINDOW w AS "
    "(PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "groups without a window": "SELECT k, b, COUNT(*) AS n, AVG(m) AS m, MAX(f) AS f FROM o GROUP BY k, b HAVING "
    "COUNT(*) > 1",
    "IN, EXISTS and a set operator": "SELECT k, b FROM o WHERE k IN (SELECT k FROM p WHERE v > 2) EXCEPT ALL "
    "SELECT k, b FROM p WHERE EXISTS (SELECT 1 FROM o WHERE o.d = p.d AND o.v < p.v)",
    "a window join": "SELECT l.id, r.id AS other, l.window_start AS s "
    f"FROM (SELECT * FROM {_O}) AS l LEFT JOIN (SELECT * FROM {_P}) AS r ON {_SAME}",
}


def _records(rows: Iterable[dict[str, Any]], zone: str = "") -> list[Record]:
    return [record_of(_json(row).replace('", "m"', f'{zone}", "m"').encode()) for row in rows]


def _json(row: Mapping[str, Any]) -> str:
    known = {name: value for name, value in row.items() if name not in _TYPES}
    return f"{queries.as_json(known)[:-1]}, {json.dumps({name: row[name] for name in _TYPES}, default=_as_text)[1:]}"


def _wide(row: dict[str, Any], random: Random) -> dict[str, Any]:
    return {**row, **{name: random.choice([None, *_VALUES[name]]) for name in _TYPES}}


def _batches(rows: Iterable[dict[str, Any]]) -> list[Batch[Record]]:
    records = _records(rows)
    return [
        Batch(each := records[at : at + 7], records[0].queue, [*range(len(each))]) for at in range(0, len(records), 7)
    ]


def _event(row: Mapping[str, Any]) -> Event:
    amount, pair = row["m"], row["r"]
    return Event(**{**row, "m": amount and Decimal(amount), "r": pair and Pair(**pair)})


def _timed(row: Mapping[str, Any]) -> TimestampedValue:
    at = Timestamp.from_utc_datetime(row["ts"].replace(tzinfo=dt.UTC))
    return TimestampedValue(Untimed(*_event(row)[:-1]), at)


class Files:
    """The tables as files, and queries of them as `rmqio sql` runs them: each writes files, too."""

    def __init__(self, folder: Path, rows: Mapping[str, Iterable[dict[str, Any]]]) -> None:
        self._folder, self._script = folder, Script()
        for name, each in rows.items():
            (folder / f"{name}.json").write_text("".join(f"{_json(row)}\n" for row in each))
            self._run(f"CREATE TABLE {name} {LOCAL} WITH ({self._options(f'{name}.json')})")
        self._run("".join(f"SET '{name}' = '{value}';" for name, value in SETTINGS.items()))
        self.labels: list[str] = []

    def _run(self, text: str) -> None:
        self._script.run(text)

    def _options(self, path: str) -> str:
        return f"'connector' = 'filesystem', 'path' = '{self._folder / path}', 'format' = 'json'"

    def add(self, label: str, text: str) -> None:
        *views, query = text.split(";\n")
        for view in views:
            self._run(view.replace("CREATE VIEW", "CREATE VIEW IF NOT EXISTS"))
        name = f"s{len(self.labels)}"
        self.labels.append(label)
        self._run(view := f"CREATE VIEW v{name} AS {query}")
        (made,) = self._script.texts.parse(view)
        assert isinstance(made, CreateView)
        columns = ", ".join(f"`{each.name}` {each.type.text}" for each in self._script.binder().named(made.name).fields)
        self._run(
            f"CREATE TABLE {name} ({columns}) WITH ({self._options(name)}); INSERT INTO {name} SELECT * FROM v{name}"
        )

    def run(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """Returns the rows of each query that gives some."""
        pipeline = beam.Pipeline(options=options([]))
        Translation(pipeline, Connection(start=StartFrom.earliest(), stop=StopAt.latest())).add_all(self._script.sinks)
        run(pipeline)
        found = {}
        for number, label in enumerate(self.labels):
            lines = [line for path in (self._folder / f"s{number}").glob("*") for line in path.read_text().splitlines()]
            if lines:
                rows = (json.loads(line, parse_float=Decimal).values() for line in lines)
                found[label] = Counter(_hashable(tuple(map(_as_text, row))) for row in rows)
        return found


def _as_text(value: Any) -> Any:
    """Returns a value as JSON has it: times are texts, and so are numbers with a point, with the digits they need."""
    if isinstance(value, float):
        return _as_text(Decimal(repr(value)))
    if isinstance(value, dict) and tuple(value) == Pair._fields:
        return tuple(value.values())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, (dt.datetime, Timestamp)):
        moment = value if isinstance(value, dt.datetime) else value.to_utc_datetime()
        text, _, digits = str(moment.replace(tzinfo=None)).partition(".")
        return f"{text}.{digits}".rstrip("0").rstrip(".") if digits else text
    return value


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


class Inputs:
    """The tables as messages, alone and in batches, as rows with a column of their time, as elements with a time, and
    as files."""

    def __init__(self, pipeline: beam.Pipeline, random: Random, count: int, folder: Path) -> None:
        rows = {name: [_wide(row, random) for row in queries.rows(random, count)] for name in queries.TABLES}
        self._files = Files(folder, rows)

        def made(label: str, values: Callable[[Any], Iterable[Any]], kind: Any) -> dict[str, Any]:
            return {
                name: pipeline
                | f"{label} {name}" >> beam.Create(values(found), reshuffle=False).with_output_types(kind)
                for name, found in rows.items()
            }

        self.local, self.instant = made("local", _records, Record), made("instant", _in_utc, Record)
        self.batches = made("batches", _batches, BatchConstraint(Record))
        self.rows = made("rows", lambda found: map(_event, found), Event)
        stamp = beam.Map(_timed).with_output_types(Untimed)
        self.timed = {
            name: each | f"stamp {name}" >> stamp for name, each in made("timed", list, dict[str, Any]).items()
        }
        self._sides: list[Any] = []
        self._labels: list[str] = []
        self._local: list[str] = []
        """Their messages have the type of time that their batches have."""

    def add(self, label: str, text: str, *, of_elements: bool = False) -> None:
        """Adds a query of all of them."""
        self._labels.append(label)
        ddl, messages = (INSTANT, self.instant) if of_elements else (LOCAL, self.local)
        rowtime, rows = (element_time("ts"), self.timed) if of_elements else ("ts", self.rows)
        wanted = SqlTransform(text, dict.fromkeys(messages, ddl), settings=SETTINGS)
        found = SqlTransform(text, settings=SETTINGS, rowtime=dict.fromkeys(rows, rowtime))
        sides = [messages | f"{label}: messages" >> wanted, rows | f"{label}: rows" >> found]
        batched = SqlTransform(text, dict.fromkeys(messages, LOCAL), settings=SETTINGS)
        sides.append(self.batches | f"{label}: batches" >> batched)
        self._files.add(label, text)
        if not of_elements:
            self._local.append(label)
        for side, each in enumerate(sides):
            as_tuple = beam.Map(lambda row, *place: (*place, tuple(row)), label, side)
            self._sides.append(each | f"{label}: side {side}" >> as_tuple)

    def check(self, *, most_empty: int = 0) -> None:
        """Checks that each query gives the same rows of both, and some: but for a few."""
        least, local = len(self._labels) - most_empty, self._local
        of_files = self._files.run()

        def check(found: Sequence[tuple[str, int, tuple[Any, ...]]]) -> None:
            sides: tuple[dict[str, Counter[Any]], ...] = {}, {}, {}  # messages, rows, batches
            for label, side, row in found:
                sides[side].setdefault(label, Counter())[_hashable(row)] += 1
            messages, rows, batches = sides
            assert len(messages) >= least
            assert rows == messages
            assert {label: batches.get(label) for label in local} == {label: messages.get(label) for label in local}
            for label, each in batches.items():
                assert of_files.pop(label) == Counter(
                    _hashable(tuple(map(_as_text, row))) for row in each.elements()
                ), label
            assert not of_files

        assert_that(self._sides | "Sides" >> beam.Flatten(), check)


def _in_utc(rows: Iterable[dict[str, Any]]) -> list[Record]:
    return _records(rows, "Z")


def test_each_form_gives_the_same_rows(pipeline: beam.Pipeline, tmp_path: Path) -> None:
    given = Inputs(pipeline, Random(5), 40, tmp_path)
    for number, (name, text) in enumerate(FORMS.items()):
        given.add(name, text, of_elements=number % 2 == 1)
    given.check()
    run(pipeline)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [3, 17])
def test_random_queries_give_the_same_rows(pipeline: beam.Pipeline, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    given = Inputs(pipeline, random, 60, tmp_path)
    for number in range(26):
        text, _ = queries.query(random, number)
        given.add(f"{number}: {text}", re.sub(r"CAST\((c\d+) AS STRING\)", r"CAST(\1 AS STRING) AS \1", text))
    given.check(most_empty=5)
    run(pipeline)
