"""Runs a job of the gate to its first failure: `python -m tests.mutants.job NAME`, in the environment of the gate.

What came out goes to `VERDICT`, a file of JSON. Nothing that the job has started is left.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Final

from tests.gate.__main__ import STAGES
from tests.gate.jobs import Job, Result, Running, wait
from tests.gate.patience import measured
from tests.gate.processes import Ended, adopt, end_all
from tests.gate.report import ROOT
from tests.helpers.waiting import PATIENCE
from tests.mutants.patch import TEST, VERDICT

_LIMIT_S: Final = 28 * 60.0
_SHOWN: Final = 5_000
"""Characters of the log of a run that says nothing."""


def job_of(name: str) -> Job:
    """Returns the job of the gate, which ends at its first failure."""
    (job,) = (job for stage in STAGES for job in stage.jobs if job.name == name)
    return job._replace(command=(*job.command, "-x", f"--ignore={TEST}"))


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


def run(name: str, limit_s: float) -> dict[str, object]:
    logs = (ROOT / VERDICT).parent
    logs.mkdir(parents=True, exist_ok=True)
    for each in logs.iterdir():
        each.unlink()
    running = Running(job_of(name), ROOT, logs, deadline := time.time() + limit_s)
    is_whole = bool(wait([running], deadline)) and not running.result().failed
    said, test = verdict(running.result_so_far(), is_whole=is_whole)
    if said == "inconclusive":
        print(running.log.read_text(errors="replace")[-_SHOWN:], flush=True)
    return {"verdict": said, "test": test, "seconds": round(running.seconds)}


def main(name: str) -> int:
    os.environ[PATIENCE] = str(patience := measured())
    adopt()
    try:
        found = run(name, _LIMIT_S * patience)
    except Ended as ended:
        return ended.status
    finally:
        end_all()
    (ROOT / VERDICT).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
