"""The time of a bounded start by step: of a program on the SparkRunner, and of an empty PySpark program."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.common.report import aligned, say
from bench.common.tally import BenchError
from bench.start import stamps

_BEGIN: Final = """
import os, sys
from bench.start.stamps import in_worker, mark, marked, started
mark("begin", started(os.getpid()))
mark("python")
"""
_SPARK: Final = """
from pyspark import SparkContext
from pyspark.sql import SparkSession
marked(sys.modules[SparkContext.__module__], "launch_gateway", begin="jvm", end="gateway")
marked(SparkContext, "_do_init", end="context")
"""
_OURS: Final = f"""{_BEGIN}
import apache_beam as beam
mark("imported")
from rmqio.runners import options
given = options(["--runner=SparkRunner", "--spark_master_url=local[2]"])
from rmqio.runners.spark import runner
from rmqio.runners.spark.sessions import session
mark("options")
{_SPARK}
marked(runner, "session_for", end="session")
marked(session, "_stop", begin="stop", end="stopped")
with beam.Pipeline(options=given) as pipeline:
    _ = pipeline | beam.Create([1]) | beam.Map(in_worker)
mark("done")
"""
_EMPTY: Final = f"""{_BEGIN}
{_SPARK}
mark("imported")
mark("options")
session = SparkSession.builder.master("local[2]").getOrCreate()
mark("session")
def same(batches):
    return map(in_worker, batches)
assert session.range(1).mapInArrow(same, "id long").count() == 1
mark("done")
session.stop()
mark("stopped")
"""
WARM_UP: Final = 2
"""Rounds that are not counted: the second start makes the file of classes."""
OURS: Final = "SparkRunner"
PEER: Final = "empty PySpark program"
_PROGRAMS: Final = {PEER: _EMPTY, OURS: _OURS}

Steps = Sequence[tuple[str, str, str]]

UP_TO_THE_SESSION: Final[Steps] = (
    ("Python", "begin", "python"),
    ("imports in the driver: Beam, or PySpark", "python", "imported"),
    ("options, imports of the runner", "imported", "options"),
    ("the pipeline and its plan", "options", "jvm"),
    ("the JVM, up to its answer", "jvm", "gateway"),
    ("SparkContext", "gateway", "context"),
    ("session", "context", "session"),
)

STEPS: Final[Steps] = (
    *UP_TO_THE_SESSION,
    ("Spark's plan and the job, up to Python's daemon", "session", "daemon"),
    ("the daemon, with its imports", "daemon", "worker"),
    ("imports in the worker, up to the first element", "worker", "element"),
    ("the rest of the job", "element", "done"),
    ("stop of Spark", "done", "stopped"),
    ("end of the JVM and of Python", "stopped", "end"),
)
"""A step lies between two marks, and begins where the one before has ended."""


def run(name: str) -> dict[str, float]:
    """The marks of a program. Raises `BenchError` if it fails, or lacks a mark."""
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder:
        marks = Path(folder, "marks")
        environment = {
            **os.environ,
            stamps.FILE: str(marks),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_root()), os.environ.get("PYTHONPATH")))),
        }
        process = subprocess.run(
            [sys.executable, "-c", _PROGRAMS[name]], env=environment, capture_output=True, text=True, check=False
        )
        ended = stamps.now()
        if process.returncode:
            raise BenchError(f"{name} ended with {process.returncode}:\n{process.stderr[-2000:]}")
        return {**stamps.read(marks), "end": ended}


def durations(marks: Mapping[str, float], steps: Steps = STEPS) -> list[float]:
    """Seconds of each step. Raises `BenchError` for a mark that is missing, or earlier than the one before."""
    found = []
    for step, begin, end in steps:
        missing = {begin, end} - marks.keys()
        if missing:
            raise BenchError(f"{step}: no mark {' or '.join(sorted(missing))}")
        found.append(marks[end] - marks[begin])
        if found[-1] < -0.02:  # the system counts the starts of processes in hundredths
            raise BenchError(f"{step}: {end} came {-found[-1]:.2f} s before {begin}")
    return found


def table(repeats: int) -> str:
    """The steps of both programs, in turns; the first two rounds are to warm up."""
    found: dict[str, list[list[float]]] = {name: [] for name in _PROGRAMS}
    for number in range(repeats + WARM_UP):
        for name in _PROGRAMS if number % 2 else reversed(_PROGRAMS):
            seconds = durations(run(name))
            say(f"{name}: {sum(seconds):.1f} s")
            if number >= WARM_UP:
                found[name].append(seconds)
    return of_steps(found)


def of_steps(found: Mapping[str, Sequence[Sequence[float]]], steps: Steps = STEPS) -> str:
    """A table of the durations of several runs, by program."""
    rows = [(step, *(_cell([run[at] for run in found[name]]) for name in found)) for at, (step, *_) in enumerate(steps)]
    total = ("all", *(_cell([sum(run) for run in runs]) for runs in found.values()))
    return aligned([("step, seconds", *found), *rows, total], left={0})


def _cell(seconds: Sequence[float]) -> str:
    return f"{max(0.0, statistics.median(seconds)):.2f} ({max(0.0, min(seconds)):.2f}..{max(seconds):.2f})"


def _root() -> Path:
    return Path(__file__).resolve().parents[2]
