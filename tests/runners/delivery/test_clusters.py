"""The cases of `test_delivery` on a Flink cluster and a Spark cluster, each of three processes, started here."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from tests.helpers.ledgers.delivery import Mode, pool
from tests.helpers.ledgers.delivery import flink_cluster as on_flink
from tests.helpers.ledgers.delivery import spark_cluster as on_spark
from tests.helpers.servers import flink_cluster, spark_cluster
from tests.runners.delivery.test_delivery import (  # noqa: F401 - also collected here, with this module's `mode`
    runs,
    test_sink_basic,
    test_sink_goes_on,
    test_sink_metrics,
    test_source_goes_on,
    test_source_idle_reader,
    test_source_metrics,
    test_source_several_queues,
    test_source_single_queue,
    test_source_worker_killed,
)

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in Linux's /proc"),
]

CORES = 3
"""The cores of each of the two workers: the case with the most workers has 5."""


def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mode]:
    cluster = flink_cluster.Cluster(tmp_path_factory.mktemp("flink"), slots=CORES)
    try:
        with pool() as (flags, kill):
            yield on_flink(cluster, flags, kill)
    finally:
        cluster.close()


def spark(tmp_path_factory: pytest.TempPathFactory, *, streaming: bool = False) -> Iterator[Mode]:
    cluster = spark_cluster.Cluster(tmp_path_factory.mktemp("spark"), CORES)
    try:
        yield on_spark(cluster, streaming=streaming)
    finally:
        cluster.close()


def spark_streaming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mode]:
    yield from spark(tmp_path_factory, streaming=True)


@pytest.fixture(scope="module", params=[flink, spark, spark_streaming], ids=["Flink", "Spark", "Spark --streaming"])
def mode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mode]:
    """Starts one cluster at a time: pytest runs all tests of a module-wide parameter in a row."""
    yield from request.param(tmp_path_factory)
