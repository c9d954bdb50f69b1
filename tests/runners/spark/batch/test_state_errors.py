"""A value that does not fit the coder of its state: the error names the state, the value and the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, ReadModifyWriteStateSpec

from rmqio.runners.spark.errors import TaskFailure, failure_in
from tests.helpers.spark_plan import collect

VALUE = ReadModifyWriteStateSpec("latest", VarIntCoder())
BAG = BagStateSpec("everything", VarIntCoder())
SUM = CombiningValueStateSpec("total", VarIntCoder(), lambda values: "".join(map(str, values)))


class WritesValue(beam.DoFn):
    def process(self, pair: Any, state: Any = beam.DoFn.StateParam(VALUE)) -> Iterator[Any]:
        state.write("text")
        yield pair


class AddsToBag(beam.DoFn):
    def process(self, pair: Any, state: Any = beam.DoFn.StateParam(BAG)) -> Iterator[Any]:
        state.add(1)
        state.add("text")
        yield pair


class AddsToSum(beam.DoFn):
    def process(self, pair: Any, state: Any = beam.DoFn.StateParam(SUM)) -> Iterator[Any]:
        state.add("text")
        yield pair


@pytest.mark.parametrize(
    ("fn", "state", "value"),
    [
        (WritesValue, "latest", "'text' (str)"),
        (AddsToBag, "everything", "'text' (str)"),
        (AddsToSum, "total", "["),  # an accumulator
    ],
)
def test_the_error_names_state_value_and_line(fn: type[beam.DoFn], state: str, value: str) -> None:
    pipeline = beam.Pipeline()
    kept = pipeline | beam.Create([("a", 1)]) | "Keep" >> beam.ParDo(fn())
    with pytest.raises(TaskFailure) as raised:
        collect(pipeline, kept)
    text = failure_in(str(raised.value)) or ""
    where, _, said = text.partition(": ")
    assert "Keep" in where
    assert f"state '{state}': its coder VarIntCoder cannot encode {value}" in said
    assert f'StateSpec("{state}", VarIntCoder()' in said.rpartition(f"declared in {__file__}, line ")[2]
    assert "Traceback" not in text, "no frame is the user's"
