"""The report of a runner on what pipelines need: refusals and warnings before a run, and the table of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window

from rmqio import ReadFromRocketMQ, StopAt, runners
from rmqio.errors import LocalError
from rmqio.runners.capabilities import TABLE, Cell, Mode, Requirement, Verdict
from rmqio.runners.flink import FlinkRunner
from rmqio.runners.submission import Refused, Report, compare
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.pipelines.needy_pipelines import (
    SERVER,
    Counting,
    alone,
    beside_another,
    beside_itself,
    bounded,
    endless,
    flattened,
    grouped,
    keyed,
    live,
    merged,
    proto,
    read,
    read_further,
    stateful,
    ticks,
    unmerged,
)

# ---- what comes of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "mode", "refused", "warned"),
    [
        (endless, Mode.DIRECT, [], []),
        (alone, Mode.DIRECT, [], []),
        (beside_another, Mode.DIRECT, [], []),
        (grouped, Mode.DIRECT, [Requirement.SHUFFLES_BEHIND], [Requirement.KEPT_STATE]),
        (flattened, Mode.DIRECT, [Requirement.SHUFFLES_BEHIND], []),
        (beside_itself, Mode.DIRECT, [Requirement.SHUFFLES_BEHIND], []),
        (read_further, Mode.DIRECT, [Requirement.SHUFFLES_BEHIND], []),
        (stateful, Mode.DIRECT, [], [Requirement.CLOCK_TIMERS]),
        (live, Mode.DIRECT, [], [Requirement.LIVE_EVENT_TIMERS, Requirement.LIVE_CLOCK_TIMERS, Requirement.KEPT_STATE]),
        (ticks, Mode.DIRECT, [], [Requirement.UNBOUNDED]),
        (bounded, Mode.SPARK, [], []),
        (grouped, Mode.SPARK, [Requirement.ENDLESS_READS], [Requirement.KEPT_STATE]),
        (stateful, Mode.SPARK, [], [Requirement.CLOCK_TIMERS]),
        (ticks, Mode.SPARK, [], [Requirement.UNBOUNDED]),
        (live, Mode.SPARK_STREAMING, [], []),
        (beside_itself, Mode.SPARK_STREAMING, [], []),
        (stateful, Mode.FLINK, [], [Requirement.CLOCK_TIMERS]),
        (grouped, Mode.FLINK_STREAMING, [], []),
        (live, Mode.FLINK_STREAMING, [], []),
        (stateful, Mode.FLINK_STREAMING, [Requirement.CLOCK_TIMERS], []),
        (beside_another, Mode.FLINK_STREAMING, [Requirement.SIDE_INPUTS], []),
        *((unmerged, mode, [Requirement.UNMERGED_STATE], []) for mode in Mode),
        *((merged, mode, [], []) for mode in Mode),
    ],
)
def test_what_is_refused_and_what_is_warned_of(
    build: Callable[[Any], Any], mode: Mode, refused: list[Requirement], warned: list[Requirement]
) -> None:
    found = compare(proto(build), mode)
    assert [line.need for line in found.refused] == refused
    assert [line.need for line in found.warnings] == warned


def test_why_state_in_windows_that_merge_is_refused() -> None:
    """Beam's own runner lets it pass: three elements of one session, and none sees the state of another."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        stamped = pipeline | beam.Create([0, 1, 2]) | beam.Map(lambda n: window.TimestampedValue(("a", n), n))
        counts = stamped | beam.WindowInto(window.Sessions(5)) | beam.ParDo(Counting())
        assert_that(counts, equal_to([1, 1, 1]))


def test_the_refusal_says_what_where_and_what_to_do() -> None:
    with pytest.raises(Refused, match=r"DirectRunner cannot run.*after a read without end \(Group\).*the read a stop"):
        compare(proto(grouped), Mode.DIRECT).check()
    assert issubclass(Refused, LocalError)


def test_each_warning_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    compare(proto(live), Mode.DIRECT).check()
    said = [record.getMessage() for record in caplog.records if record.name == "rmqio.runners"]
    assert [text.partition(" (")[0] for text in said] == [
        "DirectRunner: event-time timers, unbounded input",
        "DirectRunner: processing-time timers, unbounded input",
        "DirectRunner: state of unbounded input, kept over a restart",
    ]


@pytest.mark.parametrize("build", [endless, bounded])
def test_nothing_is_said_of_a_pipeline_that_fits(build: Callable[[Any], Any], caplog: pytest.LogCaptureFixture) -> None:
    for mode in Mode:
        if (build, mode) != (endless, Mode.SPARK):
            compare(proto(build), mode).check()
    assert caplog.records == []


def on_flink(build: Callable[[Any], Any], *flags: str) -> Report:
    return FlinkRunner().report(proto(build), PipelineOptions(list(flags)))


@pytest.mark.parametrize(
    ("build", "flags", "mode"),
    [
        (bounded, [], Mode.FLINK),
        (bounded, ["--streaming"], Mode.FLINK_STREAMING),
        (lambda p: p | read(StopAt.latest(), consumer_group="g"), [], Mode.FLINK_STREAMING),
        (endless, [], Mode.FLINK_STREAMING),
    ],
)
def test_what_flink_runs_as_a_stream(build: Callable[[Any], Any], flags: list[str], mode: Mode) -> None:
    assert on_flink(build, *flags).mode is mode


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], ["no --checkpoint_dir"]),
        (["--checkpoint_dir=/none/such"], []),
        (["--state_backend_storage_path=s3://b/c"], []),
        (["--checkpointing_interval=-1"], ["no bundle is finalized"]),
        (["--checkpointing_mode=AT_LEAST_ONCE", "--checkpoint_dir=s3://b/c"], ["counted elements twice"]),
    ],
)
def test_what_flink_says_of_its_options_is_in_the_report(flags: list[str], told: list[str]) -> None:
    found = on_flink(endless, *flags).of_options
    assert len(found) == len(told)
    assert all(part in text for part, text in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [
        ([], Verdict.REFUSED),
        (["--checkpointing_interval=-1"], Verdict.YES),
        (["--job_endpoint=localhost:1"], Verdict.WARNED),
        (["--flink_job_server_jar=https://host/newer.jar"], Verdict.WARNED),
    ],
)
def test_side_inputs_of_a_stream_on_flink_depend_on_options(flags: list[str], verdict: Verdict) -> None:
    (line,) = (line for line in on_flink(beside_another, *flags).lines if line.need is Requirement.SIDE_INPUTS)
    assert line.cell.verdict is verdict


@pytest.mark.parametrize(
    ("name", "flags", "told"),
    [
        ("spark", ["--checkpoint_dir=/a"], ["--checkpoint_dir has no effect without --streaming"]),
        ("spark", ["--drain", "--spark_buckets=3"],
         ["--drain has no effect without --streaming", "--spark_buckets has no effect without --streaming"]),
        ("spark", ["--checkpoint_dir=/a", "--drain", "--streaming"], []),
        ("direct", ["--checkpoint_dir=/a", "--streaming"], ["--checkpoint_dir has no effect: this runner keeps none"]),
        ("direct", [], []),
    ],
)  # fmt: skip
def test_options_that_do_nothing_are_said(name: str, flags: list[str], told: list[str]) -> None:
    if name == "spark":
        pytest.importorskip("pyspark", reason="SparkRunner needs the extra 'spark'")
    runner = beam.Pipeline(options=runners.options([f"--runner={name}"])).runner
    found = runner.report(proto(bounded), PipelineOptions(flags)).of_options
    assert [text[: len(part)] for part, text in zip(told, found, strict=True)] == told


def test_they_are_said_before_a_run(caplog: pytest.LogCaptureFixture) -> None:
    with beam.Pipeline(options=runners.options(["--checkpoint_dir=/a"])) as pipeline:
        _ = pipeline | beam.Create([1])
    assert "DirectRunner: --checkpoint_dir has no effect" in caplog.text


# ---- before a run ---------------------------------------------------------------------------------------------------


def test_the_direct_runner_refuses_before_it_reads() -> None:
    with InMemoryCluster() as cluster:
        pipeline = beam.Pipeline(options=runners.options([]))
        records = pipeline | read(name_server=None, client_factory=InMemoryClientFactory(cluster.name))
        _ = keyed(records) | beam.Reshuffle()
        with pytest.raises(Refused, match="Reshuffle"):
            pipeline.run()


def test_the_direct_runner_refuses_a_read_without_end_with_several_workers() -> None:
    """Beam's in-process runner splits such a read over its workers, and ends without having read anything."""
    with InMemoryCluster() as cluster:
        pipeline = beam.Pipeline(options=runners.options(["--direct_num_workers=2"]))
        _ = pipeline | read(name_server=None, client_factory=InMemoryClientFactory(cluster.name))
        with pytest.raises(Refused, match="leave --direct_num_workers at 1"):
            pipeline.run()


def test_flink_refuses_before_a_job_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.flink.runner.SERVERS", None)
    pipeline = beam.Pipeline(options=runners.options(["--runner=FlinkRunner", "--streaming"]))
    stateful(pipeline)
    with pytest.raises(Refused, match=r"\(State\): they never fire"):
        pipeline.run()


# ---- the table ------------------------------------------------------------------------------------------------------


def test_the_look_of_the_table() -> None:
    report = compare(proto(grouped), Mode.DIRECT, of_options=["an option " * 12])
    assert report.table() == (
        """\
needed                      by                          on DirectRunner
--------------------------  --------------------------  --------------------------------------------
reads without end           Read                        yes
shuffles after a read       Group                       refused: it would wait forever for the end
without end                                             of the read; give the read a stop (--stop
                                                        latest), or use SparkRunner --streaming or
                                                        FlinkRunner
splittable DoFns that       Read                        yes
defer themselves
bundle finalization         Read                        yes
state of unbounded input,   Group                       warned: it is in memory: a restart starts
kept over a restart                                     from scratch

warned: an option an option an option an option an option an option an option an option an option an
  option an option an option"""
    )


def test_many_names_are_not_all_listed() -> None:
    def build(p: Any) -> None:
        for number in range(7):
            _ = p | f"Read {number}" >> ReadFromRocketMQ("orders", **SERVER)

    assert "Read 0, Read 1, Read 2, Read 3, 3 more" in re.sub(
        r"\s+", " ", str(compare(proto(build), Mode.SPARK).refused[0])
    )


# ---- the data -------------------------------------------------------------------------------------------------------


def test_each_need_has_a_cell_for_each_mode() -> None:
    assert list(TABLE) == list(Requirement)
    assert all(list(row) == list(Mode) for row in TABLE.values())


@pytest.mark.parametrize(
    ("need", "mode", "cell"), [(need, mode, cell) for need, row in TABLE.items() for mode, cell in row.items()]
)
def test_a_cell_has_its_reason_and_its_tests(need: Requirement, mode: Mode, cell: Cell) -> None:
    assert cell.text or cell.verdict is Verdict.YES
    assert bool(cell.tests) == (cell.verdict is not Verdict.NONE)
