"""A plugin of pytest for the gate: writes the outcome of each test when it is known, and tells failures at once.

The gate names a file for the outcomes and a file descriptor for what is told, in the environment. Processes that a test
starts have neither.
"""

from __future__ import annotations

import faulthandler
import json
import os
import threading
import time
import traceback
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.gate.judging import inconclusive, is_judged
from tests.gate.told import DEADLINE, LAST_BEGIN, LATE, LEFT_OUT, NAME, OUTCOMES_FILE, TOLD_FD

_EVERY_S: Final = 60.0
_TEXT: Final = 4_000
"""Characters of a failure that are told; the log has all, with what the test printed."""
_STDERR: Final = os.dup(2)
"""pytest puts another file there while a test runs."""


class Told:
    """Hears of all tests of a run, also of those in other processes.

    The file has lines of JSON: one with the ids that were `collected`, one with each test that has `begun`, and one
    with each `test`, its `outcome` and why. A test has several lines if it fails after its end: the last one counts.
    After `last_begin`, the outcome is `LEFT_OUT`.
    """

    def __init__(self, name: str, file: Path, told: int, last_begin: float) -> None:
        self._name, self._told, self._last_begin = name, told, last_begin
        self.path = file
        file.write_text("")
        self._file = file.open("a")  # so do processes whose threads fail late
        self._outcomes: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._done = 0
        self._count = 0
        self._next = time.monotonic() + _EVERY_S

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.time() <= self._last_begin:
            return None
        self._write({"test": item.nodeid, "outcome": LEFT_OUT, "text": ""})
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[OUTCOMES_FILE] = str(self.path)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write({"begun": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test, outcome = report.nodeid, outcome_of(report)
        if outcome in {"wrong", "inconclusive"}:
            reason = next((line for line in report.longreprtext.splitlines() if line.startswith("E ")), "")
            self._say(f"{'FAILED' if outcome == 'wrong' else 'INCONCLUSIVE'} {test}{reason[1:]}")
        if outcome != "passed":
            self._texts[test] = self._texts.get(test, "") + reason_of(report)
        worse = self._outcomes.setdefault(test, outcome)
        if _BADNESS.index(outcome) > _BADNESS.index(worse):
            self._outcomes[test] = outcome
        if report.when == "teardown":
            self._done += 1
        # A process that was killed reports no teardown, only a failure at any time.
        if report.when == "teardown" or report.failed:
            self._write({"test": test, "outcome": self._outcomes[test], "text": self._texts.get(test, "")})
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            self._say(f"{self._done}{f' of {self._count}' if self._count else ''} tests")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid}: cannot be imported")
        if report.outcome != "passed":  # a whole file is skipped where something is not installed
            outcome = "wrong" if report.failed else "skipped"
            self._write({"test": report.nodeid, "outcome": outcome, "text": reason_of(report)})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected(ids)

    def _collected(self, ids: list[str]) -> None:
        if ids and not self._count:  # once, of the processes that have collected the same
            self._count = len(ids)
            self._write({"collected": ids})

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(_utf8(dict(line))) + "\n")
        self._file.flush()

    def _say(self, text: str) -> None:
        os.write(self._told, f"{self._name}: {_utf8(text)}\n".encode())


class _Failure(NamedTuple):
    """Of a thread. `is_judged`: an assertion."""

    name: str
    text: str
    is_judged: bool


class Threads:
    """Tells of a thread that fails when no test of its process can have it any more: pytest only warns of it then.

    While the process ends, only an assertion is wrong: other errors come of the end. An assertion is also wrong in a
    test that ignores pytest's warning of errors in threads.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._untold: list[_Failure] = []
        self._have_ended = False
        self._pythons = threading.excepthook
        threading.excepthook = self._at_end  # pytest puts its own there, and in the end this one again

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        self._pytests = threading.excepthook
        threading.excepthook = self._failed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from self._of_test())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from self._of_test())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from self._of_test())

    def _of_test(self) -> Generator[None, object, object]:
        before = len(self._untold)
        try:
            found = yield
        except BaseException:
            del self._untold[:before]
            raise
        judged = [each.text for each in self._untold if each.is_judged]
        del self._untold[: len(self._untold) if judged else before]  # pytest has raised what had failed before
        if judged:
            raise AssertionError(f"in a thread:\n{judged[0]}")
        return found

    def pytest_sessionfinish(self) -> None:
        self._have_ended = True
        self._tell()

    def _failed(self, args: threading.ExceptHookArgs) -> None:
        self._pytests(args)
        self._note(args)

    def _at_end(self, args: threading.ExceptHookArgs) -> None:
        self._pythons(args)
        if args.exc_value is not None and is_judged(args.exc_value):
            self._note(args)

    def _note(self, args: threading.ExceptHookArgs) -> None:
        error = traceback.TracebackException(args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
        reason = "".join(error.format_exception_only()).splitlines()[0]
        is_wrong = args.exc_value is not None and is_judged(args.exc_value)
        self._untold.append(_Failure(f"{LATE}: {reason}", "".join(error.format())[-_TEXT:], is_wrong))
        if self._have_ended:
            self._tell()

    def _tell(self) -> None:
        while self._untold:
            failure = self._untold.pop()
            with self._file.open("a") as file:
                line = {"test": failure.name, "outcome": "wrong", "text": failure.text}
                file.write(json.dumps(_utf8(line)) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    if file := os.environ.get(OUTCOMES_FILE) or getattr(config, "workerinput", {}).get(OUTCOMES_FILE):
        config.pluginmanager.register(Threads(Path(file)))


_BADNESS: Final = ("passed", "skipped", "inconclusive", "wrong")
_INCONCLUSIVE: Final = "inconclusive"
"""A property of a report: it goes from the process of the test to that which hears of all."""


def outcome_of(report: pytest.TestReport) -> str:
    if not report.failed:
        return report.outcome
    return "inconclusive" if (_INCONCLUSIVE, True) in map(tuple, report.user_properties) else "wrong"


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after the plugin that handles xfail
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip, or an xfail, does not undo an assertion that has failed before."""
    report = yield
    if report.skipped and call.excinfo and is_judged(call.excinfo.value):
        report.outcome, report.longrepr = "failed", item.repr_failure(call.excinfo)
        report.__dict__.pop("wasxfail", None)
    if report.failed and call.excinfo and inconclusive(call.excinfo.value, in_setup=report.when == "setup"):
        report.user_properties.append((_INCONCLUSIVE, True))
    return report


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext[-_TEXT:]


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Half of a surrogate pair, in what a test logs or raises, would end the process that sends the report."""
    return _utf8((yield))


def _utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _utf8(each) for name, each in value.items()}
    return type(value)(map(_utf8, value)) if isinstance(value, (list, tuple)) else value


@pytest.hookimpl(trylast=True)
def pytest_exception_interact() -> None:
    """pytest forgets the stacks that are to be shown when a test fails."""
    _show_stacks()


def _show_stacks() -> None:
    """At the deadline of the gate, each process shows what it does."""
    if DEADLINE in os.environ:
        faulthandler.dump_traceback_later(max(1.0, float(os.environ[DEADLINE]) - time.time()), file=_STDERR)


def pytest_configure(config: pytest.Config) -> None:
    """`Told` is only in the process that hears of all tests, and not in the runs that a test begins.

    An assertion that fails in a thread is one of the test.
    """
    _show_stacks()
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")
    file = os.environ.pop(OUTCOMES_FILE, None)
    if file and not hasattr(config, "workerinput"):
        last_begin = float(os.environ.pop(LAST_BEGIN))
        told = Told(os.environ.pop(NAME), Path(file), int(os.environ.pop(TOLD_FD)), last_begin)
        config.pluginmanager.register(told)
