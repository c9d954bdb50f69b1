"""In one process: fragments of SQL beside the same work by hand and by DuckDB, in microseconds of CPU a message."""

from __future__ import annotations

import gc
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.common.tally import UnequalWork
from bench.sql.statements import EIGHT, FILTER, GROUPS, TABLES, Body, bodies, filter_by_hand
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToGroups, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.compile.shared import compiled_together
from rmqio.sql.planning.plan import Aggregate, Calc, Relation, Scan
from rmqio.sql.scripts.script import Script


def plan_of(statement: str) -> tuple[Relation, tuple[Step, ...], Any]:
    """The scan of a statement, the steps after it, and what it ends in: a sink, or an aggregate."""
    script = Script()
    script.run(TABLES + statement)
    (sink,) = script.sinks
    end: Any = sink
    relation: Relation = sink.input
    steps: tuple[Step, ...] = ()
    while not isinstance(relation, Scan):
        if isinstance(relation, Aggregate):
            end, steps = relation, ()
        elif isinstance(relation, Calc):
            steps = (Step(relation.condition, relation.projections), *steps)
        (relation,) = relation.inputs()
    return relation, steps, end


def sql_filter() -> Callable[[Sequence[Body]], list[Any]]:
    scan, steps, sink = plan_of(FILTER.format(source="source"))
    assert isinstance(scan, Scan)
    run = compiled(Fragment(FromTable(scan.table, scan.columns), steps, ToTable(sink.table, sink.columns)))
    return lambda batch: run(batch).values


def duckdb_filter() -> Callable[[Sequence[Body]], list[Any]]:
    import duckdb  # type: ignore[import-not-found,unused-ignore]
    import pyarrow as pa

    connection = duckdb.connect(config={"threads": 1})
    # Of three ways to read the fields, the fastest at this size.
    statement = """SELECT to_json({
        id: body->>'$.id', data: CAST(body->>'$.data' AS BIGINT), kind: body->>'$.kind'
    })::VARCHAR FROM given WHERE CAST(body->>'$.data' AS BIGINT) > 86 AND (body->>'$.kind') LIKE 'temp%'"""

    def run(batch: Sequence[Body]) -> list[Any]:
        connection.register("given", pa.table({"body": pa.array([each.body.decode() for each in batch])}))
        return [text.encode() for (text,) in connection.execute(statement).fetchall()]

    return run


def sql_groups() -> Callable[[Sequence[Body]], list[Any]]:
    scan, steps, group = plan_of(GROUPS)
    assert isinstance(scan, Scan)
    target = ToGroups(group.keys, None, group.calls, group.input.fields)
    run = compiled(Fragment(FromTable(scan.table, scan.columns), steps, target))
    return lambda batch: sorted((key, n, total) for (key,), (n, total) in run(batch).values)


def groups_by_hand(batch: Sequence[Body]) -> list[Any]:
    found: dict[str, list[int]] = {}
    for record in batch:
        row = json.loads(record.body)
        totals = found.setdefault(row["id"], [0, 0])
        totals[0] += 1
        totals[1] += row["n"]
    return sorted((key, n, total) for key, (n, total) in found.items())


def duckdb_groups() -> Callable[[Sequence[Body]], list[Any]]:
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(config={"threads": 1})
    statement = """SELECT body->>'$.id' AS id, COUNT(*), CAST(SUM(CAST(body->>'$.n' AS BIGINT)) AS BIGINT)
    FROM given GROUP BY 1 ORDER BY 1"""

    def run(batch: Sequence[Body]) -> list[Any]:
        connection.register("given", pa.table({"body": pa.array([each.body.decode() for each in batch])}))
        return list(connection.execute(statement).fetchall())

    return run


def of_statements(statements: Sequence[str]) -> list[Fragment]:
    """The fragment of each statement."""
    found = []
    for statement in statements:
        scan, steps, end = plan_of(statement)
        assert isinstance(scan, Scan)
        target: Any = (
            ToGroups(end.keys, None, end.calls, end.input.fields)
            if isinstance(end, Aggregate)
            else ToTable(end.table, end.columns)
        )
        found.append(Fragment(FromTable(scan.table, scan.columns), steps, target))
    return found


def eight(batch: int, repeats: int) -> list[list[str]]:
    """A line for eight statements as one fragment, and one for a fragment each. Raises `UnequalWork`."""
    made = [Body(each) for each in bodies(20 * batch)]
    batches = [made[at : at + batch] for at in range(0, len(made), batch)]
    found = of_statements([each.format(source="source") for each in EIGHT])
    together = compiled_together(found)
    alone = [(compiled(each), isinstance(each.target, ToGroups)) for each in found]

    def shared(batch: Sequence[Body]) -> list[Any]:
        return [list(each.values) for each in together(batch, [{} for _ in found])]

    def apart(batch: Sequence[Body]) -> list[Any]:
        return [list((run(batch, {}) if is_grouped else run(batch)).values) for run, is_grouped in alone]

    if shared(batches[0]) != apart(batches[0]):
        raise UnequalWork("eight queries: together they give other rows than each by itself")
    sides = {"sql": shared, "eight times": apart}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            times[name].append(cpu_us(run, batches))
    lines = []
    for name in sides:
        ratios = sorted(peer / ours for ours, peer in zip(times["sql"], times[name], strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        lines.append(
            ["eight queries", name, f"{min(times[name]):.2f}", f"{statistics.median(times[name]):.2f}", spread]
        )
    return lines


def cpu_us(run: Callable[[Sequence[Body]], list[Any]], batches: Sequence[Sequence[Body]]) -> float:
    """Microseconds of CPU a message."""
    gc.collect()
    began = time.process_time()
    for batch in batches:
        run(batch)
    return (time.process_time() - began) / sum(map(len, batches)) * 1e6


def fragments(batch: int, repeats: int) -> list[list[str]]:
    """A line per case and side. Raises `UnequalWork`."""
    made = [Body(each) for each in bodies(20 * batch)]
    batches = [made[at : at + batch] for at in range(0, len(made), batch)]
    cases: dict[str, dict[str, Any]] = {
        "filter, 10 % pass": {"sql": sql_filter(), "by hand": filter_by_hand},
        "partial GROUP BY, 50 keys": {"sql": sql_groups(), "by hand": groups_by_hand},
    }
    if importlib.util.find_spec("duckdb"):
        cases["filter, 10 % pass"]["DuckDB"] = duckdb_filter()
        cases["partial GROUP BY, 50 keys"]["DuckDB"] = duckdb_groups()
    lines = []
    for case, sides in cases.items():
        wanted = sides["by hand"](batches[0])
        for name, run in sides.items():
            if run(batches[0]) != wanted:
                raise UnequalWork(f"{case}: {name} gives other rows than by hand")
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(repeats):
            for name, run in sides.items():
                times[name].append(cpu_us(run, batches))
        for name in sides:
            ratios = sorted(peer / ours for ours, peer in zip(times["sql"], times[name], strict=True))
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
            lines.append([case, name, f"{min(times[name]):.2f}", f"{statistics.median(times[name]):.2f}", spread])
    return lines
