"""Beam's own suite for portable runners, with `--streaming`; `make test-all`."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner_test

from rmqio.runners.spark import SparkRunner

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


class TestOnSparkStreaming(fn_runner_test.FnApiRunnerTest):
    """The name matters: Beam's suite skips three more tests in a class named FnApiRunnerTest or SparkRunnerTest."""

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(runner=SparkRunner(is_drain=is_drain), options=PipelineOptions(["--streaming"]))
