"""Beam's own suite for portable runners, on Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import fn_runner_test

from rmqio.runners.capabilities import Mode
from rmqio.runners.spark import SparkRunner

shows = pytest.mark.shows(Mode.SPARK)
_TIMERS: Final[tuple[tuple[Any, ...], ...]] = (
    (5, 10, True, True, []),
    (5, 10, False, True, []),
    (5, 10, False, False, ["fired"]),
)
"""Arguments that Beam's tests give to `_run_pardo_et_timer_test`."""
_STARTED: dict[str, Future[None]] = {}


class TestOnSpark(fn_runner_test.FnApiRunnerTest):
    """The name matters: Beam's suite skips three more tests in a class named FnApiRunnerTest or SparkRunnerTest."""

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(runner=SparkRunner(is_drain=is_drain))

    def _run_pardo_et_timer_test(self, *given: Any) -> None:
        """Three tests run a pipeline that lasts 13 s, whatever the machine. These pipelines run at the same time."""
        if repr(given) not in _STARTED:
            with self.create_pipeline() as p:
                _ = p | beam.Create([1])  # starts Spark, if this is the first test
            run = super()._run_pardo_et_timer_test
            threads = ThreadPoolExecutor(len(_TIMERS))
            _STARTED.update({repr(each): threads.submit(run, *each) for each in _TIMERS})
            if repr(given) not in _STARTED:
                pytest.fail(f"_TIMERS has no {given}, which Beam's test gives now")
            threads.shutdown(wait=False)
        _STARTED[repr(given)].result()

    @shows
    @pytest.mark.skipif(
        not hasattr(fn_runner_test.FnApiRunnerTest, "test_unbounded_source_read"),
        reason="Beam has this test since 2.76",
    )
    def test_unbounded_source_read(self) -> None:
        super().test_unbounded_source_read()


NAMED = (
    "test_batch_pardo",
    "test_batch_rebatch_pardos",
    "test_combine_per_key",
    "test_create_value_provider_pipeline_option",
    "test_custom_merging_window",
    "test_custom_window_type",
    "test_draining_sdf_with_sdf_initiated_checkpointing",
    "test_flatten",
    "test_flatten_and_gbk",
    "test_group_by_key",
    "test_metrics",
    "test_multimap_side_input",
    "test_no_subtransform_composite",
    "test_pack_combiners",
    "test_pardo",
    "test_pardo_dynamic_timer",
    "test_pardo_side_inputs",
    "test_pardo_state_only",
    "test_pardo_timers",
    "test_pardo_timers_clear",
    "test_pardo_windowed_side_inputs",
    "test_read",
    "test_register_finalizations",
    "test_reshuffle",
    "test_reshuffle_after_custom_window",
    "test_sdf",
    "test_sdf_with_sdf_initiated_checkpointing",
    "test_sdf_with_truncate",
    "test_sliding_windows",
    "test_windowed_combine_per_key",
    "test_windowed_pardo_state_timers",
    "test_windowing",
)
"""The tests that the pages of capabilities name."""


def _shown(name: str) -> Callable[[TestOnSpark], None]:
    """Returns a test with the marker, in a function of its own: Beam's also belong to the suites of other modes."""
    beams = getattr(fn_runner_test.FnApiRunnerTest, name)

    @functools.wraps(beams)
    def test(self: TestOnSpark) -> None:
        beams(self)

    marked: Callable[[TestOnSpark], None] = shows(test)
    return marked


for _name in NAMED:
    setattr(TestOnSpark, _name, _shown(_name))
