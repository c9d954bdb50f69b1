"""Tests that failed run once more, alone, unless the failure is one that no busy machine makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.imports import ROOT
from tests.helpers.once_more import MOST

TESTS = """
import pathlib
import pytest

def first(name):
    file = pathlib.Path(__file__).with_name(name)
    was_there = file.exists()
    file.touch()
    return not was_there

@pytest.mark.parametrize("number", range({count}))
def test_deadline(number):
    assert not first(f"deadline-{{number}}"), {text!r}

def test_other():
    assert first("other"), "runs only once"
"""


def run(folder: Path, count: int, text: str = "not within 30 s", more: str = "", *arguments: str) -> tuple[int, str]:
    folder.joinpath("test_it.py").write_text(TESTS.format(count=count, text=text) + more)
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tests.helpers.once_more", *arguments, "-q", "test_it.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "two"])
def test_what_failed_runs_alone(tmp_path: Path, processes: tuple[str, ...]) -> None:
    status, output = run(tmp_path, 2, "not within 30 s: the connection was lost", "", *processes)
    assert status == 0
    assert "2 failed, 1 passed" in output
    assert "AssertionError: not within 30 s" in output
    names = "\n  test_it.py::test_deadline[0]\n  test_it.py::test_deadline[1]\n"
    _, once_more, after = output.split(names)
    assert "2 passed" in once_more
    assert once_more.endswith("Failed beside other tests and passed alone, so look at the time that they allow:")
    assert after == ""


def test_a_second_failure_fails(tmp_path: Path) -> None:
    status, output = run(tmp_path, 1, more="\ndef test_always():\n    assert False\n")
    assert status == 1
    assert "1 failed, 1 passed" in output
    assert "passed alone" not in output


@pytest.mark.parametrize(
    ("count", "text", "more"),
    [
        pytest.param(MOST + 1, "not within 30 s", "", id="many"),
        pytest.param(1, "3 lost, first Entry(queue, 7)", "", id="lost"),
        pytest.param(1, "Findings(duplicated=(1,))", "", id="doubled"),
        pytest.param(0, "", "\nimport not_there\n", id="unread"),
    ],
)
def test_these_do_not_run_again(tmp_path: Path, count: int, text: str, more: str) -> None:
    status, output = run(tmp_path, count, text, more)
    assert status
    assert "Once more" not in output


def test_without_a_failure_there_is_one_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, 0)
    assert status == 0
    assert output.count("passed") == 1
