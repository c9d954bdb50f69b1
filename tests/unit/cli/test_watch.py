"""`rmqio describe --watch`: it shows again and again, and ends with one line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from rmqio.command_line.output import note, watch
from rmqio.errors import TransportError
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def interrupted_after(times: int) -> Callable[[float], None]:
    """A sleep that Ctrl-C ends the last time."""
    left = [times]

    def sleep(seconds: float) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    return sleep


def show() -> int:
    print("a table")
    return 0


def test_without_a_terminal_outputs_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(show, 2, redraws=True, sleep=interrupted_after(3)) == 130
    assert capsys.readouterr() == (
        "a table\n\na table\n\na table\n",
        "rmqio: ended by Ctrl-C, shown 3 times\n",
    )


def test_documents_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(show, 2, redraws=False, sleep=interrupted_after(2)) == 130
    assert capsys.readouterr().out == "a table\na table\n"


def test_a_terminal_is_drawn_anew_with_its_remarks(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    def with_remark() -> int:
        show()
        note("a remark")
        return 0

    assert watch(with_remark, 2, redraws=True, sleep=interrupted_after(2)) == 130
    drawn = out.getvalue()
    assert drawn.startswith("\x1b[2J\x1b[H")
    assert drawn.count("every 2 s, Ctrl-C ends it") == 2
    assert drawn.count("a table\x1b[K\nrmqio: a remark\x1b[K\n\x1b[J") == 2
    assert err.getvalue() == "rmqio: ended by Ctrl-C, shown 2 times\n"


def test_a_terminal_that_is_too_low_keeps_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("LINES", "12")
    monkeypatch.setenv("COLUMNS", "80")

    def long() -> int:
        print("\n".join(f"line {number}" for number in range(30)))
        return 0

    watch(long, 2, redraws=True, sleep=interrupted_after(1))
    lines = out.getvalue().replace("\x1b[K", "").splitlines()
    assert len(lines) <= 12
    assert lines[6:10] == ["... 22 lines more than the terminal has", "line 27", "line 28", "line 29"]


def test_the_first_error_ends_it_and_a_later_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes: list[Exception | None] = [None, TransportError("the broker restarts"), None]

    def sometimes() -> int:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return show()

    assert watch(sometimes, 2, redraws=False, sleep=interrupted_after(3)) == 130
    out, err = capsys.readouterr()
    assert out == "a table\na table\n"
    assert err.startswith("rmqio: the broker restarts\n")
    outcomes = [TransportError("no name server")]
    with pytest.raises(TransportError):
        watch(sometimes, 2, redraws=False, sleep=interrupted_after(3))


def test_a_topic_is_watched(broker: FakeBroker, rmqio: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        broker.cluster.append("orders", b"x")
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    out = rmqio("describe", "orders", "--watch", "--json", status=130)
    assert [json.loads(line)["total"]["messages"] for line in out.splitlines()] == [0, 1, 2]
    assert slept == [2, 2, 2]
    assert rmqio.err == "rmqio: ended by Ctrl-C, shown 3 times\n"
    rmqio("describe", "ordres", "--watch=0.1", status=1)
    assert "did you mean orders?" in rmqio.err
