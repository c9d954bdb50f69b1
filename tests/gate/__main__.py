"""Runs the gate: `python -m tests.gate`. Its last line is `N passed, N failed, N skipped`; each stage has its log.

Stages follow each other; the jobs of a stage run at the same time, on two cores. A red lint ends the gate, because
what follows takes a quarter of an hour. What fails in a later stage is told at once, and the others still run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.gate.again import run_again
from tests.gate.plugin import NAME, OUTCOMES_FILE, TOLD_FD
from tests.gate.processes import Ended, adopt, end_all, reap
from tests.gate.report import ROOT, Report
from tests.gate.selection import LANES, files

_LINT: Final = ("tests/unit/structure", "tests/unit/docs")
_SHOWN: Final = 20_000
"""Characters of a log that the terminal gets of a job that failed; the log has all."""


class Job(NamedTuple):
    """A program whose exit status is 0 if all is well. `runs_again`: what it fails by chance runs once more."""

    name: str
    command: tuple[str, ...]
    is_pytest: bool = True
    runs_again: bool = False


class Stage(NamedTuple):
    """Jobs at the same time. `stops`: whether nothing follows if one of them fails."""

    name: str
    jobs: tuple[Job, ...]
    stops: bool = False


class Result(NamedTuple):
    """What a job printed and counted. `failed`: ids of tests, or the name of the job, with their texts."""

    passed: Collection[str] = ()
    failed: Mapping[str, str] = {}
    skipped: Collection[str] = ()


def pytest_job(name: str, *arguments: str, runs_again: bool = False) -> Job:
    command = (sys.executable, "-m", "pytest", "-p", "tests.gate.plugin", "-q", *arguments)
    return Job(name, command, runs_again=runs_again)


def of_gate(name: str, *arguments: str) -> Job:
    """Returns a job of what the gate has of some tests. Those with servers run again."""
    return pytest_job(name, f"--gate={name}", *arguments, runs_again=name in LANES)


def module_job(module: str, *arguments: str) -> Job:
    return Job(module.rpartition(".")[2], (sys.executable, "-m", module, *arguments), is_pytest=False)


STAGES: Final = (
    Stage(
        "lint",
        (
            module_job("tests.gate.linters"),
            of_gate("documents", *_LINT),
            of_gate("programs", "tests/programs"),
        ),
        stops=True,
    ),
    Stage(
        "unit",
        (
            of_gate(
                "unit",
                *("tests/unit", "tests/contract", *(f"--ignore={each}" for each in _LINT)),
                *("-n", "3", "--dist", "loadfile"),  # two wait for a quarter of the time
            ),
        ),
    ),
    Stage("real", tuple(of_gate(lane, "--durations=25", *files(lane)) for lane in LANES)),
)


class Gate:
    """One run.

    Args:
      stages: they follow each other.
      began: when its set-up did, in seconds since 1970.
      root: the folder of the jobs.
      build: the folder of its reports, and of a folder `gate` with the logs.
    """

    def __init__(self, stages: Sequence[Stage], began: float, root: Path = ROOT, build: Path = ROOT / "build") -> None:
        self._stages = stages
        self._root = root
        self._logs = build / "gate"
        self._report = Report(build, began)
        self._seconds = self._report.seconds
        self._seconds["set-up"] = time.time() - began
        self._running: dict[str, Running] = {}
        self._results: dict[str, Result] = {}
        self._flakes: list[str] = []

    def run(self) -> None:
        """Runs all stages, and once more what may have failed by chance."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for each in self._logs.iterdir():
            each.unlink()
        say(f"set-up took {self._seconds['set-up']:.0f} s")
        for stage in self._stages:
            self._stage(stage)
            if stage.stops and self.failed:
                return
        self._again()

    @property
    def failed(self) -> list[str]:
        """Ids of tests, and names of jobs that ended in another way than by failed tests."""
        return [name for result in self._results.values() for name in result.failed]

    def _stage(self, stage: Stage) -> None:
        began = time.monotonic()
        for job in stage.jobs:
            self._running[job.name] = Running(job, self._root, self._logs)
        while self._running:
            time.sleep(0.1)
            reap([process.id for process in self._running.values()])
            for name, process in list(self._running.items()):
                if process.has_ended():
                    self._results[name] = self._ended(process)
                    del self._running[name]
        # What a job leaves behind would disturb the next stage: it ends with the last job.
        end_all()
        self._seconds[stage.name] = time.monotonic() - began
        say(f"{stage.name} took {self._seconds[stage.name]:.0f} s")

    def _ended(self, process: Running) -> Result:
        result, name = process.result(), process.job.name
        counts = f"{len(result.passed)} passed, {len(result.failed)} failed, {len(result.skipped)} skipped"
        say(f"{name}: {counts} after {process.seconds:.0f} s")
        if result.failed:
            print(process.log.read_text(errors="replace")[-_SHOWN:], flush=True)
            say(f"{name}: the whole log is {process.log.relative_to(self._root)}")
        return result

    def _again(self) -> None:
        """Tests on real servers, alone, job by job: tests/gate/again.py says which, and why."""
        failed = {name: text for result in self._results.values() for name, text in result.failed.items()}
        jobs = {job.name: job for stage in self._stages for job in stage.jobs if self._results[job.name].failed}
        if not all(job.runs_again for job in jobs.values()) or not run_again(failed):
            return
        say(f"{len(failed)} of these tests failed. Once more, alone:\n  " + "\n  ".join(failed))
        began = time.monotonic()
        for name, job in jobs.items():
            first = self._results[name]
            self._stage(Stage("again", (once_more(job, first.failed),)))
            again = self._results.pop(f"again-{name}")
            if again.failed.keys() - first.failed.keys():  # pytest itself failed, or did not run all of them
                self._results[name] = first._replace(failed={**first.failed, **again.failed})
                continue
            passed = [test for test in first.failed if test in again.passed]
            self._flakes += passed
            left = {test: text for test, text in first.failed.items() if test not in passed}
            self._results[name] = Result((*first.passed, *passed), left, first.skipped)
        self._seconds["again"] = time.monotonic() - began

    def close(self, more: str = "") -> int:
        """Prints the end and writes the reports. Returns the exit status. `more`: why it ended before its end."""
        for name, process in self._running.items():
            self._results[name] = process.result_so_far()
        failed = [*self.failed, *([more] if more else [])]
        passed, skipped = (
            sum(len(getattr(each, of)) for each in self._results.values()) for of in ("passed", "skipped")
        )
        return self._report.close(passed, failed, skipped, self._flakes)


def once_more(job: Job, tests: Iterable[str]) -> Job:
    """Returns the job of some tests of another one, alone: without its files and folders."""
    options = [each for each in job.command if not each.startswith(("tests/", "test_"))]
    return job._replace(name=f"again-{job.name}", command=(*options, "--timeout=900", *tests))


class Running:
    """A job that has been started: its process and its log."""

    def __init__(self, job: Job, root: Path, logs: Path) -> None:
        self.job = job
        self._began = time.monotonic()
        self.seconds = 0.0
        self.log = logs / f"{job.name}.log"
        self._outcomes = logs / f"{job.name}.outcomes.jsonl"
        told = os.dup(sys.stdout.fileno())  # beside the log, which the job has as its own standard output
        environment = {OUTCOMES_FILE: str(self._outcomes), TOLD_FD: str(told), NAME: job.name}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (*job.command, *([f"--junitxml={logs / f'{job.name}.xml'}"] if job.is_pytest else [])),
                cwd=root,
                env=os.environ | (environment if job.is_pytest else {}),
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
        """After its end. A job has failed itself if it ended in another way than by tests that pass or fail."""
        status = self._process.returncode
        if not self.job.is_pytest:
            return Result((), {self.job.name: ""}) if status else Result((self.job.name,))
        result, missing = outcomes(self._outcomes)
        wrong = f"{self.job.name}: pytest ended with status {status}" if status != bool(result.failed) else ""
        if missing:
            wrong = f"{wrong or self.job.name}; {len(missing)} of its tests did not run, the first is {missing[0]}"
        return result._replace(failed={**result.failed, wrong: ""}) if wrong else result

    def result_so_far(self) -> Result:
        return outcomes(self._outcomes)[0]


def outcomes(file: Path) -> tuple[Result, list[str]]:
    """Returns the outcomes that the plugin has written, and which of the tests that were collected have none."""
    found: dict[str, tuple[str, str]] = {}
    collected: list[str] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):  # the end of what a process wrote that was killed
            match json.loads(line):
                case {"collected": ids}:
                    collected = ids
                case {"test": test, "outcome": outcome, "text": text}:
                    found[test] = outcome, text
    ids = {outcome: [test for test, (of, _) in found.items() if of == outcome] for outcome in ("passed", "skipped")}
    failed = {test: text for test, (outcome, text) in found.items() if outcome == "failed"}
    return Result(ids["passed"], failed, ids["skipped"]), [test for test in collected if test not in found]


def say(text: str) -> None:
    print(f"gate: {text}", flush=True)


def run(gate: Gate) -> int:
    """Runs a gate and returns the exit status. Nothing that it has started is left."""
    adopt()
    try:
        gate.run()
        return gate.close()
    except Ended as ended:
        end_all()
        gate.close(f"the gate was ended by {ended}")
        return ended.status
    finally:
        end_all()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--only", choices=[stage.name for stage in STAGES], help="run this stage alone")
    only = parser.parse_args(argv).only
    stages = [stage for stage in STAGES if only in (None, stage.name)]
    build = ROOT / "build" / only if only else ROOT / "build"
    return run(Gate(stages, float(os.environ.get("RMQIO_GATE_BEGAN", time.time())), build=build))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
