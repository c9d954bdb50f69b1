"""The gate ends with the truth, in its status and its last line, and leaves no process, whatever its tests do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.gate.again import MOST, run_again
from tests.gate.selection import GATE, LEFT_OUT, SAMPLED, Part, chosen, is_in
from tests.helpers.imports import ROOT

PROGRAM = """
import sys, time
from pathlib import Path
from tests.gate.__main__ import Gate, Job, Stage, pytest_job, run

here = Path(sys.argv[1])
lint = Stage("lint", (Job("linters", (sys.executable, "-c", sys.argv[2]), is_pytest=False),), stops=True)
real = [pytest_job(each, f"test_{each}.py", runs_again=each != "unit") for each in sys.argv[3:]]
sys.exit(run(Gate([lint, Stage("real", tuple(real))], time.time(), here, here / "build")))
"""
GOOD = "def test_good(): pass\n"
WRONG = "def test_wrong(): assert False, '3 messages lost'\n"
BY_CHANCE = """
import pathlib, pytest
def test_deadline():
    file = pathlib.Path(__file__).with_name("was here")
    was_there = file.exists()
    file.touch()
    assert was_there, "not within 30 s"
@pytest.mark.skip(reason="shows how skips are counted")
def test_skipped(): pass
"""
LEAVES_AND_HANGS = """
import pathlib, subprocess, sys, time
def test_wrong(): assert False, "2 copies"
def test_hangs():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    left = subprocess.Popen(command, start_new_session=True)
    pathlib.Path(__file__).with_name("left").write_text(str(left.pid))
    time.sleep(600)
"""
DIES = "import os\ndef test_dies(): os._exit(3)\n"


class Run:
    """A gate of made tests, in a process."""

    def __init__(self, folder: Path, lint: str = "", **tests: str) -> None:
        self._folder = folder
        folder.joinpath("pytest.ini").write_text("[pytest]\n")
        for name, text in tests.items():
            folder.joinpath(f"test_{name}.py").write_text(text)
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", PROGRAM, folder, lint, *tests],
                env=os.environ | {"PYTEST_ADDOPTS": "-p no:cacheprovider", "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> tuple[int, list[str], dict[str, Any]]:
        """Returns the exit status, the lines, and what gate.json says."""
        status = self.process.wait()
        report = json.loads(self._folder.joinpath("build", "gate.json").read_text())
        return status, self._output.read_text().splitlines(), report


def test_a_green_one(tmp_path: Path) -> None:
    status, lines, report = Run(tmp_path, good=GOOD, chance=GOOD).wait()
    assert (status, lines[-1]) == (0, "3 passed, 0 failed, 0 skipped")
    assert (report["result"], report["passed"]) == ("passed", 3)
    assert set(report["seconds"]) == {"set-up", "lint", "real", "all"}
    assert tmp_path.joinpath("build", "junit.xml").read_text().count("<testcase") == 2


def test_a_red_lint_ends_it(tmp_path: Path) -> None:
    status, lines, report = Run(tmp_path, "print('of the linter'); raise SystemExit(1)", good=GOOD).wait()
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert "of the linter" in lines
    assert report["result"] == "failed"


def test_what_is_lost_is_told_at_once_and_does_not_run_again(tmp_path: Path) -> None:
    status, lines, _ = Run(tmp_path, good=GOOD, wrong=WRONG).wait()
    assert (status, lines[-1]) == (1, "2 passed, 1 failed, 0 skipped")
    assert "wrong: FAILED test_wrong.py::test_wrong" in lines
    assert "E   AssertionError: 3 messages lost" in lines[: lines.index("FAILED test_wrong.py::test_wrong")]
    assert tmp_path.joinpath("build", "gate", "good.log").exists()


def test_what_fails_once_is_a_flake(tmp_path: Path) -> None:
    status, lines, report = Run(tmp_path, good=GOOD, chance=BY_CHANCE).wait()
    assert (status, lines[-1]) == (0, "3 passed, 0 failed, 1 skipped")
    assert "FLAKE test_chance.py::test_deadline" in lines
    assert report["flakes"] == ["test_chance.py::test_deadline"]


def test_what_needs_no_server_does_not_run_again(tmp_path: Path) -> None:
    status, lines, report = Run(tmp_path, unit=BY_CHANCE).wait()
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")
    assert report["flakes"] == []


def test_a_pytest_that_dies_fails_and_does_not_run_again(tmp_path: Path) -> None:
    status, lines, _ = Run(tmp_path, good=GOOD, dies=BY_CHANCE + DIES).wait()
    assert (status, lines[-1]) == (1, "2 passed, 2 failed, 1 skipped")
    line = "dies: pytest ended with status 3; 1 of its tests did not run, the first is test_dies.py::test_dies"
    assert f"FAILED {line}" in lines
    assert "FAILED test_dies.py::test_deadline" in lines


def test_a_set_up_that_fails_is_a_gate_that_fails(tmp_path: Path) -> None:
    gate = tmp_path / "tests" / "gate"
    gate.mkdir(parents=True)
    for name in ("__init__", "report", "start"):
        shutil.copy(ROOT / "tests" / "gate" / f"{name}.py", gate)
    (tmp_path / "Makefile").write_text(".venv/.installed:\n\tfalse\n")
    command = [sys.executable, "-S", "-m", "tests.gate.start"]  # -S: with nothing that is installed
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert "FAILED set-up: make ended with status 2" in done.stdout.splitlines()
    assert json.loads((tmp_path / "build" / "gate.json").read_text())["result"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_it_with_all_that_tests_have_started(tmp_path: Path, number: signal.Signals) -> None:
    """It was started with SIGINT ignored, as a shell starts what runs in the background."""
    run = Run(tmp_path, good=GOOD, hangs=LEAVES_AND_HANGS)
    left = tmp_path / "left"
    while not (left.exists() and left.read_text()):
        assert run.process.poll() is None
        time.sleep(0.05)
    run.process.send_signal(number)
    status, lines, report = run.wait()
    assert status == 128 + number
    assert re.fullmatch(r"\d passed, 2 failed, 0 skipped", lines[-1])
    assert {f"FAILED the gate was ended by {number.name}", "FAILED test_hangs.py::test_wrong"} <= {*lines}
    assert report["result"] == "failed"
    assert not psutil.pid_exists(int(left.read_text()))


@pytest.mark.parametrize(
    ("failed", "does"),
    [
        pytest.param({"a.py::test_it": "E  not within 30 s: the connection was lost"}, True, id="a deadline"),
        pytest.param({"a.py::test_it": "E  assert [1] == [1, 2]"}, False, id="a value"),
        pytest.param({"a.py::test_it": "E  not within 30 s: 3 lost, first Entry(queue, 7)"}, False, id="lost"),
        pytest.param({"a.py::test_it": "E  not within 9.5 s: Findings(duplicated=(1,))"}, False, id="doubled"),
        pytest.param({f"a.py::test_it[{n}]": "E  not within 30 s" for n in range(MOST + 1)}, False, id="many"),
        pytest.param({"unit: pytest ended with status 3": ""}, False, id="no test"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_these_run_again(failed: dict[str, str], does: bool) -> None:
    assert run_again(failed) == does


@pytest.mark.parametrize("part", [part for parts in GATE.values() for part in parts], ids=lambda part: part.tests)
def test_the_tests_of_a_part_are_there(part: Part) -> None:
    path, _, name = part.tests.partition("::")
    files = [ROOT / "tests" / path] if path.endswith(".py") else [*(ROOT / "tests" / path).rglob("*.py")]
    assert all(file.exists() for file in files)
    names = {found for file in files for found in re.findall(r"\btest_\w+", file.read_text())}
    if name and "::" not in name:
        assert any(each.startswith(name) for each in names)
    assert [each for each in part.but if each.startswith("test_") and each not in names] == []


@pytest.mark.parametrize("test", LEFT_OUT + SAMPLED)
def test_what_is_left_out_or_sampled_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    if path.endswith(".py"):
        assert f"def {name.partition('[')[0]}" in (ROOT / "tests" / path).read_text()
    else:
        assert [*(ROOT / "tests").glob(f"{path}*.py")]


def test_of_what_is_sampled_the_first_and_the_last_run() -> None:
    tests = [f"tests/{SAMPLED[0]}[{number}]" for number in range(3)]
    assert chosen("unit", {test: [] for test in [*tests, "tests/unit/test_model.py::test_it"]}) == {
        *(tests[0], tests[2], "tests/unit/test_model.py::test_it")
    }


@pytest.mark.parametrize(
    ("test", "markers", "job"),
    [
        ("tests/unit/test_model.py::test_it", [], "unit"),
        ("tests/unit/rules/test_bounds.py::test_it[3000]", ["slow"], None),
        ("tests/runners/sql/test_sql.py::test_every_kind_of_window_is_exact[FlinkRunner]", ["broker"], "broker"),
        (
            "tests/runners/sql/test_sql.py::test_every_kind_of_window_is_exact[SparkRunner]",
            ["broker", "spark"],
            "spark",
        ),
        ("tests/runners/test_skew.py::test_nothing_is_lost_or_counted_twice[FlinkRunner]", ["broker"], None),
        ("tests/runners/pyspark/test_write.py::test_a_write_rides_out_a_restart_of_its_broker", ["broker"], None),
        ("tests/runners/pyspark/test_read.py::test_starts_and_ends", ["broker", "exhaustive"], None),
    ],
)
def test_a_test_is_in_one_job_or_in_none(test: str, markers: list[str], job: str | None) -> None:
    assert [each for each in ("unit", "broker", "spark") if is_in(each, test, markers)] == ([job] if job else [])
