"""SQL beside the same work by hand, by DuckDB, and by a plain copy of batches.

python -m bench.sql [--repeats 30] [--batch 512]                     one process, microseconds of CPU a message
python -m bench.sql --runner=DirectRunner [--messages 500000]        topic to topic, messages per second
python -m bench.sql --runner=DirectRunner --eight                    eight statements as one job, and as eight jobs

In one process each side gets the same bodies of JSON, in batches, and must give the same rows: a filter of the IoT
case, of which a tenth passes, and counts and sums by key. By hand is a loop with json.loads and json.dumps. DuckDB
reads and writes JSON itself; it is left out if it is not installed.

From topic to topic, the same filter runs as SQL, as a copy of all batches (`MapRecords` of the identity), and in Beam
element by element with json.loads. The time of the same pipeline on an empty topic is subtracted.

Eight queries over one topic are filters, projections and groups. As one job they share the read and the decoding.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import json
import logging
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import apache_beam as beam

from bench.copying import held, same
from bench.report import BUSY_WARNING, aligned, machine_text
from bench.tally import UnequalWork
from rmqio import ClientOptions, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.runners import options
from rmqio.sql.compile.fragment import Fragment, FromTable, Step, ToGroups, ToTable, compiled
from rmqio.sql.compile.shared import compiled_together
from rmqio.sql.plan import Aggregate, Calc, Relation, Scan
from rmqio.sql.runtime.translation import Connection, Translation
from rmqio.sql.script import Script

TABLES: Final = """
CREATE TABLE source (id STRING, kind STRING, data STRING, note STRING, n BIGINT) WITH ('topic' = 'source');
CREATE TABLE empty (id STRING, kind STRING, data STRING, note STRING, n BIGINT) WITH ('topic' = 'empty');
CREATE TABLE sink (id STRING, data BIGINT, kind STRING) WITH ('topic' = 'sink');
CREATE TABLE totals (kind STRING, n BIGINT, total BIGINT) WITH ('topic' = 'totals');
"""
FILTER: Final = """INSERT INTO sink SELECT id, CAST(data AS BIGINT), kind FROM {source}
WHERE CAST(data AS BIGINT) > 86 AND kind LIKE 'temp%'"""
GROUPS: Final = "INSERT INTO totals SELECT id, COUNT(*), SUM(n) FROM source GROUP BY id"
EIGHT: Final = (
    FILTER,
    "INSERT INTO sink SELECT id, CAST(data AS BIGINT), kind FROM {source} WHERE CAST(data AS BIGINT) < 10",
    "INSERT INTO sink SELECT UPPER(id), CAST(data AS BIGINT), kind FROM {source} WHERE id = 'device-007'",
    "INSERT INTO sink SELECT UPPER(id), n, 'high' FROM {source} WHERE kind LIKE 'hum%' AND CAST(data AS BIGINT) > 80",
    "INSERT INTO sink SELECT id, n, CASE WHEN CAST(data AS BIGINT) > 97 THEN 'alarm' ELSE 'warning' END FROM {source} "
    "WHERE CAST(data AS BIGINT) BETWEEN 95 AND 99",
    "INSERT INTO sink SELECT id, MOD(n, 1000), kind FROM {source} WHERE MOD(n, 1000) = 7",
    "INSERT INTO sink SELECT id, COUNT(*), 'n' FROM {source} GROUP BY id",
    "INSERT INTO sink SELECT kind, SUM(CAST(data AS BIGINT)), 'sum' FROM {source} WHERE id LIKE '%-01%' GROUP BY kind",
)
_QUEUES: Final = 4
_SETTLES_S: Final = 10.0


class Body(NamedTuple):
    """A record, as far as a fragment looks at it."""

    body: bytes


def bodies(count: int) -> list[bytes]:
    """About 150 bytes each; a tenth passes the filter."""
    drawn = random.Random(7)
    rows = (
        {
            "id": f"device-{drawn.randrange(50):03}",
            "kind": "temperature" if drawn.randrange(4) else "humidity",
            "data": str(drawn.randrange(100)),
            "note": "x" * 60,
            "n": n,
        }
        for n in range(count)
    )
    return [json.dumps(row).encode() for row in rows]


# ---- in one process -------------------------------------------------------------------------------------------------


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


def filter_by_hand(batch: Sequence[Body]) -> list[Any]:
    found = []
    for record in batch:
        row = json.loads(record.body)
        data = row["data"]
        if data is not None and int(data) > 86 and row["kind"].startswith("temp"):
            out = {"id": row["id"], "data": int(data), "kind": row["kind"]}
            found.append(json.dumps(out, separators=(",", ":")).encode())
    return found


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


# ---- topic to topic -------------------------------------------------------------------------------------------------


def by_sql(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    script = Script()
    script.run(TABLES + FILTER.format(source=source))
    connection = Connection(name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
    Translation(pipeline, connection).add_all(script.sinks)


def by_copy(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    read = ReadFromRocketMQ(
        source, name_server=name_server, batches=True, start=StartFrom.earliest(), stop=StopAt.latest()
    )
    write = WriteToRocketMQ("sink", name_server=name_server, with_sent=False, batches=True)
    _ = pipeline | read | MapRecords(same) | write


def filtered(record: Record) -> Iterator[Message]:
    for body in filter_by_hand((Body(record.body),)):
        yield Message(body)


def by_elements(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    read = ReadFromRocketMQ(source, name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
    write = WriteToRocketMQ("sink", name_server=name_server, with_sent=False)
    _ = pipeline | read | beam.FlatMap(filtered).with_output_types(Message) | write


def by_eight(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    by_statements(pipeline, name_server, [each.format(source=source) for each in EIGHT])


def by_statements(pipeline: beam.Pipeline, name_server: str, statements: Sequence[str]) -> None:
    script = Script()
    script.run(TABLES + ";".join(statements))
    connection = Connection(name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
    Translation(pipeline, connection).add_all(script.sinks)


def eight_jobs(runner: str, count: int, repeats: int) -> list[list[str]]:
    """A line for eight statements as one job, and one for a job each. Raises `UnequalWork`."""
    times: dict[str, list[float]] = {"sql": [], "eight jobs": []}
    with LocalRocketMQ() as broker, closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for topic in ("source", "empty", "sink"):
            broker.create_topic(topic, queues=_QUEUES)
        fill(broker.name_server, count)
        alone = [functools.partial(_one_statement, statement) for statement in EIGHT]
        for repeat in range(repeats + 1):
            written = []
            for name, builds in (("sql", [by_eight]), ("eight jobs", alone)):
                before = held(client, "sink")
                took = sum(
                    seconds(runner, build, broker.name_server, "source")
                    - seconds(runner, build, broker.name_server, "empty")
                    for build in builds
                )
                time.sleep(2)  # the broker's index follows its log
                written.append(held(client, "sink") - before)
                if repeat:  # the first is to warm up
                    times[name].append(took)
            if len(set(written)) > 1:
                raise UnequalWork(f"one job and eight wrote {written} rows")
    lines = []
    for name, found in times.items():
        ratios = sorted(ours / peer for ours, peer in zip(times["sql"], found, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        lines.append([runner, name, f"{count / statistics.median(found):,.0f}", spread])
    return lines


def _one_statement(statement: str, pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    by_statements(pipeline, name_server, [statement.format(source=source)])


SIDES: Final = {"sql": by_sql, "copy of batches": by_copy, "elements": by_elements}


def seconds(runner: str, build: Callable[[beam.Pipeline, str, str], None], name_server: str, source: str) -> float:
    began = time.perf_counter()
    with beam.Pipeline(options=options([f"--runner={runner}"])) as pipeline:
        build(pipeline, name_server, source)
    return time.perf_counter() - began


def fill(name_server: str, count: int) -> int:
    """Fills the source. Returns how many messages pass the filter."""
    made = bodies(count)

    def lists(_: bytes) -> Iterator[list[Message]]:
        for at in range(0, count, 500):
            yield [Message(each) for each in made[at : at + 500]]

    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as pipeline:
        messages = pipeline | beam.Impulse() | beam.FlatMap(lists).with_output_types(list[Message])
        _ = messages | WriteToRocketMQ("source", name_server=name_server, batches=True, with_sent=False)
    return len(filter_by_hand([Body(each) for each in made]))


def topics(runner: str, count: int, repeats: int) -> list[list[str]]:
    """A line per side. Raises `UnequalWork`."""
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    with LocalRocketMQ() as broker, closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for topic in ("source", "empty", "sink"):
            broker.create_topic(topic, queues=_QUEUES)
        passes = fill(broker.name_server, count)
        empty = {
            name: min(seconds(runner, build, broker.name_server, "empty") for _ in range(3))
            for name, build in SIDES.items()
        }
        for repeat in range(repeats + 1):
            for name, build in SIDES.items():
                before = held(client, "sink")
                took = seconds(runner, build, broker.name_server, "source") - empty[name]
                wanted = count if name == "copy of batches" else passes
                until = time.monotonic() + _SETTLES_S  # the broker's index follows its log
                while (found := held(client, "sink") - before) != wanted and time.monotonic() < until:
                    time.sleep(0.1)
                if found != wanted:
                    raise UnequalWork(f"{name}: {found} messages are in the sink, {wanted} should be")
                if repeat:  # the first is to warm up
                    rates[name].append(count / took)
    lines = []
    for name in SIDES:
        ratios = sorted(ours / peer for ours, peer in zip(rates["sql"], rates[name], strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        lines.append([runner, name, f"{statistics.median(rates[name]):,.0f}", spread])
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sql", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runner", choices=["DirectRunner", "SparkRunner"], help="run from topic to topic on it")
    parser.add_argument("--eight", action="store_true", help="with --runner: eight statements as one job, and as eight")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, help="default: 30 in one process, 5 from topic to topic")
    given = parser.parse_args(argv)
    load_average = os.getloadavg()[0]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    print(f"Machine: {machine_text()}.")
    if given.runner is None:
        head = ["case", "side", "least us", "median us", "ratio to sql"]
        lines = fragments(given.batch, given.repeats or 30) + eight(given.batch, given.repeats or 30)
        print(aligned([head, *lines], left={0, 1}))
    else:
        head = ["runner", "side", "messages/s", "sql's ratio to it"]
        run = eight_jobs if given.eight else topics
        print(aligned([head, *run(given.runner, given.messages, given.repeats or 5)], left={0, 1}))
    if load_average > 0.5:
        print(BUSY_WARNING.format(load_average).strip("*"))


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench import sql

    sql.main()
