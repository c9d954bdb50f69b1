"""The steps of a start on Spark: marks of several processes on one clock, and what lies between them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.common.tally import BenchError
from bench.start import stamps, steps

NAMES = ["begin", *(end for _, _, end in steps.STEPS)]
ROOT = Path(__file__).resolve().parents[3]

CHILD = """
import os
from bench.start import stamps
stamps.mark("begin", stamps.started(os.getpid()))
class Owner:
    def work(self, number):
        return number + 1
stamps.marked(Owner, "work", begin="before", end="after")
assert Owner().work(1) == 2
pid = os.fork()
if pid == 0:
    assert stamps.in_worker("value") == "value"
    os._exit(0)
os.waitpid(pid, 0)
stamps.in_worker("again, later")
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="when a process was started is read from /proc")
def test_marks_of_several_processes_are_on_one_clock(tmp_path: Path) -> None:
    file = tmp_path / "marks"
    before = stamps.now()
    environment = {**os.environ, stamps.FILE: str(file), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", CHILD], check=True, env=environment)
    marks = stamps.read(file)
    hundredth = 0.011  # of which the system counts the starts of processes
    order = [before - hundredth, marks["begin"], marks["before"], marks["after"], marks["element"], stamps.now()]
    assert order == sorted(order)
    assert marks["worker"] <= marks["element"]


def test_steps_follow_one_another_and_make_up_the_whole() -> None:
    assert [begin for _, begin, _ in steps.STEPS] == NAMES[:-1]
    marks = {name: 5.0 + number**2 for number, name in enumerate(NAMES)}
    seconds = steps.durations(marks)
    assert sum(seconds) == marks["end"] - marks["begin"]
    assert seconds[:3] == [1.0, 3.0, 5.0]


def test_a_mark_that_is_missing_or_too_early_is_an_error() -> None:
    marks = {name: float(number) for number, name in enumerate(NAMES)}
    with pytest.raises(BenchError, match="the daemon, with its imports: no mark worker"):
        steps.durations({name: at for name, at in marks.items() if name != "worker"})
    with pytest.raises(BenchError, match=r"the rest of the job: done came 8\.00 s before element"):
        steps.durations(marks | {"done": marks["element"] - 8})
