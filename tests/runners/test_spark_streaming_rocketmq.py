"""`windowed_orders.py` on Spark and a real RocketMQ, killed, stopped and drained: every order in one total."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.local import LocalRocketMQ
from tests.helpers.jobs import started
from tests.helpers.orders import Bench

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 40_000


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(rocketmq, tmp_path)
    yield made
    made.client.close()


def test_a_killed_driver_and_a_run_that_ends_early_lose_and_change_nothing(bench: Bench) -> None:
    bench.send(COUNT)
    with started(bench.job("--max_records_per_trigger=2000")) as job:
        job.wait_until(lambda: bench.committed() >= 0.2 * COUNT, "a fifth of the orders to be committed")
        job.kill()
    killed_at = bench.committed()
    assert 0.2 * COUNT <= killed_at <= 0.8 * COUNT, killed_at

    with started(bench.job("--available_now")) as job:
        assert job.process.wait(180) == 0, job.log.read_text()
    assert bench.committed() == COUNT
    assert job.output.read_text().startswith("windowed_orders.py: ")
    lines = [line for line in job.log.read_text().splitlines() if line.strip()]
    # Java says this of an option with which Spark starts it; nothing can keep it from that
    assert lines in ([], ["WARNING: Using incubator modules: jdk.incubator.vector"]), "nothing else of Spark's own"
    assert bench.totals().keys() < bench.wanted.keys(), "windows that are not over have no totals"

    bench.send(2_000)
    with started(bench.job()) as job:
        job.wait_until(bench.are_there, "all totals")
        job.wait_until(lambda: bench.committed() == bench.sent, "all offsets to be committed")
        assert job.interrupt() == 130, job.log.read_text()
    bench.check()


def test_a_drained_pipeline_closes_its_windows_and_is_at_its_end(bench: Bench) -> None:
    bench.send(4_000)
    with started(
        bench.job("--drain", "--progress", "--max_records_per_trigger=1000", "--idle_timeout_ms=600000")
    ) as job:
        job.wait_until(lambda: bench.committed() == bench.sent, "all offsets to be committed")
        assert not bench.are_there(), "what is left to drain: the last windows are not over"
        os.killpg(job.process.pid, signal.SIGTERM)  # Spark's processes, too, as `timeout` and systemd do
        assert job.process.wait(60) == 130, job.log.read_text()
    assert bench.check() == 0
    lines = [_PROGRESS.match(line) for line in job.log.read_text().splitlines() if line.startswith("micro-batch")]
    assert None not in lines
    assert sum(int(line[1].replace(",", "")) for line in lines if line) == bench.sent
    assert any(line and line[2] == "0" for line in lines), "nothing was left behind"

    with started(bench.job()) as job:
        assert job.process.wait(120) == 1
    assert "was drained" in job.log.read_text()


_PROGRESS = re.compile(r"micro-batch \d+: ([\d,]+) rows in [\d.]+ s(?:, [\d,]+/s)?; watermark .*; \S+: ([\d,]+) behind")
