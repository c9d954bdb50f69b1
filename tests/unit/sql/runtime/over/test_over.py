"""OVER by time: the functions beside DuckDB, what is kept between two calls, and streams with late rows."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio import MessageQueue, StartFrom, StopAt
from rmqio.runners import options
from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, ToRows
from rmqio.sql.compile.over import Frames
from rmqio.sql.explain.signature import Signature, changes, signature_of
from rmqio.sql.planning.plan import AggregateCall, Field
from rmqio.sql.planning.relations import OverCall
from rmqio.sql.rows import pack
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.over import ExpiringOverFn, OverFn, OverSpec
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.sql.values import ValueFailure, in_order
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.parts import WAITING_LEVELS
from tests.helpers.transforms.reading import clean_cluster

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

COLUMNS = "n INT, k STRING, v BIGINT, d DOUBLE, m DECIMAL(10, 2), ts TIMESTAMP(3)"
FRAMES = [
    "",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
]
CALLS = [
    "COUNT(*)", "COUNT(v)", "SUM(v)", "SUM(d)", "SUM(m)", "MIN(v)", "MAX(d)", "MIN(m)", "FIRST_VALUE(v)",
    "LAST_VALUE(m)", "COUNT(*) FILTER (WHERE v > 2)", "SUM(v) FILTER (WHERE k = 'x')", "MAX(v + n)",
]  # fmt: skip
LAGS = ["LAG(v)", "LAG(m, 2)", "LAG(v, 3, -1)"]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink"):
            made.create_topic(topic, 2)
        yield made


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    start = dt.datetime(2024, 1, 1)
    return [
        {
            "n": n,
            "k": random.choice(["x", "y", None]),
            "v": random.choice([None, 1, 2, 3, 4]),
            "d": random.choice([None, 0.1, 0.25, 1e16, -1e16, 3.0]),
            "m": random.choice([None, 1.25, 2.5, 99.99]),
            "ts": str(start + dt.timedelta(milliseconds=at)),
        }
        for n, at in enumerate(random.sample(range(0, 12_000, 250), count))
    ]


def job(cluster: InMemoryCluster, text: str) -> list[Any]:
    script = Script()
    script.run(text)
    connection = Connection(
        start=StartFrom.earliest(), stop=StopAt.latest(), client_factory=InMemoryClientFactory(cluster.name)
    )
    with beam.Pipeline(options=options([])) as pipeline:
        Translation(pipeline, connection).add_all(script.sinks)
    queues = [cluster.stored_queue(MessageQueue("sink", "broker-a", n)) for n in range(2)]
    return [json.loads(record.body) for queue in queues for record in queue.slice(0, 10_000)]


@pytest.mark.parametrize("partition", ["PARTITION BY k", ""])
def test_functions_give_what_duckdb_gives(partition: str, cluster: InMemoryCluster) -> None:
    rows = random_rows(Random(len(partition)), 30)
    for row in rows:
        cluster.append("t", json.dumps(row).encode(), queue_id=row["n"] % 2)
    calls = [(call, frame) for call in CALLS for frame in FRAMES] + [(each, "") for each in LAGS]
    columns = [f"CAST({call} OVER ({partition} ORDER BY ts {frame}) AS DOUBLE)" for call, frame in calls]
    sink = ", ".join(f"c{i} DOUBLE" for i in range(len(calls)))
    found = job(
        cluster,
        f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
        f"CREATE TABLE sink (n INT, {sink}) WITH ('topic' = 'sink');"
        f"INSERT INTO sink SELECT n, {', '.join(columns)} FROM t;",
    )
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({COLUMNS})")
    for row in rows:
        connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", list(row.values()))
    for call, column in zip(calls, columns, strict=True):
        skips = call[0].startswith(("FIRST", "LAST"))  # Flink's functions never see a NULL
        theirs = column.replace("(v) OVER", "(v IGNORE NULLS) OVER").replace("(m) OVER", "(m IGNORE NULLS) OVER")
        wanted = dict(connection.execute(f"SELECT n, {theirs if skips else column} FROM t").fetchall())
        ours = {row["n"]: row[f"c{calls.index(call)}"] for row in found}
        assert ours.keys() == wanted.keys()
        for n, value in wanted.items():
            if value is None or ours[n] is None or call[0] not in ("SUM(d)",):
                assert ours[n] == value, (call, n)
        if call[0] == "SUM(d)":
            assert {n for n, each in ours.items() if each is None} == {n for n, each in wanted.items() if each is None}


def test_equal_calls_are_one_and_calls_that_nothing_needs_are_none(cluster: InMemoryCluster) -> None:
    for n in range(3):
        cluster.append("t", json.dumps({"n": n, "ts": f"2024-01-01 00:00:0{n}"}).encode(), queue_id=n % 2)
    found = job(
        cluster,
        f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
        "CREATE TABLE sink (n INT, a BIGINT, b BIGINT) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT n, SUM(n) OVER (ORDER BY ts), SUM(n) OVER (ORDER BY ts) + sum(t.n) OVER (ORDER BY ts)"
        " FROM t;"
        "INSERT INTO sink SELECT n, n, n FROM (SELECT n, SUM(n) OVER (ORDER BY ts) AS s FROM t WHERE n > 1);",
    )
    assert sorted(tuple(each.values()) for each in found) == [(0, 0, 0), (1, 1, 2), (2, 2, 2), (2, 3, 6)]


def test_rows_of_one_time_are_peers_for_range_and_not_for_rows(cluster: InMemoryCluster) -> None:
    for n in range(4):
        cluster.append("t", json.dumps({"n": n, "ts": f"2024-01-01 00:00:0{n // 2}"}).encode(), queue_id=n % 2)
    found = job(
        cluster,
        f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
        "CREATE TABLE sink (n INT, a BIGINT, b BIGINT, c BIGINT) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT n, SUM(n) OVER (ORDER BY ts), SUM(n) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING), "
        "COUNT(*) OVER (ORDER BY ts ROWS 1 PRECEDING) FROM t WHERE n < 10;",
    )
    assert sorted(tuple(each.values()) for each in found) == [(0, 1, 0, 1), (1, 1, 1, 2), (2, 6, 3, 2), (3, 6, 6, 2)]


def test_a_row_without_a_time_obeys_the_table(cluster: InMemoryCluster) -> None:
    for n, time in enumerate(["2024-01-01 00:00:00", None]):
        cluster.append("t", json.dumps({"n": n, "ts": time}).encode())
    found = job(
        cluster,
        f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('topic' = 't', 'on-error' = 'skip');"
        "CREATE TABLE sink (n INT, a BIGINT) WITH ('topic' = 'sink');"
        "INSERT INTO sink SELECT n, COUNT(*) OVER (ORDER BY ts) FROM t;",
    )
    assert found == [{"n": 0, "a": 1}]


# ---- frames ---------------------------------------------------------------------------------------------------------

BIGINT, DOUBLE, DECIMAL = types.BIGINT, types.DOUBLE, types.decimal(38, 2)
FIELDS = (
    Field("ts", types.TIMESTAMP),
    Field("i", BIGINT),
    Field("d", DOUBLE),
    Field("m", DECIMAL),
    Field("s", types.VARCHAR),
)
KINDS = [
    ("COUNT", None, BIGINT), ("COUNT", 4, BIGINT), ("SUM", 1, BIGINT), ("AVG", 1, BIGINT), ("SUM", 2, DOUBLE),
    ("AVG", 2, DOUBLE), ("SUM", 3, DECIMAL), ("AVG", 3, types.decimal(38, 6)), ("MIN", 4, types.VARCHAR),
    ("MAX", 1, BIGINT), ("MIN", 2, DOUBLE), ("MAX", 2, DOUBLE), ("FIRST_VALUE", 4, types.VARCHAR),
    ("LAST_VALUE", 3, DECIMAL),
]  # fmt: skip
ALL = [
    OverCall(AggregateCall(name, kind, argument), unit, size)
    for name, argument, kind in KINDS
    for unit, size in (("ROWS", None), ("ROWS", 0), ("ROWS", 2), ("RANGE", None), ("RANGE", 0), ("RANGE", 3))
] + [OverCall(AggregateCall("LAG", types.VARCHAR, 4), "ROWS", n) for n in (0, 1, 3)]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from([0.1, -0.1, 1e300, -1e300, 1e-300, 0.0, -0.0, 5.0, math.inf, -math.inf, math.nan]),
        st.none() | st.decimals(-100, 100, places=2),
        st.none() | st.sampled_from("abc"),
    ),
    max_size=14,
)


def naive(call: OverCall, rows: list[Any], at: int) -> Any:
    """The result for a row, computed of all rows before it."""
    over, time = call.call, rows[at][0]
    if over.name == "LAG":
        return rows[at - (call.preceding or 0)][4] if at >= (call.preceding or 0) else None
    if call.unit == "ROWS":
        frame = rows[0 if call.preceding is None else max(0, at - call.preceding) : at + 1]
    else:
        frame = [row for row in rows if (call.preceding is None or row[0] >= time - call.preceding) and row[0] <= time]
    if over.argument is None:
        return len(frame)
    found = [row[over.argument] for row in frame if row[over.argument] is not None]
    if over.name == "COUNT":
        return len(found)
    if not found:
        return None
    match over.name:
        case "MIN":
            return min(found, key=in_order)
        case "MAX":
            return max(found, key=in_order)
        case "FIRST_VALUE" | "LAST_VALUE":
            return found[0 if over.name == "FIRST_VALUE" else -1]
    if over.argument == 2:
        odd = [each for each in found if not math.isfinite(each)]
        total: Any = sum(odd) if odd else math.fsum(found)
        return total if over.name == "SUM" else total / len(found)
    total = sum(found)
    if over.name == "SUM":
        return total
    if over.argument == 3:
        return (total / len(found)).quantize(Decimal("1.000000"), rounding="ROUND_HALF_UP")
    return abs(total) // len(found) * (1 if total >= 0 else -1)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.sets(st.integers(1, 12)))
def test_frames_that_are_kept_give_what_all_rows_give(rows: list[Any], cuts: set[int]) -> None:
    """Also after they were kept and restored between any two times."""
    rows = sorted(rows, key=lambda row: row[0])
    kept, found = b"", []
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), 13], strict=True):
        frames = Frames(ALL, 0, FIELDS, kept)
        found += frames.advance([row for row in rows if first <= row[0] < last])
        kept = frames.kept()
    for at, results in enumerate(found):
        for call, result in zip(ALL, results, strict=True):
            wanted = naive(call, rows, at)
            assert str(result) == str(wanted), (call, at, result, wanted)


def test_what_is_kept_is_what_frames_need() -> None:
    moving = [
        OverCall(AggregateCall("SUM", BIGINT, 1), "ROWS", 2),
        OverCall(AggregateCall("MAX", BIGINT, 1), "RANGE", 5),
    ]
    growing = [OverCall(AggregateCall(name, BIGINT, 1), "ROWS", None) for name in ("SUM", "MIN", "LAST_VALUE", "AVG")]
    rows = [(n, n, None, None, None) for n in range(1000)]
    sizes = []
    for calls in (moving, growing):
        frames = Frames(calls, 0, FIELDS)
        frames.advance(rows)
        sizes.append(len(frames.kept()))
    assert sizes[0] < 100
    assert sizes[1] < 100


def test_a_sum_of_more_than_64_bits_is_kept_and_refused_when_it_is_a_result() -> None:
    calls = [OverCall(AggregateCall("SUM", BIGINT, 1), "RANGE", None)]
    largest = (1 << 63) - 1
    frames = Frames(calls, 0, FIELDS)
    assert frames.advance([(1, largest, None, None, None)]) == [(largest,)]
    again = Frames(calls, 0, FIELDS, frames.kept())
    ((failure,),) = again.advance([(2, 1, None, None, None)])
    assert isinstance(failure, ValueFailure)
    assert "out of range of BIGINT" in str(failure)


# ---- streams --------------------------------------------------------------------------------------------------------


class Cell:
    """A state or a timer of one key, as Beam gives it to the DoFn."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.value: Any = None

    def read(self) -> Any:
        return self.value if self.value is not None or not self.values else list(self.values)

    def write(self, value: Any) -> None:
        self.value = value

    set = write

    def add(self, value: bytes) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values, self.value = [], None


class Pending(Cell):
    count = 0

    def read(self) -> Any:
        self.count += len(self.values)
        return list(self.values)


class Key:
    """An OVER of one key of a stream: rows, and a watermark that passes their times."""

    more: tuple[Cell, ...] = ()
    """Of one with a time to live: what it keeps, when the last row was there, and the timer."""

    def __init__(self, fn: OverFn) -> None:
        self.fn = fn
        self.found: list[Any] = []
        self.kept, self.done, self.following, self.due = Cell(), Cell(), Cell(), Cell()
        self.waiting: Any = [*(Pending() for _ in range(WAITING_LEVELS)), Cell()]
        fn.setup()

    def come(self, *rows: tuple[float, int]) -> None:
        packed = [pack((int(at * 1_000_000), n)) for at, n in rows]
        process: Any = self.fn.process
        process((b"k", (0, packed)), *self.waiting, self.done, self.following, self.due, *self.more)

    def pass_time(self, seconds: float) -> None:
        while self.due.value is not None and self.due.value.micros <= seconds * 1_000_000:
            self.due.value = None
            self.fn.start_bundle()
            put_out: Any = self.fn.put_out
            for batch in put_out(*self.waiting, self.kept, self.done, self.following, self.due, *self.more[1:2]):
                self.found += batch
            for late in self.fn.finish_bundle():
                self.found += late.value

    def rows(self) -> list[Any]:
        found, self.found = [(at / 1_000_000, *others) for at, *others in self.found], []
        return found


def test_rows_come_out_in_order_when_the_watermark_passes_them_and_late_ones_are_left_out() -> None:
    fields = (Field("ts", types.TIMESTAMP), Field("n", BIGINT))
    calls = (
        OverCall(AggregateCall("SUM", BIGINT, 1), "RANGE", None),
        OverCall(AggregateCall("COUNT", BIGINT), "RANGE", 2_000_000),
        OverCall(AggregateCall("LAG", BIGINT, 1), "ROWS", 1),
    )
    fragment = Fragment(FromRows((*fields, *(Field(f"r{n}", BIGINT) for n in range(3)))), (), ToRows())
    key = Key(OverFn(OverSpec(calls, 0, fields, fragment)))
    key.come((5, 5), (3, 3))
    key.come((1, 1), (3.5, 4))
    assert key.rows() == []
    key.pass_time(5)
    assert key.rows() == [(1, 1, 1, 1, None), (3, 3, 4, 2, 1), (3.5, 4, 8, 2, 3)]
    key.come((2, 1000), (4.9, 10))  # the first one is late: 3.5 has come out
    key.come((5.5, 6))
    key.pass_time(20)
    assert key.rows() == [(4.9, 10, 18, 3, 4), (5, 5, 23, 4, 10), (5.5, 6, 29, 4, 5)]
    key.come((19, 100), (20, 7))
    key.pass_time(1000)
    assert key.rows() == [(19, 100, 129, 1, 6), (20, 7, 136, 2, 100)]
    assert [each.read() for each in key.waiting] == [[]] * WAITING_LEVELS + [None]
    assert key.due.value is None


def test_a_key_with_hours_of_rows_reads_each_a_few_times() -> None:
    fields = (Field("ts", types.TIMESTAMP), Field("n", BIGINT))
    fragment = Fragment(FromRows((*fields, Field("r", BIGINT))), (), ToRows())
    key = Key(OverFn(OverSpec((OverCall(AggregateCall("SUM", BIGINT, 1), "RANGE", None),), 0, fields, fragment)))
    key.come(*((n, 1) for n in range(2_000)))
    for second in range(2_001):
        key.pass_time(second)
    assert [row[2] for row in key.rows()] == list(range(1, 2_001))
    assert sum(each.count for each in key.waiting[:-1]) < 40 * 2_000


class ExpiringKey(Key):
    """The same with a time to live, whose clock is another one than that of the watermark."""

    def __init__(self, fn: ExpiringOverFn) -> None:
        super().__init__(fn)
        self.last, self.timer = Cell(), Cell()
        self.more = self.kept, self.last, self.timer
        self.expire = fn.expire

    def at(self, now_ms: int) -> None:
        while self.timer.value is not None and self.timer.value * 1000 <= now_ms:
            Time.now_ms, self.timer.value = round(self.timer.value * 1000), None
            self.expire(self.done, self.following, *self.more)
        Time.now_ms = now_ms


class Time:
    now_ms = 0

    @classmethod
    def time_ns(cls) -> int:
        return cls.now_ms * 1_000_000


def test_a_key_is_forgotten_after_its_time_unless_rows_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "time", Time)
    fields = (Field("ts", types.TIMESTAMP), Field("n", BIGINT))
    calls = (
        OverCall(AggregateCall("SUM", BIGINT, 1), "RANGE", None),
        OverCall(AggregateCall("LAG", BIGINT, 1), "ROWS", 1),
    )
    fragment = Fragment(FromRows((*fields, *(Field(f"r{n}", BIGINT) for n in range(2)))), (), ToRows())
    key = ExpiringKey(ExpiringOverFn(OverSpec(calls, 0, fields, fragment), 10_000))
    key.at(0)
    key.come((1, 1))
    key.at(25_000)
    key.pass_time(2)
    assert key.rows() == [(1, 1, 1, None)], "a row that waits for the watermark is not forgotten"
    key.at(34_000)
    key.come((3, 2))
    key.pass_time(4)
    assert key.rows() == [(3, 2, 3, 1)], "the time is counted from when the rows before came out"
    key.at(43_999)
    assert key.kept.value is not None
    key.at(70_000)
    states = [key.kept, key.done, key.following, key.last, key.timer, *key.waiting]
    assert [each.value for each in states] == [None] * len(states)
    key.come((5, 4))
    Time.now_ms = 99_000  # the timer is late
    key.pass_time(6)
    key.come((7, 8))
    key.pass_time(8)
    assert key.rows() == [(5, 4, 4, None), (7, 8, 12, 4)]
    Time.now_ms = 109_000
    key.come((9, 16))
    key.pass_time(10)
    assert key.rows() == [(9, 16, 16, None)]


# ---- the signature of a job -----------------------------------------------------------------------------------------


def signature(query: str) -> Signature:
    script = Script()
    script.run(
        f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
        "CREATE TABLE sink (n BIGINT, m BIGINT) WITH ('topic' = 'sink'); SET 'table.exec.state.ttl' = '1 h';"
        f"INSERT INTO sink {query};"
    )
    return signature_of(script.sinks)


def test_a_changed_frame_or_sub_query_is_told_and_a_comment_is_not() -> None:
    over = "SELECT n, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS {} PRECEDING) FROM t"
    before = signature(over.format(2))
    assert changes(before, signature(f"/* as before */ {over.format(2)}")) == []
    (told,) = changes(before, signature(over.format(3)))
    assert "over: functions was SUM(t.v) OVER (ROWS 2 PRECEDING), and is SUM(t.v) OVER (ROWS 3 PRECEDING)" in told
    inside = "SELECT n, v FROM t WHERE k IN (SELECT k FROM t {})"
    assert changes(signature(inside.format("")), signature(inside.format("-- all\nWHERE v > 1"))) == []
    told, *_ = changes(
        signature(inside.format("")), signature(inside.replace("k IN (SELECT k", "v IN (SELECT v").format(""))
    )
    assert "sub-query: condition was t.k = t.k, and is t.v = t.v" in told
