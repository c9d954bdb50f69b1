"""Whole programs with next to nothing to do: seconds from their start to their end, and the CPU of all they start.

python -m bench.start [--repeats 4] [--sides "empty PySpark" SparkRunner ...]
python -m bench.start --steps [--repeats 4]     # on Spark, by step: the JVM, the daemon, imports and so on

Bounded programs have one element, and no broker. They take turns; the first two rounds are to warm up. CPU is that of
the program and of every process that it starts, those included that outlive it. `python -m bench.streaming.start`
measures streams: the time to the first committed micro-batch.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from bench.common.report import aligned, machine_text, say
from bench.common.tally import BenchError
from bench.start import steps

_HEAD: Final = ("program", "seconds", "CPU seconds", "to an empty PySpark program", "target")
_SUBREAPER: Final = 36
_ENDS_S: Final = 60.0

_EMPTY: Final = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").getOrCreate()
assert session.range(1).mapInArrow(lambda batches: batches, "id long").count() == 1
session.stop()
"""
_BEAM: Final = """
import sys
import apache_beam as beam
from rmqio.runners import options
with beam.Pipeline(options=options(sys.argv[1:])) as pipeline:
    _ = pipeline | beam.Create([1]) | beam.Map(lambda number: number + 1)
"""
PEER: Final = "empty PySpark"
_SPARK: Final = ("--runner=SparkRunner", "--spark_master_url=local[2]")
PROGRAMS: Final[dict[str, tuple[str, tuple[str, ...], dict[str, str]]]] = {
    PEER: (_EMPTY, (), {}),
    "SparkRunner": (_BEAM, _SPARK, {}),
    "SparkRunner, no file of classes": (_BEAM, _SPARK, {"RMQIO_SPARK_CLASS_DATA": "0"}),
    "SparkRunner, with Spark's UI": (_BEAM, (*_SPARK, "--spark_conf", "spark.ui.enabled=true"), {}),
    "DirectRunner": (_BEAM, ("--runner=DirectRunner",), {}),
    "FlinkRunner": (_BEAM, ("--runner=FlinkRunner",), {}),
    "FlinkRunner, no file of classes": (_BEAM, ("--runner=FlinkRunner",), {"RMQIO_FLINK_CLASS_DATA": "0"}),
}
_TARGETS: Final = {"SparkRunner": 0.6}


def run(name: str) -> tuple[float, float]:
    """Seconds and CPU seconds of a program. Raises `BenchError` if it fails."""
    program, flags, environment = PROGRAMS[name]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *flags],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise BenchError(f"{name} ended with {process.returncode}:\n{said.decode(errors='replace')[-2000:]}")
    return seconds, used.ru_utime + used.ru_stime + _orphans()


def _orphans() -> float:
    """CPU seconds of processes that outlive their program: they become ours, and are waited for."""
    total, until = 0.0, time.monotonic() + _ENDS_S
    while time.monotonic() < until:
        try:
            pid, _, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return total
        if pid:
            total += used.ru_utime + used.ru_stime
        else:
            time.sleep(0.02)
    return total


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.start", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--sides", nargs="+", choices=[*PROGRAMS], default=[*PROGRAMS])
    parser.add_argument("--steps", action="store_true", help="show where the time of a start on Spark goes")
    given = parser.parse_args(argv)
    if given.steps:
        table = steps.table(given.repeats)
        print(f"Machine: {machine_text()}. {given.repeats} repeats.")
        print(table)
        return 0
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0):
        raise BenchError("this kernel gives no orphans to this process: their CPU time would be missing")
    sides = [PEER, *(each for each in given.sides if each != PEER)]
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for number in range(given.repeats + steps.WARM_UP):
        for side in sides if number % 2 else reversed(sides):
            found[side].append(run(side))
            say(f"{side}: {found[side][-1][0]:.1f} s, {found[side][-1][1]:.1f} s of CPU")
    lines = []
    for side, all_runs in found.items():
        runs, peers = all_runs[steps.WARM_UP :], found[PEER][steps.WARM_UP :]
        ratio = [mine / other for (mine, _), (other, _) in zip(runs, peers, strict=True)]
        target = _TARGETS.get(side)
        met = "" if target is None else f"{target:g}, {'met' if statistics.median(ratio) <= target else 'MISSED'}"
        cells = [_spread([seconds for seconds, _ in runs], 1), _spread([cpu for _, cpu in runs], 1)]
        lines.append([side, *cells, "" if side == PEER else _spread(ratio, 2), met])
    print(f"Machine: {machine_text()}. {given.repeats} repeats.")
    print(aligned([_HEAD, *lines], left={0}))
    return 0


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
