"""Flags of the local JVM on a start and on long jobs: seconds of `bench.spark`'s pipelines, a process for each set.

python -m bench.spark.flags [--elements 4000000] [--repeats 3] [--cases pardo group]

The sets take turns, as processes that live through all repeats. "Start" is the first pipeline of a process, with 100
elements: the JVM, the session, Python's daemon.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest import mock

from bench.process import Worker
from bench.report import aligned, machine_text
from bench.spark.pipelines import expected
from bench.tally import UnequalWork

_OURS: Final = "ours: file of classes, serial collector"
SETS: Final[dict[str, dict[str, str]]] = {
    _OURS: {},
    "none: Spark's and Java's defaults": {"RMQIO_SPARK_CLASS_DATA": "0"},
    "serial collector": {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"},
    "serial collector, compiler C1 only": {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"},
}


def _seconds(worker: Worker, name: str, elements: int) -> float:
    answer: dict[str, Any] = worker.call("run", {"name": name, "elements": elements})
    if answer["result"] != expected(name, elements):
        raise UnequalWork(f"{name}: the result is {answer['result']}")
    return float(answer["seconds"])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=["pardo", "group"])
    given = parser.parse_args(argv)
    starts: dict[str, float] = {}
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqio-bench-")))
        workers = {}
        for number, (name, environment) in enumerate(SETS.items()):
            with mock.patch.dict(os.environ, environment):
                worker = stack.enter_context(Worker("bench.spark.ours", folder / f"{number}.log"))
                (folder / str(number)).mkdir()
                worker.call("start", {"folder": str(folder / str(number))})
                starts[name] = _seconds(worker, "stages", 100)
            workers[name] = worker
        for number in range(given.repeats + 1):
            for case in given.cases:
                for name in workers if number % 2 else reversed(workers):
                    seconds = _seconds(workers[name], case, given.elements)
                    if number:
                        found.setdefault((name, case), []).append(seconds)
    lines = []
    for name in workers:
        cells = [f"{starts[name]:.1f}"]
        for case in given.cases:
            mine, ours = found[name, case], found[_OURS, case]
            ratios = [one / other for one, other in zip(mine, ours, strict=True)]
            ratio = f"; {statistics.median(ratios):.2f} of ours" if name != _OURS else ""
            cells.append(f"{statistics.median(mine):.2f} ({min(mine):.2f}..{max(mine):.2f}){ratio}")
        lines.append([name, *cells])
    print(f"Machine: {machine_text()}. {given.elements:,} elements, {given.repeats} repeats.")
    print(aligned([("flags", "start s", *(f"{case} s" for case in given.cases)), *lines], left={0}))


if __name__ == "__main__":
    main()
