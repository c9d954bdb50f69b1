"""Windows and user state on Spark and a real RocketMQ: killed, stopped and drained, every order is in one total."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.local import LocalRocketMQ
from rmqio.runners.capabilities import Mode
from tests.helpers.ledgers.kept import KeptBench
from tests.helpers.ledgers.orders import Bench
from tests.helpers.pipelines.holding import Hold
from tests.helpers.servers.jobs import started
from tests.helpers.waiting import at_most

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

FIRST, COUNT = 1_000, 10_000
GOES_ON = "--start=latest"
"""For runs that continue: a run that started from the beginning would not see what was sent before."""


@pytest.fixture
def kept(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[KeptBench]:
    made = KeptBench(rocketmq, tmp_path)
    yield made
    made.client.close()


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(rocketmq, tmp_path)
    yield made
    made.client.close()


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_a_killed_driver_and_a_run_that_ends_early_lose_and_change_nothing(kept: KeptBench, tmp_path: Path) -> None:
    """Neither windows nor user state change, and timers of both kinds fire: each order is in one total of each."""
    kept.send(FIRST)
    hold = Hold(tmp_path / "hold", 1_000).begin()
    flags = ("--ordered", *hold.flags)
    small = ("--max_records_per_trigger=1000", "--idle_timeout_ms=600000")
    with started(kept.job(*flags, *small, "--spark_master_url=local[2,4]", "--spark_buckets=2")) as job:
        kept.until_committed(job, FIRST)
        kept.send_ringing(60)
        kept.until_committed(job)
        kept.send(COUNT - kept.sent)
        job.wait_until(hold.queues, "a later micro-batch to be held", progress=kept.committed)
        job.kill()
    kept.still_rings()
    assert kept.committed() < COUNT
    hold.release()

    with started(kept.job(*flags, "--available_now", "--idle_timeout_ms=600000", GOES_ON)) as job:
        job.done()
    assert kept.committed() == COUNT
    assert job.output.read_text().startswith("keeping.py: ")
    lines = [line for line in job.log.read_text().splitlines() if line.strip()]
    # Java prints this because of an option that Spark sets; it cannot be suppressed
    assert lines in ([], ["WARNING: Using incubator modules: jdk.incubator.vector"]), "nothing else of Spark's own"
    assert not kept.are_there(), "windows that are not over have no totals"

    kept.send(2_000)
    kept.want_what_is_kept()
    with started(kept.job(*flags, "--spark_master_url=local[4,4]", GOES_ON)) as job:
        kept.until_there(job)
        kept.until_committed(job)
        assert job.interrupt() == 130, job.log.read_text()
    kept.check()


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_a_drained_pipeline_closes_its_windows_and_is_at_its_end(bench: Bench) -> None:
    bench.send(4_000)
    with started(
        bench.job("--drain", "--progress", "--max_records_per_trigger=1000", "--idle_timeout_ms=600000")
    ) as job:
        bench.until_committed(job)
        assert not bench.are_there(), "what is left to drain: the last windows are not over"
        os.killpg(job.process.pid, signal.SIGTERM)  # also Spark's processes, as `timeout` and systemd do
        assert job.process.wait(at_most(60)) == 130, job.log.read_text()
    assert bench.check() == 0
    lines = [_PROGRESS.match(line) for line in job.log.read_text().splitlines() if line.startswith("micro-batch")]
    assert None not in lines
    assert sum(int(line[1].replace(",", "")) for line in lines if line) == bench.sent
    assert any(line and line[2] == "0" for line in lines), "nothing was left behind"

    with started(bench.job()) as job:
        assert job.process.wait(at_most(120)) == 1
    assert "was drained" in job.log.read_text()


_PROGRESS = re.compile(r"micro-batch \d+: ([\d,]+) rows in [\d.]+ s(?:, [\d,]+/s)?; watermark .*; \S+: ([\d,]+) behind")
