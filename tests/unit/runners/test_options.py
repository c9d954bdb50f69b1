"""Runners by name."""

from __future__ import annotations

import argparse
import subprocess
import sys
import types
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio import runners
from rmqio.errors import LocalError
from rmqio.runners.beam.portable import add_arguments
from rmqio.runners.direct import DirectRunner
from rmqio.runners.flink import FlinkRunner
from rmqio.runners.options import beams_runners, connects_from_here, wrong_argument


@pytest.mark.parametrize("name", ["DirectRunner", "directrunner", "direct", "Direct"])
def test_direct_runner_is_the_in_process_one(name: str) -> None:
    pipeline = beam.Pipeline(options=runners.options([f"--runner={name}"]))
    assert type(pipeline.runner) is DirectRunner
    assert isinstance(pipeline.runner, FnApiRunner)


def test_direct_runner_is_the_default() -> None:
    assert type(beam.Pipeline(options=runners.options([])).runner) is DirectRunner


@pytest.mark.parametrize("name", ["FlinkRunner", "flink"])
def test_flink_runner_is_beams(name: str) -> None:
    assert type(beam.Pipeline(options=runners.options([], runner=name)).runner) is FlinkRunner


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("PrismRunner", "PrismRunner"),
        ("portable", "PortableRunner"),
        ("mine.MyRunner", "mine.MyRunner"),
        (
            "apache_beam.runners.portability.spark_runner.SparkRunner",
            "apache_beam.runners.portability.spark_runner.SparkRunner",
        ),
    ],
)
def test_other_names_pass_through(name: str, path: str) -> None:
    assert runners.options([f"--runner={name}"]).view_as(StandardOptions).runner == path


@pytest.mark.parametrize(
    ("name", "nearest"), [("SprakRunner", "SparkRunner"), ("DirectRuner", "DirectRunner"), ("flnk", "FlinkRunner")]
)
def test_unknown_name_is_refused_naming_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(LocalError, match=f"runner '{name}' is unknown; the nearest known one is '{nearest}'"):
        runners.options([f"--runner={name}"])


def test_the_text_of_beam_has_the_names_of_its_runners() -> None:
    assert beams_runners() == {*StandardOptions.KNOWN_RUNNER_NAMES}


@pytest.mark.parametrize("missing", ["pyspark.sql", "pandas", "pyarrow.lib", "py4j"])
def test_spark_runner_without_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def import_module(name: str) -> types.ModuleType:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("importlib.import_module", import_module)
    package = missing.partition(".")[0]
    with pytest.raises(LocalError, match=rf"SparkRunner needs {package}: pip install 'rmqio\[spark\]'"):
        runners.options(["--runner=spark"])


def test_another_error_of_importing_it_is_not_covered_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> types.ModuleType:
        raise ImportError("cannot import name 'x' from 'apache_beam'", name="apache_beam")

    monkeypatch.setattr("importlib.import_module", import_module)
    with pytest.raises(ImportError, match="cannot import name 'x'"):
        runners.options(["--runner=spark"])


@pytest.mark.parametrize("name", ["PortableSparkRunner", "portablesparkrunner", "portablespark"])
def test_beams_spark_runner_stays_reachable(name: str) -> None:
    path = "apache_beam.runners.portability.spark_runner.SparkRunner"
    assert runners.options([f"--runner={name}"]).view_as(StandardOptions).runner == path


@pytest.mark.parametrize("flags", [["--runner=direct"], ["--runner", "DirectRunner"]])
@pytest.mark.parametrize("runner", ["FlinkRunner", FnApiRunner()])
def test_a_runner_on_the_command_line_wins(flags: list[str], runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "rmqio.runners.direct.DirectRunner"
    assert runners.options(flags, runner=runner).view_as(StandardOptions).runner == wanted
    monkeypatch.setattr("sys.argv", ["program", *flags])
    assert runners.options(runner=runner).view_as(StandardOptions).runner == wanted


def test_a_runner_object_is_left_alone() -> None:
    runner = FnApiRunner()
    assert runners.options([], runner=runner).view_as(StandardOptions).runner is runner


def test_other_options_are_kept() -> None:
    options = runners.options(["--direct_num_workers=3", "--streaming"], job_name="x")
    assert options.view_as(DirectOptions).direct_num_workers == 3
    assert options.view_as(StandardOptions).streaming is True


@pytest.mark.parametrize(
    ("argv", "unknown"),
    [
        (["--streaming", "--direct_num_workers", "3", "--report"], []),
        (["--stpo=latest", "--streaming", "--wrong", "value"], ["--stpo", "--wrong"]),
        (["--streaming", "stray", "--wrong", "value", "more"], ["stray", "more", "--wrong"]),
        (["-f", "-", "--runner=PortableRunner", "--job_endpoint=host:1", "--new", "value", "a", "-"], ["a", "-"]),
        (["--runner=FlinkRunner", "--checkpointing_interval=1000", "--latency_tracking_interval=5"], []),
        (["--runner=FlinkRunner", "--flink_heap_mb=600", "--flink_conf=a=b", "--checkpoint_dir=x", "--report"], []),
        (["--runner=FlinkRunner", "--checkpointing_intervall=1000"], ["--checkpointing_intervall"]),
        (["--runner=FlinkRunner", "--flink_job_server_jar=newer.jar", "--new=1"], []),
        (["--runner=FlinkRunner", "--job_endpoint=host:1", "--new=1"], []),
    ],
)
def test_unknown_flags_are_found(argv: list[str], unknown: list[str]) -> None:
    assert runners.unknown_flags(runners.options([*argv, "--allow_unknown_options"])) == unknown


def test_of_flink_the_workers_alone_connect() -> None:
    assert all(map(connects_from_here, (None, "Direct", "SparkRunner", "spark", "nowhere.MyRunner")))
    assert not any(map(connects_from_here, ("FlinkRunner", "flink", "rmqio.runners.flink.FlinkRunner")))


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        (["--chekpoint_dir=x", "--streaming"], "--chekpoint_dir: did you mean --checkpoint_dir"),
        (["--runner=FlinkRunner", "--checkpointing_intervall=1"], "_intervall: did you mean --checkpointing_interval"),
        (["--reprot"], "--reprot: did you mean --report"),
    ],
)
def test_an_option_near_a_known_one_is_refused(argv: list[str], wrong: str) -> None:
    with pytest.raises(LocalError, match=f"^unknown option .*{wrong}"):
        runners.options(argv)
    runners.options([*argv, "--allow_unknown_options"])


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        (["--checkpoint_dir"], "argument --checkpoint_dir: expected one argument"),
        (["--job_name", "--streaming"], "argument --job_name: expected one argument"),
        (["--parallelism", "x"], "argument --parallelism: invalid int value: 'x'"),
        (["--spark_version=9"], "argument --spark_version: invalid choice: '9' .*"),
        (["--streaming=maybe"], "argument --streaming: ignored explicit argument 'maybe'"),
        (["--runner"], "argument --runner: expected one argument"),
        (["--beam_services=x"], "argument --beam_services: invalid .* value: 'x'"),
        (["--gcs_custom_audit_entries=x"], "the value of an option of Beam is wrong: Expecting value: .*"),
        (["--runner=FlinkRunner", "--flink_heap_mb=x"], "argument --flink_heap_mb: invalid int value: 'x'"),
        (["--streaming", "--allow_unknown_options=1"], "argument --allow_unknown_options: ignored explicit .*"),
    ],
)
def test_a_value_that_is_missing_or_wrong_is_refused_without_beams_usage(
    argv: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LocalError, match=f"^{wrong}$"):
        runners.options(argv)
    assert capsys.readouterr() == ("", "")


def test_a_program_can_require_options_of_its_own() -> None:
    class Required(PipelineOptions):
        @classmethod
        def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
            parser.add_argument("--required_by_a_test", required=required)

    required = True
    try:
        found = runners.options(["--required_by_a_test=x", "--of_the_program=y"])
        assert found.view_as(Required).required_by_a_test == "x"
        with pytest.raises(LocalError, match="required: --required_by_a_test"):
            runners.options(["--of_the_program=y"])
    finally:
        required = False  # Beam knows the class as long as it lives


def test_options_that_somebody_knows_are_not_misspelt() -> None:
    """Their names come from the text of sources: what Beam defines must be there, however near it is to another one."""
    from rmqio.runners.options import JOB_SERVER_OPTIONS

    taken = argparse.ArgumentParser(add_help=False, conflict_handler="resolve", allow_abbrev=False)
    for kind in PipelineOptions.__subclasses__():
        if kind.__module__.startswith(("apache_beam.options.", "rmqio.runners.")):
            add_arguments(kind, taken)
    given = [name for action in taken._actions for name in action.option_strings]
    given += [f"--{name}" for name in JOB_SERVER_OPTIONS]
    own = {"--stop", "--start", "--from", "--to", "--runner", "--jobs", "--check", "--catalog", "--name_server", "-v"}
    assert len(given) > 200
    assert {flag: wrong for flag in given if (wrong := wrong_argument([flag], own))} == {}
    assert wrong_argument(["--alike=none", "-vv", "stopp", "--", "--stopp"], own) is None
    assert wrong_argument(["--x", "1", "2"], own) == "unknown argument '2'"
    assert wrong_argument(["--strat", "latest"], own) == "unknown argument '--strat'; did you mean --start?"
    assert wrong_argument(["--strat", "latest", "--allow_unknown_options"], own) is None


def test_an_option_like_no_other_may_belong_to_the_program() -> None:
    assert runners.unknown_flags(runners.options(["--input_topic=x"])) == ["--input_topic"]


@pytest.mark.parametrize(
    ("runner", "shown", "not_shown"),
    [
        ("DirectRunner", "--direct_num_workers", "--checkpointing_interval"),
        ("SparkRunner", "--spark_buckets", "--flink_master"),
        ("FlinkRunner", "--checkpointing_interval", "--spark_buckets"),
    ],
)
def test_help_lists_the_options_of_the_runner(
    capsys: pytest.CaptureFixture[str], runner: str, shown: str, not_shown: str
) -> None:
    if runner == "SparkRunner":
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    with pytest.raises(SystemExit) as ended:
        runners.options([f"--runner={runner}", "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(flag in text for flag in (shown, "--report", "--streaming"))
    assert not_shown not in text


def test_a_pipeline_runs_with_the_options() -> None:
    with beam.Pipeline(options=runners.options([])) as pipeline:
        assert_that(pipeline | beam.Create([1, 2]) | beam.Map(lambda x: x + 1), equal_to([2, 3]))


def test_runners_do_not_import_the_transforms() -> None:
    program = "import sys, rmqio.runners; print(*(name for name in sys.modules if name.startswith('rmqio.')))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    ours = {"rmqio.runners", "rmqio.runners.errors", "rmqio.runners.options"}
    ours |= {"rmqio.errors", "rmqio.hints", "rmqio.loading"}
    assert set(found) <= ours
