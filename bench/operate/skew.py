"""A skewed CombinePerKey beside SaltedCombinePerKey, in one run; and what measuring a shuffle costs.

python -m bench.operate.skew [--runner=SparkRunner] [--elements 1000000] [--hot 0.8] [--parts 8] [--repeats 3]
    [--functions sum median work:200] [--sides ...] [--pool 2] [options of the runner, e.g. --streaming]

The sides run by turns on the same elements and give the same totals, or the run fails. Functions: `sum`, whose
accumulators are numbers, so that a runner combines most before the shuffle; the median of all values, whose
accumulators are as large as the values, so that the worker of the hot key gets all of them; and `work:N`, which adds up
what N steps of arithmetic make of each value: its cost is in the values, wherever they are combined.

`--pool N`: Flink's Python code runs in N processes beside it, instead of in threads of this one, which share one core.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apache_beam as beam

from bench.common.report import aligned, machine_text
from bench.common.tally import UnequalWork
from rmqio.runners import options
from rmqio.skew import MeasureKeys, SaltedCombinePerKey

_KEYS: Final = 1_000


class MedianFn(beam.CombineFn):
    """The exact median, which needs all values."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        accumulator.append(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        return sorted(value for accumulator in accumulators for value in accumulator)

    def extract_output(self, accumulator: list[int]) -> float:
        return float(statistics.median(accumulator))


class WorkFn(beam.CombineFn):
    """A sum that works on each value first."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        for _ in range(self._steps):
            element = (element * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator

    def value_us(self) -> float:
        """Return the microseconds that a value takes here."""
        began = time.perf_counter()
        for number in range(1_000):
            self.add_input(0, number)
        return (time.perf_counter() - began) * 1e3


def pairs_of(part: int, count: int, hot: float) -> Iterator[tuple[str, int]]:
    """Yield pairs, of which a share has one key; the same ones each time."""
    every = round(hot * 1_000)
    for number in range(part * count, (part + 1) * count):
        mixed = number * 7_919 % 1_000
        yield ("hot" if mixed < every else f"key-{number * 31 % _KEYS}"), number % 10_007


class KeepFn(beam.DoFn):
    """Writes a file for each bundle. Beam's own sink has side inputs, which streams on Flink have not."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def start_bundle(self) -> None:
        self._lines: list[str] = []

    def process(self, element: str) -> None:
        self._lines.append(element)

    def finish_bundle(self) -> None:
        Path(self._folder, f"totals-{uuid.uuid4().hex}").write_text("".join(self._lines), encoding="utf-8")


def function_of(name: str) -> Any:
    """Return a function by its name on the command line."""
    kind, _, steps = name.partition(":")
    if kind == "work" and steps.isdigit():
        return WorkFn(int(steps))
    if name == "sum":
        return sum
    if name == "median":
        return MedianFn()
    raise argparse.ArgumentTypeError(f"{name!r} is not sum, median or work:STEPS, e.g. work:200")


def a_function(name: str) -> str:
    function_of(name)
    return name


@contextmanager
def pool(processes: int) -> Iterator[list[str]]:
    """Yield Flink's options for a pool of so many Python processes; 0: for none."""
    if not processes:
        yield []
        return
    command = [sys.executable, "-m", "rmqio.runners.flink", "workers", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield [*running.stdout.readline().split(), f"--sdk_worker_parallelism={processes}"]
        finally:
            running.terminate()


SIDES: Final[dict[str, Any]] = {
    "CombinePerKey": lambda fn: beam.CombinePerKey(fn),
    "SaltedCombinePerKey": lambda fn: SaltedCombinePerKey(fn),
    "measured": lambda fn: beam.CombinePerKey(fn),
}


def run(given: argparse.Namespace, function: str, side: str) -> tuple[float, list[str]]:
    """Run one side; return the seconds, and its results sorted."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with beam.Pipeline(options=options([f"--runner={given.runner}", *given.rest])) as pipeline:
            parts = pipeline | beam.Create(range(given.parts)) | beam.Reshuffle()
            count, hot = given.elements // given.parts, given.hot
            pairs = parts | beam.FlatMap(lambda part: pairs_of(part, count, hot)).with_output_types(tuple[str, int])
            if side == "measured":
                pairs = pairs | MeasureKeys("bench", kind="combine")
            totals = pairs | side >> SIDES[side](function_of(function))
            _ = totals | beam.Map(lambda each: f"{each[0]} {each[1]}\n") | beam.ParDo(KeepFn(folder))
        took = time.perf_counter() - began
        lines = [line for path in Path(folder).glob("totals*") for line in path.read_text().splitlines()]
    return took, sorted(lines)


def measure(given: argparse.Namespace) -> list[list[str]]:
    """Return the lines of the table. Raises `UnequalWork`."""
    table = []
    for function in given.functions:
        sides = given.sides
        times: dict[str, list[float]] = {side: [] for side in sides}
        expected: list[str] | None = None
        for number in range(given.repeats + 1):
            for side in sides if number % 2 else reversed(sides):
                took, found = run(given, function, side)
                expected = expected or found
                if found != expected or len(found) < 2:
                    raise UnequalWork(f"{side} of {function} gives other results than the first side")
                if number:  # the first is to warm up
                    times[side].append(took)
        base = statistics.median(times[sides[0]])
        work = function_of(function)
        shown = f"{function}, {work.value_us():.0f} us a value" if isinstance(work, WorkFn) else function
        for side, each in times.items():
            median = statistics.median(each)
            row = [shown, side, f"{median:.2f} s ({min(each):.2f}..{max(each):.2f})", f"{median / base:.2f}"]
            table.append(row)
    return table


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.operate.skew", description=__doc__)
    parser.add_argument("--runner", default="SparkRunner")
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--hot", type=float, default=0.8, help="share of the hot key; default: %(default)s")
    parser.add_argument("--parts", type=int, default=8, help="parts of the input; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--functions", nargs="+", default=["sum", "median"], type=a_function)
    parser.add_argument("--sides", nargs="+", default=[*SIDES], choices=[*SIDES], help="ratios are to the first")
    parser.add_argument("--pool", type=int, default=0, help="of Python processes, for Flink")
    given, given_rest = parser.parse_known_args(argv)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    with pool(given.pool) as flags:
        given.rest = [*given_rest, *flags]
        lines = measure(given)
    print(
        f"Machine: {machine_text()}. {given.elements:,} elements in {given.parts} parts, {given.hot:.0%} of one key, "
        f"{given.runner}."
    )
    print(aligned([["function", "side", "median (least..most)", f"to {given.sides[0]}"], *lines], left={0, 1}))


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench.operate import skew as own

    own.main()
