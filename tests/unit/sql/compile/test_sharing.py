"""Statements of one job that share a table: the same rows, errors and letters as each gives by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.compile.description import Fragment, FromTable, Mapped, Step, ToGroups, ToTable, WindowStep
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.compile.shared import compiled_together, first_steps, on_common_columns, shared_expressions
from rmqio.sql.planning.plan import Aggregate, Calc, Relation, Scan, Windowed
from rmqio.sql.scripts.script import Script
from tests.helpers.transforms.records import record_of

TABLES = """
CREATE TABLE t (a INT, b STRING, c DOUBLE, tags STRING METADATA, q INT METADATA FROM 'queue_id' VIRTUAL,
ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');
CREATE TABLE x (a BIGINT, b STRING) WITH ('topic' = 'x', 'format' = 'csv');
CREATE TABLE y (a BIGINT, b STRING, tags STRING METADATA) WITH ('topic' = 'y');
"""
QUERIES = [
    "INSERT INTO x SELECT a, b FROM t",
    "INSERT INTO x SELECT CAST(b AS INT), b FROM t WHERE CAST(b AS INT) > 10",
    "INSERT INTO y SELECT a / (a - 3), UPPER(b), tags FROM t WHERE c IS NOT NULL",
    "INSERT INTO y SELECT CASE WHEN a > 2 THEN CAST(b AS INT) ELSE a END, UPPER(b), 'z' FROM t WHERE UPPER(b) <> 'X'",
    "INSERT INTO x SELECT q, tags FROM t WHERE tags = 'red' OR CAST(b AS INT) = 12",
    "INSERT INTO x SELECT COUNT(*), UPPER(b) FROM t GROUP BY UPPER(b)",
    "INSERT INTO x SELECT SUM(CAST(b AS INT)), 's' FROM t WHERE a > 1",
    "INSERT INTO x SELECT 1, 'nothing' FROM t WHERE FALSE",
    "INSERT INTO x SELECT CAST(b AS INT), CAST(window_end AS STRING) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), "
    "INTERVAL '1' SECOND, INTERVAL '2' SECOND)) WHERE a > 1",
]  # fmt: skip
BODIES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "a": st.one_of(st.integers(-3, 5), st.none(), st.just("many")),
            "b": st.one_of(st.sampled_from(["1", "12", "x", "X", ""]), st.none()),
            "c": st.one_of(st.floats(allow_nan=False), st.none(), st.just("much")),
            "ts": st.sampled_from(["2024-01-01 00:00:00.5", "soon", None]),
        },
    ).map(lambda row: json.dumps(row).encode()),
    st.just(b"{"),
)


def fragments(statements: str) -> Iterator[Fragment]:
    script = Script()
    script.run(TABLES + statements)
    for sink in script.sinks:
        target: Any = ToTable(sink.table, sink.columns)
        steps: tuple[Step, ...] = ()
        relation: Relation = sink.input
        while not isinstance(relation, Scan):
            if isinstance(relation, Aggregate):
                target, steps = ToGroups(relation.keys, None, relation.calls, relation.input.fields), ()
            elif isinstance(relation, Windowed):
                steps = (WindowStep(None, (), relation.window, relation.input.fields), *steps)
            elif isinstance(relation, Calc):
                steps = (Step(relation.condition, relation.projections), *steps)
            (relation,) = relation.inputs()
        yield Fragment(FromTable(relation.table, relation.columns), steps, target)


def shown(mapped: Mapped, groups: dict[Any, Any]) -> Any:
    return mapped.values, mapped.positions, {at: str(error) for at, error in mapped.failed.items()}, groups


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    chosen=st.lists(st.sampled_from(QUERIES), min_size=2, max_size=5),
    bodies=st.lists(st.tuples(BODIES, st.sampled_from(["red", None])), max_size=12),
)
def test_together_as_alone(chosen: list[str], bodies: list[tuple[bytes, str | None]]) -> None:
    found = list(fragments(";".join(chosen) + ";"))
    batch = [record_of(body)._replace(raw_properties=b"TAGS\x01red\x02" if tags else b"") for body, tags in bodies]
    groups: list[dict[Any, Any]] = [{} for _ in found]
    together = compiled_together(found)(batch, groups)
    for number, each in enumerate(found):
        own: dict[Any, Any] = {}
        alone = compiled(each)(batch, own) if isinstance(each.target, ToGroups) else compiled(each)(batch)
        assert shown(together[number], groups[number]) == shown(alone, own)


def test_what_is_shared() -> None:
    def shared(*statements: str) -> int:
        _, _, found = on_common_columns(list(fragments(";".join(statements) + ";")))
        return len(shared_expressions(first_steps(found)))

    assert shared(QUERIES[1], "INSERT INTO x SELECT a, b FROM t WHERE CAST(b AS INT) + 1 = a") == 1
    assert shared(QUERIES[1], "INSERT INTO x SELECT CAST(b AS INT), b FROM t WHERE CAST(b AS INT) = 3") == 1
    random = "INSERT INTO x SELECT CAST(RAND() * 10 AS INT), b FROM t"
    assert shared(random, random) == 0, "two statements have two random numbers"
    assert shared(QUERIES[0], QUERIES[0]) == 0, "columns are decoded once anyway"
