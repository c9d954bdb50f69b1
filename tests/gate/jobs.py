"""Jobs of the gate: programs that run beside each other, each with its log, and what came out."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.gate.processes import reap
from tests.gate.selection import LANES
from tests.gate.told import DEADLINE, LAST_BEGIN, LATE, NAME, OUTCOMES, OUTCOMES_FILE, TOLD_FD

_STACKS_S: Final = 3.0
"""So long after its deadline, a job has written its stacks."""
_ENVIRONMENT: Final = {"PYTEST_ADDOPTS": "", "PYTHONOPTIMIZE": "", "LANGUAGE": "C"}
"""Options of pytest, and of Python, which would leave out the assertions of helpers, are those of the gate alone.
argparse looks for translations of its texts each time it makes a parser, which is a fifth of what a Beam pipeline
costs: with the language C, it looks nowhere."""


class Job(NamedTuple):
    """A program whose exit status is 0 if all is well.

    Args:
      runs_again: whether what it fails by chance runs once more.
      last_begin: after this time, in seconds since 1970, it begins no test.
    """

    name: str
    command: tuple[str, ...]
    is_pytest: bool = True
    runs_again: bool = False
    last_begin: float = float("inf")


class Stage(NamedTuple):
    """Jobs at the same time. `stops`: whether nothing follows if one of them fails."""

    name: str
    jobs: tuple[Job, ...]
    stops: bool = False


class Result(NamedTuple):
    """What became of the tests of a job, by pytest's ids.

    `wrong` also has lines about the job itself. `inconclusive`: see tests/gate/judging.py. `running`: had begun when
    the job ended. `left_out`: should have begun after the job's `last_begin`.
    """

    passed: Collection[str] = ()
    wrong: Collection[str] = ()
    inconclusive: Collection[str] = ()
    skipped: Collection[str] = ()
    left_out: Collection[str] = ()
    running: Collection[str] = ()
    texts: Mapping[str, str] = {}
    """Why tests failed or were skipped."""

    @property
    def failed(self) -> list[str]:
        return [*self.wrong, *self.inconclusive]


def pytest_job(name: str, *arguments: str, runs_again: bool = False) -> Job:
    command = (sys.executable, "-m", "pytest", "-p", "tests.gate.plugin", "-q", *arguments)
    return Job(name, command, runs_again=runs_again)


def of_gate(which: str, *arguments: str, name: str = "") -> Job:
    """Returns a job of what the gate has of some tests. Those with servers run again."""
    return pytest_job(name or which, f"--gate={which}", *arguments, runs_again=which in LANES)


def module_job(module: str, *arguments: str) -> Job:
    return Job(module.rpartition(".")[2], (sys.executable, "-m", module, *arguments), is_pytest=False)


def some_of(job: Job, name: str, tests: Iterable[str], last_begin: float = float("inf")) -> Job:
    """Returns a job of some tests of another one: without its files and folders."""
    options = [each for each in job.command if not each.startswith(("tests/", "test_"))]
    return job._replace(name=name, command=(*options, *tests), last_begin=last_begin)


def alone(job: Job, name: str, tests: Iterable[str]) -> Job:
    """Returns a job of some tests of another one, of which none runs beside another."""
    one = some_of(job, name, ())
    return one._replace(command=(*one.command, "-n", "0", *tests))


class Running:
    """A job that has been started: its process and its log. `deadline`: when it writes its stacks, since 1970."""

    def __init__(self, job: Job, root: Path, logs: Path, deadline: float) -> None:
        self.job = job
        self._began = time.monotonic()
        self.seconds = 0.0
        self.log = logs / f"{job.name}.log"
        self._outcomes = logs / f"{job.name}.outcomes.jsonl"
        told = os.dup(sys.stdout.fileno())  # beside the log, which the job has as its own standard output
        environment = {OUTCOMES_FILE: str(self._outcomes), TOLD_FD: str(told), NAME: job.name, DEADLINE: str(deadline)}
        environment[LAST_BEGIN] = str(job.last_begin)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (*job.command, *([f"--junitxml={logs / f'{job.name}.xml'}"] if job.is_pytest else [])),
                cwd=root,
                env={**os.environ, **_ENVIRONMENT, **(environment if job.is_pytest else {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(told,),
            )
        os.close(told)

    @property
    def id(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        self.seconds = time.monotonic() - self._began
        return self._process.poll() is not None

    def result(self) -> Result:
        """After its end. A job is wrong itself if it ended in another way than by tests that pass or fail."""
        status = self._process.returncode
        if not self.job.is_pytest:
            return Result(wrong=[self.job.name]) if status else Result([self.job.name])
        result, missing = outcomes(self._outcomes)
        late = [f"{self.job.name}: {each}" for each in result.wrong if each.startswith(LATE)]
        result = result._replace(wrong=[each for each in result.wrong if not each.startswith(LATE)])
        wrong = f"{self.job.name}: pytest ended with status {status}" if status != bool(result.failed) else ""
        if missing is None:
            wrong = f"{wrong or self.job.name}; it has not told which tests it has"
        elif missing:
            wrong = f"{wrong or self.job.name}; {len(missing)} of its tests did not run, the first is {missing[0]}"
        return result._replace(wrong=[*result.wrong, *late, *filter(None, [wrong])])

    def result_so_far(self) -> Result:
        return outcomes(self._outcomes)[0]


def wait(running: Collection[Running], deadline: float) -> list[Running]:
    """Waits until jobs have ended and returns them. None: they still run after their deadline, in seconds since 1970.

    Meanwhile, this is the parent of what their tests have left: a look ten times a second also takes note of its ends.
    """
    while True:
        reap([each.id for each in running])
        if ended := [each for each in running if each.has_ended()]:
            return ended
        if time.time() > deadline + _STACKS_S:
            return []
        time.sleep(0.1)


def outcomes(file: Path) -> tuple[Result, list[str] | None]:
    """Returns the outcomes that the plugin has written, and which of the tests that were collected have none.

    None: it is not known which were, as the file is gone, or its lines are.
    """
    found: dict[str, str] = {}
    texts: dict[str, str] = {}
    collected: list[str] | None = None
    begun: list[str] = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):  # the end of what a process wrote that was killed
            match json.loads(line):
                case {"collected": ids}:
                    collected = ids
                case {"begun": test}:
                    begun.append(test)
                case {"test": test, "outcome": outcome, "text": text}:
                    found[test], texts[test] = outcome, text
    of = {each: [test for test, outcome in found.items() if outcome == each] for each in OUTCOMES}
    result = Result(**of, running=[test for test in begun if test not in found], texts=texts)
    return result, None if collected is None else [test for test in collected if test not in found]
