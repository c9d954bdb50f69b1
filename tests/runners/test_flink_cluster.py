"""`--runner=FlinkRunner` on a real Flink cluster: a JobManager, two TaskManagers, and a pool of Python workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from rmqio.local import LocalRocketMQ
from rmqio.runners import options
from rmqio.runners.flink.servers import SERVERS
from tests.helpers.flink_cluster import Cluster
from tests.helpers.jobs import Job, started
from tests.helpers.orders import Bench
from tests.helpers.spark_cluster import end_with_the_tests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="processes of the cluster end with the tests by prctl"),
]

COUNT = 300_000  # a stop takes seconds, in which no more than half of them are read


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("flink"))
    yield running
    SERVERS.stop_all()
    running.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[list[str]]:
    """The flags with which a job uses the pool."""
    pool = subprocess.Popen(
        [sys.executable, "-m", "rmqio.runners.flink", "workers", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_the_tests,
    )
    assert pool.stdout is not None
    yield pool.stdout.readline().split()
    pool.terminate()
    assert pool.wait(30) == 0
    pool.stdout.close()


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(rocketmq, tmp_path)
    yield made
    made.client.close()


def on(cluster: Cluster, workers: list[str], *more: str) -> list[str]:
    return ["--runner=FlinkRunner", f"--flink_master={cluster.address}", *workers, *more]


def test_a_batch_job_on_both_task_managers(cluster: Cluster, workers: list[str]) -> None:
    flags = on(cluster, workers, "--parallelism=2")
    with beam.Pipeline(options=options(flags)) as pipeline:
        words = pipeline | beam.Create(["to", "be", "or", "not", "to", "be"])
        assert_that(words | beam.combiners.Count.PerElement(), equal_to([("to", 2), ("be", 2), ("or", 1), ("not", 1)]))
    assert {each.state for each in cluster.rest.jobs()} == {"FINISHED"}


def orders(bench: Bench, cluster: Cluster, workers: list[str], *more: str) -> Job:
    flags = on(cluster, workers, "--checkpointing_interval=500", *more)[1:]
    return bench.job(*flags, runner="FlinkRunner")


def test_a_lost_task_manager_changes_nothing(bench: Bench, cluster: Cluster, workers: list[str]) -> None:
    bench.send(COUNT)
    with started(orders(bench, cluster, workers, "--parallelism=2")) as job:
        job.wait_until(lambda: bench.committed() >= 0.2 * COUNT, "a fifth of the orders to be committed")
        cluster.lose(cluster.task_managers[0])
        lost_at = bench.committed()
        assert 0.2 * COUNT <= lost_at <= 0.8 * COUNT, lost_at
        bench.send(2_000)  # before the job can go on, and idle queues close the windows
        cluster.start_task_manager()
        job.wait_until(bench.are_there, "all totals", timeout_s=300)
        job.wait_until(lambda: bench.committed() == bench.sent, "all offsets to be committed")
        assert job.interrupt() == 130, job.log.read_text()
    bench.check()
    assert not [each for each in cluster.rest.jobs() if not each.has_ended], "Ctrl-C ends the job on the cluster"


# From and to 1 Flink refuses it: it chains a step to a source only where both have one subtask, and a chain is another
# operator than its parts.
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)], ids=["scale up", "scale down"])
def test_a_savepoint_is_resumed_with_another_parallelism(
    before: int, after: int, bench: Bench, cluster: Cluster, workers: list[str]
) -> None:
    bench.send(COUNT)
    with started(orders(bench, cluster, workers, f"--parallelism={before}")) as job:
        job.wait_until(lambda: bench.committed() >= 0.2 * COUNT, "a fifth of the orders to be committed")
        (running,) = (each for each in cluster.rest.jobs() if not each.has_ended)
        savepoint = cluster.rest.stop(running.id)
        job.process.wait(60)
    stopped_at = bench.committed()
    assert 0.2 * COUNT <= stopped_at < COUNT, stopped_at
    bench.send(2_000)
    with started(orders(bench, cluster, workers, f"--parallelism={after}", f"--savepoint_path={savepoint}")) as job:
        job.wait_until(bench.are_there, "all totals", timeout_s=300)
        job.wait_until(lambda: bench.committed() == bench.sent, "all offsets to be committed")
        assert job.interrupt() == 130, job.log.read_text()
    bench.check()
