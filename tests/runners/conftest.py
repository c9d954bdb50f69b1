"""Tests of runners share one Spark, which the first pipeline starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Spark takes seconds at the least: it is not for the daily tier."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name not in _WITHOUT_SPARK:
            item.add_marker(pytest.mark.spark)


_WITHOUT_SPARK = {
    "test_flink_jobserver.py",
    "test_spark_worker.py",
    "test_spark_units.py",
    "test_spark_capabilities.py",
    "test_spark_stream_keyed.py",
    "test_spark_stream_keys.py",
    "test_spark_stream_levels.py",
    "test_spark_stream_merging.py",
    "test_spark_stream_packing.py",
    "test_spark_stream_sides.py",
    "test_spark_stream_triggered.py",
    "test_spark_stream_windows.py",
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """That of all tests of runners. Spark does not look for formats in an editable install, so it is told of this."""
    import apache_beam as beam
    from pyspark.sql import SparkSession

    from rmqio.pyspark import register
    from rmqio.runners.spark import SparkRunner

    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        _ = pipeline | beam.Create([1])
    # Not the active one: that is one of a thread, and another test may have left this one without.
    session = SparkSession.builder.getOrCreate()
    register(session)
    return session
