"""Runs pytest, and tests that failed beside others once more, alone: `python -m tests.helpers.once_more ARGUMENTS`.

Some thousand tests wait for processes on a machine that is never quiet, so a deadline of the tests themselves can pass.
A test that fails twice fails the run. So does one whose failure speaks of messages that are lost or there twice, and a
run in which more than a few tests fail: nothing of these is ever a matter of a busy machine. The first failure stays in
the output.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

MOST: Final = 4
"""Tests that run again. If more fail, the change is at fault."""

_FILE: Final = "RMQIO_TESTS_FAILED_FILE"
_WORDS: Final = "lost|losses|doubled|duplicates?|duplicated|twice|missing|skipped|strange|Findings"
_OF_MESSAGES: Final = re.compile(rf"^E (?!.*\bconnection\b).*\b({_WORDS})\b", re.MULTILINE)


class Failures:
    """A plugin of pytest: writes the ids of the tests that failed, and what pytest shows of each, to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = self._failed.get(report.nodeid, "") + report.longreprtext

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = f"E lost: {report.longreprtext}"

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._failed))


def pytest_configure(config: pytest.Config) -> None:
    """Only in the process that hears of all tests, and not in the runs that a test begins."""
    if (file := os.environ.get(_FILE)) and not hasattr(config, "workerinput"):
        del os.environ[_FILE]
        config.pluginmanager.register(Failures(Path(file)))


def run_again(failed: dict[str, str]) -> bool:
    """Returns whether these failures may be those of a busy machine."""
    return 0 < len(failed) <= MOST and not any(_OF_MESSAGES.search(text) for text in failed.values())


def main(arguments: Sequence[str]) -> int:
    """Returns pytest's exit status: that of the second run, if there is one."""
    with tempfile.TemporaryDirectory(prefix="rmqio-tests-") as folder:
        file = Path(folder, "failed.json")
        command = [sys.executable, "-m", "pytest", "-p", "tests.helpers.once_more", *arguments]
        status = subprocess.run(command, env=os.environ | {_FILE: str(file)}, check=False).returncode
        failed: dict[str, str] = dict(sorted(json.loads(file.read_text()).items())) if file.exists() else {}
    if status != pytest.ExitCode.TESTS_FAILED or not run_again(failed):
        return status
    print(f"\n{len(failed)} of these tests failed. Once more, alone:", *failed, sep="\n  ", flush=True)
    status = subprocess.run([sys.executable, "-m", "pytest", "--timeout", "900", *failed], check=False).returncode
    if not status:
        print("Failed beside other tests and passed alone, so look at the time that they allow:", *failed, sep="\n  ")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
