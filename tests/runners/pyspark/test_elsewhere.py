"""Spark finds the format `rocketmq` by name in a separate program, wherever that program runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from tests.helpers.ledgers.ledger import Lab

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_PROGRAM: Final = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
read = spark.read.format("rocketmq").options(nameServer=sys.argv[1], subscribe=sys.argv[2])
print([bytes(row.body) for row in read.load().collect()])
"""


def test_the_format_is_found_in_a_program_that_runs_in_another_folder(lab: Lab, tmp_path: Path) -> None:
    (queue,) = lab.topic(3)
    (tmp_path / "program.py").write_text(_PROGRAM)
    # As in an activated environment: Spark's workers run the `python3` on the path.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        [sys.executable, "program.py", lab.broker.name_server, queue.topic],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([*lab.sent[queue].values()])
