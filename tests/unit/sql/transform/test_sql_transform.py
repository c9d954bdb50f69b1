"""`SqlTransform` on the Direct runner: inputs, types, times, windows and bad rows."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import sys
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
import pandas as pd  # type: ignore[import-untyped]
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from rmqio.errors import LocalError
from rmqio.runners import options
from rmqio.sql import SqlTransform, element_time
from tests.unit.sql.transform.row_kinds import Customer, Everything, Local, Loose, Place, Seen, doubled
from tests.unit.sql.transform.support import OLD_BEAM, check, orders, pipeline, run

__all__ = ["pipeline"]

EVERYTHING = Everything(
    True, 1, 2, 3, 1 << 62, 0.5, math.pi, "é中", b"\x00\xff", Decimal("12.340000000000000000"), Timestamp(1.5),  # type: ignore[arg-type]
    dt.date(2024, 2, 29), [1, None], {"a": "b"}, Place("Bern", None), None,
)  # fmt: skip


def test_rows_of_all_types_go_through(pipeline: beam.Pipeline) -> None:
    rows = (
        pipeline | beam.Create([EVERYTHING]).with_output_types(Everything) | SqlTransform("SELECT * FROM PCOLLECTION")
    )
    hints = rows.element_type.__annotations__
    assert hints == {**Everything.__annotations__, "place": hints["place"]}
    assert hints["place"].__annotations__ == Place.__annotations__
    check(rows, [tuple(EVERYTHING)])
    run(pipeline)


@OLD_BEAM
def test_rows_made_on_the_way_have_their_types(pipeline: beam.Pipeline) -> None:
    made = pipeline | beam.Create([1, 2]) | beam.Map(lambda n: beam.Row(a=n, b=[str(n)], c=n / 2, d=str(n)))
    rows = made | SqlTransform("SELECT a + 1 AS a, b[1] AS b, c > 0.6 AS c, COALESCE(d, '-') AS d FROM PCOLLECTION")
    assert rows.element_type._fields == ("a", "b", "c", "d")
    check(rows, [(2, "1", False, "1"), (3, "2", True, "2")])
    run(pipeline)


def test_values_that_come_out(pipeline: beam.Pipeline) -> None:
    text = (
        "SELECT TIMESTAMP '2024-01-01 00:00:01.5' AS a, DATE '2024-01-01' AS b, TIME '01:02:03' AS c, "
        "CAST(NULL AS INT) AS d, ARRAY[DATE '2024-01-01'] AS e, MAP['k', DATE '2024-01-02'] AS f, "
        "CAST(1.5 AS DECIMAL(10, 2)) AS g, CAST(2 AS SMALLINT) AS h"
    )
    rows = pipeline | SqlTransform(text)
    check(
        rows,
        [(Timestamp.from_rfc3339("2024-01-01T00:00:01.5Z"), dt.date(2024, 1, 1), "01:02:03", None,
          [dt.date(2024, 1, 1)], {"k": dt.date(2024, 1, 2)}, Decimal("1.50"), 2)],
    )  # fmt: skip
    run(pipeline)


@OLD_BEAM
def test_joins_groups_unions_and_views(pipeline: beam.Pipeline) -> None:
    known = pipeline | beam.Create([Customer("ann", "Bern"), Customer("bob", None)]).with_output_types(Customer)
    inputs = {"orders": orders(pipeline), "customers": known}
    text = """
      CREATE VIEW by_city AS
      SELECT o.id, c.city, o.amount FROM orders AS o JOIN customers AS c ON o.customer = c.name;
      SELECT city, COUNT(*) AS n, SUM(amount) AS total FROM by_city GROUP BY city
    """
    joined = inputs | "joined" >> SqlTransform(text, settings={"table.exec.state.ttl": "1 h"})
    check(joined, [("Bern", 2, Decimal(15)), (None, 1, Decimal(1))], "joined")
    union = inputs | "union" >> SqlTransform("SELECT customer AS x FROM orders UNION ALL SELECT name FROM customers")
    check(union, [("ann",), (None,), ("ann",), ("bob",), ("ann",), ("bob",)], "union")
    again = joined | "again" >> SqlTransform("SELECT n * 2 AS n FROM totals WHERE city IS NOT NULL", "totals")
    check(again, [(4,)], "again")
    run(pipeline)


def test_a_schema_aware_transform_follows(pipeline: beam.Pipeline) -> None:
    rows = orders(pipeline) | SqlTransform("SELECT customer, amount FROM PCOLLECTION WHERE customer IS NOT NULL")
    grouped = rows | beam.GroupBy("customer").aggregate_field("amount", sum, "total")
    assert_that(grouped | beam.Map(tuple), equal_to([("ann", Decimal(15)), ("bob", Decimal(1))]))
    run(pipeline)


class WithTexts(NamedTuple):
    n: int  # a text, by `from __future__ import annotations`


def test_annotations_can_be_texts(pipeline: beam.Pipeline) -> None:
    rows = pipeline | beam.Create([1]) | beam.Map(WithTexts).with_output_types(WithTexts)
    check(rows | SqlTransform("SELECT n + 1 AS n FROM PCOLLECTION"), [(2,)])
    run(pipeline)


@pytest.mark.parametrize("of_elements", [False, True])
def test_windows_by_a_column_and_by_the_time_of_elements(pipeline: beam.Pipeline, of_elements: bool) -> None:
    made = [Seen(Timestamp(each), each) for each in (5, 59, 60, 61, 125)]
    rows = pipeline | beam.Create(made).with_output_types(Seen)
    if of_elements:
        stamp = beam.Map(lambda row: beam.window.TimestampedValue(beam.Row(n=row.n), row.at))
        rows = rows | stamp.with_output_types(beam.typehints.row_type.RowTypeConstraint.from_fields([("n", int)]))
    text = """SELECT window_start, SUM(n) AS n, window_time
              FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' MINUTE))
              GROUP BY window_start, window_end, window_time"""
    found = rows | SqlTransform(text, "t", rowtime=element_time("at") if of_elements else "at")
    times = found | beam.Map(
        lambda row, at=beam.DoFn.TimestampParam: (row.window_start.micros // 1_000_000, row.n, at.micros // 1000)
    )
    assert_that(times, equal_to([(0, 64, 59_999), (60, 121, 119_999), (120, 125, 179_999)]))
    run(pipeline)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n AS m FROM PCOLLECTION WHERE MOD(n, 2) = 0",
        "SELECT n AS m FROM PCOLLECTION WHERE MOD(n, 4) = 0 UNION ALL SELECT n FROM PCOLLECTION WHERE MOD(n, 4) = 1",
        "SELECT u.m FROM PCOLLECTION CROSS JOIN UNNEST(ARRAY[n, -n]) AS u (m) WHERE MOD(n, 4) = 3",
    ],
)
def test_rows_keep_the_times_and_windows_of_their_elements(pipeline: beam.Pipeline, query: str) -> None:
    made = (
        pipeline
        | beam.Create(range(1200))
        | beam.Map(lambda n: beam.window.TimestampedValue(beam.Row(n=n), n)).with_output_types(
            beam.typehints.row_type.RowTypeConstraint.from_fields([("n", int)])
        )
    )
    windowed = made | beam.WindowInto(beam.window.FixedWindows(100))
    rows = windowed | SqlTransform(query)
    counts = rows | beam.Map(lambda row: ("all", row.m)) | beam.combiners.Count.PerKey()
    placed = counts | beam.Map(lambda pair, window=beam.DoFn.WindowParam: (window.start.micros // 1_000_000, pair[1]))
    assert_that(placed, equal_to([(start, 50) for start in range(0, 1200, 100)]))
    run(pipeline)


def test_the_time_of_a_column_becomes_that_of_the_row(pipeline: beam.Pipeline) -> None:
    made = [Local(dt.datetime(1970, 1, 1, 0, 0, 7)), Local(None), Local(pd.NaT)]
    result = (
        pipeline
        | beam.Create([b""])
        | beam.FlatMap(lambda _: made).with_output_types(Local)
        | SqlTransform("SELECT at FROM PCOLLECTION", rowtime="at", on_error="output")
    )
    times = result.rows | beam.Map(lambda row, at=beam.DoFn.TimestampParam: (row.at.micros, at.micros))
    assert_that(times, equal_to([(7_000_000, 7_000_000)]))
    check(
        result.errors,
        [
            ("PCOLLECTION", '{"at": null}', "column at: it is None, so the row has no time"),
            ("PCOLLECTION", '{"at": "NaT"}', "column at: NaT is not a valid datetime without a zone"),
        ],
        "bad",
    )
    run(pipeline)


REASONS = [
    "column n: '1' is not a valid int of 64 bits",
    "column n: True is not a valid int of 64 bits",
    "column n: it is None, but its type is not Optional",
    "column n: 9223372036854775808 is out of range of an integer of 64 bits",
    "column text: 2 is not a valid str",
    r"column text: 'x\ud83d' has half of a surrogate pair, which is not UTF-8",
    "the element has no field text",
    "10 / n: division by zero",
    "column n: int of 16,610 bits is out of range of an integer of 64 bits",
    "column n: [[...]] is not a valid int of 64 bits",
    "column n: a value of Silent is not a valid int of 64 bits",
    "column text: {1: {...}} is not a valid str",
    "column text: a value of Silent is not a valid str",
    "column n: a value of Leaving is not a valid int of 64 bits",
    "column n: SystemExit: no number",
    "column text: AttributeError: no text",
]


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Leaving:
    def __repr__(self) -> str:
        sys.exit("no text")


class Unreadable:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name == "n":
            sys.exit("no number")
        raise AttributeError(f"no {name}", name="another")

    __repr__ = Leaving.__repr__


ROUND: list[Any] = []
ROUND.append(ROUND)
ROUND_TOO: dict[int, Any] = {}
ROUND_TOO[1] = ROUND_TOO
BAD: list[Any] = [
    Loose("1", "x"), Loose(True, "x"), Loose(None, "x"), Loose(1 << 63, "x"), Loose(1, 2),  # type: ignore[arg-type]
    Loose(1, "x\ud83d"), beam.Row(n=1), Loose(0, "div"), Loose(10**5000, "x"),
    Loose(ROUND, "x"), Loose(Silent(), "x"), Loose(1, ROUND_TOO), Loose(1, Silent()),  # type: ignore[arg-type]
    Loose(Leaving(), "x"), Unreadable(text="x"), Unreadable(n=1),  # type: ignore[arg-type]
]  # fmt: skip


def _n(row: Any) -> Any:
    return row["n"] if isinstance(row, dict) else row


def test_bad_rows_are_an_output(pipeline: beam.Pipeline) -> None:
    made = pipeline | beam.Create([b""]) | beam.FlatMap(lambda _: [*BAD, Loose(2, None)]).with_output_types(Loose)
    result = made | SqlTransform("SELECT 10 / n AS n, text FROM t", "t", on_error="output")
    check(result.rows, [(5, None)])
    bad = result.errors | "reshuffled" >> beam.Reshuffle()
    assert_that(
        bad | "reasons" >> beam.Map(lambda row: (row.table, row.reason)),
        equal_to([("t", each) for each in REASONS]),
        label="bad",
    )
    rows = bad | "rows" >> beam.Map(lambda row: _n(json.loads(row.row.encode())))
    silent = ["int of 16,610 bits", ["..."], "a value of Silent", "a value of Leaving", *["a value of Unreadable"] * 2]
    assert_that(rows, equal_to(["1", True, None, 1 << 63, 1, 1, 1, 0, *silent, 1, 1]), label="rows")
    run(pipeline)


class Untimely:
    n = 2

    @property
    def at(self) -> Timestamp:
        raise RuntimeError("no time")


def test_a_time_that_is_none_makes_a_bad_row(pipeline: beam.Pipeline) -> None:
    far = dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    given: list[Any] = [Seen(Timestamp(0), 0), Seen(far, 1), Untimely()]
    made = pipeline | beam.Create([b""]) | beam.FlatMap(lambda _: given).with_output_types(Seen)
    result = made | SqlTransform("SELECT n FROM t", "t", rowtime="at", on_error="output")
    check(result.rows, [(0,)])
    reasons = result.errors | beam.Map(lambda row: row.reason)
    wanted = [f"column at: {far} is not in the years 1 to 9999 of UTC", "column at: RuntimeError: no time"]
    assert_that(reasons, equal_to(wanted), label="bad")
    run(pipeline)


@pytest.mark.parametrize("of_elements", [False, True])
def test_a_time_outside_the_years_makes_a_bad_row(pipeline: beam.Pipeline, of_elements: bool) -> None:
    times = [MIN_TIMESTAMP, Timestamp(-62_135_596_801), Timestamp(0), Timestamp(253_402_300_800), MAX_TIMESTAMP]
    rows = pipeline | beam.Create([Seen(each, at) for at, each in enumerate(times)]).with_output_types(Seen)
    if of_elements:
        stamp = beam.Map(lambda row: beam.window.TimestampedValue(beam.Row(n=row.n), row.at))
        rows = rows | stamp.with_output_types(beam.typehints.row_type.RowTypeConstraint.from_fields([("n", int)]))
    rowtime = element_time("at") if of_elements else "at"
    window = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' DAY))"
    for label, query in {
        "groups": "SELECT at, SUM(n) AS n FROM t GROUP BY at",
        "windows": f"SELECT MAX(at) AS at, SUM(n) AS n FROM {window} GROUP BY window_start, window_end",
    }.items():
        result = rows | label >> SqlTransform(query, "t", rowtime=rowtime, on_error="output")
        check(result.rows, [(Timestamp(0), 2)], label)
        reasons = result.errors | f"reasons of {label}" >> beam.Map(lambda row: row.reason)
        wanted = [f"column at: {each.micros} microseconds from 1970 are not in the years 1 to 9999" for each in times]
        assert_that(reasons, equal_to([*wanted[:2], *wanted[3:]]), label=f"bad of {label}")
    run(pipeline)


def test_the_time_zone_of_the_session_is_that_of_the_query(pipeline: beam.Pipeline) -> None:
    made = pipeline | beam.Create([Seen(Timestamp(0), 1)]).with_output_types(Seen)
    text = "SELECT CAST(at AS STRING) AS local, CAST(CAST(at AS TIMESTAMP(0)) AS DATE) AS day FROM PCOLLECTION"
    rows = made | SqlTransform(text, settings={"table.local-time-zone": "America/New_York"})
    check(rows | beam.Map(lambda row: (row.local[:16], row.day)), [("1969-12-31 19:00", dt.date(1969, 12, 31))])
    run(pipeline)


@pytest.mark.parametrize("function", [doubled, "tests.unit.sql.transform.row_kinds.doubled"])
def test_functions_of_python(pipeline: beam.Pipeline, function: Any) -> None:
    rows = pipeline | beam.Create([Loose(5, "x"), Loose(0, "y")]).with_output_types(Loose)
    result = rows | SqlTransform("SELECT twice(n) AS n FROM t", "t", {"twice": function}, on_error="output")
    check(result.rows, [(4,)])
    reasons = result.errors | "reasons" >> beam.Map(lambda row: "division" in row.reason)
    assert_that(reasons, equal_to([True]), label="bad")
    run(pipeline)


def test_a_function_that_workers_cannot_import_is_refused(pipeline: beam.Pipeline) -> None:
    with pytest.raises(LocalError, match="the function f must be one that workers can import, at the top of a module"):
        orders(pipeline) | SqlTransform("SELECT f(id) AS n FROM PCOLLECTION", functions={"f": lambda n: n})


def test_bad_rows_are_skipped_or_fail(pipeline: beam.Pipeline) -> None:
    made = pipeline | beam.Create([b""]) | beam.FlatMap(lambda _: [*BAD, Loose(2, None)]).with_output_types(Loose)
    check(made | SqlTransform("SELECT 10 / n AS n, text FROM t", "t", on_error="skip"), [(5, None)])
    (counter,) = run(pipeline).metrics().query(beam.metrics.MetricsFilter().with_name("rows_failed"))["counters"]
    assert counter.committed == len(BAD)
    failing = beam.Pipeline(options=options([]))
    _ = failing | beam.Create([Loose(0, "x")]).with_output_types(Loose) | SqlTransform("SELECT 1 / n AS n FROM t", "t")
    with pytest.raises(Exception, match=re.escape('t: 1 / n: division by zero; the row is {"n": 0, "text": "x"}')):
        run(failing)


def test_rows_of_groups_that_fail_are_an_output(pipeline: beam.Pipeline) -> None:
    made = pipeline | beam.Create([Loose(1, "x"), Loose(2, "x"), Loose(1, "y")]).with_output_types(Loose)
    query = "SELECT text, 10 / (SUM(n) - 3) AS n FROM t GROUP BY text"
    result = made | SqlTransform(query, "t", on_error="output")
    check(result.rows, [("y", -5)])
    bad = result.errors | beam.Map(lambda row: (row.table, json.loads(row.row)["text"], row.reason.split(": ")[-1]))
    assert_that(bad, equal_to([("t", "x", "division by zero")]), label="bad")
    run(pipeline)


def test_no_bad_rows_are_an_empty_output(pipeline: beam.Pipeline) -> None:
    result = pipeline | SqlTransform("SELECT 1 AS a", on_error="output")
    check(result.rows, [(1,)])
    check(result.errors, [], "bad")
    run(pipeline)
