"""The line that a terminal shows while Spark starts. The Java of these programs fails at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("pty", reason="needs a pseudo-terminal")

from tests.helpers.terminal import on_terminal
from tests.helpers.waiting import at_most

PROGRAM = """
import apache_beam as beam
from rmqio.runners import options

with beam.Pipeline(options=options(["--runner=SparkRunner", "--spark_master_url=local[2]"])) as pipeline:
    _ = pipeline | beam.Create([1])
"""
COMMAND = [sys.executable, "-c", PROGRAM]
LINE = "starting Spark on local[2] ...\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    leave_out = ("SPARK", "PYSPARK")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(leave_out)}
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    return kept | {"JAVA_HOME": str(tmp_path), "RMQIO_CACHE": str(tmp_path)}


def test_a_terminal_shows_that_spark_starts_before_anything_else(environment: dict[str, str]) -> None:
    with on_terminal(COMMAND, environment) as terminal:
        terminal.wait_for("JAVA_HOME")
        assert terminal.wait() != 0
    before, line, _ = terminal.shown.partition(LINE)
    assert line, terminal.shown
    assert "spark-class" not in before


def test_what_is_no_terminal_stays_without_the_line(environment: dict[str, str]) -> None:
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False, timeout=at_most(120))
    assert done.returncode != 0
    *_, last = done.stderr.splitlines()
    assert last.startswith("-c: the Java of JAVA_HOME cannot run Spark: "), done.stderr
    assert LINE not in done.stderr + done.stdout
