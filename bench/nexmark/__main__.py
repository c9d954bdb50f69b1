"""Nexmark's queries without state beside Flink's own SQL: from a file of JSON to nowhere, one thread each.

python -m bench.nexmark [--events 1000000] [--queries q0,q2] [--repeats 5] [--batch 512]

Both read the same file, decode what they need, and drop the rows. First both count the rows of each query, and must
agree. Flink's time is that of the job less that of the same job on an empty file. Ours is one process that runs the
query's fragment on batches of lines. Needs a JDK; the first time, Flink is fetched (154 MB).
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.common.jvm import find_jdk
from bench.common.report import BUSY_WARNING, aligned, machine_text
from bench.common.tally import UnequalWork
from bench.nexmark import queries
from bench.nexmark.generator import events
from bench.sql.flink import FlinkSql
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Calc, Relation, Scan
from rmqio.sql.scripts.script import Script

STATELESS: Final = ("q0", "q1", "q2", "q10", "q21", "q22")
"""Each is one fragment in both; q14 calls a function in Python."""


class Body(NamedTuple):
    """A record, as far as a fragment looks at it."""

    body: bytes


def fragment_of(name: str) -> Callable[[Sequence[Body]], Any]:
    """Returns a query as a function over records that gives rows."""
    script = Script()
    script.run(queries.script([name]))
    (sink,) = script.sinks
    relation: Relation = sink.input
    steps: tuple[Step, ...] = ()
    while isinstance(relation, Calc):
        steps = (Step(relation.condition, relation.projections), *steps)
        relation = relation.input
    assert isinstance(relation, Scan), f"{name} has state"
    return compiled(Fragment(FromTable(relation.table, relation.columns), steps, ToRows()))


def ours(name: str, file: Path, batch: int) -> tuple[int, float]:
    """Returns how many rows a query gives for a file, and the wall seconds."""
    run = fragment_of(name)
    began = time.perf_counter()
    count = 0
    with file.open("rb") as lines:
        bodies = map(Body, lines)
        while some := list(itertools.islice(bodies, batch)):
            mapped = run(some)
            assert not mapped.failed
            count += len(mapped.values)
    return count, time.perf_counter() - began


def flinks(name: str, folder: Path) -> tuple[list[str], str]:
    """Returns Flink's statements for a query over a folder of JSON: the tables, and the INSERT."""
    text = queries.script([name])
    source = f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json')"
    text = text.replace("WITH ('topic' = 'nexmark')", source)
    text = text.replace(f"WITH ('topic' = 'nexmark-{name}')", "WITH ('connector' = 'blackhole')")
    *tables, insert = (each.strip() for each in text.split(";\n") if each.strip())
    return tables, insert.rstrip(";")


def counted(flink: FlinkSql, name: str, folder: Path) -> int:
    """Returns how many rows Flink gives."""
    tables, insert = flinks(name, folder)
    (row,) = flink.rows([*tables, f"SELECT COUNT(*) FROM ({insert.partition(name)[2]})"]).rows
    return int(row[0])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.nexmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", default=",".join(STATELESS), help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=512)
    given = parser.parse_args(argv)
    names = given.queries.split(",")
    if unknown := sorted(set(names) - set(STATELESS)):
        parser.error(f"--queries: {unknown[0]} is not one of {', '.join(STATELESS)}")
    load_average = os.getloadavg()[0]
    lines = [["query", "rows", "sql, events/s", "Flink, events/s", "sql / Flink"]]
    with tempfile.TemporaryDirectory(prefix="rmqio-nexmark-") as made:
        full, empty = Path(made, "full"), Path(made, "empty")
        for folder in (full, empty):
            folder.mkdir()
        file = full / "events.json"
        with file.open("wb") as out:
            out.writelines(event.body() + b"\n" for event in events(given.events, apart_ms=1))
        (empty / "events.json").touch()
        with FlinkSql(find_jdk(), Path(made), heap="1g") as flink:
            for name in names:
                lines.append(compared(flink, name, file, empty, given.repeats, given.batch, given.events))
                print("  ".join(lines[-1]), file=sys.stderr, flush=True)
    print(f"Machine: {machine_text()}.")
    print(aligned(lines, left={0}))
    if load_average > 0.5:
        print(BUSY_WARNING.format(load_average).strip("*"))


def compared(flink: FlinkSql, name: str, file: Path, empty: Path, repeats: int, batch: int, count: int) -> list[str]:
    """Returns the line of a query. Raises `UnequalWork`."""
    rows, _ = ours(name, file, batch)
    if (theirs := counted(flink, name, file.parent)) != rows:
        raise UnequalWork(f"{name}: sql gives {rows} rows, Flink {theirs}")
    tables, insert = flinks(name, file.parent)
    nothing, _ = flinks(name, empty)
    start = min(flink.seconds([*nothing, insert]) for _ in range(3))
    rates: list[tuple[float, float]] = []
    for _ in range(repeats):
        _, mine = ours(name, file, batch)
        took = max(flink.seconds([*tables, insert]) - start, 1e-3)
        rates.append((count / mine, count / took))
    ratios = sorted(mine / other for mine, other in rates)
    medians = [f"{statistics.median(side):,.0f}" for side in zip(*rates, strict=True)]
    return [name, f"{rows:,}", *medians, f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"]


if __name__ == "__main__":
    main()
