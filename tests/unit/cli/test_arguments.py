"""The command line's options: where they may stand, how wrong ones are told, how fast the help is there."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import pytest

from rmqio.cli.connect import client_options
from rmqio.cli.main import main, make_parser, parse
from rmqio.cli.values import QueueName, parse_from, parse_queue, parse_to
from rmqio.command_line import Position
from rmqio.options import NAME_SERVER_VARIABLE
from rmqio.security import EnvironmentCredentials


def parsed(line: str) -> argparse.Namespace:
    return parse(make_parser(), line.split())


@pytest.mark.parametrize(
    "line",
    [
        "--name_server h:1 --timeout_ms 5 describe orders --group g",
        "describe orders --group g --name_server h:1 --timeout_ms 5",
        "--timeout-ms=5 describe --name-server=h:1 orders --group g",
    ],
)
def test_connection_options_stand_before_or_after_the_command(line: str) -> None:
    found = parsed(line)
    options = client_options(found)
    assert (found.topic, found.group) == ("orders", "g")
    assert (options.name_servers, options.request_timeout_ms, options.connect_timeout_ms) == (("h:1",), 5, 5)


def test_what_clients_are_made_with() -> None:
    options = client_options(parsed("topics --name_server h:1 --namespace prod --credentials environment --tls"))
    assert options.namespace == "prod"
    assert options.security.source == EnvironmentCredentials()
    assert options.security.tls is not None
    assert client_options(parsed("topics --name_server h:1")).security.source is None


def test_hyphens_behind_a_double_hyphen_are_a_body() -> None:
    found = parsed("produce orders --sharding-key k -- --delay-level")
    assert (found.sharding_key, found.body, found.delay_level) == ("k", "--delay-level", None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pek orders", "rmqio: 'pek' is none of topics, describe, peek, tail, produce, offsets; did you mean peek?"),
        ("offsets shw orders", "rmqio offsets: 'shw' is none of show, reset; did you mean show?"),
        ("peek", "rmqio peek: the following arguments are required: TOPIC"),
        ("peek orders --quee b:1", "rmqio peek: unknown argument '--quee'; did you mean --queue?"),
        ("peek orders --name_servr=h:1", "unknown argument '--name_servr=h:1'; did you mean --name_server?"),
        ("peek orders more", "rmqio peek: unknown argument 'more'"),
        ("peek orders -n 0", "number '0' is not a whole number of at least 1"),
        ("peek orders --offset=-1", "offset '-1' is not a whole number"),
        ("peek orders --offset 1 --from 10m", "not allowed with argument --offset"),
        ("peek orders --queue b:x", "queue 'b:x' is not BROKER:ID, e.g. broker-a:3"),
        ("peek orders --from yesterday", "time 'yesterday' is neither ISO 8601"),
        ("peek orders --from 2026-01-31T12:00", "has no time zone; add one"),
        ("produce orders x --property a=", "property 'a=' is not NAME=VALUE"),
        ("offsets reset orders --to 1", "required: --group"),
        ("offsets reset orders --group g --to 1 --dry_run --execute", "not allowed with argument"),
        ("peek orders --body xml", "'xml' is none of auto, text, json, hex, none"),
    ],
)
def test_wrong_usage_is_one_line(line: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "status", "expected"),
    [
        ("topics", 2, "rmqio: no name server given: --name_server HOST:9876, or set NAMESRV_ADDR"),
        ("topics --name_server here", 2, "rmqio: address 'here' is not host:port"),
        ("topics --name_server h:1 --tls_key_file x", 2, "--tls_key_file has no effect without"),
        ("topics --name_server 127.0.0.1:1 --timeout_ms 200", 1, "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_with_the_name_server(
    line: str, status: int, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAME_SERVER_VARIABLE, raising=False)
    assert main(line.split()) == status
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "--name_server", "here", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["", "--help", "peek --help", "offsets", "offsets reset --help", "--version"])
def test_help_is_no_failure(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert out.startswith(("usage: rmqio", "rmqio "))
    assert "==SUPPRESS==" not in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("1700000000000", Position("time", 1_700_000_000_000)),
        ("timestamp:1700000000000", Position("time", 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Position("time", 1_700_000_000_000)),
        ("2023-11-15T06:13:20.001+08:00", Position("time", 1_700_000_000_001)),
    ],
)
def test_positions(text: str, expected: Position) -> None:
    assert parse_from(text) == expected


def test_so_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    ago = [parse_from(text).value for text in ("30s", "10m", "2h", "7d")]
    assert ago == [999_970_000, 999_400_000, 992_800_000, 395_200_000]


def test_a_bare_number_is_an_offset_where_that_can_be_meant() -> None:
    assert parse_to("1200") == Position("offset", 1_200)
    assert parse_to("timestamp:1200") == Position("time", 1_200)


def test_queues() -> None:
    assert parse_queue("broker-a:3") == QueueName("broker-a", 3)
    assert parse_queue("3") == QueueName(None, 3)


def test_help_needs_neither_beam_nor_a_client() -> None:
    program = (
        "import sys; from rmqio.cli.main import main; main(['--help']); "
        "print(sorted(m for m in sys.modules if m.startswith(('apache_beam', 'rmqio.client', 'fastavro', 'requests'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")
