"""The chaos script for half a minute, with a random seed that a failure prints."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.direct import Direct
from tests.chaos.run import Chaos

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_cluster_under_random_faults_loses_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"python -m tests.chaos --minutes 0.5 --seed {seed}")
    with Chaos(seed, tmp_path, Direct()) as chaos:
        chaos.rage(30)
        report = chaos.settle()
    assert report.is_good, f"{report}\nledgers and logs in {tmp_path}"
