"""A wait tells what is wrong from what says nothing."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.gate.judging import inconclusive
from tests.helpers import waiting
from tests.helpers.compared import compared
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import Inconclusive, at_most, needed, repeated, runs, until, until_found, until_up


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes with each look at the clock."""
    seconds = count()
    monkeypatch.setattr("tests.helpers.waiting.time.monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr("tests.helpers.waiting.time.sleep", lambda seconds: None)
    monkeypatch.setenv(waiting.PATIENCE, "1")


def after(looks: int) -> Callable[[], bool]:
    """Returns a condition that holds after so many looks."""
    numbers = count()
    return lambda: next(numbers) >= looks


@pytest.mark.parametrize(("seconds", "factor", "limit"), [(30, "1", 30), (30, "2.5", 75), (0.1, "2", 1)])
def test_limits_grow_and_are_never_nothing(
    seconds: float, factor: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(waiting.PATIENCE, factor)
    assert at_most(seconds) == limit


def test_what_is_repeated_goes_on_until_the_block_ends_or_it_fails() -> None:
    times = count()
    with repeated(lambda: next(times), 0.001):
        until(lambda: next(times) > 20, "some times", still_s=1e6)
    after_block = next(times)
    assert next(times) == after_block + 1
    fails = Asked(_NO_ANSWER, 3)
    with pytest.raises(ConnectionError, match="no answer"), repeated(fails, 0.001):
        until(lambda: not fails.is_up, "its error", still_s=1e6)
    fails = Asked(_NO_ANSWER, 3)

    def comes() -> bool:
        assert fails.is_up, "nothing more comes"
        return False

    with pytest.raises(AssertionError, match="nothing more comes") as raised, repeated(fails, 0.001):
        until(comes, "more", details=lambda: fails, still_s=1e6)
    assert raised.value.__notes__ == [f"what was repeated meanwhile has failed: {_NO_ANSWER!r}"]


def test_what_comes_is_returned() -> None:
    answers = iter([[], [], ["it"]])
    assert until(lambda: next(answers), "it") == ["it"]


def test_progress_lets_it_go_on() -> None:
    steps = count()
    assert until(after(200), "it", progress=lambda: next(steps) // 50)


@pytest.mark.parametrize("progress", [lambda: None, lambda: 7])
def test_what_stands_still_is_wrong(progress: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match=r"nothing changed for 61 s before: all of it; missing 3"):
        until(lambda: False, "all of it", progress=progress, details=lambda: "missing 3")


_STANDS_STILL, _IS_LATE = "nothing changed for", "though there was progress: it"


@pytest.mark.parametrize(
    ("looks", "raised", "said"),
    [
        ([(70, 0)], None, ""),
        ([(1, 0), (1, 0), (70, 0)], None, ""),
        ([(70, 0), (70, 1), (70, 1)], None, ""),
        ([(70, 0), (1, 1), (1, 1)], None, ""),
        ([(70, 0), (1, 0)], AssertionError, f"{_STANDS_STILL} 76 s"),
        ([(70, 0), (70, 0)], AssertionError, f"{_STANDS_STILL} 145 s"),
        ([(70, 1), (70, 1), (70, 1)], AssertionError, f"{_STANDS_STILL} 145 s"),
        ([(250, 0)], None, ""),
        ([(250, 0), (1, 0)], AssertionError, f"{_STANDS_STILL} 256 s"),
        ([(250, 0), (1, 1)], Inconclusive, f"not within 256 s, {_IS_LATE}"),
    ],
    ids=str,
)
def test_one_look_that_takes_long_decides_nothing(
    looks: list[tuple[float, int]], raised: type[Exception] | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`looks`: their seconds, and what `progress` returns then. What is waited for is there at the next one."""
    now_s, step, left = 0.0, 0, iter(looks)

    def pass_by(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def holds() -> bool:
        nonlocal step
        seconds, step = next(left, (0, step))
        pass_by(seconds)
        return not seconds

    monkeypatch.setattr("tests.helpers.waiting.time.monotonic", lambda: now_s)
    monkeypatch.setattr("tests.helpers.waiting.time.sleep", pass_by)
    with pytest.raises(raised, match=said) if raised else contextlib.nullcontext():
        until(holds, "it", progress=lambda: step, details=lambda: step)


SENT, WANTED = ["a", "b"], {"q0": [1], "q1": [2]}


ROWS: list[Any] = [{"n": [1]}, [2], ({3},)]


def has(number: int = 0) -> dict[str, list[int]]:
    return {"q0": [1], "q1": [number]}


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (lambda: len(SENT) >= 3, "len(SENT) is 2: ['a', 'b']"),
        (lambda n=3: len(SENT) == n, "len(SENT) is 2: ['a', 'b'], n is 3"),
        (
            lambda: has(7) == WANTED,
            "has(7) is {'q0': [1], 'q1': [7]}, WANTED is {'q0': [1], 'q1': [2]}, "
            "only the first has [('q1', [7])], only the second has [('q1', [2])]",
        ),
        (lambda: "c" in SENT, "SENT is ['a', 'b']"),
        (lambda: not has(), "has() is {'q0': [1], 'q1': [0]}"),
        (lambda: not (SENT or has()), "SENT or has() is ['a', 'b']"),
        (lambda: bool(len(SENT) > 2), "len(SENT) is 2: ['a', 'b']"),
        (lambda: all(each == "c" for each in SENT), "[(each, 'c') for each in SENT] is [('a', 'c'), ('b', 'c')]"),
        (lambda: (n := max(has())) is None or n == "", "(n := max(has())) is 'q1', n is 'q1'"),
        (lambda: SENT[0] == "b" and SENT[9] == "c", "SENT[0] is 'a'"),
        (
            lambda: SENT == ["a", "b", "b"],
            "SENT is ['a', 'b'], ['a', 'b', 'b'] is ['a', 'b', 'b'], only the second has ['b']",
        ),
        (
            lambda: ROWS == [{"n": [1.0]}, [2], [2]],
            f"ROWS is {ROWS}, [{{'n': [1.0]}}, [2], [2]] is [{{'n': [1.0]}}, [2], [2]], "
            "only the first has [({3},)], only the second has [[2]]",
        ),
        (
            lambda: ROWS[1:2] == [(2,)],
            "ROWS[1:2] is [[2]], [(2,)] is [(2,)], only the first has [[2]], only the second has [(2,)]",
        ),
        (lambda: None, ""),
        ([].copy, ""),
        (eval("lambda: len(SENT) > 2"), ""),
    ],
)
def test_what_a_condition_compares_is_told(condition: Callable[[], object], told: str) -> None:
    with pytest.raises(AssertionError) as raised:
        until(condition, "it")
    assert str(raised.value).partition(" before: it")[2].removeprefix("; ") == told


class Row(int):
    """Counts how often one is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Row.compared += 1
        return int(self) == other


def test_many_rows_are_not_compared_each_with_each() -> None:
    some, others = [*map(Row, range(300))], [*map(Row, reversed(range(1, 301)))]
    assert compared(lambda: some == others).endswith("only the first has [0], only the second has [300]")
    assert Row.compared <= 30 * len(some)


def test_a_server_of_others_that_does_not_come_up_is_inconclusive() -> None:
    assert until_up(after(2), "it")
    for given in ({}, {"alive": [Asked(AssertionError("it ended with 1"))]}):
        with pytest.raises(Inconclusive, match=r"no server: (nothing changed .* before: it|it ended with 1)") as raised:
            until_up(lambda: False, "it", **given)
        assert inconclusive(raised.value, in_setup=False)


@pytest.mark.parametrize(
    ("program", "raised", "said"),
    [
        ("exit 0", None, ""),
        ("echo its log >&2; exit 3", AssertionError, "it ended with 3\nits log"),
        ("echo its log >&2; kill -KILL $$", Inconclusive, "it was ended by SIGKILL\nits log"),
        ("ulimit -c 0; kill -SEGV $$", AssertionError, "it was ended by SIGSEGV"),
    ],
)
def test_a_job_is_done_if_it_has_ended_well(
    program: str, raised: type[Exception] | None, said: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(raised, match=said) if raised else contextlib.nullcontext(),
        started(Job(["sh", "-c", program], tmp_path)) as job,
    ):
        job.process.wait()
        job.done()


def test_a_busy_machine_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(waiting.PATIENCE, "2.5")
    assert until(after(140), "it")


def test_progress_that_does_not_come_to_an_end_is_inconclusive() -> None:
    steps = count()
    with pytest.raises(Inconclusive, match=r"not within 241 s, though there was progress: it"):
        until(lambda: False, "it", progress=lambda: next(steps))


def test_what_has_ended_is_inconclusive_unless_the_condition_holds_by_then() -> None:
    with pytest.raises(Inconclusive, match=r"something ended before: it"):
        until(lambda: False, "it", alive=[lambda: True, lambda: False])
    assert until(after(1), "it", alive=[lambda: False])


class Asked:
    """What a wait asks fails at the look with this number, and what it needs ends just then."""

    def __init__(self, error: Exception, look: int = 0) -> None:
        self.is_up, self._error, self._look, self._numbers = True, error, look, count()

    def __call__(self) -> bool:
        if next(self._numbers) < self._look:
            return False
        self.is_up = False
        raise self._error


_NO_ANSWER = ConnectionError("no answer")


@pytest.mark.parametrize(
    ("name", "asked", "error"),
    [
        ("condition", Asked(_NO_ANSWER), "no answer"),
        ("condition", Asked(_NO_ANSWER, 2), "no answer"),
        ("alive", Asked(_NO_ANSWER), "no answer"),
        ("alive", Asked(AssertionError("the job ended with 1")), "the job ended with 1"),
        ("progress", Asked(_NO_ANSWER), "no answer"),
        ("progress", Asked(_NO_ANSWER, 2), "no answer"),
        ("details", Asked(_NO_ANSWER), r"nothing changed .* no details: ConnectionError\('no answer'\)"),
    ],
)
def test_without_what_all_waits_need_no_error_says_anything(name: str, asked: Asked, error: str) -> None:
    given: dict[str, Any] = {"condition": lambda: False, name: [asked] if name == "alive" else asked}
    with needed(lambda: asked.is_up), pytest.raises(Inconclusive, match="a server ended before: it"):
        until(what="it", **given)
    with needed(lambda: True), pytest.raises((AssertionError, ConnectionError), match=error) as raised:
        until(what="it", **given)
    assert raised.value.__cause__ is None


def test_what_all_waits_need_is_not_named_by_each_of_them() -> None:
    with needed(lambda: False), pytest.raises(Inconclusive, match="a server ended before: it"):
        until(lambda: False, "it")


@pytest.mark.parametrize("name", ["condition", "progress"])
def test_that_something_has_ended_is_told_before_an_error_that_comes_of_it(name: str) -> None:
    given: dict[str, Any] = {"condition": lambda: False, name: Asked(_NO_ANSWER)}
    with pytest.raises(Inconclusive, match="something ended before: it"):
        until(what="it", alive=[lambda: False], **given)
    with pytest.raises(AssertionError, match="the job ended with 1"):
        until(what="it", alive=[Asked(AssertionError("the job ended with 1"))], **given)
    given[name] = asked = Asked(AssertionError("2 copies"))
    with needed(lambda: asked.is_up), pytest.raises(AssertionError, match="2 copies"):
        until(what="it", alive=[lambda: False], **given)


def test_a_forked_child_does_not_ask_for_what_its_parent_has_started() -> None:
    parent = os.getpid()
    with needed(lambda: os.getpid() == parent):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                until(after(1), "it")
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_rows_that_do_not_come_are_named_and_those_that_come_let_it_go_on() -> None:
    rows: list[object] = [{"n": 1, "k": "a"}, b"2", b"2"]
    with pytest.raises(AssertionError, match=r"before: all 5; 2 missing: \[\('k', 'c'\), \('n', 3\)\], b'2'"):
        until_found(lambda: rows, [{"k": "a", "n": 1}, {"n": 3, "k": "c"}, b"2", b"2", b"2"])
    numbers = count()
    until_found(lambda: range(next(numbers) // 50), range(4))


def test_what_lives_may_say_itself_what_is_wrong() -> None:
    def fails() -> bool:
        raise AssertionError("the job ended with 1")

    with pytest.raises(AssertionError, match="the job ended with 1"):
        until(lambda: False, "it", alive=[fails])


@pytest.mark.parametrize(
    ("program", "raised", "said"),
    [
        ("exit 0", AssertionError, "it ended with 0\nits log"),
        ("exit 3", AssertionError, "it ended with 3\nits log"),
        ("ulimit -c 0; kill -SEGV $$", AssertionError, "it was ended by SIGSEGV\nits log"),
        ("kill -KILL $$", Inconclusive, "it was ended by SIGKILL\nits log"),
        ("kill -TERM $$", Inconclusive, "it was ended by SIGTERM\nits log"),
    ],
)
def test_a_program_that_ends_or_crashes_is_wrong_and_one_that_is_killed_is_inconclusive(
    program: str, raised: type[Exception], said: str
) -> None:
    process = subprocess.Popen(["sh", "-c", program])
    process.wait()
    with pytest.raises(raised, match=said):
        until(lambda: False, "it", alive=[runs(process, lambda: "its log")])
    # It may have done what the wait is for between two looks, just before its end.
    assert until(after(1), "it", alive=[runs(process)])
