"""Runs the chaos script on Spark with `--streaming` for one minute. Its seed is random, and a failure prints it.

`make test-all` runs it: it takes three minutes. In `make test`, test_rocketmq.py, test_cut.py and the tests of
delivery show the faults one by one.

`make chaos ARGS="--runner spark"` and `--runner flink` run it for ten minutes.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from tests.chaos import stream
from tests.chaos.run import Chaos

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(900)]


def test_a_stream_under_random_faults_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"python -m tests.chaos --runner spark --minutes 1 --seed {seed}")
    with Chaos(seed, tmp_path, stream.spark()) as chaos:
        chaos.rage(60)
        report = chaos.settle()
    print(report)
    assert int(report.figures["lives of the program"]) > 1, "it was killed at least once"
    assert report.is_good, f"{report}\nledgers and logs in {tmp_path}"
