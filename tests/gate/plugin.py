"""A plugin of pytest for the gate: tells failures and progress at once, beside the log, and keeps the failures' texts.

The gate names a file for the failures and a file descriptor for what is told, in the environment. Processes that a test
starts have neither.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

import pytest

FAILED_FILE: Final = "RMQIO_GATE_FAILED_FILE"
TOLD_FD: Final = "RMQIO_GATE_TOLD_FD"
NAME: Final = "RMQIO_GATE_JOB"
_EVERY_S: Final = 60.0


class Told:
    """Hears of all tests of a run, also of those in other processes."""

    def __init__(self, name: str, file: Path, told: int) -> None:
        self._name, self._file, self._told = name, file, told
        self._failed: dict[str, str] = {}
        self._done = 0
        self._count = 0
        self._next = time.monotonic() + _EVERY_S

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            if report.nodeid not in self._failed:
                self._say(f"FAILED {report.nodeid}")
            self._failed[report.nodeid] = self._failed.get(report.nodeid, "") + report.longreprtext
        self._done += report.when == "teardown"
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            self._say(f"{self._done}{f' of {self._count}' if self._count else ''} tests")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid}: cannot be imported")
            self._failed[report.nodeid] = f"E lost: {report.longreprtext}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._count = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._count = len(ids)

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._failed))

    def _say(self, text: str) -> None:
        os.write(self._told, f"{self._name}: {text}\n".encode())


def pytest_configure(config: pytest.Config) -> None:
    """Only in the process that hears of all tests, and not in the runs that a test begins."""
    file = os.environ.pop(FAILED_FILE, None)
    if file and not hasattr(config, "workerinput"):
        told = Told(os.environ.pop(NAME), Path(file), int(os.environ.pop(TOLD_FD)))
        config.pluginmanager.register(told)
