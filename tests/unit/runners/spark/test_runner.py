"""Refusals of the Spark runner before Spark starts; the rest is in tests/unit/runners/test_report.py."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam

from rmqio import ReadFromRocketMQ, StopAt
from rmqio.runners.spark import SparkRunner


@pytest.mark.parametrize(("stop", "refused"), [(None, ["Read orders"]), (StopAt.latest(), [])], ids=["no", "yes"])
def test_a_read_without_a_stop_is_refused_before_spark_starts(
    stop: StopAt | None, refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(options: object) -> None:
        raise RuntimeError("Spark starts")

    monkeypatch.setattr("rmqio.runners.spark.runner.session_for", start)
    pipeline = beam.Pipeline(runner=SparkRunner())
    read = ReadFromRocketMQ("orders", name_server="127.0.0.1:1", stop=stop)
    _ = pipeline | "Read orders" >> read | beam.Map(len)
    with pytest.raises(
        Exception, match=r"without end \(Read orders\): give --streaming" if refused else "Spark starts"
    ):
        pipeline.run()
