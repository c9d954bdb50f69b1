"""Long and deep expressions: what is accepted runs, and what could not run is refused before it does."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.expressions import DEEPEST, MOST_BLOCKS
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.unit.sql.running import put, rows, run

TABLES = """
CREATE TABLE t (n BIGINT, k STRING) WITH ('topic' = 'source');
CREATE TABLE s (n BIGINT, k STRING) WITH ('topic' = 'sink');
"""


def _alternating(levels: int, width: int) -> str:
    found = "n > 0"
    for level in range(levels):
        sign, other = ("AND", "<>") if level % 2 else ("OR", "=")
        found = f"({f' {sign} '.join(f'n + {level} {other} {100 + i}' for i in range(width))} {sign} {found})"
    return found


def _results_of_results(levels: int) -> str:
    found = "k"
    for level in range(levels):
        found = f"CASE WHEN n > {100 + level} THEN 'a' WHEN n > {-level} THEN {found} ELSE 'b' END"
    return found


LONG = {
    "a chain of operators": ("k" + " || ''" * 250, "TRUE"),
    "calls in calls": ("TRIM(" * 250 + "k" + ")" * 250, "TRUE"),
    "ELSE CASE": ("CASE WHEN n > 100 THEN 'a' ELSE " * 150 + "k" + " END" * 150, "TRUE"),
    "CASE in THEN": (_results_of_results(MOST_BLOCKS - 1), "TRUE"),
    "AND in OR": ("k", _alternating(MOST_BLOCKS - 1, 17)),
    "a long OR": ("k", " OR ".join(f"n = {i}" for i in range(500))),
    "parentheses": ("(" * 1000 + "k" + ")" * 1000, "TRUE"),
    "IN": ("k", f"n IN ({', '.join(map(str, range(500)))})"),
}


def test_long_expressions_run_on_a_worker() -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic("source", queues=2)
        cluster.create_topic("sink", queues=2)
        put(cluster, "source", {"n": 1, "k": "x"})
        inserts = (
            f"INSERT INTO s SELECT {position}, {k} FROM t WHERE {condition};"
            for position, (k, condition) in enumerate(LONG.values())
        )
        run(cluster, TABLES + "\n".join(inserts))
        assert rows(cluster) == [(position, "x") for position in range(len(LONG))]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT n, k" + " || ''" * DEEPEST, f"an expression is nested more than {DEEPEST} levels deep"),
        (f"SELECT n, k FROM t WHERE {_alternating(MOST_BLOCKS + 1, 1)}", f"are nested more than {MOST_BLOCKS} levels"),
        (f"SELECT n, {_results_of_results(MOST_BLOCKS + 2)}", f"AND, OR and CASE are nested more than {MOST_BLOCKS}"),
    ],
)  # fmt: skip
def test_what_is_too_deep_is_refused_when_it_is_checked(query: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        Script().run(f"{TABLES} INSERT INTO s {query if 'FROM' in query else f'{query} FROM t'}")
