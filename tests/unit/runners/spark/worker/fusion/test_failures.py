"""A failure in steps that follow each other without Beam's hand-over has the same message as in Beam's operations."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio.runners.spark.beam import operations
from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.worker import fusion
from tests.helpers.spark.fused_steps import Returning
from tests.helpers.spark.spark_plan import LocalRun

Build = Callable[[Any], Any]
LATE = 300
"""The first elements, and each 128th, go Beam's way."""


def broken(element: Any) -> Any:
    if element in _BREAKS:
        raise ValueError("broken")
    return [element]


_BREAKS = {LATE}


class Breaking(beam.CombineFn):
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        broken(element)
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> int:
        return 0

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def broken_in_the_middle(element: Any) -> Any:
    yield element
    broken(element)


FAILING: dict[str, Build] = {
    "first": lambda p: p | "it" >> beam.Map(broken) | "2" >> beam.Map(str) | "3" >> beam.Map(str),
    "middle": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.Filter(broken) | "3" >> beam.Map(str),
    "last": lambda p: p | "1" >> beam.Map(int) | "2" >> beam.Map(int) | "it" >> beam.FlatMap(broken),
    "generator": lambda p: p | "it" >> beam.FlatMap(broken_in_the_middle) | "2" >> beam.Map(str) | "3" >> beam.Map(str),
    "generator behind": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.FlatMap(broken_in_the_middle),
    "a DoFn of Beam's behind": lambda p: (
        p
        | "1" >> beam.Map(int)
        | "2" >> beam.Map(int)
        | "it" >> beam.Map(lambda x, t=beam.DoFn.TimestampParam: broken(x))
    ),
    "arguments": lambda p: (
        p | "1" >> beam.Map(int) | "it" >> beam.Map(lambda x, y: broken(x), 1) | "3" >> beam.Map(str)
    ),
    "combine": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.Map(lambda x: (1, x)) | beam.CombinePerKey(Breaking()),
    "key": lambda p: p | "it" >> beam.Map(lambda x: ([] if x in _BREAKS else 1, x)) | beam.CombinePerKey(sum),
    "coder": lambda p: (
        p
        | "1" >> beam.Map(int)
        | "it" >> beam.Map(lambda x: threading.Lock() if x in _BREAKS else x)
        | beam.Reshuffle()
        | "4" >> beam.Map(print)
    ),
}
OF_RESULTS = {
    "a text": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.ParDo(Returning("text")) | "3" >> beam.Map(str),
    "a text at the end": lambda p: p | "1" >> beam.Map(int) | "it" >> beam.ParDo(Returning({})),
}
if operations.CHECKS_RESULTS:
    FAILING |= OF_RESULTS


@pytest.mark.parametrize("at", [3, LATE])
@pytest.mark.parametrize("name", FAILING)
def test_a_failure_has_the_name_of_its_step(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_BREAKS", {at})

    def text() -> str:
        pipeline = beam.Pipeline()
        _ = FAILING[name](pipeline | beam.Impulse() | beam.FlatMap(lambda _: range(LATE + 9)))
        with pytest.raises(TaskFailure) as failure:
            LocalRun(pipeline)
        lines = str(failure.value).splitlines()
        if "in broken" in lines[-2]:
            return "\n".join(lines)
        return "\n".join([lines[0], lines[-1]])  # between them are frames of Beam and of ours, and none of the user

    ours = text()
    assert "<it: " in ours, ours
    monkeypatch.setattr(fusion, "_is_fusable", lambda *_: False)
    assert ours == text()
