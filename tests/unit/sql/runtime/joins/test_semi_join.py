"""IN and EXISTS over rows without end: a row comes out when its partner is there, and waits for its time to live."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, ToRows
from rmqio.sql.expressions import Expr, InputRef, Operation
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import pack
from rmqio.sql.runtime import subquery_joins
from rmqio.sql.runtime.subquery_joins import SemiFn, SubqueryJoinSpec

FIELDS = (Field("n", types.BIGINT),)
SMALLER = Operation(types.BOOLEAN, "<", (InputRef(types.BIGINT, 0), InputRef(types.BIGINT, 1)))


class Time:
    now_ms = 0
    micros = 0

    @classmethod
    def time_ns(cls) -> int:
        return cls.now_ms * 1_000_000


class Cell:
    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.value: Any = None

    def read(self) -> Any:
        return self.value if self.value is not None else list(self.values)

    def write(self, value: Any) -> None:
        self.value = value

    set = write

    def add(self, value: bytes) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values, self.value = [], None


class Key:
    """A semi join of one key."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, ends: tuple[bool, bool] = (False, False), residual: Expr | None = None
    ) -> None:
        monkeypatch.setattr(subquery_joins, "time", Time)
        Time.now_ms = 0
        fragment = Fragment(FromRows(FIELDS), (), ToRows())
        self.fn = SemiFn(SubqueryJoinSpec("SEMI", FIELDS, FIELDS, residual, (), fragment), 1000, ends)
        self.fn.setup()
        self.waiting, self.partners, self.timer, self.is_set = Cell(), Cell(), Cell(), Cell()

    def come(self, side: int, *numbers: int) -> list[int]:
        self.fn.start_bundle()
        rows = [pack((n,)) for n in numbers]
        states = self.waiting, self.partners, Time, self.timer, self.is_set
        batches = list(self.fn.process((b"k", (side, rows)), *states))
        batches += [each.value for each in self.fn.finish_bundle()]
        return [n for batch in batches for (n,) in batch]

    def pass_time(self, milliseconds: int) -> None:
        Time.now_ms += milliseconds
        if self.timer.value is not None and self.timer.value * 1000 <= Time.now_ms:
            self.timer.value = None
            self.fn.expire(self.waiting, self.partners, self.timer, self.is_set)


@pytest.mark.parametrize("right_ends", [False, True])
def test_a_row_comes_out_once(right_ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(monkeypatch, ends=(False, right_ends))
    assert key.come(0, 1, 2) == []
    assert key.come(1, 7, 8) == [1, 2]
    assert key.come(1, 9) == []
    assert key.come(0, 3) == [3]
    assert key.waiting.values == []
    assert len(key.partners.values) == 1


def test_rows_wait_for_their_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(monkeypatch)
    key.come(0, 1)
    key.pass_time(600)
    key.come(0, 2)
    key.pass_time(600)
    assert len(key.waiting.values) == 1
    assert key.come(1, 7) == [2]
    key.pass_time(900)
    assert key.come(1, 8) == []
    key.pass_time(900)
    assert key.come(0, 3) == [3], "the newest partner counts"
    key.pass_time(5000)
    assert (key.partners.values, key.is_set.value) == ([], None)
    assert key.come(0, 4) == []


def test_rows_of_a_query_that_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(monkeypatch, ends=(False, True))
    key.come(1, 7)
    for n in range(3):
        key.pass_time(5000)
        assert key.come(0, n) == [n]


def test_rows_of_an_input_that_ends_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(monkeypatch, ends=(True, False))
    key.come(0, 1)
    assert key.come(1, 7) == [1]
    assert key.come(0, 2) == [2]
    for n in range(3, 6):
        key.pass_time(5000)
        key.come(0, n)
    key.pass_time(5000)
    assert key.come(1, 8) == [3, 4, 5]
    key.pass_time(5000)
    assert (key.waiting.values, key.partners.values, key.is_set.value) == ([], [], None)


def test_a_condition_of_both_is_tested_for_each_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(monkeypatch, residual=SMALLER)
    assert key.come(0, 1, 5) == []
    assert key.come(1, 1) == []
    assert key.come(1, 3) == [1]
    assert key.come(0, 2, 4) == [2]
    assert key.come(1, 9, 10) == [5, 4]
