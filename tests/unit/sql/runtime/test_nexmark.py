"""Nexmark's queries give the rows that DuckDB gives, on the Direct runner and a cluster in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

import apache_beam as beam

from bench.nexmark import queries
from bench.nexmark.generator import AUCTION, BID, DISORDER_MS, PERSON, counts, events
from rmqio.runners import options
from rmqio.sql.errors import SqlError
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.oracles.nexmark import QUERIES, Oracle, written
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, run, stored
from tests.unit.sql.runtime.ranks.updating import Endless

COUNT = 2000


class Ran(NamedTuple):
    cluster: InMemoryCluster
    oracle: Oracle


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """All queries as one job."""
    side_input = tmp_path_factory.mktemp("nexmark") / "side_input.csv"
    queries.write_side_input(side_input)
    made = list(events(COUNT))
    with clean_cluster() as cluster:
        for topic in ("nexmark", *(f"nexmark-{name}" for name in queries.THAT_END)):
            cluster.create_topic(topic, 2)
        put(cluster, "nexmark", *(each.body() for each in made))
        run(cluster, queries.script(queries.THAT_END, side_input=side_input))
        yield Ran(cluster, Oracle(made))


@pytest.mark.parametrize("name", queries.THAT_END)
def test_rows_are_those_of_duckdb(name: str, ran: Ran) -> None:
    wanted = ran.oracle.rows(name)
    assert len(wanted) > (1 if name != "q15" else 0)
    found = written((record.body for record in stored(ran.cluster, f"nexmark-{name}")), wanted)
    assert found - wanted == wanted - found


def test_every_query_that_ends_has_an_oracle() -> None:
    assert set(queries.THAT_END) == set(QUERIES)


@pytest.mark.parametrize("name", queries.ALL)
def test_which_queries_a_stream_can_have(name: str) -> None:
    script = Script()
    script.run(queries.script([name]))
    translation = Endless(beam.Pipeline(options=options([])), Connection(name_server="127.0.0.1:9876"))
    if name not in queries.NOT_OF_STREAMS:
        translation.add_all(script.sinks)
        return
    with pytest.raises(SqlError, match="--stop latest"):
        translation.add_all(script.sinks)


def test_a_query_by_the_clock_is_one_of_streams(ran: Ran) -> None:
    ran.cluster.create_topic("nexmark-q12", 2)
    with pytest.raises(SqlError, match="processing time"):
        run(ran.cluster, queries.script(["q12"]))


def test_events_are_the_same_each_time_and_out_of_order_by_little() -> None:
    made = list(events(COUNT, seed=3))
    assert made == list(events(COUNT, seed=3)) != list(events(COUNT, seed=4))
    kinds = [each.event_type for each in made]
    assert tuple(map(kinds.count, (PERSON, AUCTION, BID))) == counts(COUNT) == (40, 120, 1840)
    newest, most = made[0].at, 0.0
    for each in made:
        newest = max(newest, each.at)
        most = max(most, (newest - each.at).total_seconds() * 1000)
    assert DISORDER_MS / 2 < most <= DISORDER_MS


def test_the_script_of_a_test_has_topics_of_its_own() -> None:
    text = queries.script(["q13"], topic="mine", side_input=Path("/data/keys.csv"))
    assert "'topic' = 'mine'" in text
    assert "'topic' = 'mine-q13'" in text
    assert "'topic' = 'nexmark" not in text
    assert "'/data/keys.csv'" in text
