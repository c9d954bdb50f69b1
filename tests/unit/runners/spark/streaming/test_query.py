"""What a query tells Spark."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.streaming.execution import Query


class Failing:
    """A frame whose job was cancelled: Py4J's error has the stack of the JVM."""

    def collect(self) -> Any:
        raise RuntimeError("py4j.protocol.Py4JJavaError: An error occurred while calling o9.x.\n" + "\tat x\n" * 10_000)


def test_the_text_of_a_micro_batch_that_failed_overflows_no_stack_of_spark() -> None:
    """Spark matches it with (.|\\r\\n|\\r|\\n)*, one or more frames for each character, if it begins as Py4J's do."""
    query = object.__new__(Query)
    with pytest.raises(Exception) as raised:
        query._batch(Failing(), 1)  # type: ignore[arg-type]
    told = "".join(traceback.format_exception(raised.value))
    assert "An error occurred while calling" not in told
    assert len(told) < 1_000
    assert str(query._failure).startswith("py4j"), "which the run raises"
