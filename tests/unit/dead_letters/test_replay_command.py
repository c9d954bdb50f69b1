"""The program that replays dead letters: what it shows, its exit status, and its usage."""

from __future__ import annotations

import json

import pytest

from rmqio.dead_letters.command import main
from rmqio.dead_letters.replay import Replay
from rmqio.testing import InMemoryCluster
from tests.helpers.replaying import AT, fill, letter, program


def test_without_a_place_to_go_it_shows_what_is_there(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster)
    letter(cluster, body=b"", offset=50)
    assert program(cluster) == 0
    assert capsys.readouterr().out.splitlines() == [
        "topic  error       letters  would send  duplicates  not sent  first reason",
        "other  SerdeError        1           1           0         0  no Avro",
        "src    SerdeError        4           3           0         1  no JSON",
        "src    ValueError        1           1           0         0  too late",
        "not sent: queue dead/broker-a/0, offset 5: the message had an empty body, which no producer here sends",
        "6 read, 6 chosen, would send 5 to where they came from",
    ]
    assert cluster.records("src") == []


def test_what_it_has_done_is_its_exit_status(cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cluster)
    assert program(cluster, "--back", "--dry-run") == 0
    assert cluster.records("src") == []
    assert program(cluster, "--back", "--error=no JSON", "--json") == 0
    out = capsys.readouterr().out.splitlines()[-1]
    found = json.loads(out)
    assert (found["read"], found["letters"], found["sent"], found["rows"][0]["topic"]) == (5, 3, 3, "src")
    letter(cluster, topic="missing")
    assert program(cluster, "--back", "--source_topic=missing") == 1
    assert "'missing'" in capsys.readouterr().out
    assert program(cluster, "--to=missing") == 1, "a topic for all of them is not one letter's fault"
    assert "missing" in capsys.readouterr().err


def test_an_interrupted_replay_says_what_it_has_done(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cluster)
    monkeypatch.setattr(Replay, "_settle", interrupted)
    assert program(cluster, "--back") == 130
    captured = capsys.readouterr()
    assert captured.err == "rmqio.replay: interrupted\n"
    assert "5 read, 5 chosen, sent 0 to where they came from" in captured.out


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--back", "--to=t"], "not allowed with"),
        (["--to=dead"], "the dead-letter topic itself"),
        (["--error=("], "is not a regular expression"),
        (["--start=latest"], "is not earliest, group or timestamp:TIME"),
        (["--start=group"], "needs --consumer_group"),
        (["--stop=timestamp:2026-01-31"], "has no time zone"),
        (["--stop=timestamp:soon"], "is neither ISO 8601"),
        (["--stop=never"], "is not latest or timestamp:TIME"),
        (["--limit=0"], "limit is 0"),
        (["--bakc"], "unrecognized arguments"),
    ],
)
def test_wrong_usage(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*AT, *argv])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_times_of_a_command_line(cluster: InMemoryCluster) -> None:
    fill(cluster)
    assert program(cluster, "--back", "--start=timestamp:2026-01-31T00:00:00Z", "--stop=timestamp:0") == 0
    assert cluster.records("src") == []
    assert program(cluster, "--back", "--start=earliest", "--stop=latest", "--consumer_group=g") == 0
    assert program(cluster, "--back", "--start=group", "--consumer_group=g") == 0
    assert len(cluster.records("src")) == 4
