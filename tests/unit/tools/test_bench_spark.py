"""The benchmark of the Spark runner refuses unequal work; what it says of results; what it starts its peer with."""

from __future__ import annotations

import json
import os
import signal
import struct
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, translations

from bench.common.tally import BenchError, UnequalWork
from bench.spark import __main__ as command_line
from bench.spark import cases, flags
from bench.spark.pipelines import BUILD, expected
from bench.spark.portable import jars
from bench.spark.portable.jobserver import MAIN, JobServer
from bench.spark.portable.loopback import CLASS, on_loopback
from bench.spark.report import BEGIN, END, Report, tables, text
from bench.spark.rows import Row, require_result
from bench.spark.settings import IN_PROCESS, LOOPBACK, OURS, PEERS, PIPELINES, PLAIN, PROCESSES, READ, Case, Plan
from bench.spark.side import leave, timed
from bench.spark.sides import Sides
from rmqio.local.artefacts import read_lock

needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="a report tells the version of pyspark")
CASE = Case("pardo", "ParDo chain", 1.4)
SLOW_LOOPBACK = {OURS: [2.0, 1.0, 4.0], LOOPBACK: [9.0, 9.0, 9.0], PROCESSES: [4.0, 3.0, 6.0]}
ROW = Row(CASE, "10 elements", SLOW_LOOPBACK, PEERS)
READ_ROW = Row(READ, "5 messages", {OURS: [2.0], IN_PROCESS: [2.0]}, (IN_PROCESS,))


# In one process. Fewer elements than keys, and more; numbers that nothing divides.
@pytest.mark.parametrize(
    ("name", "elements"), [("pardo", 2_003), ("combine", 773), ("group", 2_003), ("join", 773), ("stages", 1)]
)
def test_a_pipeline_has_the_result_of_its_closed_form(name: str, elements: int) -> None:
    def run(path: str) -> None:
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
            _ = BUILD[name](pipeline, elements) | beam.Map(leave, path)

    assert timed(run)["result"] == expected(name, elements)


def test_every_pipeline_is_a_case_and_is_measured() -> None:
    assert [case.name for case in PIPELINES] == list(BUILD)


def test_a_pipeline_of_no_known_name_has_no_expected_result() -> None:
    with pytest.raises(ValueError, match="'mystery'"):
        expected("mystery", 10)


def test_the_ten_small_stages_are_ten_when_fused() -> None:
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    _ = BUILD["stages"](pipeline, 10) | beam.Map(leave, "")
    primitives = common_urns.primitives
    known = {primitives.IMPULSE.urn, primitives.GROUP_BY_KEY.urn, common_urns.composites.RESHUFFLE.urn}
    fused = translations.optimize_pipeline(
        pipeline.to_runner_api(), translations.standard_optimize_phases(), frozenset(known), partial=False
    )
    urns = [transform.spec.urn for transform in fused.components.transforms.values()]
    assert urns.count(common_urns.executable_stage) == 10


def test_a_wrong_result_is_refused() -> None:
    require_result(CASE, OURS, [1, 2], [1, 2])
    with pytest.raises(UnequalWork, match=r"pardo: ours has the result \[1, 3\], which should be \[1, 2\]"):
        require_result(CASE, OURS, [1, 3], [1, 2])


def test_the_ratio_is_to_the_faster_of_the_peers_two_forms() -> None:
    assert ROW.best_peer == PROCESSES
    assert (ROW.ratio.median, ROW.ratio.low, ROW.ratio.high) == (2.0, 1.5, 3.0)
    assert ROW.met


def test_a_slower_side_of_ours_misses_its_target() -> None:
    assert READ_ROW.ratio.median == 1.0
    assert not READ_ROW.met


def test_plain_pyspark_is_no_peer() -> None:
    faster = {side: [0.1] for side in PLAIN} | {OURS: [1.0], LOOPBACK: [1.0], PROCESSES: [2.0]}
    assert Row(CASE, "", faster, PEERS).best_peer == LOOPBACK


class FakeSides:
    """Counts the runs; from the `wrong`th on a run has another result."""

    def __init__(self, wrong: int = 1_000) -> None:
        self.runs: list[str] = []
        self._wrong = wrong

    def run(self, side: str, name: str, elements: int) -> dict[str, Any]:
        self.runs.append(side)
        return {"seconds": 1.0, "result": expected(name, elements) if len(self.runs) < self._wrong else [0]}


def test_sides_take_turns_after_one_untimed_run_each() -> None:
    sides = FakeSides()
    row = cases.pipeline(CASE, cast(Sides, sides), Plan(elements=100, repeats=2))
    order = [OURS, *PEERS, *PLAIN]
    assert sides.runs == [*order, *order, *reversed(order)]
    assert row.seconds == {side: [1.0, 1.0] for side in order}


@pytest.mark.parametrize("wrong", [1, 5, 6, 15])
def test_a_wrong_result_of_any_run_fails_the_benchmark(wrong: int) -> None:
    with pytest.raises(UnequalWork):
        cases.pipeline(CASE, cast(Sides, FakeSides(wrong)), Plan(elements=100, repeats=2))


def test_rows_with_the_same_sides_share_a_table() -> None:
    first, second = tables([ROW, READ_ROW, ROW])
    assert first[0] == (
        "case", "work", "ours, s", "portable, LOOPBACK, s", "portable, 2 processes, s", "ratio", "target", "",
    )  # fmt: skip
    assert first[1] == first[2] == (
        "ParDo chain", "10 elements", "2.00 (1.00..4.00)", "9.00", "4.00 (3.00..6.00)", "2.00 (1.50..3.00)", ">= 1.4",
        "met",
    )  # fmt: skip
    assert second[1] == ("ReadFromRocketMQ | Count", "5 messages", "2.00", "2.00", "1.00", ">= 1.3", "MISSED")


def test_the_text_has_a_line_for_each_row_and_header() -> None:
    assert [line.split("  ")[0] for line in text([ROW, READ_ROW]).splitlines()] == [
        "case", "ParDo chain", "", "case", "ReadFromRocketMQ | Count",
    ]  # fmt: skip


@needs_spark
def test_a_report_is_written_as_json_and_between_the_marks_of_a_page(tmp_path: Path) -> None:
    report = Report(Plan().describe(), load_at_start=0.1, rows=[ROW, READ_ROW])
    assert report.missed == [READ_ROW]
    assert not report.is_busy
    page, content = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(f"before {BEGIN} old {END} after", encoding="utf-8")
    report.write_markdown(page)
    report.write_json(content)
    written = page.read_text(encoding="utf-8")
    assert written.startswith(f"before {BEGIN}")
    assert written.endswith(f"{END} after")
    assert "| ReadFromRocketMQ \\| Count | 5 messages |" in written
    assert " old " not in written
    rows = json.loads(content.read_text(encoding="utf-8"))["rows"]
    assert [(row["case"], row["peer"], row["ratio"], row["met"]) for row in rows] == [
        ("pardo", PROCESSES, 2.0, True),
        ("read", IN_PROCESS, 1.0, False),
    ]


@needs_spark
def test_a_busy_machine_is_said_in_the_page() -> None:
    assert "busy" in Report(Plan().describe(), load_at_start=3.0).markdown()


def test_arguments_change_the_plan() -> None:
    given, plan = command_line.parse(["group", "read", "--quick", "--repeats", "4", "--strict"])
    assert given.names == ["group", "read"]
    assert given.strict
    assert plan == Plan(elements=10_000, messages=20_000, repeats=4)
    assert command_line.parse([])[1] == Plan()


@pytest.mark.parametrize("wrong", [["mystery"], ["--elements", "0"], ["--repeats", "-1"], ["--messages", "x"]])
def test_what_does_not_fit_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.parse(wrong)
    assert ended.value.code == 2
    assert wrong[-1] in capsys.readouterr().err


@pytest.fixture
def main_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command with a run that gives these rows, or raises."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def main(rows: list[Row] | BenchError, *arguments: str) -> int:
        def run(names: Any, plan: Plan) -> Report:
            if isinstance(rows, BenchError):
                raise rows
            return Report(plan.describe(), rows=rows)

        monkeypatch.setattr(command_line, "run", run)
        return command_line.main(arguments)

    return main


def test_the_exit_status_tells_failure_and_with_strict_a_missed_target(
    main_with: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_with([ROW], "--strict") == 0
    assert main_with([READ_ROW]) == 0
    assert "MISSED: read" in capsys.readouterr().out
    assert main_with([READ_ROW], "--strict") == 3
    assert main_with(UnequalWork("pardo: unequal")) == 1
    assert "pardo: unequal" in capsys.readouterr().err


def test_a_value_is_left_in_one_step(tmp_path: Path) -> None:
    leave((1, 2), str(tmp_path / "result.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8")) == [1, 2]


def test_the_lock_has_the_job_server() -> None:
    lock = read_lock(jars.LOCK)
    assert lock.roots == ("org.apache.beam:beam-runners-spark-3:2.62.0",)
    names = {str(artefact.coordinates) for artefact in lock.artefacts}
    assert {*lock.roots, "org.apache.beam:beam-runners-java-job-service:2.62.0"} <= names


def test_the_pinned_pyspark_is_a_3_5_with_a_hash() -> None:
    assert jars.spark_version().startswith("3.5.")
    assert f"pyspark=={jars.spark_version()} --hash=sha256:" in jars.REQUIREMENTS.read_text(encoding="utf-8")


def test_the_class_path_has_beam_before_spark_and_sparks_logging_first() -> None:
    beams = [Path("guava-33.jar"), Path("slf4j-api-1.7.30.jar")]
    sparks = [Path("guava-14.jar"), Path("slf4j-api-2.0.7.jar")]
    assert jars.ordered(beams, sparks) == [sparks[1], *beams, sparks[0]]


def class_file(*constants: bytes, code: bytes) -> bytes:
    """As much of a class file as is looked at: version, constants, and the rest."""
    longs = sum(each[0] == 5 for each in constants)  # these count twice
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 52, len(constants) + longs + 1) + b"".join(constants) + code


def constant(tag: int, *references: int, text: str = "") -> bytes:
    if tag == 1:
        return struct.pack(">BH", tag, len(text)) + text.encode()
    return struct.pack(f">B{len(references)}H", tag, *references)


BUILDER = "org/apache/beam/vendor/grpc/v1p60p1/io/grpc/netty/NettyServerBuilder"
OPENS_ITS_PORT = class_file(
    constant(1, text="java/net/InetSocketAddress"),
    constant(7, 1),
    constant(1, text="getPort"),
    constant(1, text="()I"),
    constant(12, 3, 4),
    constant(10, 2, 5),  # number 6
    struct.pack(">Bq", 5, 20),  # a long has two numbers, 7 and 8
    constant(1, text=BUILDER),  # 9
    constant(7, 9),  # 10
    constant(1, text="forPort"),
    constant(1, text=f"(I)L{BUILDER};"),
    constant(12, 11, 12),
    constant(10, 10, 13),  # 14
    code=b"before \x2b\xb6\x00\x06\xb8\x00\x0e after",
)


def test_the_class_that_opens_ports_is_given_the_whole_address() -> None:
    changed = on_loopback(OPENS_ITS_PORT)
    (count,) = struct.unpack_from(">H", changed, 8)
    assert count == 15 + 4
    # The new method is the last constant, number 18: of the builder's class, with the name and type that is number 17.
    assert changed.endswith(struct.pack(">BHH", 10, 10, 17) + b"before \x2b\x00\x00\x00\xb8\x00\x12 after")
    assert b"forAddress" in changed
    assert f"(Ljava/net/SocketAddress;)L{BUILDER};".encode() in changed


@pytest.mark.parametrize(
    "other", [OPENS_ITS_PORT.replace(b"forPort", b"atPort!"), OPENS_ITS_PORT.replace(b"\x2b\xb6", b"\x2c\xb6")]
)
def test_another_class_than_the_known_one_is_refused(other: bytes) -> None:
    with pytest.raises(BenchError, match=r"resolve the lock"):
        on_loopback(other)


@pytest.fixture
def beam_jar(tmp_path: Path) -> Path:
    jar = tmp_path / "beam-sdks-java-core-0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(CLASS, OPENS_ITS_PORT)
    return jar


def test_the_job_server_runs_on_loopback_with_its_files_in_its_folder(tmp_path: Path, beam_jar: Path) -> None:
    server = JobServer("job server", [beam_jar])
    command = server._command(tmp_path)
    options, arguments = command[: command.index(MAIN)], command[command.index(MAIN) + 1 :]
    assert server.endpoint == f"127.0.0.1:{arguments[1].partition('=')[2]}"
    assert {"--job-host=127.0.0.1", "--expansion-port=-1", "--spark-master-url=local[2]"} <= set(arguments)
    assert {"-Dspark.driver.bindAddress=127.0.0.1", f"-Duser.home={tmp_path}", f"-Dspark.local.dir={tmp_path}/tmp"} <= {
        *options
    }
    assert options[-1] == f"{tmp_path / 'classes'}{os.pathsep}{beam_jar}"
    assert (tmp_path / "classes" / CLASS).read_bytes() == on_loopback(OPENS_ITS_PORT)


def test_a_class_path_without_beam_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="beam-sdks-java-core"):
        JobServer("job server", [tmp_path / "other.jar"])._command(tmp_path)


def test_flags_of_the_jvm_are_compared_in_the_same_repeats() -> None:
    sets = list(flags.SETS)
    found = {
        (name, case): [factor * first, factor * second, factor * 2.0]
        for name, factor in zip(sets, (1.0, 1.5, 2.0, 0.5), strict=True)
        for case, first, second in ((flags.START, 6.0, 7.0), ("pardo", 3.0, 4.0))
    }
    head, ours, *others = flags.table(found).splitlines()[0], *flags.table(found).splitlines()[-4:]
    assert head.split()[-2:] == ["start", "pardo"]
    assert sets[0] == flags.DEFAULTS
    assert ours.split(flags.DEFAULTS)[1].split() == ["6.00", "(2.00..7.00)", "3.00", "(2.00..4.00)"]
    assert [line.count("of ours") for line in others] == [2, 2, 2]
    assert [line.rsplit(";")[-1].split()[0] for line in others] == ["1.50", "2.00", "0.50"]


@pytest.mark.parametrize("names", [["read"], ["group", "no-such"]])
def test_flags_are_compared_on_pipelines_only(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.parse(["--flags", "group", "pardo"])[0].flags
    with pytest.raises(SystemExit):
        command_line.parse(["--flags", *names])
    assert f"no such case: {names[-1]}" in capsys.readouterr().err


def test_flags_that_the_runner_would_contradict_are_the_users_own() -> None:
    """Each set but ours turns off what the runner adds, so that it is measured as it is named."""
    for name, environment in flags.SETS.items():
        is_off = environment.get("RMQIO_SPARK_CLASS_DATA") == "0" or "-X" in environment.get("SPARK_SUBMIT_OPTS", "")
        assert is_off == (name != flags.DEFAULTS)
