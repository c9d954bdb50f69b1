"""Rows that change, into tables: a version that fails deletes its row, and tombstones go where the row went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio.model import Message
from rmqio.sql.compile.description import Fragment, FromRows, Statement, Step, ToRanks, ToTable
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.planning.plan import Aggregate, Calc
from rmqio.sql.rows import pack_group
from rmqio.sql.runtime.aggregate_fn import AggregateSpec
from rmqio.sql.runtime.groups import GroupChangesFn, GroupsToRanksFn, GroupUpdatesFn
from rmqio.sql.runtime.ranking import rows_of
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.runtime.ranks.updating import QUEUES, Cell, held, put, run

TABLE = "CREATE TABLE t (id INT, k STRING, v BIGINT) WITH ('topic' = 't', 'on-error' = 'skip');"
SINK = "CREATE TABLE sink (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('topic' = 'sink');"
LARGE = 2**63 - 1


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink", "old", "new", "other"):
            made.create_topic(topic, QUEUES)
        yield made


FAILING = "SELECT k, 100 / (3 - COUNT(*)) AS n FROM t GROUP BY k"
SUM = "SELECT k, SUM(v) AS n FROM t GROUP BY k"
TAGGED = "SELECT k, SUM(v) AS n, CAST(100 / SUM(v) AS STRING) AS tags FROM t GROUP BY k"


def spec_of(query: str, metadata: str = "") -> AggregateSpec:
    """The groups of a statement, with what makes messages of their rows."""
    table = SINK.replace("n BIGINT", f"n BIGINT, {metadata}") if metadata else SINK
    script = Script()
    script.run(f"{TABLE} {table} INSERT INTO sink {query};")
    (sink,) = script.sinks
    steps: list[Step] = []
    relation = sink.input
    while isinstance(relation, Calc):
        steps.insert(0, Step(relation.condition, relation.projections))
        relation = relation.input
    assert isinstance(relation, Aggregate)
    fragment = Fragment(
        FromRows(named_fields(relation)),
        tuple(steps),
        ToTable(sink.table, sink.columns),
        statement=Statement("", "skip"),
    )
    return AggregateSpec(relation, relation.input.fields, fragment)


@pytest.mark.parametrize("condition", ["", " HAVING COUNT(*) > 0"])
@pytest.mark.parametrize(
    ("query", "versions", "written"),
    [
        (FAILING, [1, 2, 3, 5], [50, 100, None, -50]),  # an expression
        (SUM, [1, LARGE + 1, 2], [1, None, 2]),  # an aggregate
        (TAGGED, [1, 0, 5], [1, None, 5]),  # metadata: the tombstone goes without
    ],
)
@pytest.mark.parametrize("is_together", [False, True])
def test_a_row_whose_newest_version_fails_is_deleted(
    query: str, versions: list[int], written: list[int | None], condition: str, is_together: bool
) -> None:
    """The table then holds what the query gives for an input that ends: there, too, the row is left out."""
    spec = spec_of(query + condition, "tags STRING METADATA" if query == TAGGED else "")
    fn = (GroupChangesFn if condition else GroupUpdatesFn)(spec)
    fn.setup()
    fn.start_bundle()
    there = Cell()
    found: list[Message] = []
    for version in versions:
        accumulators = [version if number == 0 else 1 for number, _ in enumerate(spec.aggregate.calls)]
        element = b"k", pack_group(("a",), accumulators)
        given: Any = (there, GlobalWindow(), MIN_TIMESTAMP) if condition else (GlobalWindow(), MIN_TIMESTAMP)
        found += [each for batch in fn.process(element, *given) for each in batch]
        if not is_together:
            found += [each for value in fn.finish_bundle() for each in value.value]
            fn.start_bundle()
    found += [each for value in fn.finish_bundle() for each in value.value]
    assert {each.keys for each in found} == {("a",)}
    assert [None if each.is_tombstone else json.loads(each.body)["n"] for each in found] == written


def test_a_group_whose_aggregate_fails_is_none_of_the_first_rows() -> None:
    spec = spec_of(SUM)
    fn = GroupsToRanksFn(replace(spec, fragment=replace(spec.fragment, steps=(), target=ToRanks(()))), ())
    fn.setup()
    found = [rows_of(row) for n in (1, LARGE + 1) for _, row in fn.process((b"k", pack_group(("a",), [n])), None)]
    assert [(identity, bool(row)) for identity, row in found] == [(b"k", True), (b"k", False)]


def test_a_tombstone_has_the_topic_and_the_tag_of_its_row() -> None:
    metadata = "place STRING METADATA FROM 'topic', tags STRING METADATA"
    query = "SELECT k, COUNT(*), IF(k < 'c', 'old', 'new'), UPPER(k) FROM t GROUP BY k HAVING COUNT(*) < 3"
    fn = GroupChangesFn(spec_of(query, metadata))
    fn.setup()
    fn.start_bundle()
    there = Cell()
    for count in (1, 3):
        list(fn.process((b"k", pack_group(("a",), [count])), there, GlobalWindow(), MIN_TIMESTAMP))
    found = [each for value in fn.finish_bundle() for each in value.value]
    assert [(each.topic, each.tags, each.is_tombstone) for each in found] == [("old", "A", False), ("old", "A", True)]


@pytest.mark.parametrize("limit", [1, 2])
def test_a_first_row_that_goes_to_another_topic_is_deleted_where_it_was(limit: int, cluster: InMemoryCluster) -> None:
    sink = SINK.replace("k STRING, n BIGINT", "k STRING, rn BIGINT, id INT, place STRING METADATA FROM 'topic'")
    sink = sink.replace("(k)", "(k, rn)") if limit > 1 else sink.replace("rn BIGINT, ", "")
    number = "rn, " if limit > 1 else ""
    put(cluster, "t", [{"id": n, "k": "ab"[n % 2], "v": n} for n in range(12)])
    run(
        cluster,
        f"{TABLE} {sink} INSERT INTO sink SELECT k, {number}id, CASE WHEN id < 5 THEN 'old' WHEN id < 10 THEN 'new' "
        f"ELSE 'other' END FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS rn FROM t) AS r "
        f"WHERE rn <= {limit};",
        endless=True,
    )
    rows = {topic: [each[-1] for each in held(cluster, topic)] for topic in ("old", "new", "other")}
    assert rows == {"old": [], "new": [8, 9] if limit > 1 else [], "other": [10, 11]}
