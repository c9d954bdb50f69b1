"""A stream whose first micro-batch may be cut short, and which is killed after it has sent the micro-batch's results.

python -m tests.helpers.pipelines.cut_short FOLDER OPTION...

The stream reads the numbers from 0 to 9 in one micro-batch and appends each pane of them to FOLDER/sent. If the file
FOLDER/cut exists, the stream reads half of the numbers. It then kills itself and all processes that it has started, as
soon as their pane is sent.
"""

from __future__ import annotations

import rmqio  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows

from rmqio.runners import options
from rmqio.runners.program import run_program
from rmqio.runners.spark.streaming.planned_source import PlannedSource

COUNT: Final = 10
HALF: Final = 5
PART: Final = "numbers"
Range = tuple[int, int, bool]


class Numbers:
    """Plans the numbers. A position is how many have been read."""

    element_type = Range
    is_bounded = True
    identity = "numbers"

    def advance(self, position: int | None, limits: Any, until_now: bool) -> int:
        return COUNT

    def elements(self, begin: int | None, end: int | None, again: bool = False) -> Sequence[tuple[Range, float]]:
        first, last = begin or 0, end or 0
        return [((first, last, not again), 1.0)] if first < last else []

    def partitions(self, position: int | None) -> Mapping[str, int | None]:
        return {PART: None}

    def silent(self, position: int | None) -> Mapping[str, tuple[int, int]]:
        return {}

    def has_ended(self, position: int | None) -> bool:
        return False

    is_done = has_ended

    def shortened(self, position: int | None, cuts: Mapping[str, int]) -> int | None:
        return cuts.get(PART, position)

    def committed(self, position: int | None, last: bool = False) -> None:
        pass

    def clock(self, position: int | None) -> None:
        """Time is real."""

    def lag(self, position: int | None) -> Mapping[str, int]:
        return {}


class Read(beam.DoFn):
    """Reads a range of the numbers, or half of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process(self, element: Range) -> Iterator[Any]:
        first, last, may_cut = element
        is_cut = may_cut and (self._folder / "cut").exists()
        end = first + HALF if is_cut else last
        yield from range(first, end)
        yield beam.pvalue.TaggedOutput("learned", (PART, 0, end if is_cut else -1))


class Send(beam.DoFn):
    """Appends to the file."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._group = folder, os.getpgrp()

    def process(self, element: tuple[str, Iterable[int]]) -> None:
        with (self._folder / "sent").open("a") as file:
            file.write(json.dumps(sorted(element[1])) + "\n")
        cut = self._folder / "cut"
        if cut.exists():
            cut.unlink()
            os.killpg(self._group, signal.SIGKILL)
            time.sleep(60)  # until Spark's own process group is gone


def build(pipeline: beam.Pipeline, folder: Path) -> None:
    """Builds the pipeline."""
    source = PlannedSource(Numbers())
    reading = beam.ParDo(Read(folder)).with_outputs("learned", main="numbers")
    read = pipeline | "Plan" >> source | "Read" >> reading
    learned = read["learned"] | "Learned" >> beam.Map(_same).with_output_types(tuple[str, int, int])
    source.watermarks(learned)
    pairs = read["numbers"] | "Pairs" >> beam.Map(lambda number: ("all", number)).with_output_types(tuple[str, int])
    window = beam.WindowInto(
        GlobalWindows(), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.DISCARDING
    )
    _ = pairs | "Window" >> window | "Panes" >> beam.GroupByKey() | "Send" >> beam.ParDo(Send(folder))


def _same(element: Any) -> Any:
    return element


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    arguments, rest = parser.parse_known_args()
    return run_program(
        "cut_short.py", options(rest), lambda pipeline: build(pipeline, arguments.folder), lambda _: "ended"
    )


if __name__ == "__main__":
    # Uses the module's own name, so that other processes find the functions that are sent to them.
    from tests.helpers.pipelines import cut_short

    sys.exit(cut_short.main())
