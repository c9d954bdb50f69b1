"""The gate ends with the truth, in its status and its last line, and leaves no process, whatever its tests do."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from rmqio.local.errors import LocalBrokerError
from tests.gate.flakes import noted
from tests.gate.jobs import Job, Running
from tests.gate.judging import inconclusive
from tests.gate.report import End, Report
from tests.gate.selection import GATE, LEFT_OUT, SAMPLED, Part, chosen, is_in
from tests.helpers.imports import ROOT
from tests.helpers.waiting import Inconclusive, runs, until

PROGRAM = """
import json, os, sys, time
from pathlib import Path
from tests.gate import jobs
from tests.gate.__main__ import Gate, run
from tests.gate.jobs import Job, Stage, pytest_job
from tests.gate.report import Report

here = Path(sys.argv[1])
given = json.loads(sys.argv[2])
lint = Stage("lint", (Job("linters", (sys.executable, "-S", "-c", given["lint"]), is_pytest=False),), stops=True)
real = [
    pytest_job(name, f"test_{name}.py", *options, runs_again=True)
    for name, options in given["jobs"].items()
]
stages = [lint, Stage("real", tuple(real))]

class Clock:  # the time is up when the job has shown its stacks, or never will
    sleep, monotonic = time.sleep, time.monotonic
    began = time.monotonic()
    def time():
        logs = (each.read_text() for each in here.glob("build/gate/*.log"))
        is_up = any(given["ends_with"] in each for each in logs) or time.monotonic() > Clock.began + 120
        return 1e12 if is_up else 0

if given["ends_with"]:
    jobs.time = Clock
report = Report(here / "build", time.time(), here)
sys.exit(run(Gate(stages, report, given["limit_s"], given["changed"], ("shows how",), 1)))
"""
GOOD = """
import subprocess
def test_good():
    ends = subprocess.Popen(["true"])
    subprocess.Popen(["sh", "-c", f"while kill -0 {ends.pid} 2>/dev/null; do sleep 0.1; done"])
"""
WRONG = """
import pytest, threading
from tests.helpers.waiting import Inconclusive
def test_wrong(): assert False, '3 messages lost'
@pytest.mark.skip(reason="no database")
def test_silent(): pass
"""
HIDDEN = """
def test_lost_in_a_helper(): exec("assert False, 'which pytest does not rewrite'")
def test_lost_before_a_wait():
    try:
        assert False, "a copy"
    finally:
        raise Inconclusive("not within 600 s")
def test_lost_before_a_skip():
    try:
        assert False, "a leak"
    except AssertionError:
        pytest.skip("shows how")
def test_lost_before_an_xfail():
    try:
        assert False, "a gap"
    except AssertionError:
        pytest.xfail("shows how")
def test_lost_in_a_thread():
    def lose(): assert False, "in a thread"
    thread = threading.Thread(target=lose)
    thread.start()
    thread.join()
    raise Inconclusive("not within 600 s")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_lost_in_an_ignored_thread():
    def lose(): assert False, "in a thread"
    thread = threading.Thread(target=lose)
    thread.start()
    thread.join()
@pytest.fixture
def counted():
    yield
    assert False, "too many"
def test_lost_after_it(counted): raise Inconclusive("not within 600 s")
"""
INCONCLUSIVE = """
import os, pathlib, pytest
from tests.helpers.waiting import Inconclusive
TIMES = {times}
def test_slow():
    file = pathlib.Path(__file__).with_name("times")
    before = file.read_text() if file.exists() else ""
    file.write_text(before + ("w" if "PYTEST_XDIST_WORKER" in os.environ else "x"))
    if len(before) < TIMES:
        raise Inconclusive("not within 600 s")
@pytest.mark.skip(reason="shows how skips are counted")
def test_skipped(): pass
"""
LEAVES = """
import pathlib, subprocess, sys, time
def test_leaves():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    left = subprocess.Popen(command, start_new_session=True)
    pathlib.Path(__file__).with_name("left").write_text(str(left.pid))
"""
LEAVES_AND_HANGS = f"""
def test_wrong(): assert False, "2 copies"
{LEAVES}
def test_hangs(): time.sleep(600)
"""
DIES = "import os\ndef test_dies(): os._exit(3)\n"
ODD_TEXTS = r"""
import logging
import pytest
def test_logs(): logging.warning("\ud800")
def test_says(): raise ValueError("\ud800 lost")
def test_skips(): pytest.skip("\ud800 is not there")
"""
LATE = """
import threading
import pytest
IS_OVER = threading.Event()
def begin(wait, error):
    def fail():
        wait()
        raise error
    thread = threading.Thread(target=fail)
    thread.start()
    return thread
def test_begins():
    Last.thread = begin(IS_OVER.wait, ValueError("after the last test"))
    begin(threading.main_thread().join, AssertionError("2 lost at the end"))
    begin(threading.main_thread().join, ValueError("of the end"))
class Last:
    def pytest_sessionfinish(self):
        IS_OVER.set()
        self.thread.join()
@pytest.fixture(scope="session", autouse=True)
def last(request): request.config.pluginmanager.register(Last())
"""
LATER = """
import pathlib
LATER = pathlib.Path(__file__).with_suffix(".begun")
IS_LATER = LATER.exists()
LATER.touch()
"""
WAITS = """
import time
import pytest
from itertools import count
from tests.helpers import waiting
from tests.helpers.waiting import until
def wait():
    looks, steps = count(), count()
    until(lambda: next(looks) > 18, "it", progress=lambda: next(steps))
@pytest.mark.timeout(1)
def test_waits():
    wait()
    wait()
@pytest.mark.timeout(0.2)
def test_hangs_in_a_wait(monkeypatch):
    monkeypatch.setattr(waiting, "_LIMIT_S", 0.1)
    until(lambda: time.sleep(600), "it", still_s=0.1)
@pytest.mark.timeout(0.2)
def test_hangs_after_a_wait():
    wait()
    time.sleep(600)
"""
IS_LATE = (
    LATER
    + """
from tests.gate import plugin
class After:
    monotonic = plugin.time.monotonic
    def time(): return 1e12
def test_time_is_up():
    if IS_LATER: plugin.time = After
def test_late(): pass
"""
)


class Run:
    """A gate of made tests, in a process. `jobs`: the text of a file of tests, and options of its pytest."""

    def __init__(
        self,
        folder: Path,
        lint: str = "",
        *,
        limit_s: float = 600,
        ends_with: str = "",
        changed: tuple[str, ...] = (),
        limited: tuple[str, ...] = (),
        **jobs: str | tuple[str, ...],
    ) -> None:
        self._folder = folder
        texts = {name: [text] if isinstance(text, str) else text for name, text in jobs.items()}
        given = {"lint": lint, "limit_s": limit_s, "ends_with": ends_with, "changed": changed}
        given["jobs"] = {name: options for name, (_, *options) in texts.items()}
        folder.joinpath("pytest.ini").write_text("[pytest]\n")
        for name, (text, *_) in texts.items():
            folder.joinpath(f"test_{name}.py").write_text(text)
        command = (sys.executable, "-c", PROGRAM)
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *limited, *command, folder, json.dumps(given)],
                env={
                    **{name: each for name, each in os.environ.items() if name != "PYTEST_XDIST_WORKER"},
                    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                    "PYTHONOPTIMIZE": "1",
                    "PYTHONPATH": str(ROOT),
                    "RMQIO_CACHE": str(folder / "cache"),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> tuple[int, list[str], dict[str, Any]]:
        """Returns the exit status, the lines, and what gate.json says."""
        status = self.process.wait()
        report = json.loads(self._folder.joinpath("build", "gate.json").read_text())
        return status, self._output.read_text().splitlines(), report


class Ended(NamedTuple):
    """A gate that has ended."""

    folder: Path
    status: int
    lines: list[str]
    report: dict[str, Any]


FLAKES = [
    '{"test": "test_slow.py::test_slow", "commit": "c0ffee00", "date": "2026-01-02"}',
    '{"test": "test_slow.py::test_slow", "commit": "decaf000000", "date": "2026-01-03"}',
    '{"test": "test_other.py::test_it", "commit": "decaf000000", "date": "2026-01-03"}',
    '{"test": "test_slow',
]
ONE_WORKER = ("-p", "xdist", "-n", "1")
GIT = ("git", "-c", "user.name=x", "-c", "user.email=x")


@pytest.fixture(scope="module")
def green(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One of its tests was inconclusive once, and some of them have changed."""
    folder = tmp_path_factory.mktemp("green")
    (folder / "cache").mkdir()
    (folder / "cache" / "flakes.jsonl").write_text("\n".join([*FLAKES, ""]))
    for command in (["init", "-q"], ["commit", "-qm", "x", "--allow-empty"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True)
    changed = ("test_real.py::test_time_is_up", "test_real.py::test_late")
    slow = (INCONCLUSIVE.format(times=1), *ONE_WORKER)
    run = Run(folder, changed=changed, slow=slow, real=GOOD + IS_LATE)
    return Ended(folder, *run.wait())


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Much is wrong with it."""
    folder = tmp_path_factory.mktemp("red")
    run = Run(
        folder,
        wrong=GOOD + LEAVES + WRONG + HIDDEN + ODD_TEXTS,
        late=(WAITS + LATE, "-p", "pytest_timeout"),
        dies=INCONCLUSIVE.format(times=1) + DIES,
        workers=(ODD_TEXTS + DIES + GOOD + LATE, *ONE_WORKER),
    )
    return Ended(folder, *run.wait())


def test_a_green_one(green: Ended) -> None:
    assert (green.status, green.lines[-1]) == (0, "5 passed, 0 failed, 1 skipped")
    assert (green.report["result"], green.report["passed"], green.report["skipped"]) == ("passed", 5, 1)
    assert set(green.report["seconds"]) == {"set-up", "lint", "real", "again", "changed", "all"}
    tests = set(re.findall(r'<testcase [^>]*\bname="(\w+)"', green.folder.joinpath("build", "junit.xml").read_text()))
    assert tests == {"test_good", "test_slow", "test_skipped", "test_time_is_up", "test_late"}


def test_a_red_lint_ends_it(tmp_path: Path) -> None:
    status, lines, report = Run(tmp_path, "print('of the linter'); raise SystemExit(1)", good=GOOD).wait()
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert "of the linter" in lines
    assert report["result"] == "failed"


def test_a_red_one(red: Ended) -> None:
    assert (red.status, red.lines[-1]) == (1, "9 passed, 23 failed, 1 skipped")
    assert (red.report["result"], red.report["passed"], red.report["failed"]) == ("failed", 9, 23)
    assert "again" not in red.report["seconds"]


def test_what_is_lost_is_told_at_once(red: Ended) -> None:
    assert "wrong: FAILED test_wrong.py::test_wrong   AssertionError: 3 messages lost" in red.lines
    at_the_end = red.lines.index("FAILED test_wrong.py::test_wrong")
    assert "E   AssertionError: 3 messages lost" in red.lines[:at_the_end]
    assert red.folder.joinpath("build", "gate", "wrong.log").exists()


@pytest.mark.parametrize(
    "after_it",
    [
        "in_a_helper",
        "before_a_wait",
        "before_a_skip",
        "before_an_xfail",
        "in_a_thread",
        "in_an_ignored_thread",
        "after_it",
    ],
)
def test_what_is_lost_is_wrong_whatever_comes_after_it(after_it: str, red: Ended) -> None:
    assert f"FAILED test_wrong.py::test_lost_{after_it}" in red.lines


def test_a_skip_for_another_reason_is_wrong(red: Ended) -> None:
    assert {"FAILED test_wrong.py::test_silent", "skipped, and should not be: no database"} <= {*red.lines}


def test_what_is_inconclusive_runs_once_more_and_alone(green: Ended) -> None:
    """`w`: beside others."""
    assert (green.folder / "times").read_text() == "wx"
    assert green.report["flakes"] == ["test_slow.py::test_slow"]
    assert green.report["inconclusive"] == 0


def test_a_flake_is_noted_and_told_if_it_was_one_before(green: Ended) -> None:
    assert "FLAKE test_slow.py::test_slow" in green.lines
    again = "flaked before, on decaf000 (2026-01-03), so mend it before anything else: test_slow.py::test_slow"
    assert [line for line in green.lines if line.startswith("flaked")] == [again]
    noted = (green.folder / "cache" / "flakes.jsonl").read_text().splitlines()[len(FLAKES) :]
    assert [json.loads(each)["test"] for each in noted] == ["test_slow.py::test_slow"]
    assert json.loads(noted[0])["commit"] == green.report["commit"]


ROUNDS = """
import json, os, sys, time
from pathlib import Path
from tests.gate import __main__ as gate, jobs as of_jobs
from tests.gate.jobs import Job, Stage
from tests.gate.report import Report

script = '''
cp "$RMQIO_GATE_JOB" "$RMQIO_GATE_OUTCOMES_FILE"
if grep -q leaves "$RMQIO_GATE_JOB"; then PYTEST_CURRENT_TEST="a (call)" setsid sleep 600 >/dev/null 2>&1 & fi
! grep -q -e wrong -e inconclusive "$RMQIO_GATE_JOB"
'''
class Quick:  # these jobs end at once
    time, monotonic = time.time, time.monotonic
    def sleep(_): time.sleep(0.005)

of_jobs.time = Quick
for folder, jobs, changed, changed_s in json.loads(sys.argv[1]):
    gate._CHANGED_S = changed_s
    os.environ["RMQIO_CACHE"] = folder
    made = [Job(name, ("sh", "-c", script), runs_again=name != "unit") for name in jobs]
    of_unit = [each for each in made if each.name == "unit"]
    stages = [Stage("unit", of_unit), Stage("real", [each for each in made if each not in of_unit])]
    report = Report(Path(folder, "build"), time.time(), Path(folder))
    print("status", gate.run(gate.Gate(stages, report, 600, changed, ending_s=0.5)))
"""
OUTCOMES = {"p": ("passed", ""), "w": ("wrong", ""), "i": ("inconclusive", ""), "l": ("passed", "leaves a process")}


class Judged(NamedTuple):
    """What a gate makes of outcomes.

    `jobs`: a letter of `OUTCOMES` for each of the tests `a`, `b` and so on, `.` for none, by job and its later runs.
    `changed`: these tests; they begin again for `changed_s` seconds. `again`: the later runs that there are. `told`:
    the last lines, but for what is the same in all.
    """

    jobs: str
    again: str
    told: tuple[str, ...]
    changed: str = ""
    changed_s: float = 180


JUDGED = {
    "right the second time": Judged(
        "slow=pi slow-again=.p", "slow-again", ("FLAKE b", "2 passed, 0 failed, 0 skipped")
    ),
    "inconclusive twice": Judged(
        "slow=pi slow-again=.i", "slow-again", ("INCONCLUSIVE b", "1 passed, 1 failed, 0 skipped")
    ),
    "wrong the second time": Judged("slow=i slow-again=w", "slow-again", ("FAILED a", "0 passed, 1 failed, 0 skipped")),
    "no server": Judged("unit=i", "", ("INCONCLUSIVE a", "0 passed, 1 failed, 0 skipped")),
    "changed": Judged("slow=i", "", ("INCONCLUSIVE a", "0 passed, 1 failed, 0 skipped"), "a"),
    "beside what is wrong": Judged(
        "slow=i other=.w", "", ("FAILED b", "INCONCLUSIVE a", "0 passed, 2 failed, 0 skipped")
    ),
    "five": Judged(
        "slow=iii other=...ii slow-again=ppp other-again=...pp",
        "slow-again other-again",
        (*(f"FLAKE {each}" for each in "abcde"), "5 passed, 0 failed, 0 skipped"),
    ),
    "six": Judged(
        "slow=iii other=...iii",
        "",
        (*(f"INCONCLUSIVE {each}" for each in "abcdef"), "0 passed, 6 failed, 0 skipped"),
    ),
    "changed, on servers first": Judged(
        "unit=pp slow=..p unit-2=p slow-2=..p unit-3=p slow-3=..p",
        "slow-2 unit-2 slow-3 unit-3",
        ("3 passed, 0 failed, 0 skipped",),
        "ac",
    ),
    "changed, wrong in the second run": Judged(
        "slow=pp slow-2=w", "slow-2", ("FAILED a", "1 passed, 1 failed, 0 skipped"), "a"
    ),
    "changed, inconclusive in the third run": Judged(
        "slow=p slow-2=p slow-3=i", "slow-2 slow-3", ("INCONCLUSIVE a", "0 passed, 1 failed, 0 skipped"), "a"
    ),
    "changed, leaves a process in the second run": Judged(
        "slow=p slow-2=l",
        "slow-2",
        ("FAILED a has left this process: sleep 600", "1 passed, 1 failed, 0 skipped"),
        "a",
    ),
    "changed, and it is late": Judged(
        "slow=p",
        "",
        ("NO TIME for 2 more runs of changed tests, the first is a", "1 passed, 0 failed, 0 skipped"),
        "a",
        -1,
    ),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines of these gates. Their jobs are scripts, because ten pytests start in the time of all of them."""
    given = []
    for each in JUDGED.values():
        folder = tmp_path_factory.mktemp("judged")
        jobs = dict(job.split("=") for job in each.jobs.split())
        for job, letters in jobs.items():
            found = {test: OUTCOMES[of] for test, of in zip("abcdef", letters, strict=False) if of != "."}
            lines = [{"test": test, "outcome": outcome, "text": text} for test, (outcome, text) in found.items()]
            (folder / job).write_text("\n".join(map(json.dumps, [{"collected": [*found]}, *lines])))
        given.append((str(folder), [job for job in jobs if "-" not in job], [*each.changed], each.changed_s))
    command = [sys.executable, "-c", ROUNDS, json.dumps(given)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(zip(JUDGED, map(str.splitlines, re.findall(r"(?s)(.*?\nstatus \d\n)", done.stdout)), strict=True))


@pytest.mark.parametrize("name", JUDGED)
def test_what_runs_again_and_is_told_of(name: str, judged: dict[str, list[str]]) -> None:
    *lines, status = judged[name]
    assert re.findall(r"gate: (\w+-\w+): \d", "\n".join(lines)) == JUDGED[name].again.split()
    told = [line for line in lines if re.match("FAILED|INCONCLUSIVE|FLAKE|NO TIME", line)]
    assert (*sorted(told), lines[-1]) == JUDGED[name].told  # two jobs may end in any order
    assert status == f"status {int(', 0 failed' not in lines[-1])}"


def test_flakes_that_cannot_be_noted_are_told_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cache").touch()
    assert noted(["test_it"], None, tmp_path / "cache" / "flakes.jsonl") == {}
    assert capsys.readouterr().out.startswith("flakes cannot be noted: [Errno")


@pytest.mark.parametrize(
    "odd",
    [
        *('{"test": "test_it', "\n", "\udcff", "[" * 100_000, "7", "null", "[1, 2]", '{"test": "test_it"}'),
        *(
            f'{{"test": {test}, "commit": {commit}, "date": "x"}}'
            for test, commit in (('"a"', "null"), ("[1]", '"c0"'))
        ),
    ],
    ids=lambda odd: ascii(odd[:30]),
)
def test_lines_that_are_no_flakes_are_told(odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flakes.jsonl"
    file.write_bytes(f"{FLAKES[2]}\n{odd}".encode(errors="surrogateescape"))
    test = "test_other.py::test_it"
    assert noted([test], "c0ffee000000", file)[test] == "decaf000 (2026-01-03)"
    assert noted([test], None, file)[test].startswith("c0ffee00 (")
    assert capsys.readouterr().out.count(f"{file}: 1 lines are no flakes, the first is ") == 2


def test_a_gate_without_flakes_notes_nothing(tmp_path: Path) -> None:
    assert noted([], "c0ffee", tmp_path / "flakes.jsonl") == {}
    assert [*tmp_path.iterdir()] == []


def test_what_is_inconclusive_does_not_run_again_if_something_else_is_wrong(red: Ended) -> None:
    assert "INCONCLUSIVE test_dies.py::test_slow" in red.lines
    assert red.folder.joinpath("times").read_text() == "x"
    assert (red.report["inconclusive"], red.report["flakes"]) == (1, [])


def test_runs_of_changed_tests_that_there_was_no_time_for_are_told(green: Ended) -> None:
    assert "NO TIME for 2 more runs of changed tests, the first is test_real.py::test_late" in green.lines


def test_waits_take_nothing_of_the_time_of_a_test(red: Ended) -> None:
    """Each wait takes 0.6 s at least, of one second."""
    timed = [line for line in red.lines if re.fullmatch(r"FAILED test_late.py::test_(waits|hangs)\w*", line)]
    assert timed == [f"FAILED test_late.py::test_hangs_{at}_a_wait" for at in ("in", "after")]


_COLLECTED = '{"collected": ["test_a", "test_b"]}'
_A, _B = (f'{{"test": "test_{each}", "outcome": "passed", "text": ""}}' for each in "ab")


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([_COLLECTED, _A, _B], []),
        (None, ["cut; it has not told which tests it has"]),
        ([], ["cut; it has not told which tests it has"]),
        ([_A, _B], ["cut; it has not told which tests it has"]),
        ([_COLLECTED[:-9], _A, _B], ["cut; it has not told which tests it has"]),
        ([_COLLECTED, _A], ["cut; 1 of its tests did not run, the first is test_b"]),
        ([_COLLECTED, _A[:-1], "\udcff", _B], ["cut; 1 of its tests did not run, the first is test_a"]),
    ],
    ids=["whole", "gone", "empty", "without its begin", "its begin is cut", "without its end", "its middle is cut"],
)
def test_a_job_whose_outcomes_are_not_whole_fails(lines: list[str] | None, wrong: list[str], tmp_path: Path) -> None:
    """Though its exit status is 0."""
    told = tmp_path / "told"
    if lines is not None:
        told.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    command = ("sh", "-c", f'[ ! -e {told} ] || cp {told} "$RMQIO_GATE_OUTCOMES_FILE"')
    running = Running(Job("cut", command), tmp_path, tmp_path, deadline=1e10)
    until(running.has_ended, "the job")
    assert running.result().wrong == wrong


@pytest.mark.parametrize("job", ["late", "workers"])
def test_a_thread_that_fails_after_the_last_test_is_wrong(job: str, red: Ended) -> None:
    found = [line for line in red.lines if line.startswith(f"FAILED {job}: a thread")]
    said = ["AssertionError: 2 lost at the end", "ValueError: after the last test"]
    assert sorted(found) == [f"FAILED {job}: a thread failed after all tests: {each}" for each in said]


def test_a_pytest_that_dies_fails(red: Ended) -> None:
    line = "dies: pytest ended with status 3; 1 of its tests did not run, the first is test_dies.py::test_dies"
    assert f"FAILED {line}" in red.lines


def test_a_test_that_kills_its_worker_fails(red: Ended) -> None:
    assert "FAILED test_workers.py::test_dies" in red.lines
    assert any(line.startswith("gate: workers: 3 passed, 5 failed") for line in red.lines)


def test_what_is_not_utf_8_is_told(red: Ended) -> None:
    assert r"workers: FAILED test_workers.py::test_says   ValueError: \ud800 lost" in red.lines


def test_it_ends_when_its_time_is_up_and_names_what_ran(tmp_path: Path) -> None:
    status, lines, report = Run(tmp_path, limit_s=0, ends_with="in test_hangs", hangs=LEAVES_AND_HANGS).wait()
    assert (status, lines[-1]) == (1, "2 passed, 2 failed, 0 skipped")
    assert "FAILED the gate ran out of time, while these ran: hangs: test_hangs.py::test_hangs" in lines
    assert any(re.fullmatch(r'  File ".*test_hangs.py", line \d+ in test_hangs', line) for line in lines)
    assert report["result"] == "failed"
    assert not psutil.pid_exists(int(tmp_path.joinpath("left").read_text()))


def test_a_full_disk_fails(tmp_path: Path) -> None:
    """Here, no file can have more than 50,000 bytes."""
    prints = "def test_prints(capfd):\n    with capfd.disabled(): print('x' * 80_000)\n"
    status, lines, report = Run(tmp_path, limited=("prlimit", "--fsize=50000"), prints=prints).wait()
    assert status == 1
    assert re.fullmatch(r"\d passed, [1-9] failed, 0 skipped", lines[-1])
    assert report["result"] == "failed"


class SetUp:
    """The start of a gate whose set-up is this recipe of make, with nothing that is installed."""

    def __init__(self, folder: Path, recipe: str, *limited: str, factor: float | str = 1) -> None:
        self._folder = folder
        gate = folder / "tests" / "gate"
        gate.mkdir(parents=True)
        (folder / "tests" / "helpers").mkdir()
        for name in ("__init__", "ending", "patience", "report", "start", "../helpers/compared", "../helpers/waiting"):
            shutil.copy(ROOT / "tests" / "gate" / f"{name}.py", gate / f"{name}.py")
        (folder / "Makefile").write_text(f".venv/.installed:\n\t{recipe}\n")
        self._command = [*limited, sys.executable, "-S", "-m", "tests.gate.start"]
        self._environment = {**os.environ, "RMQIO_PATIENCE": str(factor)}
        self.begin()

    def begin(self) -> None:
        with (self._folder / "output").open("wb") as output:
            self.process = subprocess.Popen(self._command, cwd=self._folder, env=self._environment, stdout=output)

    def wait(self) -> tuple[int, list[str], str]:
        """Returns the exit status, the lines, and the result in gate.json, or that there is none."""
        status, lines = self.process.wait(), (self._folder / "output").read_text().splitlines()
        report = self._folder / "build" / "gate.json"
        return status, lines, json.loads(report.read_text())["result"] if report.exists() else "none"


def test_a_set_up_that_fails_is_a_gate_that_fails(tmp_path: Path) -> None:
    status, lines, result = SetUp(tmp_path, "false").wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "failed")
    assert "FAILED set-up: make ended with status 2" in lines


def test_the_limit_of_the_set_up_grows_as_all_others(tmp_path: Path) -> None:
    status, lines, result = SetUp(tmp_path, "sleep 30", factor=0.0002).wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "failed")
    assert "timed out after 0.2" in lines[-3]


@pytest.mark.parametrize("factor", ["x", "", "0", "nan"])
def test_a_patience_that_is_no_number_ends_the_set_up(tmp_path: Path, factor: str) -> None:
    status, lines, result = SetUp(tmp_path, "sleep 600", factor=factor).wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "failed")
    assert lines[-3] == f"FAILED set-up: RMQIO_PATIENCE={factor} is no number above 0"


@pytest.mark.parametrize("name", ["RMQIO_PATIENCE", "RMQIO_GATE_MINUTES", "RMQIO_BASE"])
def test_a_variable_that_is_wrong_is_told(tmp_path: Path, name: str) -> None:
    """And that an earlier run has passed does not stand."""
    Report(tmp_path / "build", 0).close(End(passed=3))
    program = f"gate.ROOT = Path({str(tmp_path)!r}); raise SystemExit(gate.main([]))"
    done = subprocess.run(
        [sys.executable, "-c", f"from pathlib import Path; from tests.gate import __main__ as gate; {program}"],
        cwd=ROOT, env={**os.environ, "RMQIO_PATIENCE": "1", name: "nowhere"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert lines[0].startswith(f"FAILED the gate cannot begin: {name}=nowhere is no ")
    assert json.loads((tmp_path / "build" / "gate.json").read_text())["result"] == "failed"


def test_a_disk_that_is_full_at_the_start_fails(tmp_path: Path) -> None:
    status, lines, result = SetUp(tmp_path, "true", "prlimit", "--fsize=1000").wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "none")
    assert lines[-2].startswith("FAILED the gate cannot begin: [Errno 27]")


def test_a_machine_without_git_can_begin(tmp_path: Path) -> None:
    for name in ("make", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    status, lines, result = SetUp(tmp_path, "false", "env", f"PATH={tmp_path}").wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "failed")
    assert "FAILED set-up: make ended with status 2" in lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_between_the_set_up_and_the_gate_is_told(tmp_path: Path, number: signal.Signals) -> None:
    gate = "from tests.gate import __main__ as gate; gate._gate = None; raise SystemExit(gate.main([]))"
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nkill -{number} $$\ncd {ROOT} && exec {sys.executable} -c '{gate}'\n")
    python.chmod(0o755)
    status, lines, _ = SetUp(tmp_path, "true").wait()
    assert (status, lines[-1]) == (128 + number, "0 passed, 1 failed, 0 skipped")
    assert lines[-2] == f"FAILED the gate cannot begin: {number.name}"


def test_nohup_keeps_it_when_its_terminal_goes(tmp_path: Path) -> None:
    """Here, to the end of a set-up that fails."""
    set_up = SetUp(tmp_path, "touch begun; until [ -e gone ]; do sleep 0.1; done; exit 3", "nohup")
    until((tmp_path / "begun").exists, "the set-up", alive=[runs(set_up.process)])
    set_up.process.send_signal(signal.SIGHUP)
    (tmp_path / "gone").touch()
    status, lines, _ = set_up.wait()
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert "FAILED set-up: make ended with status 2" in lines


def test_an_environment_without_python_is_told_on_any_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "\xfc"
    folder.mkdir()
    status, lines, result = SetUp(folder, "true", "env", "PYTHONIOENCODING=ascii", "PYTHONUTF8=0").wait()
    assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "failed")
    assert any("FAILED set-up: " in line and "\\xfc/.venv/bin/python" in line for line in lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_set_up(number: signal.Signals, tmp_path: Path) -> None:
    """Also in a run of the tests that nohup began."""
    set_up = SetUp(tmp_path, "touch begun; sleep 600", "env", "--default-signal=HUP")
    until((tmp_path / "begun").exists, "the set-up", alive=[runs(set_up.process)])
    set_up.process.send_signal(number)
    status, lines, result = set_up.wait()
    assert (status, lines[-1], result) == (128 + number, "0 passed, 1 failed, 0 skipped", "failed")
    assert f"FAILED set-up: {number.name}" in lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_what_ends_it_before_it_knows_its_commit_is_no_run_that_passed(number: signal.Signals, tmp_path: Path) -> None:
    """As an earlier one has. Here, git takes long."""
    Report(tmp_path / "build", 0).close(End(passed=3))
    (tmp_path / "git").write_text(f"#!/bin/sh\ntouch {tmp_path / 'begun'}\nexec sleep 600\n")
    (tmp_path / "git").chmod(0o755)
    set_up = SetUp(tmp_path, "true", "env", f"PATH={tmp_path}:{os.environ['PATH']}")
    until((tmp_path / "begun").exists, "git", alive=[runs(set_up.process)])
    left = psutil.Process(set_up.process.pid).children(recursive=True)
    set_up.process.send_signal(number)
    assert set_up.wait()[::2] == (-number if number == signal.SIGKILL else 128 + number, "failed")
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


@pytest.mark.parametrize("while_", ["it is set up", "it runs"])
def test_another_gate_in_its_folder_cannot_begin(tmp_path: Path, while_: str) -> None:
    """A killed one leaves the folder to the next one, whatever it has left besides."""
    hangs = "[ ! -e begun ] || exit 3; : > begun; exec sleep 600"  # begins no process that ends before the gate
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{hangs}\n")
    python.chmod(0o755)
    gate = SetUp(tmp_path, hangs if while_ == "it is set up" else "true")
    first, left = gate.process, list[psutil.Process]()
    try:
        until((tmp_path / "begun").exists, while_, alive=[runs(first)])
        left = psutil.Process(first.pid).children(recursive=True)
        gate.begin()
        status, lines, result = gate.wait()
        assert (status, lines[-1], result) == (1, "0 passed, 1 failed, 0 skipped", "failed")
        assert f"process {first.pid} is running in {tmp_path / 'build'}: wait for it, or end it" in lines[-2]
        first.kill()
        first.wait()
        gate.begin()
        assert gate.wait()[0] == (1 if while_ == "it is set up" else 3)
        assert all(each.is_running() for each in left)
    finally:
        first.kill()
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


@pytest.mark.parametrize(
    ("before", "meanwhile", "is_clean"),
    [
        ("true", "touch build/more", True),
        ("echo 8 >code", "true", False),
        ("true", "echo 8 >code", False),
        ("true", "echo 8 >code && git checkout -q code", False),
        ("true", "echo 8 >code && git stash -q", False),
        ("true", "rm code && git checkout -q code", False),
        ("echo 8 >code", "git checkout -q code", False),
        ("true", "touch more", False),
        ("true", "touch $(printf '\\374')", False),
        ("touch more", "rm more", False),
        ("true", "git commit -qm y --allow-empty", False),
    ],
)
def test_a_gate_is_clean_if_no_source_has_changed_meanwhile(
    before: str, meanwhile: str, is_clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if it has changed back."""

    def run(script: str) -> None:
        subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)

    for each in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{each}_NAME", "x")
        monkeypatch.setenv(f"GIT_{each}_EMAIL", "x")
    run("git init -q && git config core.quotePath false && echo 7 >code && echo build >.gitignore && git add -A")
    run(f"git commit -qm x && touch -d '1 hour ago' code .gitignore && {before}")
    report = Report(tmp_path / "build", time.time() - 600, tmp_path)
    run(meanwhile)
    report.close(End(passed=3))
    assert json.loads((tmp_path / "build" / "gate.json").read_text())["clean"] == is_clean


def test_reports_that_somebody_has_removed_are_written_anew(tmp_path: Path) -> None:
    report = Report(tmp_path / "build", 0)
    shutil.rmtree(tmp_path / "build")
    assert report.close(End(passed=3)) == 0
    assert json.loads((tmp_path / "build" / "gate.json").read_text())["passed"] == 3
    assert (tmp_path / "build" / "junit.xml").exists()


def test_reports_that_cannot_be_written_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(tmp_path / "build", 0)
    shutil.rmtree(tmp_path / "build")
    (tmp_path / "build").touch()
    assert report.close(End(passed=3)) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 2 failed, 0 skipped"


def test_what_a_green_test_leaves_is_wrong_and_ended(red: Ended) -> None:
    assert any(re.match("FAILED test_wrong.py::test_leaves has left this process: .*sleep", line) for line in red.lines)
    assert not psutil.pid_exists(int(red.folder.joinpath("left").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_it_with_all_that_tests_have_started(tmp_path: Path, number: signal.Signals) -> None:
    """It was started with SIGINT ignored, as a shell starts what runs in the background."""
    run = Run(tmp_path, hangs=LEAVES_AND_HANGS)
    left = tmp_path / "left"
    alive = [runs(run.process)]
    until(lambda: left.exists() and left.read_text(), "the id of what is left", alive=alive, still_s=240)
    run.process.send_signal(number)
    status, lines, report = run.wait()
    assert status == 128 + number
    assert re.fullmatch(r"\d passed, 2 failed, 0 skipped", lines[-1])
    assert {f"FAILED the gate was ended by {number.name}", "FAILED test_hangs.py::test_wrong"} <= {*lines}
    assert report["result"] == "failed"
    assert not psutil.pid_exists(int(left.read_text()))


class _Broken(LocalBrokerError):
    pass


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _before(first: BaseException, then: BaseException, *, is_hidden: bool = False) -> BaseException:
    """Returns what comes out of a block that raised the first one, and in whose `finally` the other one was raised."""
    then.__context__, then.__suppress_context__ = first, is_hidden
    return then


def _circle() -> BaseException:
    return _caused(told := Inconclusive("it ended"), _caused(RuntimeError("no"), told))


class _Untold(RuntimeError):
    def __str__(self) -> str:
        raise ConnectionError("of a JVM that has ended")


_LOST, _ENDED = AssertionError("3 messages lost"), Inconclusive("it ended")


@pytest.mark.parametrize(
    ("error", "in_setup", "is_one"),
    [
        (Inconclusive("it ended"), False, True),
        (_caused(RuntimeError("no"), Inconclusive("it ended")), False, True),
        (OSError(errno.EADDRINUSE, "taken"), False, True),
        (OSError(errno.ECONNREFUSED, "refused"), False, False),
        (_Broken("did not start"), True, True),
        (_Broken("did not start"), False, False),
        (_Broken("did not start: java.net.BindException: Address already in use"), False, True),
        (RuntimeError("bind(..) failed: Address already in use"), False, True),
        (_caused(RuntimeError("no"), _Broken("java.net.BindException")), False, True),
        (RuntimeError("[STREAM_FAILED] Python worker failed to connect back. SQLSTATE: XXKST"), False, True),
        (AssertionError("java.net.BindException"), False, False),
        (_before(_LOST, _Broken("java.net.BindException")), True, False),
        (_Untold(), False, False),
        (_circle(), False, True),
        (_before(_LOST, Inconclusive("it ended")), False, False),
        (_before(_LOST, Inconclusive("it ended"), is_hidden=True), False, False),
        (_caused(Inconclusive("it ended"), _LOST), False, False),
        (_caused(RuntimeError("no"), _before(_LOST, Inconclusive("it ended"))), False, False),
        (_before(pytest.fail.Exception("3 messages lost"), OSError(errno.EADDRINUSE, "taken")), False, False),
        (_before(ConnectionError("refused"), Inconclusive("it ended")), False, True),
        (_before(Inconclusive("it ended"), ConnectionError("refused")), False, True),
        (_before(_before(_LOST, Inconclusive("it ended")), ConnectionError("refused")), False, False),
        (pytest.PytestUnhandledThreadExceptionWarning("in a thread"), False, False),
        (ExceptionGroup("two", [_ENDED, OSError(errno.EADDRINUSE, "taken")]), False, True),
        (ExceptionGroup("two", [_ENDED, ValueError("no number")]), False, False),
        (ExceptionGroup("two", [_ENDED, ExceptionGroup("one", [_LOST])]), False, False),
        (_caused(Inconclusive("it ended"), ExceptionGroup("one", [_LOST])), False, False),
        (AssertionError("nothing changed for 60 s"), False, False),
        (_caused(AssertionError("3 messages lost"), Inconclusive("it ended")), False, False),
        (_caused(pytest.fail.Exception("3 messages lost"), Inconclusive("it ended")), False, False),
        (subprocess.TimeoutExpired("x", 60), False, False),
    ],
    ids=repr,
)
def test_these_are_inconclusive(error: BaseException, in_setup: bool, is_one: bool) -> None:
    assert inconclusive(error, in_setup=in_setup) == is_one


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
