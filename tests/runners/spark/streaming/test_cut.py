"""A micro-batch that was cut short because a broker returned nothing, and that is repeated, reads the same again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from tests.helpers.pipelines.cut_short import COUNT, HALF
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import at_most

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_micro_batch_that_was_cut_short_reads_the_same_when_it_is_run_again(tmp_path: Path) -> None:
    """It is killed after the shuffle. What is sent again there must have the same input."""
    flags = ["--runner=SparkRunner", "--streaming", "--spark_master_url=local[1]", "--spark_buckets=1"]
    program = [sys.executable, "-m", "tests.helpers.pipelines.cut_short", str(tmp_path), *flags]
    command = [*program, f"--checkpoint_dir={tmp_path / 'checkpoint'}"]
    sent = tmp_path / "sent"

    def panes() -> list[list[int]]:
        return [json.loads(line) for line in sent.read_text().splitlines()] if sent.exists() else []

    (tmp_path / "cut").touch()
    with started(Job(command, tmp_path)) as job:
        job.process.wait(at_most(240))
    first, second = list(range(HALF)), list(range(HALF, COUNT))
    assert panes() == [first], job.log.read_text()[-4000:]
    with started(Job(command, tmp_path)) as job:
        job.wait_until(lambda: panes()[-1:] == [second], "the rest")
        assert job.interrupt() == 130, job.log.read_text()[-4000:]
    assert panes() == [first, first, second]
