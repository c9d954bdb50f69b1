"""SQL beside Flink's own: random expressions and random queries, of which Flink's planner and runtime give the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from bench.common.jvm import find_jdk
from bench.common.tally import BenchError
from bench.sql.flink import FlinkFailed, FlinkSql
from rmqio.sql import values
from rmqio.testing import InMemoryCluster
from tests.helpers.oracles import expressions, queries
from tests.helpers.oracles.flink import FAILED, Flink, ours, same_type, same_value
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, run, stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_AT_ONCE = 40
"""Expressions of one query: each is a job of about a second."""


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkSql]:
    try:
        jdk = find_jdk()
    except BenchError as error:
        pytest.skip(f"no JDK: {error}")
    with FlinkSql(jdk, tmp_path_factory.mktemp("flink-sql")) as started:
        yield started


EXPRESSIONS = [
    pytest.param(1, "UTC", 80, 2, id="UTC"),
    pytest.param(2, "Europe/Berlin", 400, 2, id="Berlin", marks=pytest.mark.exhaustive),
    pytest.param(3, "America/New_York", 400, 3, id="New York, deeper", marks=pytest.mark.exhaustive),
    pytest.param(4, "Asia/Kathmandu", 400, 1, id="Kathmandu, flat", marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("seed", "zone", "count", "depth"), EXPRESSIONS)
def test_expressions_have_the_types_and_values_of_flink(
    seed: int, zone: str, count: int, depth: int, flink: FlinkSql, tmp_path: Path
) -> None:
    random = Random(seed)
    rows = expressions.rows(random, 20)
    kinds = expressions.KINDS
    texts = [expressions.expression(random, kinds[n % len(kinds)], depth) for n in range(count)]
    wrong: list[tuple[Any, ...]] = []
    refused = 0
    theirs = Flink(flink, rows, tmp_path / "rows", zone)
    with values.in_zone(zone):
        for at in range(0, count, _AT_ONCE):
            some = texts[at : at + _AT_ONCE]
            for text, found in zip(some, theirs.columns(some), strict=True):
                if isinstance(found, str):
                    refused += 1  # a few break Flink's optimizer
                    continue
                kind, wanted = found
                type_, given = ours(text, rows)
                if not same_type(type_, kind):
                    wrong.append((text, type_, kind))
                for row, our, flinks in zip(rows, given, wanted, strict=True):
                    if isinstance(our, tuple) and our[0] == FAILED and _overflows(our[1]):
                        continue  # Flink wraps integers, and has NULL for a DECIMAL
                    if not same_value(type_, our, flinks):
                        wrong.append((text, our, flinks, row))
    assert wrong == []
    assert refused <= count // 50


def _overflows(reason: str) -> bool:
    return "out of range" in reason or "has too many digits for DECIMAL" in reason


QUERIES = [
    pytest.param(1, 8, id="a few"),
    pytest.param(2, 40, id="many", marks=pytest.mark.exhaustive),
    pytest.param(3, 40, id="others", marks=pytest.mark.exhaustive),
]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


@pytest.mark.parametrize(("seed", "count"), QUERIES)
def test_queries_have_the_rows_of_flink(
    seed: int, count: int, flink: FlinkSql, cluster: InMemoryCluster, tmp_path: Path
) -> None:
    """All of them as one job of ours, and each as one of Flink's."""
    random = Random(seed)
    data = {name: queries.rows(random, 60) for name in queries.TABLES}
    made = [queries.query(random, number) for number in range(count)]
    flinks, texts = [], ["SET 'table.exec.state.ttl' = '1 h'"]
    for name, rows in data.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.json").write_text("".join(f"{queries.as_json(each)}\n" for each in rows), "utf-8")
        flinks.append(queries.table(name, str(folder)))
        texts.append(queries.table(name))
        cluster.create_topic(name, 2)
        put(cluster, name, *(queries.as_json(each).encode() for each in rows))
    for number, (text, width) in enumerate(made):
        cluster.create_topic(f"sink{number}", 2)
        columns = ", ".join(f"c{n} STRING" for n in range(width))
        texts += [f"CREATE TABLE sink{number} ({columns}) WITH ('topic' = 'sink{number}')"]
        texts += [f"INSERT INTO sink{number} {text}"]
    run(cluster, ";\n".join(texts) + ";")
    wrong, refused = [], []
    for number, (text, _) in enumerate(made):
        try:
            wanted = Counter(flink.rows([*flinks, text]).rows)
        except FlinkFailed as error:
            refused.append((text, error))
            continue
        found = queries.written(each.body for each in stored(cluster, f"sink{number}"))
        if found != wanted:
            wrong.append((text, found - wanted, wanted - found))
    assert wrong == []
    assert len(refused) <= count // 10, refused
