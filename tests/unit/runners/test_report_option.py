"""`--report` shows the table and starts nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from tests.helpers.programs import main_of as of

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
    monkeypatch.setattr("rmqio.runners.program.set_up_logging", lambda verbose: None)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("main", "flags", "status", "parts"),
    [
        (of("province"), [], 0, ["on DirectRunner", "reads without end", "Read addresses", "yes"]),
        (
            of("province"),
            ["--stop=latest", "--runner=FlinkRunner"],
            0,
            ["FlinkRunner, batch job", "reads that end"],
        ),
        (of("province"), ["--runner=FlinkRunner"], 0, ["after each checkpoint", "warned: no --checkpoint_dir"]),
        (of("province"), ["--runner=SparkRunner"], 2, ["refused: give --streaming"]),
        (of("province"), STREAMING, 0, ["on SparkRunner --streaming"]),
        (of("windowed_orders"), [], 2, ["Sum and count", "refused: it would wait forever"]),
        (of("windowed_orders"), ["--stop=latest"], 0, ["reads that end"]),
        (of("windowed_orders"), ["--runner=FlinkRunner"], 0, ["Sum and count", "exactly once"]),
        (of("windowed_orders"), STREAMING, 0, ["shuffles after a read", "Sum and count"]),
        (of("word_count"), ["--stop=latest"], 0, ["Read sentences"]),
        (of("word_count"), STREAMING, 0, ["Count", "exactly once"]),
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
    assert of("province")([*TOPICS, f"--runner={runner}"]) == 2
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
    assert of("windowed_orders")([*TOPICS[:-1], "--runner=FlinkRunner", flag, *report]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_pipeline_that_is_refused_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert of("windowed_orders")(TOPICS[:-1]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("windowed_orders.py: DirectRunner cannot run this pipeline: shuffles after a read")
