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
from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.jobserver import SERVERS
from tests.helpers.ledgers.kept import KeptBench
from tests.helpers.programs import submitted_provinces
from tests.helpers.servers.flink_cluster import Cluster
from tests.helpers.servers.jobs import Job, started
from tests.helpers.servers.spark_cluster import END_WITH_THE_TESTS
from tests.helpers.waiting import at_most

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="processes of the cluster end with the tests by prctl"),
]

FIRST = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("flink"))
    yield running
    SERVERS.stop_all()
    running.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[list[str]]:
    """Yields the flags with which a job uses the pool."""
    pool = subprocess.Popen(
        [*END_WITH_THE_TESTS, sys.executable, "-m", "rmqio.runners.flink", "workers", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pool.stdout is not None
    yield pool.stdout.readline().split()
    pool.terminate()
    assert pool.wait(at_most(30)) == 0
    pool.stdout.close()


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, cluster: Cluster, tmp_path: Path) -> Iterator[KeptBench]:
    made = KeptBench(rocketmq, tmp_path)
    yield made
    cluster.cancel_all()
    made.client.close()


def on(cluster: Cluster, workers: list[str], *more: str) -> list[str]:
    return ["--runner=FlinkRunner", f"--flink_master={cluster.address}", *workers, *more]


def test_a_batch_job_on_both_task_managers(cluster: Cluster, workers: list[str]) -> None:
    flags = on(cluster, workers, "--parallelism=2")
    with beam.Pipeline(options=options(flags)) as pipeline:
        words = pipeline | beam.Create(["to", "be", "or", "not", "to", "be"])
        assert_that(words | beam.combiners.Count.PerElement(), equal_to([("to", 2), ("be", 2), ("or", 1), ("not", 1)]))
    assert {each.state for each in cluster.rest.jobs()} == {"FINISHED"}


def test_the_script_submits_to_the_cluster_and_its_workers(
    rocketmq: LocalRocketMQ, cluster: Cluster, workers: list[str]
) -> None:
    (pool,) = (flag.partition("=")[2] for flag in workers if flag.startswith("--environment_config="))
    found = submitted_provinces(rocketmq, "runners/flink/submit.sh", cluster.address, WORKERS=pool)
    assert found == ["上海市", "北京市", "浙江省"]
    assert "FINISHED" in {each.state for each in cluster.rest.jobs()}


def orders(bench: KeptBench, cluster: Cluster, workers: list[str], *more: str) -> Job:
    flags = on(cluster, workers, "--checkpointing_interval=500", *more)[1:]
    return bench.job(*flags, runner="FlinkRunner")


# However fast the job is, orders are in flight, and no queue may become idle before all orders have been sent.
WAITS = "--idle_timeout_ms=600000"


@pytest.mark.shows(Mode.FLINK_STREAMING)
def test_a_lost_task_manager_changes_nothing(bench: KeptBench, cluster: Cluster, workers: list[str]) -> None:
    """Neither windows nor user state change, and timers of both kinds fire: each order is in one total of each."""
    with started(orders(bench, cluster, workers, "--parallelism=2", WAITS)) as job:
        bench.send(FIRST)
        bench.until_committed(job)
        bench.send_ringing(60)
        bench.until_committed(job)
        with bench.incoming():
            bench.until_committed(job, 2 * FIRST)
            cluster.lose(cluster.task_managers[0])
            assert bench.committed() < bench.sent
            bench.still_rings()
            cluster.start_task_manager()
        bench.want_what_is_kept()
        bench.end_windows()
        bench.until_there(job)
        bench.until_committed(job)
        assert job.interrupt() == 130, job.log.read_text()
    bench.check()
    assert not [each for each in cluster.rest.jobs() if not each.has_ended], "Ctrl-C ends the job on the cluster"


# Flink refuses a change from or to 1: it chains a step to a source only if both have one subtask, and a chain is
# a different operator from its parts.
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)], ids=["scale up", "scale down"])
def test_a_savepoint_is_resumed_with_another_parallelism(
    before: int, after: int, bench: KeptBench, cluster: Cluster, workers: list[str]
) -> None:
    """Windows, user state and timers move to other subtasks with their keys."""
    with started(orders(bench, cluster, workers, f"--parallelism={before}", WAITS)) as job:
        bench.send(FIRST)
        bench.until_committed(job)
        bench.send_ringing(60)
        bench.until_committed(job)
        with bench.incoming():
            bench.until_committed(job, 2 * FIRST)
            (running,) = (each for each in cluster.rest.jobs() if not each.has_ended)
            savepoint = cluster.rest.stop(running.id)
        job.process.wait(at_most(60))
    bench.still_rings()
    assert bench.committed() < bench.sent
    bench.want_what_is_kept()
    # A job that started from the beginning would not see what was sent before.
    flags = (f"--parallelism={after}", f"--savepoint_path={savepoint}", "--start=latest")
    with started(orders(bench, cluster, workers, *flags)) as job:
        bench.until_there(job)
        bench.until_committed(job)
        assert job.interrupt() == 130, job.log.read_text()
    bench.check()
