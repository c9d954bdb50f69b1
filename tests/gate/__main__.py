"""Runs the gate: `python -m tests.gate`. Its last line is `N passed, N failed, N skipped`; each stage has its log.

Stages follow each other; the jobs of a stage run at the same time, on two cores. A red lint ends the gate, because
what follows takes a quarter of an hour. What fails in a later stage is told at once, and the others still run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.gate.changed import changed_tests
from tests.gate.durations import shares
from tests.gate.ending import Ended, heed_no_signals
from tests.gate.flakes import noted
from tests.gate.jobs import Result, Running, Stage, alone, module_job, of_gate, some_of, wait
from tests.gate.judging import SKIPS
from tests.gate.patience import measured
from tests.gate.processes import adopt, end_all, lasting
from tests.gate.report import CANNOT_BEGIN, ROOT, End, Report
from tests.gate.selection import LANES, files
from tests.helpers.waiting import PATIENCE, number_of, patience

_LINT: Final = ("tests/unit/structure", "tests/unit/docs")
_SHOWN: Final = 20_000
"""Characters of a log that the terminal gets of a job that failed; the log has all."""
MINUTES: Final = "RMQIO_GATE_MINUTES"
"""A variable of the environment: after so many minutes, the gate ends and has failed."""
_MINUTES: Final = 28.0
MOST: Final = 5
"""Inconclusive tests that run again. More say that the machine cannot run the gate, or that the change is at fault."""
_CHANGED_S: Final = 180.0
_ENDING_S: Final = 30.0
"""So long, times the patience, what tests have started may take to end when they have."""


def units() -> list[str]:
    """Returns the files of the unit and contract tests."""
    found = (path for folder in ("unit", "contract") for path in (ROOT / "tests" / folder).rglob("test_*.py"))
    files = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [each for each in files if not each.startswith(_LINT)]


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
    Stage("unit", tuple(of_gate("unit", *each, name=f"unit-{n}") for n, each in enumerate(shares(units(), 3), 1))),
    Stage("real", tuple(of_gate(lane, "--durations=25", *files(lane)) for lane in LANES)),
)


class OutOfTime(Exception):
    """Raised when the gate has run for too long. Its text is the line for the report."""


class Gate:
    """One run.

    Args:
      stages: they follow each other.
      report: is closed at its end. It says where the sources and the jobs are, and when the set-up began.
      limit_s: how long it may take from then on.
      changed: tests, without their parameters, that the change is about: they run three times.
      skips: how the reasons begin for which a test may be skipped.
      ending_s: how long a process may be there after the tests that have started it.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        report: Report,
        limit_s: float,
        changed: Sequence[str] = (),
        skips: tuple[str, ...] = SKIPS,
        ending_s: float = _ENDING_S,
    ) -> None:
        self._stages = stages
        self._skips = skips
        self._ending_s = ending_s * patience()
        self._deadline = report.began + limit_s
        self._root = report.root
        self._logs = report.build / "gate"
        self._changed = changed
        self._report = report
        self._seconds = report.seconds
        self._seconds["set-up"] = time.time() - report.began
        self._running: dict[str, Running] = {}
        self._results: dict[str, Result] = {}
        self._flakes: list[str] = []
        self._left_out: list[str] = []

    def run(self) -> None:
        """Runs all stages, and once more what was inconclusive. Raises `OutOfTime`."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for each in self._logs.iterdir():
            each.unlink()
        say(f"set-up took {self._seconds['set-up']:.0f} s")
        for stage in self._stages:
            self._stage(stage)
            if stage.stops and self.failed:
                return
        self._inconclusive_again()
        self._changed_again()

    @property
    def failed(self) -> list[str]:
        """Ids of tests, and names of jobs that ended in another way than by failed tests."""
        return [name for result in self._results.values() for name in result.failed]

    def close(self, *wrong: str) -> int:
        """Prints the end and writes the reports. Returns the exit status. `wrong`: why it ended before its end."""
        for name, process in self._running.items():
            self._results[name] = process.result_so_far()
        results = self._results.values()
        skips = Counter(each.texts.get(test, "") for each in results for test in each.skipped)
        for reason, count in skips.most_common():
            print(f"SKIPPED {count}: {reason}")
        if self._left_out:
            print(f"NO TIME for {len(self._left_out)} more runs of changed tests, the first is {self._left_out[0]}")
        end = End(
            passed=sum(len(each.passed) for each in results),
            wrong=(*(name for each in results for name in each.wrong), *wrong),
            inconclusive=tuple(name for each in results for name in each.inconclusive),
            skipped=sum(len(each.skipped) for each in results),
            flakes=tuple(self._flakes),
            flaked_before=noted(self._flakes, self._report.commit.id),
        )
        return self._report.close(end)

    def _stage(self, stage: Stage) -> None:
        began = time.monotonic()
        try:
            for job in stage.jobs:
                self._running[job.name] = Running(job, self._root, self._logs, self._deadline)
            while self._running and (ended := wait(self._running.values(), self._deadline)):
                for process in ended:
                    self._results[process.job.name] = self._ended(process)
                    del self._running[process.job.name]
            if self._running:
                raise OutOfTime(self._overtime())
            # What a job leaves behind would disturb the next stage, and a user's machine.
            if lasted := [*lasting(self._ending_s)]:
                wrong = [f"{test or stage.name} has left this process: {command[:200]}" for test, command in lasted]
                self._results[f"left by {stage.name}"] = Result(wrong=wrong)
            end_all()
        finally:
            self._seconds[stage.name] = self._seconds.get(stage.name, 0) + time.monotonic() - began
        say(f"{stage.name} took {time.monotonic() - began:.0f} s")

    def _overtime(self) -> str:
        tests = []
        for name, process in self._running.items():
            print(process.log.read_text(errors="replace")[-_SHOWN:], flush=True)
            tests += [f"{name}: {test}" for test in process.result_so_far().running]
        return f"the gate ran out of time, while these ran: {', '.join(tests) or ', '.join(self._running)}"

    def _ended(self, process: Running) -> Result:
        result, name = self._with_reasons(process.result()), process.job.name
        counts = f"{len(result.passed)} passed, {len(result.failed)} failed, {len(result.skipped)} skipped"
        left_out = f", no time for {len(result.left_out)}" if result.left_out else ""
        say(f"{name}: {counts}{left_out} after {process.seconds:.0f} s")
        if result.failed:
            texts = [f"{test}\n{result.texts[test]}" for test in result.failed if test in result.texts]
            log = process.log.read_text(errors="replace")
            print("\n".join(texts)[:_SHOWN] if len(texts) == len(result.failed) else log[-_SHOWN:], flush=True)
            say(f"{name}: the whole log is {process.log.relative_to(self._root)}")
        return result

    def _with_reasons(self, result: Result) -> Result:
        """A test that is skipped for another reason than those that may be is wrong: nothing shows its claim."""
        wrong = [test for test in result.skipped if not result.texts.get(test, "").startswith(self._skips)]
        skipped = [test for test in result.skipped if test not in wrong]
        texts = {**result.texts, **{test: f"skipped, and should not be: {result.texts.get(test)}" for test in wrong}}
        return result._replace(skipped=skipped, wrong=[*result.wrong, *wrong], texts=texts)

    def _changed_again(self) -> None:
        """Runs the tests that the change is about twice more, if nothing has failed. After a while, none begins.

        Those of the last stages, on real brokers, begin: what they find, no other test does.
        """
        last_begin = time.time() + _CHANGED_S
        for round_ in (2, 3):
            for stage in reversed(self._stages):
                again = {
                    job.name: some_of(job, f"{job.name}-{round_}", tests, last_begin)
                    for job in stage.jobs
                    if job.is_pytest and (tests := self._passed_and_changed(job.name))
                }
                if self.failed or not again:
                    continue
                if time.time() > last_begin:
                    self._left_out += [test for name in again for test in self._passed_and_changed(name)]
                    continue
                self._stage(Stage("changed", tuple(again.values())))
                for name, job in again.items():
                    first, found = self._results[name], self._results.pop(job.name)
                    self._left_out += found.left_out
                    self._results[name] = first._replace(
                        passed=[test for test in first.passed if test not in found.failed],
                        wrong=[*first.wrong, *found.wrong],
                        inconclusive=[*first.inconclusive, *found.inconclusive],
                    )

    def _passed_and_changed(self, job: str) -> list[str]:
        return [test for test in self._results[job].passed if test.partition("[")[0] in self._changed]

    def _inconclusive_again(self) -> None:
        """Runs what was inconclusive once more, alone, job by job, unless the gate is red already."""
        jobs = [job for stage in self._stages for job in stage.jobs if self._results[job.name].failed]
        tests = [test for job in jobs for test in self._results[job.name].inconclusive]
        if not tests or len(tests) > MOST or any(self._results[job.name].wrong or not job.runs_again for job in jobs):
            return
        if changed := [test for test in tests if test.partition("[")[0] in self._changed]:
            say(f"inconclusive, but changed, so not run again: {', '.join(changed)}")
            return
        say(f"{len(tests)} tests were inconclusive. Once more, alone:\n  " + "\n  ".join(tests))
        for job in jobs:
            first = self._results[job.name]
            name = f"{job.name}-again"
            self._stage(Stage("again", (alone(job, name, first.inconclusive),)))
            again = self._results.pop(name)
            passed = [test for test in first.inconclusive if test in again.passed]
            self._flakes += passed
            self._results[job.name] = first._replace(
                passed=[*first.passed, *passed],
                wrong=again.wrong,
                inconclusive=[test for test in first.inconclusive if test not in (*passed, *again.wrong)],
            )


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
    except OutOfTime as error:
        heed_no_signals()
        end_all()
        return gate.close(str(error))
    except Exception as error:  # noqa: BLE001  # a red end with its reports, whatever it was
        traceback.print_exc()
        heed_no_signals()
        end_all()
        return gate.close(f"the gate itself: {error!r}")
    finally:
        end_all()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--only", choices=[stage.name for stage in STAGES], help="run this stage alone")
    only = parser.parse_args(argv).only
    began = float(os.environ.get("RMQIO_GATE_BEGAN", time.time()))
    try:
        adopt()
        report = Report(ROOT / "build" / (only or ""), began)
    except (Ended, OSError) as error:
        print(CANNOT_BEGIN.format(error), flush=True)
        return error.status if isinstance(error, Ended) else 1
    try:
        return run(_gate(only, report))
    except (Ended, Exception) as error:  # noqa: BLE001  # a red end with its reports, whatever it was
        why = error if isinstance(error, (Ended, ValueError)) else repr(error)
        status = report.close(End(wrong=(f"the gate cannot begin: {why}",)))
        return error.status if isinstance(error, Ended) else status


def _gate(only: str | None, report: Report) -> Gate:
    factor = measured()
    os.environ[PATIENCE] = str(factor)
    if factor > 1:
        say(f"the machine is busy: all limits are {factor} times as long")
    limit_s = number_of(MINUTES, _MINUTES * factor) * 60
    if only:
        return Gate([stage for stage in STAGES if stage.name == only], report, limit_s)
    return Gate(STAGES, report, limit_s, changed_tests(ROOT))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
