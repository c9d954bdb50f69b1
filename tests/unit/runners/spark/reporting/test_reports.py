"""Reports of tasks, of which Spark may run some twice."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.model import TaskReport
from rmqio.runners.spark.reporting import ReportsParam


def test_a_task_that_ran_again_replaces_its_report() -> None:
    param = ReportsParam()
    merged = param.addInPlace(param.zero({}), {(1, 0, 0): TaskReport(10)})
    merged = param.addInPlace(merged, {(1, 0, 0): TaskReport(11), (1, 0, 1): TaskReport(12)})
    assert {key: report.process_id for key, report in merged.items()} == {(1, 0, 0): 11, (1, 0, 1): 12}
