"""The processes in which user code runs, on a real Spark."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
import pyspark
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from pyspark.sql import SparkSession

from rmqio.errors import LocalError
from rmqio.runners.spark import SparkRunner, bootstrap


def pipeline(*flags: str) -> beam.Pipeline:
    """Returns a pipeline on the shared Spark."""
    return beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(list(flags)))


def test_user_code_runs_in_workers_and_in_several_tasks() -> None:
    with pipeline() as p:
        pids = p | beam.Create(range(100)) | beam.Reshuffle() | beam.Map(lambda _: os.getpid()) | beam.Distinct()
        driver = os.getpid()
        assert_that(pids | beam.Filter(lambda pid: pid == driver), equal_to([]))
    reports = p.result._execution.reports
    assert os.getpid() not in {report.process_id for report in reports.values()}
    assert len(reports) >= 2


def test_workers_import_the_installed_pyspark() -> None:
    """Each process would compile the copy in Spark's zip file again: see rmqio/runners/spark/sessions/site."""

    def where(_: Any) -> tuple[str, list[str]]:
        return pyspark.__file__, sys.path

    with pipeline() as p:
        found = p | beam.Create([1]) | beam.Map(where)
        assert_that(found, is_in_no_zip)


def is_in_no_zip(found: Any) -> None:
    ((file, path),) = found
    assert ".zip/" not in file
    assert not [each for each in path if each.endswith("pyspark.zip")]


def test_a_worker_that_has_run_a_stage_runs_the_next_pipelines_too() -> None:
    """Spark ends a worker that leaves input unread, and starting another takes longer than a small pipeline."""

    def workers() -> set[int]:
        with pipeline() as p:
            _ = p | beam.Create(range(8), reshuffle=False) | beam.Map(lambda n: (n, n)) | beam.GroupByKey()
        return {report.process_id for report in p.result._execution.reports.values()}

    def used() -> int:
        return len(set[int]().union(*(workers() for _ in range(5))))

    workers()
    session = SparkSession.getActiveSession()
    assert session is not None
    at_once = session.sparkContext.defaultParallelism
    # Spark also ends workers that were idle for a minute, which may happen at any time
    assert any(used() <= at_once for _ in range(3))


@pytest.mark.parametrize("flags", [(), ("--streaming",)], ids=["batch", "stream"])
def test_a_worker_with_another_version_than_the_drivers_fails(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers have this Beam; their tasks are told that the driver has another one."""
    if flags and pyspark.__version__.startswith("4.1."):
        pytest.skip("PySpark 4.1 has no streams")
    here = bootstrap.versions()
    monkeypatch.setattr(bootstrap, "versions", lambda: {**here, "apache_beam": "2.61.0"})
    p = pipeline(*flags)
    _ = p | beam.Create([1]) | beam.Map(print)
    result = p.run()
    with pytest.raises(LocalError, match=r"on .* has apache-beam .*, and the driver has 2\.61\.0") as raised:
        result.wait_until_finish()
    assert f"apache-beam {here['apache_beam']}, " in str(raised.value)
    assert "\n" not in str(raised.value)
