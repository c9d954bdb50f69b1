"""A skewed CombinePerKey beside SaltedCombinePerKey, in one run; and what measuring a shuffle costs.

python -m bench.skew [--runner=SparkRunner] [--elements 1000000] [--hot 0.8] [--parts 8] [--repeats 3]

The sides run by turns on the same elements and give the same totals, or the run fails. Two functions: `sum`, whose
accumulators are numbers, so that a runner combines most before the shuffle; and the median of all values, whose
accumulators are as large as the values, so that the worker of the hot key gets all of them.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apache_beam as beam

from bench.report import aligned, machine_text
from bench.tally import UnequalWork
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


def pairs_of(part: int, count: int, hot: float) -> Iterator[tuple[str, int]]:
    """Yield pairs, of which a share has one key; the same ones each time."""
    every = round(hot * 1_000)
    for number in range(part * count, (part + 1) * count):
        mixed = number * 7_919 % 1_000
        yield ("hot" if mixed < every else f"key-{number * 31 % _KEYS}"), number % 10_007


FUNCTIONS: Final[dict[str, Any]] = {"sum": sum, "median": MedianFn()}
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
            totals = pairs | side >> SIDES[side](FUNCTIONS[function])
            _ = totals | beam.Map(lambda each: f"{each[0]} {each[1]}") | beam.io.WriteToText(f"{folder}/totals")
        took = time.perf_counter() - began
        lines = [line for path in Path(folder).glob("totals*") for line in path.read_text().splitlines()]
    return took, sorted(lines)


def measure(given: argparse.Namespace) -> list[list[str]]:
    """Return the lines of the table. Raises `UnequalWork`."""
    table = []
    for function in given.functions:
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        expected: list[str] | None = None
        for number in range(given.repeats + 1):
            for side in SIDES if number % 2 else reversed(SIDES):
                took, found = run(given, function, side)
                expected = expected or found
                if found != expected or len(found) < 2:
                    raise UnequalWork(f"{side} of {function} gives other results than the first side")
                if number:  # the first is to warm up
                    times[side].append(took)
        base = statistics.median(times["CombinePerKey"])
        for side, each in times.items():
            median = statistics.median(each)
            row = [function, side, f"{median:.2f} s ({min(each):.2f}..{max(each):.2f})", f"{median / base:.2f}"]
            table.append(row)
    return table


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.skew", description=__doc__)
    parser.add_argument("--runner", default="SparkRunner")
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--hot", type=float, default=0.8, help="share of the hot key; default: %(default)s")
    parser.add_argument("--parts", type=int, default=8, help="parts of the input; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--functions", nargs="+", default=[*FUNCTIONS], choices=[*FUNCTIONS])
    given, given_rest = parser.parse_known_args(argv)
    given.rest = given_rest
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    lines = measure(given)
    print(
        f"Machine: {machine_text()}. {given.elements:,} elements in {given.parts} parts, {given.hot:.0%} of one key, "
        f"{given.runner}."
    )
    print(aligned([["function", "side", "median (least..most)", "to CombinePerKey"], *lines], left={0, 1}))


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench import skew as own

    own.main()
