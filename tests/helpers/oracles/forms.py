"""Each aggregate, window, join, rank and set operation, over columns of several types: queries for Flink and for us."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final, NamedTuple

from tests.helpers.oracles.grid import VALUES, sendable
from tests.unit.sql.evaluating import type_of
from tests.unit.sql.formats.support import encode, table_with

_MINUTE: Final = 60_000_000
_SPRING, _AUTUMN = 1_711_832_400_000_000, 1_729_965_600_000_000
"""The evening before the clocks of Berlin change."""
_OF_TYPES: Final = {
    "s": "STRING", "i": "INT", "l": "BIGINT", "y": "TINYINT", "m": "DECIMAL(5, 2)", "n": "DECIMAL(38, 0)",
    "d": "DOUBLE", "f": "FLOAT", "b": "BOOLEAN", "e": "DATE", "h": "TIME", "w": "TIMESTAMP(3)",
    "z": "TIMESTAMP_LTZ(3)", "x": "BYTES", "a": "ARRAY<STRING>", "p": "MAP<STRING, STRING>",
    "r": "ROW<a INT, b STRING>",
}  # fmt: skip
"""A column of each type; JSON, in which Flink reads them, has maps of text only."""
_KEYS: Final = tuple(each for each in _OF_TYPES if each not in "apr")
TABLES: Final = {"o": "TIMESTAMP(3)", "q": "TIMESTAMP(3)", "oz": "TIMESTAMP_LTZ(3)", "qz": "TIMESTAMP_LTZ(3)"}
"""The tables, and the type of their time."""


class Form(NamedTuple):
    """A query of one form: its name, with types instead of columns, its columns behind SELECT, and the rest."""

    name: str
    columns: tuple[str, ...]
    rest: str


def query(forms: Sequence[Form]) -> str:
    """Returns one query for forms that differ in their last column only: it has that of each.

    All of its columns are texts, since JSON is where they go.
    """
    columns = [*forms[0].columns[:-1], *(each.columns[-1] for each in forms)]
    inner = ", ".join(f"{each} AS c{n}" for n, each in enumerate(columns))
    outer = ", ".join(f"CAST(c{n} AS STRING) AS c{n}" for n in range(len(columns)))
    return f"SELECT {outer} FROM (SELECT {inner} {forms[0].rest})"


def _columns(name: str) -> dict[str, str]:
    return {"id": "BIGINT", "g": "STRING", **_OF_TYPES, "ts": TABLES[name]}


def table(name: str, options: str) -> str:
    """Returns CREATE TABLE with these options."""
    declared = ", ".join(f"{column} {kind}" for column, kind in _columns(name).items())
    return f"CREATE TABLE {name} ({declared}, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE) WITH ({options})"


def bodies(name: str, random: Random, count: int) -> list[bytes]:
    """Returns rows of a table as JSON, in order of time: the values of group `n` are all NULL."""
    made = table_with({each: type_of(kind) for each, kind in _columns(name).items()})
    found = []
    for number in range(count):
        group = random.choice(["a", "b", "n", None])
        values = [None if group == "n" else random.choice((None, *_few(each))) for each in _OF_TYPES.values()]
        start = _SPRING if number < count // 2 else _AUTUMN
        ts = start + (number % (count // 2)) * 37 * _MINUTE + random.randrange(60) * 1_000_000
        found.append(encode(made, (number, group, *values, ts)))
    return found


def _few(kind: str) -> tuple[Any, ...]:
    """Values of a type, few enough that rows of two tables meet; not those that no sum or no body can hold."""
    if kind == "STRING":
        return ("", "a", "B", "Straße", "12")
    if kind == "DECIMAL(38, 0)":
        return (Decimal(0), Decimal("9" * 30), Decimal("-" + "9" * 30))
    if kind in ("TINYINT", "INT", "BIGINT"):
        return (0, 1, -1, 2, 5)
    if kind in ("DOUBLE", "FLOAT"):
        return (0.0, 1.5, -2.5, 1e3)  # Flink's sums before OVER lose what is small beside more
    if kind == "TIMESTAMP_LTZ(3)":
        return tuple(each for each in VALUES[kind] if abs(each) < 10**17 // 2)  # years that there are in all zones
    return sendable(VALUES[kind])


_AGGREGATES: Final = (
    "COUNT({v})", "SUM({v})", "AVG({v})", "MIN({v})", "MAX({v})", "VAR_POP({v})", "VAR_SAMP({v})", "STDDEV_POP({v})",
    "STDDEV_SAMP({v})", "LISTAGG({v})", "ARRAY_AGG({v})", "FIRST_VALUE({v})", "LAST_VALUE({v})", "JSON_ARRAYAGG({v})",
    "JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE {v})", "APPROX_COUNT_DISTINCT({v})",
)  # fmt: skip
_HOW: Final = (
    ("", ""), ("DISTINCT ", ""), ("", " FILTER (WHERE id > 9)"), ("DISTINCT ", " FILTER (WHERE id < 0)"),
)  # fmt: skip


def aggregates() -> Iterator[Form]:
    """Yields each aggregate of each type, plain, with DISTINCT and with FILTER, of groups and of no rows."""
    for column, kind in _OF_TYPES.items():
        for call in _AGGREGATES:
            for distinct, condition in _HOW:
                text, name = (call.format(v=f"{distinct}{each}") + condition for each in (column, kind))
                yield Form(name, ("g", text), "FROM o GROUP BY g")
            yield Form(f"{call.format(v=kind)} of no rows", (call.format(v=column),), "FROM o WHERE id < 0")


_WINDOWS: Final = {
    "TUMBLE": "INTERVAL '2' HOUR", "HOP": "INTERVAL '1' HOUR, INTERVAL '3' HOUR",
    "CUMULATE": "INTERVAL '1' HOUR, INTERVAL '6' HOUR", "TUMBLE of a day": "INTERVAL '1' DAY",
    "HOP of days": "INTERVAL '12' HOUR, INTERVAL '1' DAY", "CUMULATE of days": "INTERVAL '6' HOUR, INTERVAL '1' DAY",
    "TUMBLE from 20 minutes": "INTERVAL '1' HOUR, INTERVAL '20' MINUTE",
}  # fmt: skip


def windows() -> Iterator[Form]:
    """Yields windows of all forms, in FROM and in GROUP BY, of both types of time."""
    for name, time in (("o", "TIMESTAMP"), ("oz", "TIMESTAMP_LTZ")):
        for window, sizes in _WINDOWS.items():
            kind = window.split()[0]
            table_function = f"TABLE({kind}(TABLE {name}, DESCRIPTOR(ts), {sizes}))"
            bounds = ("window_start", "window_end")
            group = f"FROM {table_function} GROUP BY window_start, window_end"
            yield Form(f"{window} by {time}", (*bounds, "COUNT(*)", "SUM(i)", "MIN(s)"), group)
            times = ("g", "window_time", "COUNT(DISTINCT s)")
            yield Form(f"{window} by {time}, with keys", times, f"{group}, window_time, g")
            yield Form(f"{window} by {time}, each row", ("id", *bounds, "window_time"), f"FROM {table_function}")
            if kind == "CUMULATE":
                continue
            old = f"(ts, {sizes})"
            ends = tuple(f"{kind}_{each}{old}" for each in ("START", "END", "ROWTIME"))
            rest = f"FROM {name} GROUP BY g, {kind}{old}"
            yield Form(f"{window} in GROUP BY, by {time}", (*ends, "g", "COUNT(*)"), rest)
        for gap in ("'36' MINUTE", "'2' HOUR"):
            session = f"TABLE(SESSION(TABLE {name} PARTITION BY g, DESCRIPTOR(ts), INTERVAL {gap}))"
            columns = ("g", "window_start", "window_end", "COUNT(*)")
            rest = f"FROM {session} GROUP BY g, window_start, window_end"
            yield Form(f"SESSION of {gap} by {time}", columns, rest)
            old = f"(ts, INTERVAL {gap})"
            ends = tuple(f"SESSION_{each}{old}" for each in ("START", "END", "ROWTIME"))
            rest = f"FROM {name} GROUP BY g, SESSION{old}"
            yield Form(f"SESSION of {gap} in GROUP BY, by {time}", ("g", *ends, "COUNT(*)"), rest)


_OF_6_HOURS: Final = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '6' HOUR))"


def joins() -> Iterator[Form]:
    """Yields joins of all forms by a key of each type, and sub-queries."""
    for key in _KEYS:
        kind = _OF_TYPES[key]
        for join in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"):
            sides = f"FROM o {join} q ON o.{key} = q.{key}"
            yield Form(f"{join} by {kind}", ("o.id", "q.id", f"o.{key}"), sides)
            bound = "q.ts BETWEEN o.ts - INTERVAL '1' HOUR AND o.ts + INTERVAL '2' HOUR"
            yield Form(f"{join} by {kind} and an interval", ("o.id", "q.id"), f"{sides} AND {bound}")
            one, other = (f"(SELECT * FROM {_OF_6_HOURS.format(each)})" for each in "oq")
            on = f"l.{key} = r.{key} AND l.window_start = r.window_start AND l.window_end = r.window_end"
            rest = f"FROM {one} l {join} {other} r ON {on}"
            yield Form(f"{join} by {kind} and a window", ("l.id", "r.id", "l.window_start"), rest)
        inner = f"SELECT {key} FROM q"
        yield Form(f"IN of {kind}", ("id", key), f"FROM o WHERE {key} IN ({inner})")
        known = f"{inner} WHERE {key} IS NOT NULL AND id < 5"
        yield Form(f"NOT IN of {kind}", ("id", key), f"FROM o WHERE {key} NOT IN ({known})")
        yield Form(f"NOT IN of {kind} and NULL", ("id", key), f"FROM o WHERE {key} NOT IN ({inner} WHERE id < 5)")
        exists = f"EXISTS (SELECT 1 FROM q WHERE q.{key} = o.{key})"
        yield Form(f"EXISTS by {kind}", ("id",), f"FROM o WHERE {exists}")
        yield Form(f"NOT EXISTS by {kind}", ("id",), f"FROM o WHERE NOT {exists}")


_FRAMES: Final = (
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "RANGE BETWEEN INTERVAL '2' HOUR PRECEDING AND CURRENT ROW",
)  # fmt: skip


def ranks() -> Iterator[Form]:
    """Yields top-n and deduplication in order of each type, DISTINCT, groups and set operations."""
    for key in _KEYS:
        kind = _OF_TYPES[key]
        for order in ("", " DESC"):
            over = f"ROW_NUMBER() OVER (PARTITION BY g ORDER BY {key}{order}, id)"
            rest = f"FROM (SELECT *, {over} AS rn FROM o) WHERE rn <= 3"
            yield Form(f"top 3 by {kind}{order}", ("g", "id", key, "rn"), rest)
            over = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY {key}{order}, id)"
            rest = f"FROM (SELECT *, {over} AS rn FROM {_OF_6_HOURS.format('o')}) WHERE rn <= 2"
            yield Form(f"top 2 of windows by {kind}{order}", ("window_start", "id", "rn"), rest)
        for order in ("ts", "ts DESC"):
            over = f"ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {order})"
            rest = f"FROM (SELECT *, {over} AS rn FROM o) WHERE rn = 1"
            yield Form(f"first by {order} of {kind}", (key, "id"), rest)
        yield Form(f"DISTINCT of {kind}", (key,), f"FROM (SELECT DISTINCT {key} FROM o)")
        yield Form(f"GROUP BY {kind}", (key, "COUNT(*)", "MAX(id)"), f"FROM o GROUP BY {key} HAVING COUNT(*) > 1")
        for operator in ("UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"):
            rest = f"FROM (SELECT {key} AS k FROM o {operator} SELECT {key} FROM q)"
            yield Form(f"{operator} of {kind}", ("k",), rest)
    for call in ("COUNT({v})", "SUM({v})", "AVG({v})", "MIN({v})", "MAX({v})", "FIRST_VALUE({v})", "LAST_VALUE({v})"):
        for column, kind in _OF_TYPES.items():
            for frame in _FRAMES:
                window = f"WINDOW w AS (PARTITION BY g ORDER BY ts {frame})"
                name = f"{call.format(v=kind)} OVER {frame.split()[0]}"
                yield Form(name, ("id", f"{call.format(v=column)} OVER w"), f"FROM o {window}")
