"""Beam's own suite for portable runners, on Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import fn_runner_test

from rmqio.runners.capabilities import Mode
from rmqio.runners.spark import SparkRunner

shows = pytest.mark.shows(Mode.SPARK)


class TestOnSpark(fn_runner_test.FnApiRunnerTest):
    """The name matters: Beam's suite skips three more tests in a class named FnApiRunnerTest or SparkRunnerTest."""

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(runner=SparkRunner(is_drain=is_drain))

    # Tests for the capability table. They are separate functions, since Beam's own also belong to other modes' suites.

    @shows
    @pytest.mark.skipif(
        not hasattr(fn_runner_test.FnApiRunnerTest, "test_unbounded_source_read"),
        reason="Beam has this test since 2.76",
    )
    def test_unbounded_source_read(self) -> None:
        super().test_unbounded_source_read()

    @shows
    def test_sdf_with_sdf_initiated_checkpointing(self) -> None:
        super().test_sdf_with_sdf_initiated_checkpointing()

    @shows
    def test_register_finalizations(self) -> None:
        super().test_register_finalizations()

    @shows
    def test_pardo_timers(self) -> None:
        super().test_pardo_timers()

    @shows
    def test_pardo_side_inputs(self) -> None:
        super().test_pardo_side_inputs()

    @shows
    def test_windowing(self) -> None:
        super().test_windowing()

    @shows
    def test_custom_merging_window(self) -> None:
        super().test_custom_merging_window()
