"""The state of inner joins: rows are forgotten when they are over their time, and decoded once in a bundle."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, ToRows
from rmqio.sql.planning.plan import Field, Join, Relation
from rmqio.sql.rows import pack
from rmqio.sql.runtime import joins
from rmqio.sql.runtime.joins import ExpiringJoinFn, JoinFn, JoinSpec, waiting_join
from rmqio.sql.runtime.matching import Matcher, MatchSpec
from rmqio.sql.scripts.script import Script

FIELDS = (Field("n", types.BIGINT),)
TABLES = "".join(f"CREATE TABLE {name} (n BIGINT, m BIGINT) WITH ('topic' = '{name}');" for name in ("t", "u", "sink"))
MATCH = MatchSpec(FIELDS, FIELDS, "INNER", None, None, Fragment(FromRows(FIELDS * 2), (), ToRows()))


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
    monkeypatch.setattr(joins, "time", Time)
    fn = ExpiringJoinFn(JoinSpec(MATCH, 1000))
    fn.setup()
    fn.start_bundle()
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


@pytest.mark.parametrize("join", ["t JOIN u ON t.n = u.n", "t CROSS JOIN u"])
def test_rows_of_an_input_that_ends_are_kept_for_ever(join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "time", Time)
    script = Script()
    script.run(f"{TABLES} SET 'table.exec.state.ttl' = '1 s'; INSERT INTO sink SELECT t.n, u.n FROM {join};")
    (plan,) = script.sinks
    relation: Relation = plan.input
    while not isinstance(relation, Join):
        (relation,) = relation.inputs()
    fn = waiting_join(relation, (), ToRows(), 0, (False, True))
    assert isinstance(fn, ExpiringJoinFn)
    fn.setup()
    fn.start_bundle()
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
    monkeypatch.setattr(joins, "time", Time)
    fn = ExpiringJoinFn(JoinSpec(MATCH, 1000))
    fn.setup()
    fn.start_bundle()
    cells = [Cells() for _ in range(4)]
    joined = []
    for at_ms, side in ((0, 0), (500, 0), (1200, 1)):
        Time.now_ms = at_ms
        for batch in fn.process((b"k", (side, [pack((at_ms,))])), cells[0], cells[1], Time, cells[2], cells[3]):
            joined += batch
    assert joined == [(500, 1200)]


@pytest.mark.parametrize("ttl_ms", [0, 1000])
def test_rows_are_decoded_once_and_pairs_come_in_pieces(monkeypatch: pytest.MonkeyPatch, ttl_ms: int) -> None:
    """Of 20,000 partners and 50 rows, which come one by one, and of 30 partners more, one after each of them."""
    decoded = 0

    def counting(self: Matcher, side: int, packed: list[bytes]) -> Any:
        nonlocal decoded
        decoded += len(packed)
        return rows(self, side, packed)

    rows = Matcher.rows
    monkeypatch.setattr(Matcher, "rows", counting)
    monkeypatch.setattr(joins, "time", Time)
    fn = ExpiringJoinFn(JoinSpec(MATCH, ttl_ms)) if ttl_ms else JoinFn(JoinSpec(MATCH, 0))
    fn.setup()
    fn.start_bundle()
    cells = [Cells() for _ in range(4)]
    more = [cells[2], cells[3]] if ttl_ms else []

    def come(side: int, *numbers: int) -> list[int]:
        element = b"k", (side, [pack((n,)) for n in numbers])
        return [len(each) for each in fn.process(element, cells[0], cells[1], Time, *more)]

    come(1, *range(20_000))
    sizes = come(0, *range(20))
    for n in range(30):
        sizes += come(0, n)
        sizes += come(1, n)
    assert sum(sizes) == 20 * 20_000 + sum(20_000 + n + 21 + n for n in range(30))
    assert max(sizes) < 3000
    assert decoded == 20_000 + 20 + 30 + 30
