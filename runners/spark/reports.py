"""Reports of finished tasks on their way to the driver: an accumulator, which Spark counts once a successful task."""

from __future__ import annotations

from typing import Any

from pyspark.accumulators import AccumulatorParam

from rmqio.runners.spark.model import TaskReport

TaskKey = tuple[int, int, int]  # stage, round, partition


class ReportsParam(AccumulatorParam[Any]):
    """Reports by task. A task that Spark runs again, because its output was lost, replaces its report."""

    def zero(self, value: Any) -> dict[TaskKey, TaskReport]:
        return {}

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        value1.update(value2)
        return value1
