"""A plugin of pytest for the gate: writes the outcome of each test when it is known, and tells failures at once.

The gate names a file for the outcomes and a file descriptor for what is told, in the environment. Processes that a test
starts have neither.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

OUTCOMES_FILE: Final = "RMQIO_GATE_OUTCOMES_FILE"
TOLD_FD: Final = "RMQIO_GATE_TOLD_FD"
NAME: Final = "RMQIO_GATE_JOB"
_EVERY_S: Final = 60.0


class Told:
    """Hears of all tests of a run, also of those in other processes.

    The file has lines of JSON: one with the ids that were `collected`, and one with each `test`, its `outcome` and
    `text`. A test has several lines if it fails after its end: the last one counts.
    """

    def __init__(self, name: str, file: Path, told: int) -> None:
        self._name, self._told = name, told
        self._file = file.open("w")
        self._outcomes: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._done = 0
        self._count = 0
        self._next = time.monotonic() + _EVERY_S

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        if report.failed:
            if self._outcomes.get(test) != "failed":
                self._say(f"FAILED {test}")
            self._texts[test] = self._texts.get(test, "") + report.longreprtext
        if self._outcomes.get(test) != "failed" and report.outcome != "passed":
            self._outcomes[test] = report.outcome
        if report.when == "teardown":
            self._done += 1
        # A process that was killed reports no teardown, only a failure at any time.
        if report.when == "teardown" or report.failed:
            self._write_outcome(test, self._outcomes.get(test, "passed"), self._texts.get(test, ""))
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            self._say(f"{self._done}{f' of {self._count}' if self._count else ''} tests")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid}: cannot be imported")
        if report.outcome != "passed":  # a whole file is skipped where something is not installed
            self._write_outcome(report.nodeid, report.outcome, report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected(ids)

    def _collected(self, ids: list[str]) -> None:
        if ids and not self._count:  # once, of the processes that have collected the same
            self._count = len(ids)
            self._write({"collected": ids})

    def _write_outcome(self, test: str, outcome: str, text: str) -> None:
        self._write({"test": test, "outcome": outcome, "text": text})

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _say(self, text: str) -> None:
        os.write(self._told, f"{self._name}: {text}\n".encode())


def pytest_configure(config: pytest.Config) -> None:
    """Only in the process that hears of all tests, and not in the runs that a test begins."""
    file = os.environ.pop(OUTCOMES_FILE, None)
    if file and not hasattr(config, "workerinput"):
        told = Told(os.environ.pop(NAME), Path(file), int(os.environ.pop(TOLD_FD)))
        config.pluginmanager.register(told)
