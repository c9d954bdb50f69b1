"""Shows what `rmqio.runners.capabilities` says about DirectRunner and FlinkRunner, with minimal pipelines.

The same pipelines run in all modes. SparkRunner has its own tests for what the table says, and DirectRunner for reads
without end. `test_live_windows`, and the tests that kill drivers, jobs and TaskManagers, show what it says about live
topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.utils.timestamp import Timestamp

from rmqio.errors import LocalError
from rmqio.runners import options
from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.jobserver import SERVERS
from tests.helpers.pipelines.needy_dofns import (
    ClockAlarm,
    CountUp,
    EventAlarm,
    Finalize,
    InOrder,
    Pairs,
    RunningTotal,
    noted,
    waits,
)
from tests.helpers.pipelines.unended import goes_on
from tests.helpers.waiting import until

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

DIRECT = "--runner=DirectRunner"
BATCH = "--runner=FlinkRunner --parallelism=1"
STREAM = f"{BATCH} --streaming --checkpointing_interval=500"
shows = pytest.mark.shows
of_direct = pytest.param(DIRECT, id="direct", marks=shows(Mode.DIRECT))
of_batch = pytest.param(BATCH, id="flink", marks=shows(Mode.FLINK))
of_stream = pytest.param(STREAM, id="flink-streaming", marks=shows(Mode.FLINK_STREAMING))
everywhere = pytest.mark.parametrize("mode", [of_direct, of_batch, of_stream])


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


def on(mode: str) -> beam.Pipeline:
    return beam.Pipeline(options=options(mode.split()))


def timed(pipeline: Any, *times: int) -> Any:
    """Returns pairs of one key whose timestamp is their number."""
    stamp = beam.Map(lambda n: window.TimestampedValue(("a", n), n)).with_output_types(Pairs)
    return pipeline | beam.Create(times) | "Stamp" >> stamp


# ---- bounded pipelines ----------------------------------------------------------------------------------------------


@everywhere
def test_a_splittable_dofn_that_defers_itself(mode: str) -> None:
    with on(mode) as p:
        numbers = p | beam.Create([2, 3]) | beam.ParDo(CountUp()).with_output_types(int)
        assert_that(numbers, equal_to([0, 0, 1, 1, 2]))


# Flink runs a bounded pipeline that requests finalization as a stream. Unbounded pipelines: below.
@pytest.mark.parametrize(
    "mode", [of_direct, pytest.param(BATCH, id="flink-streaming", marks=shows(Mode.FLINK_STREAMING))]
)
def test_bundles_are_finalized(mode: str, tmp_path: Path) -> None:
    with on(mode) as p:
        assert_that(p | beam.Create([1, 2]) | beam.ParDo(Finalize(tmp_path / "final")), equal_to([1, 2]))
    assert sorted(noted(tmp_path / "final")) == ["1", "2"]


@everywhere
def test_state_by_key(mode: str) -> None:
    with on(mode) as p:
        totals = p | beam.Create([("a", 1), ("b", 1), ("a", 1)]).with_output_types(Pairs) | beam.ParDo(RunningTotal())
        assert_that(totals, equal_to([1, 2, 1]))


def put_in_order(pipeline: Any) -> Any:
    pairs = pipeline | beam.Create([("a", 2), ("a", 1)]).with_output_types(Pairs)
    return pairs | beam.ParDo(InOrder()) | beam.Map(lambda numbers: numbers == sorted(numbers))


@shows(Mode.DIRECT)
def test_ordered_lists_as_state() -> None:
    with on(DIRECT) as p:
        assert_that(put_in_order(p), equal_to([True, True]))


@pytest.mark.parametrize("mode", [of_batch, of_stream])
def test_ordered_lists_as_state_fail_on_flink(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = on(f"{mode} --number_of_execution_retries=0")
    _ = put_in_order(p)
    with pytest.raises(LocalError, match=r"ordered lists as state \(ParDo\(InOrder\)\)"):
        p.run()
    monkeypatch.setattr("rmqio.runners.submission.Report.check", lambda report: None)
    with pytest.raises(RuntimeError, match=r"IllegalStateException"):
        p.run().wait_until_finish()


@everywhere
def test_event_time_timers(mode: str, tmp_path: Path) -> None:
    with on(mode) as p:
        fired = timed(p, 10) | beam.ParDo(EventAlarm(tmp_path / "notes", 5))
        assert_that(fired, equal_to([("a", 15.0)]))


@pytest.mark.parametrize("mode", [of_direct, of_batch])
def test_processing_time_timers_of_what_ends_do_not_wait(mode: str, tmp_path: Path) -> None:
    with on(mode) as p:
        assert_that(timed(p, 10) | beam.ParDo(ClockAlarm(tmp_path / "notes", 3_000)), equal_to(["a"]))


def with_a_side_input(pipeline: Any) -> Any:
    numbers = beam.pvalue.AsList(pipeline | "Side" >> beam.Create([5, 6]))
    return pipeline | "Main" >> beam.Create([1, 2]) | "Look" >> beam.Map(lambda n, side: (n, sum(side)), numbers)


@pytest.mark.parametrize("mode", [of_direct, of_batch])
def test_side_inputs(mode: str) -> None:
    with on(mode) as p:
        assert_that(with_a_side_input(p), equal_to([(1, 11), (2, 11)]))


@shows(Mode.FLINK_STREAMING)
def test_a_checkpoint_with_a_side_input_fails_on_flink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.submission.Report.check", lambda report: None)
    p = on(f"{STREAM} --number_of_execution_retries=0")
    _ = with_a_side_input(p)
    with pytest.raises(RuntimeError, match=r"cannot be cast to class .*WindowedValue"):
        p.run().wait_until_finish()


@everywhere
def test_windows_that_merge(mode: str) -> None:
    with on(mode) as p:
        sums = timed(p, 0, 1, 2, 20, 21) | beam.WindowInto(window.Sessions(5)) | beam.CombinePerKey(sum)
        assert_that(sums, equal_to([("a", 3), ("a", 41)]))


@shows(Mode.DIRECT)
def test_an_unbounded_source_that_ends() -> None:
    begin = Timestamp.of(1_000_000_000)
    with on(DIRECT) as p:
        times = p | PeriodicImpulse(begin, begin + 3, 1, apply_windowing=False)
        keyed = (
            times | beam.Map(lambda at: ("a", 1)).with_output_types(Pairs) | beam.WindowInto(window.FixedWindows(60))
        )
        assert_that(keyed | beam.CombinePerKey(sum), equal_to([("a", 3)]))


# ---- unbounded pipelines --------------------------------------------------------------------------------------------


@shows(Mode.FLINK_STREAMING)
def test_timers_of_a_stream_wait_for_their_time_and_its_bundles_are_finalized(tmp_path: Path) -> None:
    p = on(STREAM)
    ticks = p | PeriodicImpulse(fire_interval=0.5)
    keyed = ticks | "Key" >> beam.Map(lambda at: (str(float(at)), 1)).with_output_types(Pairs)
    _ = keyed | "Event" >> beam.ParDo(EventAlarm(tmp_path / "event", 1))
    _ = keyed | "Clock" >> beam.ParDo(ClockAlarm(tmp_path / "clock", 1))
    _ = keyed | "Final" >> beam.ParDo(Finalize(tmp_path / "final"))
    result = p.run()
    try:
        for name in ("event", "clock"):
            until(lambda name=name: len(waits(tmp_path / name)) >= 3, f"{name} timers", alive=[goes_on(result)])  # type: ignore[misc]
        until(lambda: len(noted(tmp_path / "final")) >= 3, "bundles to be final", alive=[goes_on(result)])
    finally:
        result.cancel()
    assert min(waits(tmp_path / "clock")) >= 1
    due = {line.split()[1]: float(line.split()[1]) + 1 for line in noted(tmp_path / "event")}
    fired = (line.split() for line in noted(tmp_path / "event") if line.startswith("fired"))
    assert all(float(at) >= due[key] for _, key, at in fired)


@shows(Mode.FLINK_STREAMING)
def test_a_processing_time_timer_of_what_ends_would_keep_flinks_stream_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rmqio.runners.submission.Report.check", lambda report: None)
    p = on(STREAM)
    _ = timed(p, 10) | beam.ParDo(ClockAlarm(tmp_path / "notes", 1))
    result = p.run()
    try:
        until(lambda: bool(noted(tmp_path / "notes")), "the timer to be set", alive=[goes_on(result)])
        # Nothing happens in such a job any more, not even a checkpoint, for which a test could wait.
        time.sleep(6)
        assert result.state == PipelineState.RUNNING
        assert not waits(tmp_path / "notes")
    finally:
        SERVERS.stop_all()  # Flink takes a minute to cancel it
