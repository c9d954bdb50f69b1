"""Windows over TIMESTAMP_LTZ follow the clock of the session's time zone, also on days of 23 and of 25 hours."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.utils.timestamp import MIN_TIMESTAMP

from rmqio.sql import types
from rmqio.sql.compile.description import Fragment, FromRows, ToRows
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Calc, Field, Window
from rmqio.sql.rows import pack_group
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.aggregate_fn import AggregateSpec, ProcessingFn
from rmqio.sql.values import datetime_of, last_instant_in, local_in, micros_of
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, rows, run
from tests.unit.sql.runtime.ranks.updating import Cell

BERLIN: Final = ZoneInfo("Europe/Berlin")
HOUR: Final = dt.timedelta(hours=1)
DAY: Final = dt.timedelta(days=1)
SPRING = ("03-30T22:30", "03-30T23:30", "03-31T00:30", "03-31T00:59", "03-31T01:30", "03-31T21:30", "03-31T22:30")
AUTUMN = ("10-26T21:30", "10-26T22:30", "10-27T00:30", "10-27T01:30", "10-27T22:30", "10-27T23:30")
TIMES: Final = [dt.datetime.fromisoformat(f"2024-{each}+00:00") for each in (*SPRING, *AUTUMN)]
"""A day of 23 hours, and one of 25 in which clocks show 02:30 twice."""
LOCAL: Final = [each.astimezone(BERLIN).replace(tzinfo=None) for each in TIMES]

Bounds = tuple[dt.datetime, dt.datetime]
BOUNDS: Final = "CAST(window_start AS STRING), CAST(window_end AS STRING)"
COUNTS: Final = "COUNT(*), MIN(id), MAX(id)"
BY_WINDOW: Final = "GROUP BY window_start, window_end"


def start(at: dt.datetime, size: dt.timedelta, offset: dt.timedelta = 0 * HOUR) -> dt.datetime:
    """Returns where the window begins that has the time of a clock."""
    return at - (at - dt.datetime(1970, 1, 1) - offset) % size


def tumbled(size: dt.timedelta, offset: dt.timedelta = 0 * HOUR) -> Callable[[dt.datetime], list[Bounds]]:
    return lambda at: [(start(at, size, offset), start(at, size, offset) + size)]


def hopped(
    slide: dt.timedelta, size: dt.timedelta, offset: dt.timedelta = 0 * HOUR
) -> Callable[[dt.datetime], list[Bounds]]:
    firsts = [n * slide for n in range(size // slide)]
    return lambda at: [(start(at, slide, offset) - each, start(at, slide, offset) - each + size) for each in firsts]


def cumulated(
    step: dt.timedelta, size: dt.timedelta, offset: dt.timedelta = 0 * HOUR
) -> Callable[[dt.datetime], list[Bounds]]:
    def bounds(at: dt.datetime) -> list[Bounds]:
        ends = [start(at, size, offset) + n * step for n in range(1, size // step + 1)]
        return [(start(at, size, offset), end) for end in ends if end > at]

    return bounds


def text(at: dt.datetime) -> str:
    return at.isoformat(" ", "milliseconds")


def before(at: str) -> str:
    return text(dt.datetime.fromisoformat(at) - dt.timedelta(milliseconds=1))


def grouped(bounds: Callable[[dt.datetime], list[Bounds]], at: list[dt.datetime] = LOCAL) -> list[tuple[Any, ...]]:
    """Returns the rows of windows: their bounds, how many rows they have, and the first and the last one's number."""
    found: dict[Bounds, list[int]] = defaultdict(list)
    for number, each in enumerate(at):
        for window in bounds(each):
            found[window].append(number)
    return sorted((text(low), text(high), len(ids), min(ids), max(ids)) for (low, high), ids in found.items())


def of(window: str, table: str = "t", column: str = "ts") -> str:
    name, arguments = window.split(" ", 1)
    return f"TABLE({name}(TABLE {table}, DESCRIPTOR({column}), {arguments}))"


def aggregated(window: str, table: str = "t", column: str = "ts") -> str:
    return f"SELECT {BOUNDS}, {COUNTS} FROM {of(window, table, column)} {BY_WINDOW}"


ONE_DAY: Final = "TUMBLE INTERVAL '1' DAY"
ONE_HOUR: Final = "TUMBLE INTERVAL '1' HOUR"
HALF_DAYS: Final = "HOP INTERVAL '12' HOUR, INTERVAL '1' DAY"
DAYS: Final = grouped(tumbled(DAY))
DAY_OF: Final = [tuple(map(text, tumbled(DAY)(each)[0])) for each in LOCAL]
INNER: Final = f"SELECT window_start, window_end, id FROM {of(ONE_DAY)}"
TEN: Final = dt.timedelta(minutes=10)
SHIFTED: Final[dict[str, tuple[str, Callable[[dt.datetime], list[Bounds]]]]] = {
    "tumble": ("TUMBLE INTERVAL '1' HOUR, INTERVAL '10' MINUTE", tumbled(HOUR, TEN)),
    "tumble backwards": ("TUMBLE INTERVAL '1' HOUR, INTERVAL '-10' MINUTE", tumbled(HOUR, -TEN)),
    "hop": ("HOP INTERVAL '1' HOUR, INTERVAL '3' HOUR, INTERVAL '10' MINUTE", hopped(HOUR, 3 * HOUR, TEN)),
    "cumulate": (
        "CUMULATE INTERVAL '1' HOUR, INTERVAL '3' HOUR, INTERVAL '70' MINUTE",
        cumulated(HOUR, 3 * HOUR, 7 * TEN),
    ),
}
"""Windows with an offset. Rows lie on both sides of their bounds, and of those of the offset of the other sign."""
CLOCKS: Final = {"t": ("ts", LOCAL), "plain": ("utc", [each.replace(tzinfo=None) for each in TIMES])}
FORMS: Final[dict[str, tuple[str, list[tuple[Any, ...]]]]] = {
    "tumble": (aggregated(ONE_DAY), DAYS),
    "tumble of an hour": (aggregated(ONE_HOUR), grouped(tumbled(HOUR))),
    "tumble of half an hour": (aggregated("TUMBLE INTERVAL '30' MINUTE"), grouped(tumbled(HOUR / 2))),
    "tumble with an offset": (
        aggregated("TUMBLE INTERVAL '1' DAY, INTERVAL '6' HOUR"),
        grouped(tumbled(DAY, 6 * HOUR)),
    ),
    "hop": (aggregated(HALF_DAYS), grouped(hopped(12 * HOUR, DAY))),
    "cumulate": (aggregated("CUMULATE INTERVAL '6' HOUR, INTERVAL '1' DAY"), grouped(cumulated(6 * HOUR, DAY))),
    "group by tumble": (
        "SELECT CAST(TUMBLE_START(ts, INTERVAL '1' DAY) AS STRING), CAST(TUMBLE_END(ts, INTERVAL '1' DAY) AS STRING), "
        f"{COUNTS} FROM t GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
        DAYS,
    ),
    "group by hop": (
        "SELECT CAST(HOP_START(ts, INTERVAL '12' HOUR, INTERVAL '1' DAY) AS STRING), "
        f"CAST(HOP_END(ts, INTERVAL '12' HOUR, INTERVAL '1' DAY) AS STRING), {COUNTS} FROM t "
        "GROUP BY HOP(ts, INTERVAL '12' HOUR, INTERVAL '1' DAY)",
        grouped(hopped(12 * HOUR, DAY)),
    ),
    "rows": (
        f"SELECT {BOUNDS}, id, id, id FROM {of(ONE_DAY)}",
        sorted((*bounds, n, n, n) for n, bounds in enumerate(DAY_OF)),
    ),
    "rows, grouped later": (f"SELECT {BOUNDS}, {COUNTS} FROM ({INNER}) AS r {BY_WINDOW}", DAYS),
    "groups of hops, grouped again": (
        f"SELECT {BOUNDS}, COUNT(*), MIN(low), MAX(high) FROM (SELECT window_start, window_end, id, MIN(id) AS low, "
        f"MAX(id) AS high FROM {of(HALF_DAYS)} GROUP BY window_start, window_end, id) AS g {BY_WINDOW}",
        grouped(hopped(12 * HOUR, DAY)),
    ),
    "first rows of a window": (
        f"SELECT {BOUNDS}, CAST(rn AS BIGINT), id, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
        f"window_end ORDER BY id DESC) AS rn FROM ({INNER}) AS r) AS n WHERE rn <= 1",
        [(low, high, 1, last, last) for low, high, _, _, last in DAYS],
    ),
    "window join": (
        f"SELECT CAST(a.window_start AS STRING), CAST(b.window_end AS STRING), COUNT(*), MIN(a.id), MAX(b.id) "
        f"FROM ({INNER}) AS a JOIN ({INNER}) AS b ON a.window_start = b.window_start AND a.window_end = b.window_end "
        "GROUP BY a.window_start, b.window_end, b.window_start, a.window_end",
        [(low, high, count**2, first, last) for low, high, count, first, last in DAYS],
    ),
    "union": (
        f"SELECT CAST(a AS STRING), CAST(b AS STRING), n, low, high FROM (SELECT window_start AS a, window_end AS b, "
        f"COUNT(*) AS n, MIN(id) AS low, MAX(id) AS high FROM {of(ONE_DAY)} {BY_WINDOW} UNION SELECT window_start, "
        f"window_end, COUNT(*), MIN(id), MAX(id) FROM {of(ONE_DAY)} {BY_WINDOW}) AS u",
        DAYS,
    ),
    "windows of windows": (
        "SELECT CAST(TUMBLE_START(wt, INTERVAL '4' DAY) AS STRING), CAST(TUMBLE_END(wt, INTERVAL '4' DAY) AS STRING), "
        f"SUM(n), MIN(low), MAX(high) FROM (SELECT window_time AS wt, COUNT(*) AS n, MIN(id) AS low, MAX(id) AS high "
        f"FROM {of(ONE_HOUR)} GROUP BY window_start, window_end, window_time) AS w "
        "GROUP BY TUMBLE(wt, INTERVAL '4' DAY)",
        grouped(tumbled(4 * DAY)),
    ),
    "the time of a window": (
        f"SELECT CAST(window_time AS STRING), CAST(CAST(window_time AS TIMESTAMP(3)) AS STRING), {COUNTS} "
        f"FROM {of(ONE_DAY)} GROUP BY window_start, window_end, window_time",
        [(before(high), before(high), *more) for _, high, *more in DAYS],
    ),
    "sessions, of true time": (
        "SELECT CAST(SESSION_START(ts, INTERVAL '90' MINUTE) AS STRING), "
        f"CAST(SESSION_END(ts, INTERVAL '90' MINUTE) AS STRING), {COUNTS} FROM t "
        "GROUP BY SESSION(ts, INTERVAL '90' MINUTE)",
        [
            ("2024-03-30 23:30:00.000", "2024-03-31 05:00:00.000", 5, 0, 4),
            ("2024-03-31 23:30:00.000", "2024-04-01 02:00:00.000", 2, 5, 6),
            ("2024-10-26 23:30:00.000", "2024-10-27 02:00:00.000", 2, 7, 8),
            ("2024-10-27 02:30:00.000", "2024-10-27 04:00:00.000", 2, 9, 10),
            ("2024-10-27 23:30:00.000", "2024-10-28 02:00:00.000", 2, 11, 12),
        ],
    ),
    "tumble with parts of a millisecond": (
        aggregated("TUMBLE INTERVAL '1800.0009' SECOND, INTERVAL '-0.0009' SECOND"),
        grouped(tumbled(HOUR / 2)),
    ),
    "hop with parts of a millisecond": (
        aggregated("HOP INTERVAL '3600.0004' SECOND, INTERVAL '7200.0009' SECOND"),
        grouped(hopped(HOUR, 2 * HOUR)),
    ),
    "cumulate with parts of a millisecond": (
        aggregated("CUMULATE INTERVAL '0 06:00:00.000999' DAY TO SECOND, INTERVAL '86400.000001' SECOND"),
        grouped(cumulated(6 * HOUR, DAY)),
    ),
    "group by tumble, with parts of a millisecond": (
        "SELECT CAST(TUMBLE_START(ts, INTERVAL '86400.0005' SECOND) AS STRING), "
        f"CAST(TUMBLE_END(ts, INTERVAL '86400.0005' SECOND) AS STRING), {COUNTS} FROM t "
        "GROUP BY TUMBLE(ts, INTERVAL '86400.0005' SECOND)",
        DAYS,
    ),
    "a TIMESTAMP has no zone": (
        f"SELECT {BOUNDS}, {COUNTS} FROM {of(ONE_DAY, 'plain', 'utc')} {BY_WINDOW}",
        grouped(tumbled(DAY), [each.replace(tzinfo=None) for each in TIMES]),
    ),
    **{
        f"{name} with an offset, {table}": (aggregated(window, table, column), grouped(bounds, at))
        for name, (window, bounds) in SHIFTED.items()
        for table, (column, at) in CLOCKS.items()
    },
    **{
        f"rows of {name} with an offset": (
            f"SELECT {BOUNDS}, id, id, id FROM {of(window)}",
            [(text(low), text(high), n, n, n) for n, at in enumerate(LOCAL) for low, high in bounds(at)],
        )
        for name, (window, bounds) in SHIFTED.items()
    },
    "window join with an offset": (
        "SELECT CAST(a.window_start AS STRING), CAST(b.window_end AS STRING), a.id, b.id, b.id FROM "
        f"{of(SHIFTED['tumble'][0], 'plain', 'utc')} AS a JOIN {of(SHIFTED['tumble'][0], 'plain', 'utc')} AS b "
        "ON a.id = b.id AND a.window_start = b.window_start AND a.window_end = b.window_end",
        [
            (text(low), text(high), n, n, n)
            for n, at in enumerate(CLOCKS["plain"][1])
            for low, high in tumbled(HOUR, TEN)(at)
        ],
    ),
}


@pytest.fixture(scope="module")
def written() -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    """What all forms write, in one job."""
    with clean_cluster() as cluster:
        cluster.create_topic("t", 2)
        put(cluster, "t", *({"id": n, "ts": f"{at:%Y-%m-%d %H:%M:%SZ}", "utc": f"{at:%Y-%m-%d %H:%M:%S}"}
                            for n, at in enumerate(TIMES)))  # fmt: skip
        texts = [
            "SET 'table.local-time-zone' = 'Europe/Berlin'",
            "CREATE TABLE t (id BIGINT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't')",
            "CREATE TABLE plain (id BIGINT, utc TIMESTAMP(3), WATERMARK FOR utc AS utc) WITH ('topic' = 't')",
        ]
        for number, (query, _) in enumerate(FORMS.values()):
            cluster.create_topic(f"s{number}", 2)
            columns = "a STRING, b STRING, n BIGINT, low BIGINT, high BIGINT"
            texts.append(f"CREATE TABLE s{number} ({columns}) WITH ('topic' = 's{number}')")
            texts.append(f"INSERT INTO s{number} {query}")
        run(cluster, ";\n".join(texts) + ";")
        yield {form: rows(cluster, f"s{number}") for number, form in enumerate(FORMS)}


@pytest.mark.parametrize("form", FORMS)
def test_windows_are_those_of_the_clock_of_the_session(form: str, written: dict[str, list[tuple[Any, ...]]]) -> None:
    assert written[form] == sorted(FORMS[form][1])


def instant(at: str) -> int:
    return micros_of(dt.datetime.fromisoformat(f"2024-{at}"))


@pytest.mark.parametrize(
    ("zone", "utc", "local"),
    [
        ("Europe/Berlin", "03-31 00:59:59", "03-31 01:59:59"),
        ("Europe/Berlin", "03-31 01:00:00", "03-31 03:00:00"),
        ("Europe/Berlin", "10-27 00:59:59", "10-27 02:59:59"),
        ("Europe/Berlin", "10-27 01:00:00", "10-27 02:00:00"),
        ("Asia/Kathmandu", "01-01 18:15:00", "01-02 00:00:00"),
        ("GMT-03:30", "01-01 00:00:00", "12-31 20:30:00"),
        ("UTC", "01-01 00:00:00", "01-01 00:00:00"),
    ],
)
def test_a_clock_shows_the_time_of_its_zone(zone: str, utc: str, local: str) -> None:
    wanted = instant(local) - (366 * 86_400_000_000 if local.startswith("12-31") else 0)
    assert local_in(zone, instant(utc)) == wanted


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("03-31 00:00:00", "03-30 22:59:59.999"),
        ("03-31 03:00:00", "03-31 01:59:59.999"),  # the hour before it is not there
        ("03-31 02:30:00", "03-31 01:29:59.999"),  # nor is this one: as Flink
        ("10-27 02:30:00", "10-27 01:29:59.999"),  # it is there twice
        ("10-27 03:00:00", "10-27 01:59:59.999"),
    ],
)
def test_the_last_moment_of_what_ends_by_a_clock(end: str, last: str) -> None:
    assert datetime_of(last_instant_in("Europe/Berlin", instant(end))) == datetime_of(instant(last))


def test_no_quarter_of_an_hour_changes_what_a_clock_shows() -> None:
    """Some zones of long ago change their offsets at odd seconds."""
    at = micros_of(dt.datetime(1972, 1, 7, 0, 44, 29))
    shown = [datetime_of(local_in("Africa/Monrovia", each)).time() for each in (at, at + 1_000_000)]
    assert shown == [dt.time(23, 59, 59), dt.time(0, 44, 30)]


def set_clock(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    monkeypatch.setattr(windows, "time", SimpleNamespace(time_ns=lambda: instant(at) * 1000))


_HOUR_US: Final = 3_600_000_000
FIELDS: Final = (Field("n", types.BIGINT),)


@pytest.mark.parametrize(
    ("kind", "offset_min", "wanted"),
    [
        ("TUMBLE", 0, [("02:00", "03:00", "01:59:59.999", 2)]),
        ("TUMBLE", 10, [("02:10", "03:10", "02:09:59.999", 2)]),
        ("TUMBLE", -10, [("01:50", "02:50", "01:49:59.999", 2)]),
        ("SESSION", 0, [("02:30", "02:30", "01:29:59.999", 1), ("02:30", "03:30", "02:29:59.999", 1)]),
    ],
)
def test_windows_of_processing_time_end_by_the_clock(
    kind: str, offset_min: int, wanted: list[tuple[str, str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks show 02:30 twice: both times are in one hour."""
    window = Window(kind, -1, _HOUR_US, _HOUR_US, offset_min * 60_000_000, is_processing=True, zone="Europe/Berlin")
    aggregate = Aggregate((), Calc(FIELDS, None, None, ()), (), window, (AggregateCall("COUNT", types.BIGINT),))  # type: ignore[arg-type]
    fn = ProcessingFn(AggregateSpec(aggregate, FIELDS, Fragment(FromRows((*FIELDS * 4,)), (), ToRows())))
    fn.setup()
    fn.start_bundle()
    kept, timer = Cell(), Cell()
    for now in ("10-27 00:30:00", "10-27 01:30:00"):
        set_clock(monkeypatch, now)
        list(fn.process((b"", pack_group((), [1])), kept, timer, None, MIN_TIMESTAMP))
    assert timer.value == (instant(f"10-27 {wanted[-1][2]}") + 1000) / 1e6
    set_clock(monkeypatch, "10-27 04:00:00")
    list(fn.close(kept, timer, None, MIN_TIMESTAMP))
    day = dt.datetime(2024, 10, 27)
    assert [(*(datetime_of(each) for each in row[:3]), row[3]) for row in fn._rows] == [
        (*(dt.datetime.combine(day, dt.time.fromisoformat(each)) for each in times), count) for *times, count in wanted
    ]
