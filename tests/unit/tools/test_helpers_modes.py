"""The marker `shows`: who carries it has to start what it names, here or in a program. A refusal starts nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers.named_tests import ROOT
from tests.helpers.waiting import at_most

TESTS = """
import subprocess, sys
import apache_beam as beam
import pytest
from rmqio.errors import LocalError
from rmqio.runners import options
from rmqio.runners.capabilities import Mode

def run(runner="DirectRunner", *more):
    with beam.Pipeline(options=options([f"--runner={runner}", *more])) as p:
        _ = p | beam.Create([1])

@pytest.mark.shows(Mode.DIRECT)
def test_that_runs_it():
    run()

@pytest.mark.shows(Mode.DIRECT)
def test_whose_program_runs_it():
    given = "import apache_beam as beam; from rmqio.runners import options"
    program = "with beam.Pipeline(options=options([])) as p: p | beam.Impulse()"
    subprocess.run([sys.executable, "-c", f"{given}\\n{program}"], check=True)

@pytest.mark.shows(Mode.DIRECT)
def test_that_runs_nothing():
    pass

@pytest.mark.shows(Mode.DIRECT, Mode.FLINK)
def test_that_runs_one_of_two():
    run()

@pytest.mark.shows(Mode.FLINK_STREAMING)
def test_that_is_refused():
    with pytest.raises(LocalError):
        run("FlinkRunner", "--streaming", "--checkpointing_interval=-5")

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.shows(Mode.DIRECT)), 2])
def test_one_of_whose_parameters_runs_it(n):
    if n == 1:
        run()
"""


def test_a_test_that_does_not_start_what_it_says_fails(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--config-file={ROOT / 'pyproject.toml'}",
    ]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "-o", f"pythonpath={ROOT}", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=at_most(240),
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert [line.partition("::")[2].partition(" ")[0] for line in told] == [
        "test_that_runs_nothing",
        "test_that_runs_one_of_two",
        "test_that_is_refused",
    ], done.stdout
    assert "for what it has not started: DirectRunner\n" in done.stdout
    assert "for what it has not started: FlinkRunner, batch job\n" in done.stdout
    assert "for what it has not started: FlinkRunner, stream\n" in done.stdout
    assert "3 failed, 4 passed" in done.stdout
