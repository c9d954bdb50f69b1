"""A value that does not fit the coder of its state: the error names the state, the value and the user's line."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio.runners.spark.errors import TaskFailure, failure_in
from tests.helpers.spark.spark_plan import collect
from tests.helpers.spark.wrong_state import CASES, require_named


@pytest.mark.parametrize(("fn", "state", "value"), CASES)
def test_the_error_names_state_value_and_line(fn: type[beam.DoFn], state: str, value: str) -> None:
    pipeline = beam.Pipeline()
    kept = pipeline | beam.Create([("a", 1)]) | "Keep" >> beam.ParDo(fn())
    with pytest.raises(TaskFailure) as raised:
        collect(pipeline, kept)
    text = failure_in(str(raised.value)) or ""
    where, _, said = text.partition(": ")
    assert "Keep" in where
    require_named(said, state, value)
    assert "Traceback" not in text, "no frame is the user's"
