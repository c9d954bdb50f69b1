"""Sends task reports to the driver through an accumulator, which Spark updates once for each successful task."""

from __future__ import annotations

from pyspark.accumulators import AccumulatorParam

from rmqio.runners.spark.model import TaskReport

TaskKey = tuple[int, int, int]  # stage, round, partition


class ReportsParam(AccumulatorParam[dict[TaskKey, TaskReport]]):
    """Collects reports by task. A task that Spark runs again, because its output was lost, replaces its report."""

    def zero(self, value: dict[TaskKey, TaskReport]) -> dict[TaskKey, TaskReport]:
        return {}

    def addInPlace(
        self, value1: dict[TaskKey, TaskReport], value2: dict[TaskKey, TaskReport]
    ) -> dict[TaskKey, TaskReport]:
        value1.update(value2)
        return value1
