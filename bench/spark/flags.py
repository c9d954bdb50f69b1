"""Flags of the local JVM: what they do to a start, and to long jobs. `python -m bench.spark --flags`.

The sets of flags take turns. Each turn is a process of its own, as a program is: "start" is its first pipeline, with
next to nothing to do, from the start of the process on; then come the long cases, for which the JVM is not warm.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from unittest import mock

from bench.common.process import Worker
from bench.common.report import aligned, say
from bench.spark.pipelines import expected
from bench.spark.rows import require_result
from bench.spark.settings import OURS, PIPELINES, Case, Plan

START: Final = "start"
DEFAULTS: Final = "ours: a file of classes, the serial collector"
SETS: Final[dict[str, dict[str, str]]] = {
    DEFAULTS: {},
    "Java's and Spark's defaults": {"RMQIO_SPARK_CLASS_DATA": "0"},
    "the serial collector": {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"},
    "the serial collector, compiler C1 only": {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"},
}
"""Environment variables by set. With flags of the user's own the runner adds none of its own."""
CASES: Final = ("pardo", "group")
"""The cases that are measured unless others are named."""
_FIRST: Final = next(case for case in PIPELINES if case.name == "stages")
_SMALL: Final = 100

Times = dict[tuple[str, str], list[float]]
"""Seconds of each repeat, by set and by case or `START`."""


def measure(names: Sequence[str], plan: Plan) -> Times:
    """Run the cases with each set. Raises `UnequalWork` when a result is not the one that must come out."""
    long = [case for case in PIPELINES if case.name in names]
    found: Times = {}
    for repeat in range(plan.repeats):
        for flags in SETS if repeat % 2 else reversed(SETS):
            for name, seconds in _turn(flags, long, plan.elements).items():
                found.setdefault((flags, name), []).append(seconds)
                say(f"  repeat {repeat + 1}, {flags}: {name} {seconds:.2f} s")
    return found


def _turn(flags: str, cases: Sequence[Case], elements: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-spark-") as folder, mock.patch.dict(os.environ, SETS[flags]):
        began = time.perf_counter()
        with Worker("bench.spark.ours", Path(folder, "ours.log")) as worker:
            worker.call("start", {"folder": folder})
            _run(worker, flags, _FIRST, _SMALL)
            seconds = {START: time.perf_counter() - began}
            return seconds | {case.name: _run(worker, flags, case, elements) for case in cases}


def _run(worker: Worker, flags: str, case: Case, elements: int) -> float:
    answer = worker.call("run", {"name": case.name, "elements": elements})
    require_result(case, f"{OURS} ({flags})", answer["result"], expected(case.name, elements))
    return float(answer["seconds"])


def table(found: Times) -> str:
    """Seconds by set, and the ratio to our defaults in the same repeats."""
    names = list(dict.fromkeys(name for _, name in found))
    rows = [(flags, *(_cell(found, flags, name) for name in names)) for flags in SETS]
    return aligned([("flags of the JVM, seconds", *names), *rows], left={0})


def _cell(found: Times, flags: str, name: str) -> str:
    mine, ours = found[flags, name], found[DEFAULTS, name]
    text = f"{statistics.median(mine):.2f} ({min(mine):.2f}..{max(mine):.2f})"
    if flags == DEFAULTS:
        return text
    ratios = [one / other for one, other in zip(mine, ours, strict=True)]
    return f"{text}; {statistics.median(ratios):.2f} of ours"
