"""UNNEST and LATERAL (query): the rows that DuckDB gives, for arrays and maps with NULLs and without elements."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("duckdb", reason="it is the oracle")

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sql.user.test_functions import compiled_query, run

COLUMNS: Final = {
    "b": "VARCHAR", "n": "BIGINT", "tags": "VARCHAR[]", "numbers": "INTEGER[]", "m": "MAP(VARCHAR, INTEGER)",
    "places": "STRUCT(city VARCHAR, zip INTEGER)[]",
}  # fmt: skip
TEXT: Final = st.none() | st.sampled_from(["", "x", "it's", "Ünï"])
NUMBER: Final = st.none() | st.integers(-5, 5)
ROW: Final = st.fixed_dictionaries({
    "b": TEXT,
    "n": st.integers(0, 3),
    "tags": st.none() | st.lists(TEXT, max_size=3),
    "numbers": st.none() | st.lists(NUMBER, max_size=3),
    "m": st.none() | st.dictionaries(st.sampled_from("xyz"), NUMBER, max_size=3),
    "places": st.none() | st.lists(st.none() | st.tuples(TEXT, NUMBER), max_size=3),
})  # fmt: skip

# Our query, and DuckDB's where it spells it otherwise.
QUERIES: Final = {
    "SELECT n, tag FROM t CROSS JOIN UNNEST(tags) AS u (tag)": "",
    "SELECT n, tag FROM t, UNNEST(tags) AS u (tag) WHERE tag <> 'x' AND n > 0": "",
    "SELECT n, tag FROM t LEFT JOIN UNNEST(tags) AS u (tag) ON TRUE": "",
    "SELECT n, tag FROM t JOIN UNNEST(tags) AS u (tag) ON tag = b": "",
    "SELECT n, tag, i FROM t CROSS JOIN UNNEST(tags) WITH ORDINALITY AS u (tag, i)": "",
    "SELECT n, tag, i FROM t LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u (tag, i) ON TRUE": "",
    "SELECT n, tag, number FROM t, UNNEST(tags) AS u (tag), UNNEST(numbers) AS v (number) WHERE number > n": "",
    "SELECT n, tag FROM t, UNNEST(ARRAY[b, 'y', NULL]) AS u (tag)": "",
    "SELECT n, tag.tag FROM t, UNNEST(tags) AS tag": "SELECT n, tag FROM t, UNNEST(tags) AS u (tag)",
    "SELECT n, city, p.zip FROM t, UNNEST(places) AS p": (
        "SELECT n, p.city, p.zip FROM t, UNNEST(places) AS u (p)"
    ),
    "SELECT n, c, z, i FROM t LEFT JOIN UNNEST(places) WITH ORDINALITY AS p (c, z, i) ON TRUE": (
        "SELECT n, p.city, p.zip, i FROM t LEFT JOIN UNNEST(places) WITH ORDINALITY AS u (p, i) ON TRUE"
    ),
    "SELECT n, k, v FROM t, UNNEST(m) AS u (k, v)": "SELECT n, e.key, e.value FROM t, UNNEST(map_entries(m)) AS u (e)",
    "SELECT n, k, v FROM t LEFT JOIN UNNEST(m) AS u (k, v) ON TRUE": (
        "SELECT n, e.key, e.value FROM t LEFT JOIN UNNEST(map_entries(m)) AS u (e) ON TRUE"
    ),
    "SELECT n, s, c FROM t, LATERAL (SELECT x || b AS s, n * 2 FROM UNNEST(tags) AS u (x) WHERE x <> b) AS q (s, c)": (
        "SELECT n, x || b, n * 2 FROM t, UNNEST(tags) AS u (x) WHERE x <> b"
    ),
    "SELECT n, e FROM t CROSS JOIN LATERAL (SELECT n * 2 AS e) AS q WHERE e > 1": "",
    "SELECT t.n, q.n FROM t, LATERAL (SELECT n + x AS n FROM UNNEST(numbers) AS u (x), UNNEST(tags) AS v (y)) AS q": (
        "SELECT n, n + x FROM t, UNNEST(numbers) AS u (x), UNNEST(tags) AS v (y)"
    ),
}  # fmt: skip


@settings(deadline=None, max_examples=25)
@given(rows=st.lists(ROW, max_size=4))
def test_beside_duckdb(rows: list[dict[str, Any]]) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})")
        for row in rows:
            places = row["places"] and [each and {"city": each[0], "zip": each[1]} for each in row["places"]]
            found = {**row, "places": places}
            connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [found[name] for name in COLUMNS])
        for query, theirs in QUERIES.items():
            wanted = Counter(map(repr, connection.execute(theirs or query).fetchall()))
            run_it, columns = compiled_query(query)
            mapped = run_it([tuple(row[each] for each in columns) for row in rows])
            assert not mapped.failed
            assert Counter(map(repr, mapped.values)) == wanted, query


def test_a_row_that_fails_fails_with_all_its_elements() -> None:
    found = run("SELECT CAST(tag AS INT) FROM t, UNNEST(tags) AS u (tag)", tags=["1", "2", "x", "3"])
    assert (found.values, found.positions) == ([], [])
    assert str(found.failed[0]) == "CAST(tag AS INT): 'x' is not a whole number"


def test_columns_without_an_alias() -> None:
    assert run("SELECT * FROM UNNEST(ARRAY[1, 2])").values == [(1,), (2,)]
    assert run("SELECT `EXPR$0`, ORDINALITY FROM UNNEST(ARRAY[7]) WITH ORDINALITY").values == [(7, 1)]
    assert run("SELECT `KEY`, `VALUE` FROM UNNEST(MAP['a', 1])").values == [("a", 1)]
    assert run("SELECT one + 1 FROM t, UNNEST(ARRAY[1, a]) AS u (one)", a=None).values == [(2,), (None,)]
    assert run("SELECT v + 1 FROM t, UNNEST(MAP['a', 1, 'b', a]) AS u (k, v)", a=None).values == [(2,), (None,)]
    assert run("SELECT city FROM t, UNNEST(places)", places=[None, ("Rome", 1)]).values == [(None,), ("Rome",)]
    assert run("SELECT q.* FROM t, LATERAL (SELECT *, n FROM UNNEST(tags) AS tag) AS q", tags=["x"], n=3).values == [
        ("x", 3)
    ]
