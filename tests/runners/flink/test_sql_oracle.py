"""SQL beside Flink's own: random expressions and random queries, of which Flink's planner and runtime give the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from bench.common.jvm import find_jdk
from bench.common.tally import BenchError
from bench.sql.flink import FlinkFailed, FlinkSql
from rmqio.sql import values
from rmqio.testing import InMemoryCluster
from tests.helpers.oracles import expressions, forms, queries
from tests.helpers.oracles.differences import CALLS, QUERIES, idle, unexplained
from tests.helpers.oracles.flink import Beside, Difference
from tests.helpers.oracles.grid import Grid, calls
from tests.helpers.oracles.jobs import Jobs
from tests.helpers.servers.jvms import SHORT_LIVED
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, run, stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkSql]:
    try:
        jdk = find_jdk()
    except BenchError as error:
        pytest.skip(f"no JDK: {error}")
    with FlinkSql(jdk, tmp_path_factory.mktemp("flink-sql"), options=SHORT_LIVED.split()) as started:
        yield started


EXPRESSIONS = [
    pytest.param(1, "UTC", 80, 2, id="UTC"),
    pytest.param(2, "Europe/Berlin", 400, 2, id="Berlin", marks=pytest.mark.exhaustive),
    pytest.param(3, "America/New_York", 400, 3, id="New York, deeper", marks=pytest.mark.exhaustive),
    pytest.param(4, "Asia/Kathmandu", 400, 1, id="Kathmandu, flat", marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("seed", "zone", "count", "depth"), EXPRESSIONS)
def test_expressions_have_the_types_and_values_of_flink(
    seed: int, zone: str, count: int, depth: int, flink: FlinkSql
) -> None:
    random = Random(seed)
    rows = expressions.rows(random, 20)
    kinds = expressions.KINDS
    texts = [expressions.expression(random, kinds[n % len(kinds)], depth) for n in range(count)]
    with values.in_zone(zone):
        found = Beside(flink, expressions.COLUMNS, rows, zone).differences({each: each for each in texts})
    refused = [each for each in found if each.kind == "refused by Flink"]  # a few break its optimizer
    assert unexplained(CALLS, [each for each in found if each not in refused]) == []
    assert len(refused) <= count // 50


def differences_of_calls(flink: FlinkSql, seed: int, step: int) -> list[Difference]:
    """What differs of each function and form, over a grid of types and their extremes."""
    random = Random(seed)
    some = list(calls(random))[::step]
    grid = Grid(some, random, 40)
    zone = "UTC" if seed % 2 else "Europe/Berlin"
    with values.in_zone(zone):
        return Beside(flink, grid.columns, grid.rows, zone).differences({each.form: grid.text(each) for each in some})


def test_calls_of_a_grid_are_those_of_flink(flink: FlinkSql) -> None:
    assert unexplained(CALLS, differences_of_calls(flink, 2, 9)) == []


SEEDS = range(1, 25)
"""Each entry of the file has a difference with one of them."""


@pytest.mark.exhaustive
def test_differences_of_calls_all_have_a_reason_and_each_reason_a_difference(flink: FlinkSql) -> None:
    found = [each for seed in SEEDS for each in differences_of_calls(flink, seed, 1)]
    assert unexplained(CALLS, found) == []
    assert idle(CALLS, found) == []


RANDOM = [
    pytest.param(1, 8, id="a few"),
    pytest.param(2, 40, id="many", marks=pytest.mark.exhaustive),
    pytest.param(3, 40, id="others", marks=pytest.mark.exhaustive),
]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


@pytest.mark.parametrize(("seed", "count"), RANDOM)
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


@pytest.mark.exhaustive
def test_differences_of_queries_all_have_a_reason_and_each_reason_a_difference(
    flink: FlinkSql, cluster: InMemoryCluster, tmp_path: Path
) -> None:
    jobs = Jobs(flink, cluster, tmp_path, Random(1))
    found = jobs.differences([*forms.windows()], "UTC")
    found += jobs.differences([*forms.windows(), *forms.aggregates()], "Europe/Berlin")
    found += jobs.differences([*forms.joins(), *forms.ranks()], "America/New_York")
    assert unexplained(QUERIES, found) == []
    assert idle(QUERIES, found) == []
