"""Joins of all kinds give what DuckDB gives, whatever the order of the rows, and keep nothing that cannot match."""

from __future__ import annotations

import functools
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("duckdb", reason="the oracle of these tests")

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sql.runtime.joins.joining import FOREVER_US, Bag, milliseconds, started

SECOND = 1_000_000
TABLES = """
CREATE TABLE l (id INT, k INT, v INT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
WITH ('topic' = 'l');
CREATE TABLE r (id INT, k INT, v INT, ts TIMESTAMP(6), WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)
WITH ('topic' = 'r');
CREATE TABLE sink (a INT, b INT) WITH ('topic' = 'sink');
"""
KINDS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
# On times of the two rows, for us and for DuckDB, which has microseconds.
INTERVALS = [
    ("l.ts BETWEEN r.ts - INTERVAL '50' SECOND AND r.ts + INTERVAL '10' SECOND",
     "l.ts BETWEEN r.ts - 50000000 AND r.ts + 10000000"),
    ("r.ts >= l.ts AND r.ts < l.ts + INTERVAL '7' SECOND", "r.ts >= l.ts AND r.ts < l.ts + 7000000"),
    ("l.ts > INTERVAL '30' SECOND + r.ts AND r.ts + INTERVAL '1' MINUTE >= l.ts",
     "l.ts > 30000000 + r.ts AND r.ts + 60000000 >= l.ts"),
    ("l.ts = r.ts", "l.ts = r.ts"),
    ("r.ts - INTERVAL '3' SECOND = TIMESTAMPADD(SECOND, 2, l.ts)", "r.ts - 3000000 = l.ts + 2000000"),
    ("NOT FALSE AND l.ts - INTERVAL '5' SECOND <= r.ts AND r.ts <= l.ts - INTERVAL '2' SECOND AND l.v <> r.v",
     "l.ts - 5000000 <= r.ts AND r.ts <= l.ts - 2000000 AND l.v <> r.v"),
    ("l.ts BETWEEN r.ts - INTERVAL '1' DAY AND r.ts + INTERVAL '1' DAY AND l.v < 2",
     "l.ts BETWEEN r.ts - 86400000000 AND r.ts + 86400000000 AND l.v < 2"),
]  # fmt: skip
WINDOWS = [
    ("TUMBLE", "INTERVAL '10' SECOND", "[ts - ts % 10000000]", "ws + 10000000"),
    ("TUMBLE", "INTERVAL '10' SECOND, INTERVAL '3' SECOND", "[ts - (ts - 3000000) % 10000000]", "ws + 10000000"),
    ("HOP", "INTERVAL '5' SECOND, INTERVAL '15' SECOND",
     "range(ts - ts % 5000000 - 10000000, ts + 1, 5000000)", "ws + 15000000"),
    ("CUMULATE", "INTERVAL '5' SECOND, INTERVAL '20' SECOND", "[ts - ts % 20000000]",
     "unnest(range(ts - ts % 5000000 + 5000000, ws + 20000001, 5000000))"),
]  # fmt: skip
Row = tuple[int, int | None, int, int]
rows = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.integers(0, 3),
        st.integers(10**6, 10**6 + 200).map(lambda n: n * SECOND // 2) | st.integers(5 * 10**11, 5 * 10**11 + 10**8),
    ),
    max_size=25,
)


def numbered(found: list[Any]) -> list[Row]:
    return [(number, *each) for number, each in enumerate(found)]


def run(text: str, left: list[Row], right: list[Row], random: Random) -> list[tuple[Any, ...]]:
    """Rows come out of order by less than the watermark's delay, and a side can be ahead of the other one."""
    join = started(text)
    columns = [[each.name for each in source.fields] for source in sources(join.join)]
    arrivals = [sorted(side, key=lambda row: row[3] + random.randrange(20 * SECOND)) for side in (left, right)]
    marks = [-FOREVER_US, -FOREVER_US]
    while any(arrivals):
        side = random.choice([each for each in (0, 1) if arrivals[each]])
        taken = [arrivals[side].pop(0) for _ in range(min(len(arrivals[side]), random.randrange(1, 4)))]
        names = dict(zip(("id", "k", "v", "ts"), range(4), strict=True))
        join.bundle(side, [tuple(row[names[name]] for name in columns[side]) for row in taken])
        marks[side] = max(marks[side], *(row[3] - 20 * SECOND for row in taken))
        join.advance(
            milliseconds(min(mark for mark, left in zip(marks, arrivals, strict=True) if left) if any(arrivals) else 0)
        )
    join.advance(FOREVER_US)
    assert (join.late, join.states, join.groups) == (0, {}, {})
    return join.rows


def sources(relation: Any) -> list[Any]:
    return [relation] if not relation.inputs() else [each for one in relation.inputs() for each in sources(one)]


@functools.cache
def connected() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def oracle(query: str, left: list[Row], right: list[Row]) -> list[tuple[Any, ...]]:
    for name, found in (("l", left), ("r", right)):
        connected().execute(f"CREATE OR REPLACE TABLE {name} (id INT, k INT, v INT, ts BIGINT)")
        if found:
            values = ", ".join(str(each).replace("None", "NULL") for each in found)
            connected().execute(f"INSERT INTO {name} VALUES {values}")
    return connected().execute(query).fetchall()


def ordered(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interval", INTERVALS, ids=[each[0] for each in INTERVALS])
@settings(max_examples=8, deadline=None)
@given(left=rows, right=rows, random=st.randoms(use_true_random=False))
def test_interval_joins(
    kind: str, interval: tuple[str, str], left: list[Any], right: list[Any], random: Random
) -> None:
    ours, theirs = interval
    left, right = numbered(left), numbered(right)
    found = run(
        f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM l {kind} r ON l.k = r.k AND {ours};", left, right, random
    )
    wanted = oracle(f"SELECT l.id, r.id FROM l {kind} r ON l.k = r.k AND {theirs}", left, right)
    assert ordered(found) == ordered(wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", WINDOWS, ids=[f"{each[0]} {each[1]}" for each in WINDOWS])
@settings(max_examples=8, deadline=None)
@given(left=rows, right=rows, random=st.randoms(use_true_random=False))
def test_window_joins(kind: str, window: tuple[str, ...], left: list[Any], right: list[Any], random: Random) -> None:
    name, sizes, starts, end = window
    left, right = numbered(left), numbered(right)
    sides = [
        f"(SELECT * FROM TABLE({name}(TABLE {each}, DESCRIPTOR(ts), {sizes})) WHERE v <> 3) {alias}"
        for each, alias in (("l", "a"), ("r", "b"))
    ]
    on = "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end AND a.v <= b.v"
    found = run(
        f"{TABLES} INSERT INTO sink SELECT a.id, b.id FROM {sides[0]} {kind} {sides[1]} {on};", left, right, random
    )
    lists = [
        f"(SELECT *, {end} AS we FROM (SELECT *, unnest({starts}) AS ws FROM {each} WHERE v <> 3) x) {alias}"
        for each, alias in (("l", "a"), ("r", "b"))
    ]
    on = "ON a.k = b.k AND a.ws = b.ws AND a.we = b.we AND a.v <= b.v"
    assert ordered(found) == ordered(oracle(f"SELECT a.id, b.id FROM {lists[0]} {kind} {lists[1]} {on}", left, right))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("more", ["", "AND l.v < r.v", "AND l.v = 1 AND r.v > 1"])
@settings(max_examples=8, deadline=None)
@given(left=rows, right=rows, random=st.randoms(use_true_random=False))
def test_outer_joins_of_what_ends(kind: str, more: str, left: list[Any], right: list[Any], random: Random) -> None:
    left, right = numbered(left), numbered(right)
    query = f"SELECT l.id, r.id FROM l {kind} r ON l.k = r.k {more} WHERE COALESCE(l.v, 1) > 0 AND COALESCE(r.v, 2) < 3"
    found = run(f"{TABLES} INSERT INTO sink {query};", left, right, random)
    assert ordered(found) == ordered(oracle(query, left, right))


INNER = "l JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '2' SECOND AND l.ts + INTERVAL '10' SECOND"


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_key_that_always_gets_some_are_forgotten(kind: str) -> None:
    join = started(f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM {INNER.replace('JOIN', kind, 1)};")
    for n in range(600):
        join.bundle(n % 2, [(n, 1, n * SECOND)])
        join.advance(milliseconds(n * SECOND))
    copies = {"JOIN": 3, "LEFT JOIN": 4, "RIGHT JOIN": 4, "FULL JOIN": 8}[kind]
    assert join.most <= (12 + 12 + 12) * copies
    join.advance(FOREVER_US)
    assert (join.late, join.states) == (0, {})
    pairs = sum(n + m in range(600) and m % 2 == 1 for n in range(0, 600, 2) for m in range(-2, 11))
    assert len(join.rows) == pairs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 1], ids=["left first", "right first"])
def test_the_bounds_of_an_interval_are_in_it(kind: str, first: int) -> None:
    join = started(f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM {INNER.replace('JOIN', kind, 1)};")
    times = {2: 98 * SECOND - 1, 3: 98 * SECOND, 4: 110 * SECOND, 5: 110 * SECOND + 1}
    rows = [(1, 1, 100 * SECOND)], [(number, 1, time) for number, time in times.items()]
    for side in (first, 1 - first):
        join.bundle(side, rows[side])
    join.advance(FOREVER_US)
    alone = [(None, 2), (None, 5)] if kind in ("RIGHT JOIN", "FULL JOIN") else []
    assert ordered(join.rows) == ordered([(1, 3), (1, 4), *alone])


def test_rows_that_are_too_late_are_dropped_and_those_in_time_are_not() -> None:
    join = started(f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM {INNER.replace('JOIN', 'LEFT JOIN', 1)};")
    join.bundle(0, [(1, 1, 100 * SECOND), (2, 1, 200 * SECOND)])
    join.advance(150 * SECOND)
    assert join.rows == [(1, None)]
    join.bundle(1, [(3, 1, 105 * SECOND)])  # its partner came out without it
    join.bundle(0, [(4, 1, 110 * SECOND)])
    assert (join.rows, join.late) == ([(1, None)], 4)
    join.bundle(1, [(5, 1, 200 * SECOND)])
    join.advance(FOREVER_US)
    assert join.rows == [(1, None), (2, 5)]


@pytest.mark.parametrize("window", WINDOWS[:2], ids="{0[0]} {0[1]}".format)
def test_a_window_join_takes_rows_until_its_window_is_over(window: tuple[str, ...]) -> None:
    """However its windows are shifted: here they begin at 100 s or 103 s."""
    name, sizes, *_ = window
    sides = [f"TABLE({name}(TABLE {each}, DESCRIPTOR(ts), {sizes}))" for each in "lr"]
    join = started(
        f"{TABLES} INSERT INTO sink SELECT a.id, b.id FROM {sides[0]} AS a JOIN {sides[1]} AS b "
        "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end;"
    )
    end = (110 if "3" not in sizes else 113) * SECOND
    for side in (0, 1):
        join.advance(end - 2_000)
        join.bundle(side, [(side, 1, end - 10 * SECOND)])
    assert (join.rows, join.late) == ([], 0)
    join.advance(end)
    assert join.rows == [(0, 1)]
    join.bundle(0, [(2, 1, end - 1)])
    assert join.late == 1


def test_the_state_of_a_key_is_read_once_in_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(bag: Bag) -> list[Any]:
        reads.append(len(bag))
        return list(bag)

    monkeypatch.setattr(Bag, "read", read)
    join = started(f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM {INNER};")
    join.begin()
    for n in range(100):
        join.elements(n % 2, [(n, 1, 100 * SECOND + n)])
    assert len(join.rows) == 50 * 50
    assert len(reads) <= 2 * 2, "each side, of each piece of time"


@pytest.mark.parametrize("kind", KINDS)
def test_rows_out_of_order_in_a_bundle_join_as_those_in_bundles_of_their_own(kind: str) -> None:
    text = f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM {INNER.replace('JOIN', kind, 1)};"
    alone, together = started(text), started(text)
    together.begin()
    for number, second in enumerate([100, 60, 90, 75, 110, 80, 61]):
        for side in (0, 1):
            row = (number, 1, second * SECOND)
            alone.bundle(side, [row])
            together.elements(side, [row])
    for join in (alone, together):
        join.advance(FOREVER_US)
    assert ordered(together.rows) == ordered(alone.rows)


def test_pairs_of_a_key_are_made_some_at_a_time() -> None:
    join = started(f"{TABLES} INSERT INTO sink SELECT l.id, r.id FROM {INNER};")
    join.bundle(0, [(n, 1, 100 * SECOND) for n in range(1_200)])
    join.bundle(1, [(n, 1, 100 * SECOND) for n in range(75)])
    assert len(join.rows) == len(set(join.rows)) == 90_000
    assert join.largest < 3000
