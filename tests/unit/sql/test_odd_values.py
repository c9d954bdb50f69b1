"""Whatever the values and the bytes, each row is in a result of a whole statement, is bad for a reason, or is refused.

An exception of a class that nobody expects is counted, and fails the test: see `no_internal_errors`.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.sql.values import ValueFailure
from tests.helpers.oracles.grid import TYPES, VALUES, row
from tests.unit.sql.eager import Eager, body_of
from tests.unit.sql.evaluating import type_of
from tests.unit.sql.formats.support import encode, table_with

_COLUMNS: Final = "id INT, a {}, b {}, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
_TABLE: Final = "CREATE TABLE {} ({}) WITH ('topic' = '{}', 'on-error' = {});"
_LETTERS: Final = "'dead-letter', 'dead-letter-topic' = 'letters'"
_DAYS: Final = "TABLE({}(TABLE t, DESCRIPTOR(ts), {}INTERVAL '1' DAY))"
_WINDOWS: Final = (("TUMBLE", ""), ("HOP", "INTERVAL '12' HOUR, "), ("CUMULATE", "INTERVAL '12' HOUR, "))
_AGGREGATES: Final = (
    "COUNT(a)", "SUM(a)", "AVG(a)", "MIN(a)", "MAX(a)", "VAR_POP(a)", "VAR_SAMP(a)", "STDDEV_POP(a)", "STDDEV_SAMP(a)",
    "LISTAGG(a)", "ARRAY_AGG(a)", "FIRST_VALUE(a)", "LAST_VALUE(a)", "JSON_ARRAYAGG(a NULL ON NULL)",
    "JSON_OBJECTAGG(KEY CAST(id AS STRING) VALUE a)", "JSON_OBJECTAGG(KEY a VALUE id)", "COUNT(DISTINCT a)",
    "SUM(DISTINCT a)", "AVG(DISTINCT a)", "MIN(DISTINCT a)", "LISTAGG(DISTINCT a)", "ARRAY_AGG(DISTINCT a)",
    "VAR_POP(DISTINCT a)", "SUM(a) FILTER (WHERE a > b)", "FIRST_VALUE(MAP[b, a])",
)  # fmt: skip
_OVER: Final = "(PARTITION BY a ORDER BY ts{})"
_FIRST: Final = "SELECT * FROM (SELECT *, {}() OVER (PARTITION BY {} ORDER BY {}) AS rn FROM {}) WHERE rn <= {}"
GROUPS: Final = (
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
    "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b",
    *(f"SELECT b, COUNT(*) AS n, {each} AS m FROM t GROUP BY b" for each in _AGGREGATES),
    *(f"SELECT COUNT(*) AS n, {each} AS m FROM t" for each in _AGGREGATES),
    *(f"SELECT a, COUNT(*) AS n, MAX(b) AS m FROM {_DAYS.format(*each)} GROUP BY a, window_start, window_end"
      for each in _WINDOWS),
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a, SESSION(ts, INTERVAL '1' DAY)",
)  # fmt: skip
"""Their column `n` counts the rows of `t`: HOP twice, and CUMULATE once or twice."""
ROWS: Final = (
    "SELECT id, a, b FROM t", "SELECT id, MAP[a, b] AS m FROM t",
    *(f"SELECT id, {each} OVER {_OVER.format(frame)} AS m FROM t" for each, frame in (
        ("SUM(b)", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"), ("MIN(b)", ""), ("AVG(b)", ""), ("LAG(b, 1, b)", ""),
        ("MAX(b)", " RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW"), ("FIRST_VALUE(b)", ""),
        ("LAST_VALUE(b)", ""), ("ROW_NUMBER()", ""), ("LAST_VALUE(MAP[b, a])", ""),
    )),
    "SELECT id, NTILE(2) OVER (PARTITION BY a ORDER BY b) AS n, LEAD(b) OVER (PARTITION BY a ORDER BY b) AS m FROM t",
    "SELECT id, SUM(b) OVER (PARTITION BY a ORDER BY b) AS n, RANK() OVER (ORDER BY b) AS m FROM t",
    "SELECT a, b FROM t ORDER BY a, b DESC",
)  # fmt: skip
"""Each row of `t` is one of theirs."""
OTHERS: Final = (
    *(f"SELECT t.id, u.id AS i, u.a FROM t {kind} JOIN u ON t.a = u.a{bound}" for kind in ("INNER", "LEFT", "FULL")
      for bound in ("", " AND u.ts BETWEEN t.ts - INTERVAL '1' DAY AND t.ts", " AND t.b < u.b")),
    "SELECT t.id, u.id AS i, t.a FROM t JOIN u ON t.a = u.b",
    "SELECT t.m, u.m AS n FROM (SELECT *, MAP[a, b] AS m FROM t) AS t FULL JOIN (SELECT *, MAP[b, a] AS m FROM u) AS u "
    "ON t.b = u.b",
    "SELECT id FROM t WHERE a IN (SELECT a FROM u)",
    "SELECT id FROM t WHERE a NOT IN (SELECT b FROM u)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.b > t.b)",
    "SELECT id FROM t WHERE a = (SELECT MAX(a) FROM u)",
    "SELECT t.id, w.n FROM t, LATERAL (SELECT COUNT(*) AS n FROM u WHERE u.a = t.a) AS w",
    _FIRST.format("ROW_NUMBER", "a", "b", "t", 2), _FIRST.format("RANK", "b", "a DESC, id", "t", 2),
    _FIRST.format("ROW_NUMBER", "a", "ts", "t", 1), _FIRST.format("ROW_NUMBER", "a", "ts DESC", "t", 1),
    _FIRST.format("ROW_NUMBER", "window_start, window_end", "a", _DAYS.format("TUMBLE", ""), 2),
    _FIRST.format("ROW_NUMBER", "b", "id", "(SELECT *, MAP[a, b] AS m FROM t)", 2),
    "SELECT DISTINCT a FROM t", "SELECT a, b FROM t UNION SELECT a, b FROM u",
    "SELECT a, b FROM t EXCEPT ALL SELECT a, b FROM u", "SELECT a FROM t INTERSECT SELECT a FROM u",
    "SELECT a, b, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((a), (b), ())",
    "SELECT a, MAX(b) AS m FROM t GROUP BY a HAVING MAX(b) > MIN(b)",
    "SELECT t.id, e FROM t CROSS JOIN UNNEST(a) AS x (e)",
    "SELECT COUNT(*) AS n, a + b AS s FROM t GROUP BY a + b",
    "SELECT a, b FROM t ORDER BY a, b DESC LIMIT 3",
)  # fmt: skip
_FORMATS: Final = (
    "'format' = 'json'", "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'", "'format' = 'csv'",
    "'format' = 'key-value'", "'format' = 'avro'", "'format' = 'raw'",
)  # fmt: skip
_ODD: Final = (
    b"", b"{", b"null", b"\xff", b"[]", b'{"id": "x"}', b'{"a": {"x": [1e999]}, "b": [[]], "ts": "0000-00-00"}',
    b'{"id": 1, "a": "\\ud800", "b": "\\udfff", "ts": "1970-01-01 00:00:00"}',
    b'{"id": 1, "a": ' + b"9" * 400 + b', "b": 1e400, "ts": "9999-12-31 23:59:59.999"}',
)  # fmt: skip
_TIMES: Final = (None, 0, 1_000, 43_200_000_000, 86_400_000_000, *VALUES["TIMESTAMP(3)"])


def bodies(types: tuple[str, str], random: Random, count: int) -> list[bytes]:
    """Returns messages with values of these types in `a` and `b`; the value before often comes again in `a`."""
    kinds = {"id": "INT", "a": types[0], "b": types[1], "ts": "TIMESTAMP(3)"}
    table = table_with([(name, type_of(kind)) for name, kind in kinds.items()])
    made: list[bytes] = []
    last = None
    while len(made) < count:
        one, other = row(types, random)
        last = random.choice((one, last))
        try:
            made.append(encode(table, (len(made), last, other, random.choice(_TIMES))))
        except (ValueFailure, UnicodeError):
            last = None
    return made + random.sample(_ODD, 3)


def _window(query: str) -> str:
    return query.partition("TABLE(")[2].partition("(")[0]


def ran(query: str, types: tuple[str, str], random: Random) -> bool:
    """Runs a statement, unless it is refused. Returns whether it ran."""
    columns, on_error = _COLUMNS.format(*types), random.choice([_LETTERS, _LETTERS, "'null'"])
    tables = "".join(_TABLE.format(name, columns, name, on_error) for name in "tu")
    script = Script()
    try:
        script.run(f"{tables} EXPLAIN {query};")
    except SqlError:
        return False
    fields = script.explained[0].fields
    columns = ", ".join(f"`{each.name}` {each.type}" for each in fields)
    given = {"t": bodies(types, random, 12), "u": bodies(types, random, 6)}
    key = random.choice(["", f", PRIMARY KEY (`{fields[0].name}`) NOT ENFORCED"])
    for is_endless, form in ((random.random() < 0.5, random.choice(_FORMATS)), (False, _FORMATS[0])):
        sink = f"CREATE TABLE sink ({columns}{key if is_endless else ''}) WITH ('topic' = 'sink', {form});"
        eager = Eager(given, is_endless=is_endless)
        script = Script()
        try:
            script.run(f"{tables} {sink} INSERT INTO sink {query};")
            found = eager.run(script.sinks[0])
        except SqlError:
            continue
        assert all(each.reason for each in eager.letters)
        if on_error == _LETTERS and not (is_endless and key):
            check(query, found if "json" in form else None, eager.letters, len(given["t"]))
        return True
    return False


def check(query: str, found: list[Any] | None, letters: list[Any], count: int) -> None:
    """Checks that each row of `t` is in a result, or is bad. `found`: what was written, if it is JSON."""
    if query in ROWS and found is not None:
        assert len(found) + len(letters) == count, query
    elif query in GROUPS and found is not None and all(each.topic for each in letters):  # bad groups have no topic
        counted, good = sum(json.loads(body_of(each))["n"] for each in found), count - len(letters)
        assert counted in {"HOP": [2 * good], "CUMULATE": range(good, 2 * good + 1)}.get(_window(query), [good]), query


@pytest.mark.parametrize(
    ("seed", "rounds"), [(10, 1), *(pytest.param(seed, 5, marks=pytest.mark.exhaustive) for seed in range(1, 10))]
)
def test_statements(seed: int, rounds: int) -> None:
    random = Random(seed)
    statements = (*GROUPS, *ROWS, *OTHERS) * rounds
    assert sum(ran(each, (random.choice(TYPES), random.choice(TYPES)), random) for each in statements) > 30 * rounds
