"""Timers of DoFns in one stage: Beam's Direct runner keeps them by name, so that two of one name would lose some.

Over inputs that end two DoFns have timers: that of first rows, which a Reshuffle puts into a stage of its own, and that
of interval joins, whose sides are flattened, where the runner begins a stage, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from rmqio import StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import in_order, put, rows

TABLES = """
CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');
CREATE TABLE sink (a INT, b STRING) WITH ('topic' = 'sink');
"""
FIRST = (
    "SELECT a, b, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY ts) AS rn FROM {}) AS r WHERE rn = 1"
)
TWICE = FIRST.format("b", f"({FIRST.format('a', 't')})")
NEAR = "ts BETWEEN {}.ts - INTERVAL '1' SECOND AND {}.ts"
QUERIES = {
    "first of first": (f"SELECT a, b FROM ({TWICE})", [(0, "x"), (2, "y")]),
    "join of join of first": (
        f"SELECT t.a, CASE WHEN w.a IS NULL THEN 'none' ELSE t.b END FROM ({TWICE}) AS t "
        f"LEFT JOIN t AS v ON t.a = v.a AND v.{NEAR.format('t', 't')} "
        f"LEFT JOIN t AS w ON t.a = w.a + 7 AND w.{NEAR.format('t', 't')}",
        [(0, "none"), (2, "none")],
    ),
}


PAIR = "SELECT t.a, t.b, t.ts FROM {} AS t LEFT JOIN {} AS v ON t.a = v.a AND v." + NEAR.format("t", "t")
FIRST_OF_A = FIRST.format("a", "t")
ROWS = {
    "first of a join": FIRST.format("b", f"({PAIR.format('t', 't')})"),
    "join of a join with itself": PAIR.format(f"({PAIR.format('t', 't')})", f"({PAIR.format('t', 't')})"),
    "join of first rows with first rows": PAIR.format(f"({FIRST_OF_A})", f"({FIRST.format('b', 't')})"),
    "first of a union of first rows": FIRST.format("b", f"({FIRST_OF_A} UNION ALL {FIRST.format('b', 't')})"),
    "join of a union with first rows": PAIR.format(f"({FIRST_OF_A} UNION ALL SELECT a, b, ts FROM t)", "t"),
}
PLANS = {name: query for name, (query, _) in QUERIES.items()} | {
    name: f"SELECT a, b FROM ({query})" for name, query in ROWS.items()
}


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink"):
            made.create_topic(topic, 2)
        for n in range(6):
            put(made, "t", {"a": n // 2 * 2 % 4, "b": "xxyy"[n % 4], "ts": f"2024-01-01 00:00:0{n}"})
        yield made


def pipeline(cluster: InMemoryCluster, query: str) -> beam.Pipeline:
    script = Script()
    script.run(f"{TABLES} INSERT INTO sink {query};")
    made = beam.Pipeline(options=options([]))
    factory = InMemoryClientFactory(cluster.name)
    connection = Connection(start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=factory)
    Translation(made, connection).add_all(script.sinks)
    return made


@pytest.mark.parametrize("name", PLANS)
def test_no_stage_has_two_timers_of_one_name(cluster: InMemoryCluster, name: str) -> None:
    made = pipeline(cluster, PLANS[name])
    _, stages = FnApiRunner().create_stages(made.to_runner_api(use_fake_coders=False))
    count = 0
    for stage in stages:
        names: Counter[str] = Counter()
        for transform in stage.transforms:
            if transform.spec.urn == "beam:transform:pardo:v1":
                payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
                names.update(list(payload.timer_family_specs))
        count += sum(names.values())
        assert all(times == 1 for times in names.values()), names
    assert count > 1, "the plan has too few DoFns with timers"


@pytest.mark.parametrize("name", QUERIES)
def test_all_timers_fire(cluster: InMemoryCluster, name: str) -> None:
    query, wanted = QUERIES[name]
    pipeline(cluster, query).run().wait_until_finish()
    assert rows(cluster) == in_order(wanted)
