"""`Program`, by the command lines of the programs in `pipelines/`."""

from __future__ import annotations

import argparse
import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from pipelines import windowed_orders
from pipelines.province import program
from rmqio import ReadFromRocketMQ, WriteToRocketMQ
from rmqio.command_line.arguments import start_parser, stop_parser
from rmqio.runners import Program
from rmqio.security import UNSECURED
from rmqio.start import StartFrom, StopAt

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
parse_start = start_parser("earliest", "latest", "group", "group:RESET", "timestamp:TIME")
parse_stop = stop_parser("none", "latest", "timestamp:TIME")
BASE = ["--name_server=h:9876", "--source_topic=src", "--sink_topic=dst"]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", StartFrom.earliest()),
        ("latest", StartFrom.latest()),
        ("group", StartFrom.group_offsets(reset="earliest")),
        ("group:earliest", StartFrom.group_offsets(reset="earliest")),
        ("group:latest", StartFrom.group_offsets(reset="latest")),
        ("group:error", StartFrom.group_offsets(reset="error")),
        ("timestamp:1769860800000", StartFrom.timestamp(NOON)),
        ("timestamp:2026-01-31T12:00:00Z", StartFrom.timestamp(NOON)),
        ("timestamp:2026-01-31T20:00:00+08:00", StartFrom.timestamp(NOON)),
    ],
)
def test_start_is_parsed(text: str, start: StartFrom) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("none", None),
        ("latest", StopAt.latest()),
        ("timestamp:1769860800000", StopAt.timestamp(NOON)),
        ("timestamp:2026-01-31T12:00:00Z", StopAt.timestamp(NOON)),
    ],
)
def test_stop_is_parsed(text: str, stop: StopAt | None) -> None:
    assert parse_stop(text) == stop


@pytest.mark.parametrize(
    ("function", "text", "message"),
    [
        (parse_start, "", "'' is not earliest"),
        (parse_start, "newest", "'newest' is not earliest"),
        (parse_start, "earliest:", "'earliest:' is not earliest"),
        (parse_start, "group:newest", "'group:newest' is not earliest"),
        (parse_start, "timestamp", "'timestamp' is not earliest"),
        (parse_start, "timestamp:yesterday", "is neither ISO 8601"),
        (parse_start, "timestamp:-1", "is neither ISO 8601"),
        (parse_start, "timestamp:2026-01-31T12:00:00", "has no time zone"),
        (parse_stop, "earliest", "'earliest' is not none, latest"),
        (parse_stop, "timestamp:", "'timestamp:' is not none, latest"),
        (parse_stop, "timestamp:2026-01-31", "has no time zone"),
    ],
)
def test_bad_time_or_place_is_refused(function: Any, text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        function(text)


NEWEST = {"start": StartFrom.latest(), "stop": StopAt.latest()}
FROM_GROUP = StartFrom.group_offsets(reset="earliest")


@pytest.mark.parametrize(
    ("argv", "stateful", "read"),
    [
        ([], False, {"start": StartFrom.earliest()}),
        ([], True, {"start": StartFrom.earliest()}),
        (["--consumer_group=g"], False, {"consumer_group": "g", "start": FROM_GROUP}),
        (["--consumer_group=g"], True, {"consumer_group": "g", "start": StartFrom.earliest()}),
        (["--consumer_group=g", "--start=group"], True, {"consumer_group": "g", "start": FROM_GROUP}),
        (["--start=latest", "--stop=latest", "--dead_letter_topic=bad"], False, NEWEST | {"dead_letter_topic": "bad"}),
    ],
)
def test_options_are_arguments_of_transforms(argv: list[str], stateful: bool, read: dict[str, Any]) -> None:
    options = Program("p.py", "Does it.", stateful=stateful, dead_letters="bad ones").options([*BASE, *argv])
    cluster = {"name_server": "h:9876", "security": UNSECURED}
    assert options.read == {"topic": "src", "consumer_group": None, "stop": None, **cluster, **read}
    assert options.write == {"topic": "dst", **cluster}
    letters = read.get("dead_letter_topic")
    assert options.dead_letters == ({"dead_letter_topic": letters, **cluster} if letters else {})
    ReadFromRocketMQ(**options.read)
    WriteToRocketMQ(**options.write)


def test_the_rest_goes_to_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[PipelineOptions] = []
    monkeypatch.setattr("rmqio.runners.program.run_program", lambda name, options, *_, **__: found.append(options))
    program.run(lambda *_: None, [*BASE, "--runner=direct", "--direct_num_workers", "3", "-v"])
    assert found[0].view_as(DirectOptions).direct_num_workers == 3
    assert str(found[0].view_as(StandardOptions).runner).endswith(".DirectRunner")


def test_name_server_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "h:1")
    assert program.options(BASE[1:]).name_server is None


def test_check_ends_the_program_before_it_does_anything() -> None:
    with pytest.raises(SystemExit) as caught:
        program.check([*BASE, "--check"])
    assert caught.value.code == 0
    with pytest.raises(SystemExit) as caught:
        program.check([*BASE, "--check", "--bogus=1"])
    assert caught.value.code == 2
    program.check(BASE)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--source_topic and --sink_topic are missing"),
        (BASE[1:], "no name server given"),
        ([*BASE[1:], "--name_server=nowhere"], "address 'nowhere' is not host:port"),
        ([*BASE[:2], "--sink_topic=src"], "'src' is both read and written"),
        ([*BASE, "--dead_letter_topic=src"], "'src' is both read and written"),
        ([*BASE, "--sink_topic=a b"], "a b"),
        ([*BASE, "--start=group"], "needs --consumer_group"),
        ([*BASE, "--start=newest"], "argument --start: 'newest' is not earliest"),
        ([*BASE, "--runner=SprakRunner"], "the nearest known one is 'SparkRunner'"),
        ([*BASE, "--stpo=latest"], "unknown argument '--stpo'; did you mean --stop?"),
        ([*BASE, "--streaming", "--wrong", "1"], "unknown argument '--wrong'"),
        ([*BASE, "stray"], "unknown argument 'stray'"),
        ([*BASE, "--streaming", "stray"], "unknown argument 'stray'"),
        ([*BASE, "--parallelism=x"], "argument --parallelism: invalid int value: 'x'"),
    ],
)
def test_wrong_usage_ends_with_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SystemExit) as caught:
        program.run(lambda *_: None, argv)
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert len(said) <= 2


def test_help_names_every_option_and_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        program.check(["--help"])
    shown = capsys.readouterr().out
    assert caught.value.code == 0
    for part in ("--runner", "--name_server", "--dead_letter_topic", "--start", "--stop", "exit status: 0", "130"):
        assert part in shown


def test_a_start_can_be_so_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.start.time", SimpleNamespace(time=lambda: 1_000.0))
    assert parse_start("timestamp:10m") == StartFrom.timestamp(400_000)


def test_a_job_takes_each_interval_that_a_read_takes() -> None:
    names = ("lateness_ms", "idle_timeout_ms", "offset_commit_interval_ms")
    found = windowed_orders.program.options([*BASE, "--consumer_group=g", *(f"--{name}=0" for name in names)])
    assert [getattr(found, name) for name in names] == [0, 0, 0]
