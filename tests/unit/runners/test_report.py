"""What pipelines need, what their runners say to it, and `--report`."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimeDomain, TimerSpec, on_timer

from rmqio import ReadAllFromRocketMQ, ReadFromRocketMQ, ReadOptions, StopAt, runners
from rmqio.errors import LocalError
from rmqio.pipelines import province, windowed_orders, word_count
from rmqio.runners.capabilities import TABLE, Cell, Mode, Requirement, Verdict
from rmqio.runners.direct import DirectRunner
from rmqio.runners.flink import FlinkRunner
from rmqio.runners.report import Refused, Report, compare
from rmqio.runners.requirements import requirements_of
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

SERVER: dict[str, Any] = {"name_server": "127.0.0.1:1"}
Pairs = tuple[str, int]


class Stateful(beam.DoFn):
    COUNT = CombiningValueStateSpec("count", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)
    SOON = TimerSpec("soon", TimeDomain.REAL_TIME)

    def process(
        self,
        element: Pairs,
        count: Any = beam.DoFn.StateParam(COUNT),
        end: Any = beam.DoFn.TimerParam(END),
        soon: Any = beam.DoFn.TimerParam(SOON),
    ) -> None:
        count.add(1)

    @on_timer(END)
    def at_the_end(self) -> None: ...

    @on_timer(SOON)
    def soon(self) -> None: ...


class Mine(beam.PTransform):
    """A composite of a user's own."""

    def expand(self, pairs: Any) -> Any:
        return pairs | "Windows" >> beam.WindowInto(window.Sessions(5)) | "Sum" >> beam.CombinePerKey(sum)


def read(stop: StopAt | None = None, **arguments: Any) -> Any:
    return "Read" >> ReadFromRocketMQ("orders", stop=stop, **SERVER | arguments)


def keyed(records: Any) -> Any:
    return records | "Key" >> beam.Map(lambda record: ("a", 1)).with_output_types(Pairs)


def bounded(p: Any) -> Any:
    return p | read(StopAt.latest())


def endless(p: Any) -> Any:
    return p | read()


def grouped(p: Any) -> Any:
    return keyed(endless(p)) | "Windows" >> beam.WindowInto(window.FixedWindows(5)) | "Group" >> beam.GroupByKey()


def flattened(p: Any) -> Any:
    records = endless(p)
    return (records | "1" >> beam.Map(str), records | "2" >> beam.Map(str)) | "Both" >> beam.Flatten()


def beside_itself(p: Any) -> Any:
    records = endless(p)
    return p | beam.Create([1]) | "Look" >> beam.Map(lambda n, side: n, beam.pvalue.AsIter(records))


def read_further(p: Any) -> Any:
    return endless(p) | "Topic" >> beam.Map(str) | "Read all" >> ReadAllFromRocketMQ(stop=StopAt.latest(), **SERVER)


def beside_another(p: Any) -> Any:
    names = beam.pvalue.AsIter(p | beam.Create([1]))
    return endless(p) | "Look" >> beam.Map(lambda n, side: n, names)


def alone(p: Any) -> Any:
    return (endless(p),) | beam.Flatten()


def stateful(p: Any) -> Any:
    return keyed(bounded(p)) | "State" >> beam.ParDo(Stateful())


def live(p: Any) -> Any:
    return keyed(endless(p)) | "State" >> beam.ParDo(Stateful())


class Counting(beam.DoFn):
    def process(self, element: Any, count: Any = beam.DoFn.StateParam(Stateful.COUNT)) -> Any:
        count.add(1)
        yield count.read()


def in_sessions(p: Any) -> Any:
    pairs = p | beam.Create([("a", 1)]).with_output_types(Pairs)
    return pairs | "Windows" >> beam.WindowInto(window.Sessions(5))


def unmerged(p: Any) -> Any:
    return in_sessions(p) | "State" >> beam.ParDo(Counting())


def merged(p: Any) -> Any:
    return (
        in_sessions(p) | "Group" >> beam.GroupByKey() | "Same" >> beam.Filter(bool) | "State" >> beam.ParDo(Counting())
    )


def windowed_again(p: Any) -> Any:
    grouped = in_sessions(p) | "Group" >> beam.GroupByKey()
    return grouped | "Others" >> beam.WindowInto(window.Sessions(9)) | "State" >> beam.ParDo(Counting())


def ticks(p: Any) -> Any:
    return p | "Ticks" >> PeriodicImpulse()


def needs(build: Callable[[Any], Any]) -> dict[Requirement, list[str]]:
    return requirements_of(proto(build))


def proto(build: Callable[[Any], Any]) -> Any:
    pipeline = beam.Pipeline(runner=DirectRunner(), options=PipelineOptions([]))
    build(pipeline)
    return pipeline.to_runner_api()


# ---- needs ----------------------------------------------------------------------------------------------------------

SDF = {Requirement.SPLITTABLE: ["Read"]}
ENDLESS = {Requirement.ENDLESS_READS: ["Read"], Requirement.FINALIZATION: ["Read"], **SDF}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda p: p | beam.Create([1]) | beam.Map(str), {}),
        (bounded, {Requirement.ENDING_READS: ["Read"], **SDF}),
        (lambda p: p | read(options=ReadOptions(max_num_records=5)), {Requirement.ENDING_READS: ["Read"], **SDF}),
        (
            lambda p: p | read(StopAt.latest(), consumer_group="g"),
            {Requirement.ENDING_READS: ["Read"], Requirement.FINALIZATION: ["Read"], **SDF},
        ),
        (endless, ENDLESS),
        (alone, ENDLESS),
        (beside_another, {**ENDLESS, Requirement.SIDE_INPUTS: ["Look"]}),
        (grouped, {**ENDLESS, Requirement.SHUFFLES_BEHIND: ["Group"], Requirement.KEPT_STATE: ["Group"]}),
        (flattened, {**ENDLESS, Requirement.SHUFFLES_BEHIND: ["Both"]}),
        (beside_itself, {**ENDLESS, Requirement.SHUFFLES_BEHIND: ["Look"], Requirement.SIDE_INPUTS: ["Look"]}),
        (
            stateful,
            {
                Requirement.ENDING_READS: ["Read"],
                **SDF,
                Requirement.STATE: ["State"],
                Requirement.EVENT_TIMERS: ["State"],
                Requirement.CLOCK_TIMERS: ["State"],
            },
        ),
        (
            live,
            {
                **ENDLESS,
                Requirement.STATE: ["State"],
                Requirement.LIVE_EVENT_TIMERS: ["State"],
                Requirement.LIVE_CLOCK_TIMERS: ["State"],
                Requirement.KEPT_STATE: ["State"],
            },
        ),
        (unmerged, {Requirement.STATE: ["State"], Requirement.UNMERGED_STATE: ["State"]}),
        (merged, {Requirement.STATE: ["State"], Requirement.MERGING_WINDOWS: ["Group"]}),
        (
            windowed_again,
            {
                Requirement.STATE: ["State"],
                Requirement.MERGING_WINDOWS: ["Group"],
                Requirement.UNMERGED_STATE: ["State"],
            },
        ),
        (ticks, {Requirement.UNBOUNDED: ["Ticks"], Requirement.SPLITTABLE: ["Ticks"]}),
        (
            lambda p: p | beam.Create(["a"]) | "Read all" >> ReadAllFromRocketMQ(**SERVER),
            {
                Requirement.UNBOUNDED: ["Read all"],
                Requirement.SPLITTABLE: ["Read all"],
                Requirement.FINALIZATION: ["Read all"],
            },
        ),
    ],
)
def test_needs_and_the_transforms_that_bring_them(
    build: Callable[[Any], Any], expected: dict[Requirement, list[str]]
) -> None:
    assert needs(build) == expected


def test_a_splittable_dofn_behind_a_read_without_end_is_a_shuffle() -> None:
    assert needs(read_further)[Requirement.SHUFFLES_BEHIND] == ["Read all"]


def test_a_name_is_the_label_that_its_user_gave_also_within_composites_of_their_own() -> None:
    found = needs(lambda p: keyed(bounded(p)) | "Totals" >> Mine())
    assert found[Requirement.MERGING_WINDOWS] == ["Totals/Sum"]


def test_a_read_of_a_user_s_composite_is_known() -> None:
    class Orders(beam.PTransform):
        def expand(self, pbegin: Any) -> Any:
            return pbegin | "Messages" >> ReadFromRocketMQ("orders", **SERVER)

    assert needs(lambda p: p | "Orders" >> Orders())[Requirement.ENDLESS_READS] == ["Orders/Messages"]


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
    with pytest.raises(Refused, match=r"DirectRunner cannot run.*behind a read without end \(Group\).*the read a stop"):
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


# ---- --report -------------------------------------------------------------------------------------------------------

TOPICS = ["--name_server=127.0.0.1:1", "--source_topic=a", "--sink_topic=b", "--report"]
STREAMING = ["--runner=SparkRunner", "--streaming", "--checkpoint_dir=/none/such"]


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither connections nor pipelines nor Spark, which all need these."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("--report has begun to run it")

    monkeypatch.setattr(beam.Pipeline, "run", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setattr("rmqio.pipelines.program.set_up_logging", lambda verbose: None)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("main", "flags", "status", "parts"),
    [
        (province.main, [], 0, ["on DirectRunner", "reads without end", "Read addresses", "yes"]),
        (province.main, ["--stop=latest", "--runner=FlinkRunner"], 0, ["FlinkRunner, batch job", "reads that end"]),
        (province.main, ["--runner=FlinkRunner"], 0, ["after each checkpoint", "warned: no --checkpoint_dir"]),
        (province.main, ["--runner=SparkRunner"], 2, ["refused: give --streaming"]),
        (province.main, STREAMING, 0, ["on SparkRunner --streaming"]),
        (windowed_orders.main, [], 2, ["Sum and count", "refused: it would wait for ever"]),
        (windowed_orders.main, ["--stop=latest"], 0, ["reads that end"]),
        (windowed_orders.main, ["--runner=FlinkRunner"], 0, ["Sum and count", "exactly once"]),
        (windowed_orders.main, STREAMING, 0, ["shuffles behind a read", "Sum and count"]),
        (word_count.main, ["--stop=latest"], 0, ["Read sentences"]),
        (word_count.main, STREAMING, 0, ["Count", "exactly once"]),
    ],
)
def test_report_shows_the_table_and_starts_nothing(
    main: Callable[[list[str]], int],
    flags: list[str],
    status: int,
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--runner=SparkRunner" in flags:
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    assert main([*TOPICS, *flags]) == status
    shown = capsys.readouterr()
    assert shown.err == ""
    assert all(part in shown.out for part in parts), shown.out
    assert max(map(len, shown.out.splitlines())) <= 100


@pytest.mark.usefixtures("nothing_starts")
def test_report_of_a_runner_that_nothing_is_known_of_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    runner = f"{FnApiRunner.__module__}.FnApiRunner"
    assert province.main([*TOPICS, f"--runner={runner}"]) == 2
    assert "province.py: --report does not support FnApiRunner" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--flink_heap_mb=16", "--flink_heap_mb=16: the job server needs at least"),
        ("--checkpointing_interval=0", "--checkpointing_interval=0: it must be at least 10"),
        ("--parallelism=0", "--parallelism=0: it must be at least 1"),
        ("--flink_job_server_jar=/none/such.jar", "--flink_job_server_jar=/none/such.jar: there is no such file"),
        ("--flink_conf=taskmanager", "it must be NAME=VALUE"),
        ("--flink_master=flink", "flink_master='flink': it must be [local]"),
        ("--savepoint_path=/none/such", "no savepoint or checkpoint"),
    ],
)
@pytest.mark.parametrize("report", [["--report"], []], ids=["report", "run"])
def test_a_value_that_is_no_good_is_wrong_usage(
    flag: str, told: str, report: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert windowed_orders.main([*TOPICS[:-1], "--runner=FlinkRunner", flag, *report]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_pipeline_that_is_refused_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert windowed_orders.main(TOPICS[:-1]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("windowed_orders.py: DirectRunner cannot run this pipeline: shuffles behind a read")


def test_the_look_of_the_table() -> None:
    report = compare(proto(grouped), Mode.DIRECT, of_options=["an option " * 12])
    assert report.table() == (
        """\
needed                      by                          on DirectRunner
--------------------------  --------------------------  --------------------------------------------
reads without end           Read                        yes
shuffles behind a read      Group                       refused: it would wait for ever for the end
without end                                             of the read; give the read a stop, or take
                                                        SparkRunner --streaming or FlinkRunner
splittable DoFns that       Read                        yes
defer themselves
bundle finalization         Read                        yes
state of unbounded input,   Group                       warned: it is in memory: a restart begins
kept over a restart                                     anew

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
