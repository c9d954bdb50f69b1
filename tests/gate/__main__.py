"""Runs the gate: `python -m tests.gate`. Its last line is `N passed, N failed, N skipped`; each stage has its log.

Stages follow each other; the jobs of a stage run at the same time, on two cores. A red lint ends the gate, because
what follows takes a quarter of an hour. What fails in a later stage is told at once, and the others still run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.gate.again import run_again
from tests.gate.plugin import FAILED_FILE, NAME, TOLD_FD
from tests.gate.processes import Ended, adopt, end_all, reap
from tests.gate.selection import files

ROOT: Final = Path(__file__).parents[2]
_LINT: Final = ("tests/unit/structure", "tests/unit/docs")
_PROGRAMS_OF_PAGES: Final = "tests/unit/docs/test_migrate.py"
"""It starts programs and stops them, as no other test of a document does."""
_SHOWN: Final = 20_000
"""Characters of a log that the terminal gets of a job that failed; the log has all."""


class Job(NamedTuple):
    """A program whose exit status is 0 if all is well."""

    name: str
    command: tuple[str, ...]
    is_pytest: bool = True


class Stage(NamedTuple):
    """Jobs at the same time. `stops`: whether nothing follows if one of them fails."""

    name: str
    jobs: tuple[Job, ...]
    stops: bool = False


class Result(NamedTuple):
    """What a job printed and counted. `failed`: ids of tests, or the name of the job, with their texts."""

    passed: int
    failed: Mapping[str, str]
    skipped: int


def pytest_job(name: str, *arguments: str) -> Job:
    return Job(name, (sys.executable, "-m", "pytest", "-p", "tests.gate.plugin", "-q", *arguments))


def of_gate(name: str, *arguments: str) -> Job:
    """Returns a job of what the gate has of some tests."""
    return pytest_job(name, f"--gate={name}", *arguments)


def module_job(module: str, *arguments: str) -> Job:
    return Job(module.rpartition(".")[2], (sys.executable, "-m", module, *arguments), is_pytest=False)


STAGES: Final = (
    Stage(
        "lint",
        (
            module_job("tests.gate.linters"),
            of_gate("documents", *_LINT, f"--ignore={_PROGRAMS_OF_PAGES}"),
            of_gate("programs", "tests/programs"),
        ),
        stops=True,
    ),
    Stage(
        "unit",
        (
            of_gate(
                "unit",
                *("tests/unit", "tests/contract", *(f"--ignore={each}" for each in _LINT), _PROGRAMS_OF_PAGES),
                *("-n", "3", "--dist", "loadfile"),  # two wait for a quarter of the time
            ),
        ),
    ),
    Stage("real", tuple(of_gate(lane, "--durations=25", *files(lane)) for lane in ("broker", "spark"))),
)


class Gate:
    """One run. `began`: when its set-up did, in seconds since 1970. `root`: the folder of the jobs, and of build/."""

    def __init__(self, stages: Sequence[Stage], began: float, root: Path = ROOT) -> None:
        self._stages = stages
        self._began = began
        self._root = root
        self._build = root / "build"
        self._logs = self._build / "gate"
        self._results: dict[str, Result] = {}
        self._seconds: dict[str, float] = {}
        self._flakes: list[str] = []

    def run(self) -> None:
        """Runs all stages, and once more what may have failed by chance."""
        self._seconds["set-up"] = time.time() - self._began
        say(f"set-up took {self._seconds['set-up']:.0f} s")
        self._logs.mkdir(parents=True, exist_ok=True)
        for each in (*self._logs.iterdir(), *self._build.glob("gate.json"), *self._build.glob("junit.xml")):
            each.unlink()
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
        running = {job.name: (job, Running(job, self._root, self._logs)) for job in stage.jobs}
        while running:
            time.sleep(0.1)
            reap([process.id for _, process in running.values()])
            for name, (job, process) in list(running.items()):
                if process.has_ended():
                    del running[name]
                    self._results[name] = self._ended(job, process)
            # What a job leaves behind would disturb the next stage: it ends with the last job.
        end_all()
        self._seconds[stage.name] = time.monotonic() - began
        say(f"{stage.name} took {self._seconds[stage.name]:.0f} s")

    def _ended(self, job: Job, process: Running) -> Result:
        result = process.result()
        counts = f"{result.passed} passed, {len(result.failed)} failed, {result.skipped} skipped"
        say(f"{job.name}: {counts} after {process.seconds:.0f} s")
        if result.failed:
            print(process.log.read_text(errors="replace")[-_SHOWN:], flush=True)
            say(f"{job.name}: the whole log is {process.log.relative_to(self._root)}")
        return result

    def _again(self) -> None:
        """Tests of unit and real, alone: tests/gate/again.py says which, and why."""
        failed = {name: text for result in self._results.values() for name, text in result.failed.items()}
        if not run_again(failed):
            return
        say(f"{len(failed)} of these tests failed. Once more, alone:\n  " + "\n  ".join(failed))
        self._stage(Stage("again", (pytest_job("again", "--timeout=900", *failed),)))
        again = self._results.pop("again")
        self._flakes = [name for name in failed if name not in again.failed]
        if again.passed < len(self._flakes):  # not run is not passed
            self._flakes = []
        for name, result in self._results.items():
            passed = [each for each in result.failed if each in self._flakes]
            left = {each: text for each, text in result.failed.items() if each not in passed}
            self._results[name] = Result(result.passed + len(passed), left, result.skipped)

    def close(self, more: str = "") -> int:
        """Prints the end and writes the reports. Returns the exit status. `more`: why it ended before its end."""
        failed = [*self.failed, *([more] if more else [])]
        passed, skipped = (sum(getattr(each, of) for each in self._results.values()) for of in ("passed", "skipped"))
        self._seconds["all"] = time.time() - self._began
        write_reports(
            self._build,
            {
                **commit(),
                "result": "failed" if failed else "passed",
                "passed": passed,
                "failed": len(failed),
                "skipped": skipped,
                "seconds": {name: round(seconds) for name, seconds in self._seconds.items()},
                "flakes": self._flakes,
            },
        )
        for name in failed:
            print(f"FAILED {name}")
        for name in self._flakes:
            print(f"FLAKE {name}")
        print("seconds: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in self._seconds.items()))
        print(f"{passed} passed, {len(failed)} failed, {skipped} skipped", flush=True)
        return 1 if failed else 0


class Running:
    """A job that has been started: its process and its log."""

    def __init__(self, job: Job, root: Path, logs: Path) -> None:
        self._job = job
        self._began = time.monotonic()
        self.seconds = 0.0
        self.log = logs / f"{job.name}.log"
        self._failed = logs / f"{job.name}.failed.json"
        self._junit = logs / f"{job.name}.xml"
        told = os.dup(sys.stdout.fileno())  # beside the log, which the job has as its own standard output
        environment = {FAILED_FILE: str(self._failed), TOLD_FD: str(told), NAME: job.name}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (*job.command, *([f"--junitxml={self._junit}"] if job.is_pytest else [])),
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
        """After its end. A job that ended in another way than with failed tests has failed itself."""
        status = self._process.returncode
        if not self._job.is_pytest:
            return Result(int(status == 0), {self._job.name: ""} if status else {}, 0)
        failed = json.loads(self._failed.read_text()) if self._failed.exists() else {}
        count, skipped = counted(self._junit)
        if status and not failed:
            failed = {f"{self._job.name}: pytest ended with status {status}": ""}
        return Result(count, failed, skipped)


def counted(file: Path) -> tuple[int, int]:
    """Returns how many tests passed and how many were skipped, from a JUnit file."""
    if not file.exists():
        return 0, 0
    outcomes = [{each.tag for each in case} for case in ElementTree.parse(file).getroot().iter("testcase")]
    skipped = sum("skipped" in each for each in outcomes)
    return sum(not each & {"failure", "error", "skipped"} for each in outcomes), skipped


def write_reports(build: Path, gate: Mapping[str, object]) -> None:
    """Writes `gate.json`, and `junit.xml` of those of the jobs."""
    build.joinpath("gate.json").write_text(json.dumps(gate, indent=2) + "\n")
    suites = ElementTree.Element("testsuites")
    for file in sorted(build.glob("gate/*.xml")):
        suites.extend(ElementTree.parse(file).getroot())
    ElementTree.ElementTree(suites).write(build / "junit.xml", encoding="utf-8", xml_declaration=True)


def commit() -> dict[str, object]:
    """Returns the commit, and whether the tree is that of the commit. Nothing of an export without git."""

    def git(*arguments: str) -> str | None:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return None if done.returncode else done.stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "clean": git("status", "--porcelain") == ""}


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
    return run(Gate(stages, float(os.environ.get("RMQIO_GATE_BEGAN", time.time()))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
