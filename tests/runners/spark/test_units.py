"""Parts of the Spark runner that need no Spark."""

from __future__ import annotations

import io
import subprocess
import sys
import types
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import BoundedTrieData, StringSetData
from apache_beam.transforms import core, userstate

from rmqio import ReadFromRocketMQ, StopAt
from rmqio.runners.spark import SparkRunner
from rmqio.runners.spark.beam import patches
from rmqio.runners.spark.beam.private import bundle_processor, common_urns
from rmqio.runners.spark.errors import TaskFailure, described, failure_in, without_java_frames
from rmqio.runners.spark.metrics import consolidate
from rmqio.runners.spark.model import TaskReport
from rmqio.runners.spark.progress import Progress
from rmqio.runners.spark.reports import ReportsParam
from rmqio.runners.spark.worker.rows import Abandoned, RowQueue, RowWriter
from rmqio.runners.spark.worker.shuffling.framing import split_window_header, varint, window_header
from rmqio.runners.spark.worker.spool import Spool

# ---- changes to Beam ------------------------------------------------------------------------------------------------


class Stateful(beam.DoFn):
    COUNT = userstate.CombiningValueStateSpec("count", sum)
    DUE = userstate.TimerSpec("due", userstate.TimeDomain.WATERMARK)

    def process(
        self, element: object, stamp: Any = beam.DoFn.TimestampParam, count: Any = beam.DoFn.StateParam(COUNT)
    ) -> None:
        count.add(1)

    @userstate.on_timer(DUE)
    def due(self, count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.clear()


def methods_of(dofn: beam.DoFn) -> list[Any]:
    found = [getattr(dofn, name) for name in dir(dofn)]
    return [each for each in found if isinstance(each, types.MethodType)]


@pytest.mark.parametrize(
    "dofn",
    [beam.DoFn(), beam.Map(len).fn, beam.Filter(bool).fn, Stateful()],
    ids=["plain", "map", "filter", "stateful"],
)
def test_remembered_signatures_are_what_beam_finds(dofn: beam.DoFn) -> None:
    for method in methods_of(dofn):
        for _ in range(2):
            assert patches._remembered(method) == patches._inspect(method), method


def test_what_a_caller_does_to_a_remembered_signature_stays_with_the_caller() -> None:
    before = patches._inspect(beam.DoFn().process)
    names, defaults = patches._remembered(beam.DoFn().process)
    names.clear()
    defaults.append("more")
    assert patches._remembered(beam.DoFn().process) == before


def test_patches_may_be_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = bundle_processor.BeamTransformFactory
    monkeypatch.setattr(factory, "_known_urns", dict(factory._known_urns))
    monkeypatch.setattr(core, "get_function_args_defaults", core.get_function_args_defaults)
    par_do = common_urns.primitives.PAR_DO.urn
    _, payload_type = factory._known_urns[par_do]
    for _ in range(2):
        patches.apply({par_do: len, "rmqio:test:new": repr})
        assert factory._known_urns[par_do] == (len, payload_type)
        assert factory._known_urns["rmqio:test:new"] == (repr, None)
        assert core.get_function_args_defaults is patches._remembered


def test_the_beam_of_a_driver_stays_as_it_is() -> None:
    program = (
        "import rmqio.runners.spark.runner, rmqio.runners.spark.worker.task\n"
        "from apache_beam.runners.worker import bundle_processor\n"
        "from apache_beam.transforms import core\n"
        "creators = [each for each, _ in bundle_processor.BeamTransformFactory._known_urns.values()]\n"
        "print({each.__module__.partition('.')[0] for each in [core.get_function_args_defaults, *creators]})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'apache_beam'}"


def test_methods_of_users_are_looked_at_anew() -> None:
    assert not patches._is_beams(cast(types.FunctionType, Stateful.process))
    assert patches._is_beams(beam.DoFn.process)


# ---- messages before a run; the rest is in tests/unit/runners/test_report.py ----------------------------------------


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


# ---- errors ---------------------------------------------------------------------------------------------------------


def raised(error: BaseException) -> BaseException:
    """Returns the error with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_a_failure_is_found_in_what_spark_makes_of_it() -> None:
    failure = TaskFailure(raised(ValueError("bad value [while running 'Parse/Map(int)']")))
    spark = f"An exception was thrown from the Python worker:\nTraceback ...\nTaskFailure: {failure}\n\tat org.apache.X"
    found = failure_in(spark)
    assert found is not None
    lines = found.splitlines()
    assert lines[0] == "Parse/Map(int): ValueError: bad value"
    assert lines[-1] == "ValueError: bad value"
    assert not any("org.apache" in line for line in lines)
    assert failure_in("Job 7 cancelled") is None


def test_a_cause_of_the_users_is_told_and_told_once() -> None:
    try:
        try:
            raise KeyError("k")
        except KeyError as cause:
            raise ValueError("v [while running 'Step']") from cause
    except ValueError as error:
        text = described(error)
    assert text.startswith("Step: ValueError: v\n")
    assert text.index("KeyError: 'k'") < text.index("direct cause of the following") < text.rindex("ValueError: v")
    assert text.endswith("ValueError: v")


def test_an_error_without_a_transform_is_told_as_it_is() -> None:
    assert described(raised(OSError(28, "No space left on device"))).startswith("OSError: [Errno 28] No space left")


# ---- metrics and reports --------------------------------------------------------------------------------------------


def test_string_sets_and_tries_of_tasks_are_joined() -> None:
    def sets(*strings: str) -> Any:
        return monitoring_infos.user_set_string("ns", "set", StringSetData(set(strings)), ptransform="step")

    def trie(*path: str) -> Any:
        return monitoring_infos.user_bounded_trie("ns", "trie", BoundedTrieData(singleton=path), ptransform="step")

    count = monitoring_infos.int64_user_counter("ns", "count", 2, ptransform="step")
    found = consolidate([sets("a"), trie("x", "y"), count, sets("b", "a"), trie("x", "z"), count, sets("c")])
    values = {info.urn: monitoring_infos.extract_metric_result_map_value(info) for info in found}
    assert len(found) == 3
    assert values[monitoring_infos.USER_STRING_SET_URN] == {"a", "b", "c"}
    assert values[monitoring_infos.USER_COUNTER_URN] == 4
    trie_value = values[monitoring_infos.USER_BOUNDED_TRIE_URN]
    assert trie_value.contains(("x", "y"))
    assert trie_value.contains(("x", "z"))


def test_a_task_that_ran_again_replaces_its_report() -> None:
    param = ReportsParam()
    merged = param.addInPlace(param.zero({}), {(1, 0, 0): TaskReport(10)})
    merged = param.addInPlace(merged, {(1, 0, 0): TaskReport(11), (1, 0, 1): TaskReport(12)})
    assert {key: report.process_id for key, report in merged.items()} == {(1, 0, 0): 11, (1, 0, 1): 12}


# ---- progress -------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_line_names_the_transforms_and_is_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.spark.progress._EVERY_S", 0.001)
    out = Terminal()
    with Progress(lambda: (3, 8), out) as progress:
        progress("Create > Parse+Count")
        assert progress.line() == "[   0 s] Create > Parse+Count: 3 of 8 tasks"
        progress("x" * 500)
        assert len(progress.line()) == 100
        while "x" not in out.getvalue():
            pass
    assert out.getvalue().endswith("\r\x1b[K")
    silent = io.StringIO()
    with Progress(lambda: (0, 0), silent) as progress:
        progress("Create")
    assert silent.getvalue() == ""


# ---- rows, spool, framing -------------------------------------------------------------------------------------------


def test_a_writer_stops_when_nobody_reads() -> None:
    rows = RowQueue()
    writer = RowWriter(rows)
    rows.abandon()
    writer.write(0, 0, None, b"x")
    with pytest.raises(Abandoned):
        writer.flush()
    rows.end()  # does not hang


def test_rows_keep_their_order_and_their_columns() -> None:
    rows = RowQueue()
    writer = RowWriter(rows)
    writer.write(1, 2, b"k", b"v")
    writer.write(-1, 0, None, b"")
    writer.flush()
    rows.end()
    (batch,) = rows
    assert batch.to_pydict() == {"channel": [1, -1], "bucket": [2, 0], "key": [b"k", None], "value": [b"v", b""]}


def test_a_spool_gives_its_lists_back_while_others_are_written() -> None:
    spool = Spool()
    one = spool.store(iter([b"a", b"", b"ccc"]))
    reading = spool.runs(one)
    assert next(reading) == b"a"
    two = spool.store(spool.runs(one))
    assert list(reading) == [b"", b"ccc"]
    assert list(spool.runs(two)) == [b"a", b"", b"ccc"]
    used = [spool.used]
    spool.clear()
    assert [*used, spool.used] == [True, False]
    assert list(spool.runs(spool.store(iter([b"again"])))) == [b"again"]
    spool.close()


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 40, -1])
def test_varints_are_beams(number: int) -> None:
    from apache_beam.coders import VarIntCoder

    assert varint(number) == VarIntCoder().encode(number)


def test_window_headers() -> None:
    from apache_beam.utils.timestamp import Timestamp

    assert split_window_header(window_header(b"w" * 300, None) + b"run") == (b"w" * 300, None, b"run")
    assert split_window_header(window_header(b"", Timestamp(-1.5)) + b"") == (b"", Timestamp(-1.5), b"")


def test_a_failure_of_sparks_own_is_told_without_its_frames() -> None:
    java = RuntimeError(
        "An error occurred while calling o99.save.\n: org.apache.spark.SparkException: Job aborted: ExecutorLost 3\n"
        "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)\n"
        "Caused by: java.lang.OutOfMemoryError: heap\n\tat java.base/Thread.run(Thread.java:840)\n\t... 12 more"
    )
    assert str(without_java_frames(java)) == (
        "Spark failed: An error occurred while calling o99.save.\n"
        ": org.apache.spark.SparkException: Job aborted: ExecutorLost 3\nCaused by: java.lang.OutOfMemoryError: heap"
    )
    assert str(without_java_frames(java, "Read > Join")).startswith("Spark failed in Read > Join: An error occurred")
    query = RuntimeError(
        "[STREAM_FAILED] Query terminated: no space left\n=== Streaming Query ===\nIdentifier: 7\n+- Plan"
    )
    assert str(without_java_frames(query)) == "Spark failed: [STREAM_FAILED] Query terminated: no space left"
    plain = ValueError("Join: a side input has 9 MiB")
    assert without_java_frames(plain, "Join") is plain
