"""A join of streams forgets rows that are over their time, also of a key that always gets new ones."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, ToRows
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import pack
from rmqio.sql.runtime.joins import join_fn
from rmqio.sql.runtime.joins.join_fn import ExpiringJoinFn, JoinSpec

FIELDS = (Field("n", types.BIGINT),)


class Cells(list[bytes]):
    """State and timer of one key, as Beam gives them to the DoFn."""

    add = list.append
    value: Any = None

    def read(self) -> Any:
        return self.value if self.value is not None else list(self)

    def write(self, value: Any) -> None:
        self.value = value

    set = write

    def clear(self) -> None:
        super().clear()
        self.value = None


class Time:
    now_ms = 0

    @classmethod
    def time_ns(cls) -> int:
        return cls.now_ms * 1_000_000

    micros = 0


def test_a_key_that_always_gets_rows_keeps_those_of_its_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_fn, "time", Time)
    fn = ExpiringJoinFn(JoinSpec(FIELDS, FIELDS, 1000, Fragment(FromRows(FIELDS * 2), (), ToRows())))
    fn.setup()
    left, right, timer, flag = Cells(), Cells(), Cells(), Cells()
    for n in range(100):
        Time.now_ms = n * 100
        if timer.value is not None and timer.value * 1000 <= Time.now_ms:
            timer.value = None
            fn.expire(left, right, timer, flag)
        list(fn.process((b"k", (0, [pack((n,))])), left, right, Time, timer, flag))
        assert len(left) <= 21, "ten a time to live, and those that wait for the timer"
    Time.now_ms += 10_000
    fn.expire(left, right, timer, flag)
    assert (list(left), flag.value) == ([], None)


def test_rows_of_an_input_that_ends_are_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_fn, "time", Time)
    fragment = Fragment(FromRows(FIELDS * 2), (), ToRows())
    fn = ExpiringJoinFn(JoinSpec(FIELDS, FIELDS, 1000, fragment, kept=(False, True)))
    fn.setup()
    cells = [Cells() for _ in range(4)]
    joined = []
    for at_ms, side in ((0, 0), (10, 1), (50_000, 0), (50_500, 1)):
        Time.now_ms = at_ms
        if cells[2].value is not None and cells[2].value * 1000 <= at_ms:
            cells[2].value = None
            fn.expire(*cells)
        for batch in fn.process((b"", (side, [pack((at_ms,))])), cells[0], cells[1], Time, cells[2], cells[3]):
            joined += batch
    assert joined == [(0, 10), (50_000, 10), (50_000, 50_500)]
    assert (len(cells[0]), len(cells[1])) == (1, 2)


def test_partners_over_their_time_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_fn, "time", Time)
    fn = ExpiringJoinFn(JoinSpec(FIELDS, FIELDS, 1000, Fragment(FromRows(FIELDS * 2), (), ToRows())))
    fn.setup()
    cells = [Cells() for _ in range(4)]
    joined = []
    for at_ms, side in ((0, 0), (500, 0), (1200, 1)):
        Time.now_ms = at_ms
        for batch in fn.process((b"k", (side, [pack((at_ms,))])), cells[0], cells[1], Time, cells[2], cells[3]):
            joined += batch
    assert joined == [(500, 1200)]
