"""The program that replays dead letters: what it shows, its exit status, and its usage."""

from __future__ import annotations

import json

import pytest

from rmqio.command_line.output import display_width
from rmqio.dead_letters.command import main
from rmqio.dead_letters.replay import Replay, ReplayResult, ReplayRow
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.replaying import AT, fill, letter, program


def test_without_a_place_to_go_it_shows_what_is_there(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster)
    letter(cluster, body=b"", offset=50)
    assert program(cluster) == 0
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC  ERROR       LETTERS  WOULD SEND  DUPLICATES  NOT SENT",
        "other  SerdeError        1           1           0         0",
        "  first reason: no Avro",
        "src    SerdeError        4           3           0         1",
        "  first reason: no JSON",
        "src    ValueError        1           1           0         0",
        "  first reason: too late",
        "",
        "Not sent: queue dead/broker-a/0, offset 5: the message had an empty body, which no producer here sends.",
        "Read 6 letters of topic dead and chose 6. 5 messages would be sent to the topics that they came from.",
        "Nothing has been sent. To send the messages, add --back (each to the topic that it came from) or --to=TOPIC.",
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
    assert "Read 5 letters of topic dead and chose 5. 0 messages were sent to the topics" in captured.out


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--back", "--to=t"], "not allowed with"),
        (["--to=dead"], "the dead-letter topic itself"),
        ([r"--error=\p("], r"'\p(' is not a regular expression"),
        (["--start=latest"], "is not earliest, group or a TIME"),
        (["--start=group"], "needs --consumer_group"),
        (["--stop=timestamp:2026-01-31"], "has no time zone"),
        (["--stop=timestamp:soon"], "is neither ISO 8601"),
        (["--stop=never"], "is not latest or a TIME"),
        (["--limit=0"], "argument --limit: number '0' is not a whole number of at least 1"),
        (["--bakc"], "unknown argument '--bakc'; did you mean --back?"),
    ],
)
def test_wrong_usage(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*AT, *argv])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dead_letter_topic=dad"], "--dead_letter_topic dad: the topic does not exist; did you mean dead?"),
        (["--to=srcs"], "--to srcs: the topic does not exist; did you mean src?"),
        (["--to=nothing-like-it", "--json"], "--to nothing-like-it: the topic does not exist"),
    ],
)
def test_a_topic_that_does_not_exist_is_reported_before_anything_is_read(
    cluster: InMemoryCluster, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster)
    assert program(cluster, *flags) == 1
    assert capsys.readouterr() == ("", f"rmqio.replay: {message}\n")


@pytest.mark.parametrize(
    ("flags", "last"),
    [
        ([], "add --back (each to the topic that it came from) or --to=TOPIC."),
        (["--dry_run"], "add --back (each to the topic that it came from) or --to=TOPIC."),
        (["--back", "--dry-run"], "leave out --dry_run."),
        (["--to", "other", "--dry_run"], "leave out --dry_run."),
        (["--error", "no such error"], "There is nothing to send."),
    ],
)
def test_a_preview_says_how_to_go_on(
    cluster: InMemoryCluster, flags: list[str], last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster)
    assert program(cluster, *flags) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(last)


def test_a_long_reason_is_cut_to_the_width_of_a_terminal(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    letter(cluster, reason="省份 " * 60)
    assert program(cluster) == 0
    (reason,) = (line for line in capsys.readouterr().out.splitlines() if "first reason" in line)
    assert reason.endswith(" ...")
    assert 76 <= display_width(reason) <= 80


def test_long_names_lose_their_middle_on_a_terminal_only() -> None:
    name = "orders-of-a-very-long-region-name-" * 3
    result = ReplayResult("dead", None, is_dry_run=True, rows=[ReplayRow(name, "SerdeError", "", letters=1)])
    assert name in result.table()
    head, row = result.table(80).splitlines()[:2]
    assert len(head) == len(row) == 80
    assert row.startswith("orders-of-a")


def test_times_of_a_command_line(cluster: InMemoryCluster) -> None:
    fill(cluster)
    assert program(cluster, "--back", "--start=timestamp:2026-01-31T00:00:00Z", "--stop=timestamp:0") == 0
    assert cluster.records("src") == []
    assert program(cluster, "--back", "--start=earliest", "--stop=latest", "--consumer_group=g") == 0
    assert program(cluster, "--back", "--start=group", "--consumer_group=g") == 0
    assert len(cluster.records("src")) == 4
