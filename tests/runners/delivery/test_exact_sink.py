"""`province.py --exactly_once` loses nothing and writes nothing twice, whatever is killed. A Java consumer counts."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio import DropDuplicates, ReadFromRocketMQ, Record, StartFrom, StopAt
from rmqio.local import LocalRocketMQ
from tests.helpers.ledgers.delivery import FLINK, SPARK_STREAMING, Mode, flink_cluster, killable, pool
from tests.helpers.ledgers.exact import ExactBench
from tests.helpers.ledgers.orders import Bench
from tests.helpers.peers.interop import JavaClient, java_client
from tests.helpers.programs import program as path_of
from tests.helpers.servers.flink_cluster import Cluster
from tests.helpers.servers.jobs import started
from tests.helpers.waiting import at_most, needed

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc"),
]

COUNT, MANY = 30_000, 200_000
ORDERS, MORE = 40_000, 20_000
STREAMING = replace(SPARK_STREAMING, flags=(*SPARK_STREAMING.flags, "--max_records_per_trigger=4000"))


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalRocketMQ]:
    with LocalRocketMQ() as running, needed(running.pid):
        yield running


@pytest.fixture(scope="module")
def java(broker: LocalRocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with java_client(broker.name_server, tmp_path_factory.mktemp("java")) as client:
        yield client


@pytest.fixture
def bench(broker: LocalRocketMQ, tmp_path: Path) -> Iterator[Callable[[int], ExactBench]]:
    with contextlib.ExitStack() as stack:
        yield lambda count: stack.enter_context(contextlib.closing(ExactBench(broker, tmp_path, count)))


BOTH = pytest.mark.parametrize("mode", [STREAMING, FLINK], ids=["Spark --streaming", "Flink"])


@BOTH
def test_nothing_is_lost_or_there_twice_whatever_is_killed(
    mode: Mode, bench: Callable[[int], ExactBench], java: JavaClient
) -> None:
    made = bench(COUNT)
    with killable(mode) as using:
        made.run_through(using, ["driver", "worker", "broker"])
    assert made.counted(java) == (0, 0), [path.read_text()[-3000:] for path in made.logs]


@pytest.mark.exhaustive
def test_on_direct_from_the_offsets_of_the_group(bench: Callable[[int], ExactBench], java: JavaClient) -> None:
    """The group commits every 5 s. Each run is killed between two commits, when bundles of 3 s have been sent."""
    made, direct = bench(4_000), Mode("Direct", ("--runner=DirectRunner",), "--direct_num_workers=1", True)
    for _ in range(2):
        with started(made.job(direct, "--start=group:earliest")) as job:
            for _ in range(8):
                made.send(250)
                made.wait_for(job, made.sent)
                time.sleep(0.4)
            job.kill()
    with started(made.job(direct, "--start=group:earliest")) as job:
        made.wait_for(job, made.sent)
        made.wait_for_commits(job)
        assert job.interrupt() == 130, job.log.read_text()[-4000:]
    assert made.counted(java) == (0, 0), [path.read_text()[-3000:] for path in made.logs]


@BOTH
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_there_twice_after_fifteen_kills(
    mode: Mode, bench: Callable[[int], ExactBench], java: JavaClient
) -> None:
    made = bench(MANY)
    with killable(mode) as using:
        made.run_through(using, ["driver", "worker", "broker"] * 5)
    assert made.counted(java) == (0, 0), [path.read_text()[-3000:] for path in made.logs]


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_on_a_flink_cluster(
    bench: Callable[[int], ExactBench], java: JavaClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Kills the JobManager, a TaskManager, a Python worker and the broker, five times each."""
    made = bench(MANY)
    with (
        contextlib.closing(Cluster(tmp_path_factory.mktemp("flink"))) as cluster,
        pool() as (workers, kill),
    ):

        def lose_a_task_manager() -> None:
            cluster.lose(cluster.task_managers[0])
            cluster.start_task_manager()

        kills = ["job_manager", "task_manager", "worker", "broker"] * 5
        made.run_through(
            flink_cluster(cluster, workers, kill),
            kills,
            job_manager=cluster.replace_job_manager,
            task_manager=lose_a_task_manager,
        )
    assert made.counted(java) == (0, 0), [path.read_text()[-3000:] for path in made.logs]


@BOTH
@pytest.mark.exhaustive
def test_totals_that_were_sent_again_have_the_ids_of_the_first(
    mode: Mode, broker: LocalRocketMQ, tmp_path: Path
) -> None:
    """`windowed_orders.py` is at least once: `DropDuplicates` lets every total through once."""
    bench = Bench(broker, tmp_path)
    bench.send(ORDERS)
    with killable(mode) as using, contextlib.closing(bench.client):
        assert using.kill is not None
        runner, *flags = using.with_workers(2)
        arguments = [flag for flag in flags if flag != "--streaming"]
        name = runner.removeprefix("--runner=")
        program: tuple[str, ...] = (path_of("windowed_orders"),)
        if name == "SparkRunner":  # between the sends and their commit
            program = ("-m", "tests.helpers.pipelines.killed_before_commit", "3")
        with started(bench.job(*arguments, runner=name, program=program)) as job:
            if name == "SparkRunner":
                assert job.process.wait(at_most(240)) == -9, job.log.read_text()[-4000:]
            else:
                bench.until_committed(job, 0.2 * ORDERS)
                job.kill()
        bench.send(MORE)
        with started(bench.job(*arguments, runner=name)) as job:
            bench.until_committed(job, bench.sent - 0.9 * MORE + 1)
            using.kill(job)
            bench.send(MORE)
            bench.until_committed(job, bench.sent - 0.9 * MORE + 1)
            broker.kill()
            broker.restart()
            bench.send(2_000)
            bench.until_there(job)
            assert job.interrupt() == 130, job.log.read_text()[-4000:]
        copies = bench.check()
        assert_once(bench)
    if name == "SparkRunner":
        assert copies, "it was killed when all was sent and nothing committed"


def assert_once(bench: Bench) -> None:
    """Asserts that a reader that drops duplicates has every total once."""
    wanted = [(key, begin, *total) for (key, begin), total in bench.wanted.items()]
    with beam.Pipeline(FnApiRunner()) as pipeline:
        read = ReadFromRocketMQ(
            bench.sink,
            name_server=bench.broker.name_server,
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            deduplicate=DropDuplicates(),
        )
        assert_that(pipeline | read | beam.Map(total_of), equal_to(wanted))


def total_of(record: Record) -> tuple[str, int, int, int]:
    total = json.loads(record.body)
    return total["key"], total["start_ms"], total["count"], total["sum"]
