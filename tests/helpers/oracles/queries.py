"""Random queries over two tables with times and NULLs, as Flink and we both take them."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

TABLES: Final = ("o", "p")
_COLUMNS: Final = (
    "id BIGINT, k STRING, v INT, m DECIMAL(8, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
)
_START: Final = dt.datetime(2024, 3, 31, 0, 59, 30)


def table(name: str, folder: str | None = None) -> str:
    """Returns CREATE TABLE: of a folder of JSON for Flink, or of the topic of this name."""
    options = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json'" if folder else f"'topic' = '{name}'"
    return f"CREATE TABLE {name} ({_COLUMNS}) WITH ({options})"


def rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Returns rows about a second apart, out of order by less than the watermark waits; no two have one time."""
    made = [
        {
            "id": n,
            "k": random.choice(["a", "b", "c", "d", None]),
            "v": random.choice([None, *range(-3, 8)]),
            "m": random.choice([None, "0.00", "1.25", "-3.10", "99.99", "7.50"]),
            "ts": _START + dt.timedelta(milliseconds=n * 1000 + random.randrange(1000)),
        }
        for n in range(count)
    ]
    made.sort(key=lambda row: row["ts"] + dt.timedelta(milliseconds=random.randrange(3000)))
    return made


def as_json(row: Mapping[str, Any]) -> str:
    """Returns a row as JSON, with its decimal as a number."""
    number = "null" if row["m"] is None else row["m"]
    rest = {**row, "ts": row["ts"].isoformat(sep=" ", timespec="milliseconds")}
    del rest["m"]
    return json.dumps(rest)[:-1] + f', "m": {number}}}'


def written(bodies: Iterable[bytes]) -> Counter[tuple[Any, ...]]:
    """Returns the rows of messages."""
    return Counter(tuple(json.loads(body).values()) for body in bodies)


_CONDITIONS: Final = (
    "{}v > 2", "{}k <> 'a'", "{}m IS NOT NULL", "({}v IS NULL OR {}m < 5.00)", "MOD({}id, 3) <> 1", "{}k LIKE '%'",
    "NOT ({}v < 3 AND {}m > 1)", "({}k = 'b' OR {}v = 0) IS NOT TRUE", "{}m BETWEEN -1 AND 50.5",
    "{}k IN ('a', 'c', NULL)", "{}ts > TIMESTAMP '2024-03-31 00:59:45'", "COALESCE({}v, 1) > 0",
    "{}v IS DISTINCT FROM {}id",
)  # fmt: skip
_AGGREGATES: Final = (
    "COUNT(*)", "COUNT(v)", "SUM(v)", "AVG(v)", "MIN(m)", "MAX(m)", "SUM(m)", "AVG(m)", "COUNT(DISTINCT k)",
    "MIN(k)", "MAX(v)", "COUNT(*) FILTER (WHERE {})", "SUM(m) FILTER (WHERE {})",
)  # fmt: skip
_VALUES: Final = (
    "id", "k", "v", "m", "ts", "v * 2 - id", "k || '-' || CAST(id AS STRING)", "m / 3", "m * v", "v / 2", "-m",
    "CASE WHEN {} THEN k WHEN {} THEN 'x' END", "COALESCE(k, 'none')", "{}", "EXTRACT(MINUTE FROM ts)",
    "FLOOR(ts TO MINUTE)", "ts + INTERVAL '90' SECOND", "CAST(m AS INT)", "CAST(v AS DOUBLE)", "NULLIF(v, 3)",
)  # fmt: skip


class _Choice:
    """Random parts of a query."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.one = random.choice
        self.below = random.randrange

    def condition(self, prefix: str = "") -> str:
        found = [self._random.choice(_CONDITIONS).replace("{}", prefix) for _ in range(1 + self._random.randrange(2))]
        return f"({self._random.choice([' AND ', ' OR ']).join(found)})"

    def filled(self, texts: Iterable[str]) -> list[str]:
        return ["".join(_interleaved(each.split("{}"), self.condition)) for each in texts]

    def aggregates(self) -> list[str]:
        return self.filled(self._random.sample(_AGGREGATES, 3))

    def values(self) -> list[str]:
        return self.filled(self._random.sample(_VALUES, 4))

    def window(self, name: str) -> str:
        size = self.one([10, 20])
        kind, step = self.one([("TUMBLE", ""), ("HOP", "INTERVAL '5' SECOND, "), ("CUMULATE", "INTERVAL '5' SECOND, ")])
        return f"TABLE({kind}(TABLE {name}, DESCRIPTOR(ts), {step}INTERVAL '{size}' SECOND))"


def _interleaved(parts: list[str], condition: Any) -> Iterable[str]:
    for number, part in enumerate(parts):
        yield part if not number else condition() + part


def query(random: Random, number: int) -> tuple[str, int]:
    """Returns a random query whose columns are all texts, and their number. The number goes through the kinds."""
    columns, rest = _KINDS[number % len(_KINDS)](_Choice(random))
    inner = ", ".join(f"{each} AS c{n}" for n, each in enumerate(columns))
    outer = ", ".join(f"CAST(c{n} AS STRING)" for n in range(len(columns)))
    return f"SELECT {outer} FROM (SELECT {inner} {rest})", len(columns)


def _projection(choice: _Choice) -> tuple[list[str], str]:
    return choice.values(), f"FROM o WHERE {choice.condition()}"


def _groups(choice: _Choice) -> tuple[list[str], str]:
    having = choice.one(["", " HAVING COUNT(*) > 4", " HAVING SUM(v) > 5 OR MAX(m) IS NULL"])
    return ["k", *choice.aggregates()], f"FROM o WHERE {choice.condition()} GROUP BY k{having}"


def _windows(choice: _Choice) -> tuple[list[str], str]:
    keys = choice.one(["", ", k"])
    columns = ["window_start", "window_end", *([keys[2:]] if keys else []), *choice.aggregates()]
    return columns, f"FROM {choice.window('o')} WHERE {choice.condition()} GROUP BY window_start, window_end{keys}"


def _sessions(choice: _Choice) -> tuple[list[str], str]:
    session = f"(ts, INTERVAL '{choice.one([2, 3, 6])}' SECOND)"
    columns = ["k", f"SESSION_START{session}", f"SESSION_END{session}", *choice.aggregates()]
    return columns, f"FROM o WHERE {choice.condition()} GROUP BY k, SESSION{session}"


def _nested_windows(choice: _Choice) -> tuple[list[str], str]:
    inner = f"SELECT k, COUNT(*) AS n, SUM(v) AS x, window_start AS s, window_end AS e FROM {choice.window('o')}"
    return ["s", "SUM(n)", "MAX(x)", "COUNT(*)"], f"FROM ({inner} GROUP BY k, window_start, window_end) GROUP BY s, e"


def _join(choice: _Choice) -> tuple[list[str], str]:
    kind = choice.one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    further = choice.one(["", " AND o.v < p.v", " AND o.m = p.m"])
    return ["o.id", "p.id", "o.k", "o.m + p.m"], f"FROM o {kind} p ON o.k = p.k AND o.v = p.v{further}"


def _interval_join(choice: _Choice) -> tuple[list[str], str]:
    kind = choice.one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    low, high = choice.below(6), choice.below(6)
    bound = f"p.ts BETWEEN o.ts - INTERVAL '{low}' SECOND AND o.ts + INTERVAL '{high}' SECOND"
    return ["o.id", "p.id", "COALESCE(o.k, p.k)"], f"FROM o {kind} p ON o.k = p.k AND {bound}"


def _window_join(choice: _Choice) -> tuple[list[str], str]:
    kind, window = choice.one(["JOIN", "LEFT JOIN", "FULL JOIN"]), choice.window("o")
    sides = f"(SELECT * FROM {window}) AS l {kind} (SELECT * FROM {window.replace('TABLE o', 'TABLE p')}) AS r"
    condition = "l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end"
    return ["l.id", "r.id", "l.window_start", "r.window_end"], f"FROM {sides} ON {condition}"


def _in(choice: _Choice) -> tuple[list[str], str]:
    inner = f"p WHERE {choice.condition()}"
    test = choice.one([
        f"k IN (SELECT k FROM {inner})", f"v NOT IN (SELECT v FROM {inner} AND v IS NOT NULL)",
        f"EXISTS (SELECT 1 FROM p WHERE p.k = o.k AND {choice.condition('p.')})",
        f"NOT EXISTS (SELECT 1 FROM p WHERE p.v = o.v AND {choice.condition('p.')})",
    ])  # fmt: skip
    return ["id", "k", "v"], f"FROM o WHERE {test}"


def _first_rows(choice: _Choice) -> tuple[list[str], str]:
    order = choice.one(["v DESC, id", "m, id DESC", "ts", "ts DESC"])
    inner = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS rn FROM o"
    # By several columns, Flink 2.3.0 does not take back a first row when a better one comes: rn = 1 is of time only.
    limit = "rn = 1" if order.startswith("ts") else choice.one(["rn <= 3", "rn <= 2"])
    return ["k", "id", "v", "m"], f"FROM ({inner}) WHERE {limit}"


def _first_of_windows(choice: _Choice) -> tuple[list[str], str]:
    over = "PARTITION BY window_start, window_end, k ORDER BY v DESC, id"
    inner = f"SELECT *, ROW_NUMBER() OVER ({over}) AS rn FROM {choice.window('o')}"
    return ["window_start", "k", "id", "rn"], f"FROM ({inner}) WHERE rn <= 2"


def _over(choice: _Choice) -> tuple[list[str], str]:
    frame = choice.one([
        "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    ])  # fmt: skip
    over = f"OVER (PARTITION BY k ORDER BY ts {frame})"
    calls = choice.one([("COUNT(*)", "SUM(v)"), ("MIN(m)", "MAX(v)"), ("AVG(m)", "COUNT(v)")])
    return ["id", *(f"{each} {over}" for each in calls)], f"FROM o WHERE {choice.condition()}"


def _sets(choice: _Choice) -> tuple[list[str], str]:
    one, other = (f"SELECT k, v, m FROM {name} WHERE {choice.condition()}" for name in TABLES)
    operator = choice.one(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "INTERSECT ALL", "EXCEPT ALL"])
    return ["k", "v", "m"], f"FROM ({one} {operator} {other})"


_KINDS: Final = (
    _projection, _windows, _join, _over, _groups, _interval_join, _nested_windows, _first_rows, _sessions, _window_join,
    _in, _sets, _first_of_windows,
)  # fmt: skip
