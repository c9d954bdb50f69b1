"""Tests of runners share one Spark session, which the first pipeline starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests that start Spark, which takes seconds: they are not in the daily tier."""
    if not _WITHOUT_SPARK.match(item.path.relative_to(Path(__file__).parent).as_posix()):
        item.add_marker(pytest.mark.spark)


_WITHOUT_SPARK: Final = re.compile(r"direct/|flink/test_jobserver|flink/test_sql_oracle")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Returns the Spark session that all tests of runners share. `SparkRunner` starts it."""
    import apache_beam as beam
    from pyspark.sql import SparkSession

    from rmqio.runners.spark import SparkRunner

    with beam.Pipeline(runner=SparkRunner()) as pipeline:
        _ = pipeline | beam.Create([1])
    # The active session belongs to a thread of the JVM, and a test that interrupts a call leaves Python with another
    # thread. Without an active session, Spark does not find a format of Python when it writes.
    session = SparkSession.builder.getOrCreate()
    assert session._jvm is not None
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)
    return session
