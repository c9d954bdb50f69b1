"""Runs a stage or a job of the gate to its first failure: `python -m tests.mutants.job NAME`, in its environment.

What came out goes to `VERDICT`, a file of JSON. Nothing that the jobs have started is left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.gate.__main__ import STAGES
from tests.gate.ending import Ended
from tests.gate.jobs import Job, Result, Running, some_of, wait
from tests.gate.patience import measured
from tests.gate.processes import adopt, end_all
from tests.gate.report import ROOT
from tests.helpers.waiting import PATIENCE
from tests.mutants.patch import TEST, VERDICT

_LIMIT_S: Final = 28 * 60.0
_SHOWN: Final = 5_000
"""Characters of the log of a run that says nothing."""


def jobs_of(name: str, near: str = "") -> list[Job]:
    """Returns the jobs of the gate that have this name, or whose stage has it. Each ends at its first failure.

    It has all of its files, and begins with those whose path has the most words of `near`.
    """
    found = [job for stage in STAGES for job in stage.jobs if name in {stage.name, job.name}]
    return [job._replace(command=(*_nearest_first(job, near), "-x", f"--ignore={TEST}")) for job in found]


def _nearest_first(job: Job, near: str) -> list[str]:
    def shared(file: str) -> int:
        return len(_words(file) & _words(near))

    # pytest does not ignore a file that it is given.
    files = [each for each in job.command if each.startswith("tests/") and each != TEST]
    options = [each for each in job.command if not each.startswith("tests/")]
    return [*options, *sorted(files, key=shared, reverse=True)]


def _words(text: str) -> set[str]:
    return {*re.findall("[a-z]+", text.lower())}


def verdict(found: Result, *, is_whole: bool) -> tuple[str, str]:
    """Returns what a run says of the fault, and the test that says so.

    A test that fails says that the fault is seen, whatever else happened. It is not seen if all tests pass.

    Args:
      is_whole: whether all tests have run, and the job ended well.
    """
    if found.wrong:
        return "seen", next(iter(found.wrong))
    if is_whole and found.passed:
        return "not seen", ""
    return "inconclusive", next(iter([*found.inconclusive, *found.running]), "")


def run(jobs: Sequence[Job], limit_s: float) -> dict[str, object]:
    logs = (ROOT / VERDICT).parent
    logs.mkdir(parents=True, exist_ok=True)
    for each in logs.iterdir():
        each.unlink()
    deadline, began = time.time() + limit_s, time.monotonic()
    running = left = [Running(job, ROOT, logs, deadline) for job in jobs]
    while left and not _joined(running).wrong and (ended := wait(left, deadline)):
        left = [each for each in left if each not in ended]
    is_whole = not left and not any(each.result().failed for each in running)
    said, test = verdict(_joined(running), is_whole=is_whole)
    if said == "inconclusive":
        for job in running:
            print(job.log.read_text(errors="replace")[-_SHOWN:], flush=True)
    return {"verdict": said, "test": test, "seconds": round(time.monotonic() - began)}


def _joined(running: Sequence[Running]) -> Result:
    results = [each.result_so_far() for each in running]
    return Result(
        passed=[test for each in results for test in each.passed],
        wrong=[test for each in results for test in each.wrong],
        inconclusive=[test for each in results for test in each.inconclusive],
        running=[test for each in results for test in each.running],
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.job", description=__doc__)
    parser.add_argument("name", help="of a stage or a job of the gate")
    parser.add_argument("--near", default="", help="it begins with files whose paths have words of this text")
    parser.add_argument("--test", help="the id of a test, which runs alone")
    given = parser.parse_args(argv)
    jobs = jobs_of(given.name, given.near)
    if given.test:
        jobs = [some_of(jobs[0], given.name, [given.test])]
    os.environ[PATIENCE] = str(patience := measured())
    adopt()
    try:
        found = run(jobs, _LIMIT_S * patience)
    except Ended as ended:
        return ended.status
    finally:
        end_all()
    (ROOT / VERDICT).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
