"""Bundles on Spark know whether they may be a repetition, at each level of a stream and in a batch task."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.transforms import window
from pyspark import TaskContext

from rmqio import repeats
from rmqio.repeats import Attempt
from rmqio.runners.spark.worker.task import running_attempt
from tests.helpers.spark.spark_stream import Stream

TOLD: list[Attempt | None] = []


class Note(beam.DoFn):
    """Notes what its bundle knows."""

    def start_bundle(self) -> None:
        TOLD.append(repeats.current_attempt())

    def process(self, element: Any) -> Any:
        yield element


def noted(transform: Any) -> Any:
    return beam.WindowInto(window.FixedWindows(10)) | beam.ParDo(Note()) | transform


@pytest.mark.parametrize(("planned_by", "expected"), [(None, False), ("an earlier run", True)])
def test_each_level_is_told_of_a_micro_batch_that_an_earlier_run_has_planned(
    planned_by: str | None, expected: bool
) -> None:
    grouped = beam.GroupByKey() | beam.Map(lambda pair: (pair[0], len(pair[1]))).with_output_types(tuple[str, Any])
    stream = Stream(noted(grouped) | "again" >> noted(beam.GroupByKey()) | "last" >> noted(beam.Map(lambda pair: pair)))
    TOLD.clear()
    stream.run([("a", 1, 3)], 0, run=planned_by)
    stream.run([], 100, run=planned_by)
    assert set(TOLD) == {Attempt(expected, commits_together=True)}
    assert len(TOLD) >= 3, "a bundle of each level"


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_task_that_is_tried_again_may_be_a_repeat(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext()  # PySpark 4.1 takes no attributes
    monkeypatch.setattr(context, "_attemptNumber", number)
    TaskContext._setTaskContext(context)
    with running_attempt():
        assert repeats.current_attempt() == Attempt(number > 0)
    assert repeats.current_attempt() is None
