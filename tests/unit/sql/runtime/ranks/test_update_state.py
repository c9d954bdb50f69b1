"""State of rows that change: batches in any order, what a time to live forgets, and windows of processing time."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.utils.timestamp import MIN_TIMESTAMP
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.model import Message
from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows, ToTable
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Calc, Field, Rank, SortKey, Window
from rmqio.sql.planning.ranks import OFFSET
from rmqio.sql.rows import pack, pack_group
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.aggregate_fn import AggregateSpec, ProcessingFn
from rmqio.sql.runtime.ranking import Ranking, payload, rows_of
from rmqio.sql.runtime.ranks import (
    ExpiringFirstFn,
    ExpiringSeenFn,
    ExpiringTopFn,
    ExpiringTopOfGroupsFn,
    RankSpec,
    TopFn,
    TopOfGroupsFn,
)
from rmqio.sql.runtime.windows import bounds_at
from rmqio.sql.scripts.script import Script
from tests.unit.sql.runtime.ranks.updating import Cell


class Time:
    now_ms = 0

    @classmethod
    def time_ns(cls) -> int:
        return cls.now_ms * 1_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Time]:
    monkeypatch.setattr(windows, "time", Time)
    Time.now_ms = 0
    return Time


def spec_of(query: str, columns: str, key: str) -> RankSpec:
    """The rank of a statement, with what makes messages of its rows."""
    script = Script()
    script.run(
        "CREATE TABLE t (id INT, v INT) WITH ('topic' = 't');"
        f"CREATE TABLE s ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('topic' = 's'); INSERT INTO s {query};"
    )
    (sink,) = script.sinks
    calc = sink.input
    assert isinstance(calc, Calc)
    rank = calc.input
    assert isinstance(rank, Rank)
    step = Step(calc.condition, calc.projections)
    fragment = Fragment(FromRows(rank.fields), (step,), ToTable(sink.table, sink.columns))
    return RankSpec(rank, Ranking.of(rank, by_arrival=False), fragment)


def ranked(order: str, where: str, columns: str) -> str:
    return f"SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY {order}) AS rn FROM t) AS r WHERE {where}"


STATEMENTS = [
    (ranked("v DESC, id", "rn <= 3", "rn, id"), "rn BIGINT, id INT", "rn"),
    (ranked("v DESC, id", "rn <= 3 AND v > 0", "id, v"), "id INT, v INT", "id"),
    (ranked("v", "rn = 1", "'last', id, v"), "k STRING, id INT, v INT", "k"),
    (ranked("v", "rn = 2", "'second', id, v"), "k STRING, id INT, v INT", "k"),
]
VALUES = st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(-3, 3))), min_size=1, max_size=20)


def packed(spec: RankSpec, row: tuple[int, int | None]) -> bytes:
    by_name = {**dict(zip(("id", "v"), row, strict=True)), OFFSET: 0}
    return pack(tuple(by_name[each.name] for each in spec.ranking.fields))


def replayed(table: dict[str, Any], fn: TopFn, found: list[Any]) -> None:
    """Applies what was written to what a table holds."""
    messages: list[Message] = [each for batch in found for each in batch]
    messages += [each for value in fn.finish_bundle() for each in value.value]
    for message in messages:
        (key,) = message.keys
        if message.is_tombstone:
            assert key in table, "what is not there is not deleted"
            del table[key]
        else:
            row = json.loads(message.body)
            assert table.get(key) != row, "what is there is not written again"
            table[key] = row


@pytest.mark.parametrize(("query", "columns", "key"), STATEMENTS)
@settings(max_examples=40)
@given(rows=VALUES, data=st.data())
def test_batches_in_any_order_make_the_same_rows(
    query: str, columns: str, key: str, rows: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    spec = spec_of(query, columns, key)
    results = []
    for _ in range(2):
        order = data.draw(st.permutations(rows))
        fn, kept = TopFn(spec), Cell()
        table: dict[str, Any] = {}
        fn.setup()
        while order:
            size = data.draw(st.integers(1, len(order)))
            batch, order = order[:size], order[size:]
            fn.start_bundle()
            found = list(fn.process((b"k", payload([packed(spec, each) for each in batch])), kept, MIN_TIMESTAMP))
            replayed(table, fn, found)
        results.append(table)
    assert results[0] == results[1]


@pytest.mark.parametrize("ttl_ms", [0, 1000])
@pytest.mark.parametrize(("query", "columns", "key"), STATEMENTS)
@settings(max_examples=40)
@given(changes=VALUES)
def test_groups_come_change_and_go(
    query: str, columns: str, key: str, ttl_ms: int, changes: list[tuple[int, int | None]]
) -> None:
    """State of groups that come, change and go gives the same as their last rows at once."""
    spec = spec_of(query, columns, key)
    kept, states = Cell(), (Cell(), Cell()) if ttl_ms else ()
    fn = TopOfGroupsFn(spec)
    if ttl_ms:
        fn = ExpiringTopOfGroupsFn(replace(spec, rank=replace(spec.rank, ttl_ms=ttl_ms)))
    table: dict[str, Any] = {}
    once: dict[str, Any] = {}
    fn.setup()
    groups: dict[int, tuple[int, int | None]] = {}
    for number, (group, value) in enumerate(changes):
        if number % 3 == 2:
            groups.pop(group, None)
            given_row = b""
        else:
            groups[group] = group, value
            given_row = packed(spec, (group, value))
        fn.start_bundle()
        process: Any = fn.process
        replayed(table, fn, list(process((b"k", payload([pack(group), given_row])), kept, MIN_TIMESTAMP, *states)))
    whole = TopFn(spec)
    whole.setup()
    whole.start_bundle()
    rows = [packed(spec, each) for each in groups.values()]
    replayed(once, whole, list(whole.process((b"k", payload(rows)), Cell(), MIN_TIMESTAMP)))
    assert table == once


def test_a_partition_is_forgotten_when_its_last_row_is_over_its_time(clock: type[Time]) -> None:
    spec = spec_of(*STATEMENTS[0])
    fn = ExpiringTopFn(replace(spec, rank=replace(spec.rank, ttl_ms=1000)))
    fn.setup()
    kept, timer, flag = Cell(), Cell(), Cell()
    table: dict[str, Any] = {}

    def give(row: tuple[int, int]) -> None:
        fn.start_bundle()
        replayed(table, fn, list(fn.process((b"k", payload([packed(spec, row)])), kept, MIN_TIMESTAMP, timer, flag)))

    give((1, 10))
    clock.now_ms = 900
    give((2, 5))
    assert list(table) == ["1", "2"]
    clock.now_ms = 1000
    fn.expire(kept, timer, flag)  # the timer of the first row: the second one came later
    assert kept.value is not None
    assert timer.value == 1.9
    clock.now_ms = 1900
    fn.expire(kept, timer, flag)
    assert (kept.value, flag.value) == (None, None)
    give((3, 1))
    assert table["1"]["id"] == 3, "it begins anew"
    assert table["2"]["id"] == 2, "the table keeps its rows"


def test_groups_that_are_over_their_time_are_forgotten_but_for_the_first_ones(clock: type[Time]) -> None:
    spec = spec_of(*STATEMENTS[0])
    fn = ExpiringTopOfGroupsFn(replace(spec, rank=replace(spec.rank, ttl_ms=1000)))
    fn.setup()
    kept, timer, flag = Cell(), Cell(), Cell()
    table: dict[str, Any] = {}

    def change(group: int, value: int) -> None:
        fn.start_bundle()
        element = b"k", payload([pack(group), packed(spec, (group, value))])
        replayed(table, fn, list(fn.process(element, kept, MIN_TIMESTAMP, timer, flag)))

    for number in range(100):
        clock.now_ms = number * 100
        change(number, -number)
        groups = rows_of(kept.value[windows.SIZE :])[::2]
        assert len(groups) <= 3 + 10
        assert [table[key]["id"] for key in sorted(table)] == [0, 1, 2][: number + 1]
    change(1, -99)
    assert [table[key]["id"] for key in sorted(table)] == [0, 2, 90], "the best of those that are kept follows"
    clock.now_ms += 1000
    fn.expire(kept, timer, flag)
    assert (kept.value, flag.value) == (None, None)
    change(200, -200)
    assert [table[key]["id"] for key in sorted(table)] == [200, 2, 90], "it begins anew, and the table keeps its rows"


FIELDS = (Field("n", types.BIGINT),)


def first_spec() -> RankSpec:
    scan = Calc(FIELDS, Calc(FIELDS, Rank(FIELDS, None, (), ()), None, ()), None, ())  # type: ignore[arg-type]
    rank = Rank(FIELDS, scan, (), (SortKey(0, False, True),), 1, False, 1000)
    return RankSpec(rank, Ranking.of(rank, by_arrival=False), Fragment(FromRows(FIELDS), (), ToRows()))


def test_a_first_row_comes_once_until_it_is_forgotten(clock: type[Time]) -> None:
    fn = ExpiringFirstFn(first_spec())
    fn.setup()
    fn.start_bundle()
    kept, due, timer = Cell(), Cell(), Cell()
    fn.process((b"k", payload([pack((5000,)), pack((3000,))])), kept, due)
    assert due.value.micros == 3000
    fn.process((b"k", payload([pack((2500,))])), kept, due)
    assert due.value.micros == 2000, "whole milliseconds, and no later"
    list(fn.give(kept, None, MIN_TIMESTAMP, timer))
    assert fn._rows == [(2500,)]
    fn.process((b"k", payload([pack((1000,))])), kept, due)
    list(fn.give(kept, None, MIN_TIMESTAMP, timer))
    assert fn._rows == [(2500,)], "a row that is late"
    assert timer.value == 1.0
    fn.expire(kept)
    fn.process((b"k", payload([pack((9000,))])), kept, due)
    list(fn.give(kept, None, MIN_TIMESTAMP, timer))
    assert fn._rows == [(2500,), (9000,)]


def test_a_row_that_was_seen_is_left_out_until_it_is_forgotten(clock: type[Time]) -> None:
    fn = ExpiringSeenFn(first_spec())
    fn.setup()
    fn.start_bundle()
    seen, timer = Cell(), Cell()
    for number in (1, 2):
        list(fn.process((b"k", payload([pack((number,))])), seen, None, MIN_TIMESTAMP, timer))
    assert (fn._rows, timer.value) == ([(1,)], 1.0)
    fn.expire(seen)
    list(fn.process((b"k", payload([pack((3,))])), seen, None, MIN_TIMESTAMP, timer))
    assert fn._rows == [(1,), (3,)]


SECOND_US = 1_000_000
WINDOWS = [
    Window("TUMBLE", -1, 4 * SECOND_US, 4 * SECOND_US, SECOND_US, is_processing=True),
    Window("HOP", -1, 6 * SECOND_US, 2 * SECOND_US, 0, is_processing=True),
    Window("CUMULATE", -1, 6 * SECOND_US, 2 * SECOND_US, 0, is_processing=True),
    Window("SESSION", -1, 3 * SECOND_US, 3 * SECOND_US, 0, is_processing=True),
]


@pytest.mark.parametrize("window", WINDOWS, ids=lambda each: each.kind)
@settings(max_examples=60)
@given(gaps=st.lists(st.integers(0, 5000), min_size=1, max_size=15), lateness=st.integers(0, 9000))
def test_windows_of_processing_time_hold_each_row(window: Window, gaps: list[int], lateness: int) -> None:
    """Whenever the timer fires: each window comes once, and has the rows that came in it."""
    aggregate = Aggregate((), Calc(FIELDS, None, None, ()), (), window, (AggregateCall("COUNT", types.BIGINT),))  # type: ignore[arg-type]
    fn = ProcessingFn(AggregateSpec(aggregate, FIELDS, Fragment(FromRows((*FIELDS * 4,)), (), ToRows())))
    fn.setup()
    fn.start_bundle()
    kept, timer = Cell(), Cell()
    wanted: Counter[tuple[int, int]] = Counter()
    Time.now_ms = 0
    session: list[int] = []
    arrivals: list[int] = []
    for gap in gaps:
        Time.now_ms += gap
        while timer.value is not None and timer.value * 1000 + lateness <= Time.now_ms:
            timer.value = None
            list(fn.close(kept, timer, None, MIN_TIMESTAMP))
        list(fn.process((b"", pack_group((), [1])), kept, timer, None, MIN_TIMESTAMP))
        arrivals.append(Time.now_ms * 1000)
    Time.now_ms += 100_000
    list(fn.close(kept, timer, None, MIN_TIMESTAMP))
    if window.kind == "SESSION":
        for at in [*arrivals, 1 << 60]:
            if session and at - session[-1] >= window.size_us:
                wanted[session[0], session[-1] + window.size_us] += len(session)
                session = []
            session.append(at)
    else:
        wanted.update(span for at in arrivals for span in bounds_at(window, at))
    given_rows = {(start, end): count for start, end, _, count in fn._rows}
    assert len(given_rows) == len(fn._rows)
    assert given_rows == dict(wanted)
    assert kept.value is None


@pytest.mark.parametrize("window", WINDOWS[:3], ids=lambda each: each.kind)
@given(at=st.integers(0, 100 * SECOND_US))
def test_windows_of_a_time_are_those_that_hold_it(window: Window, at: int) -> None:
    size, slide, offset = window.size_us, window.slide_us, window.offset_us
    starts = range(offset - 20 * size, 120 * SECOND_US, size if window.kind == "CUMULATE" else slide)
    spans = [
        (start, start + length)
        for start in starts
        for length in (range(slide, size + 1, slide) if window.kind == "CUMULATE" else [size])
    ]
    assert sorted(bounds_at(window, at)) == [each for each in spans if each[0] <= at < each[1]]
