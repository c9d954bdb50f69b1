"""Functions and calls that Flink lacks, and those whose results differ from Flink's on purpose."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql import values
from rmqio.sql.errors import SqlError
from rmqio.sql.values import ValueFailure
from tests.unit.sql.evaluating import bound, evaluate


def micros(text: str) -> int:
    return values.timestamp_of_text(text)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Blink's
        ("KEYVALUE('k1=v1;k2=v2', ';', '=', 'k2')", "v2"),
        ("KEYVALUE('k1=v1;k2=v2', ';', '=', 'k3')", None),
        ("KEYVALUE('a=b=c', ';', '=', 'a')", "b=c"),
        ("SUBSTRING_INDEX('www.apache.org', '.', 2)", "www.apache"),
        ("SUBSTRING_INDEX('www.apache.org', '.', -1)", "org"),
        ("SUBSTRING_INDEX('www.apache.org', '.', 9)", "www.apache.org"),
        ("SUBSTRING_INDEX('www.apache.org', '', 1)", ""),
        ("DATE_ADD('2020-02-28', 2)", "2020-03-01"),
        ("DATE_ADD(DATE '2020-02-28', 2)", "2020-03-01"),
        ("DATE_ADD(TIMESTAMP '2020-02-28 23:00:00', 2)", "2020-03-01"),
        ("DATE_ADD('nope', 2)", None),
        ("DATE_SUB('2020-03-01', 1)", "2020-02-29"),
        ("DATEDIFF('2020-03-01', '2020-02-28')", 2),
        ("DATEDIFF(TIMESTAMP '2020-03-01 00:00:00', DATE '2020-02-28')", 2),
        ("DATEDIFF('nope', '2020-02-28')", None),
        ("LAST_DAY(DATE '2021-02-01')", values.date_of_text("2021-02-28")),
        ("LAST_DAY('2021-12-01')", values.date_of_text("2021-12-31")),
        ("LENGTH('中a')", 2),
        ("POSITION('2' IN CAST(1 + 11 AS STRING))", 2),
        ("POSITION('a' IN CASE WHEN TRUE THEN 'xa' END)", 2),
        ("CAST(ROUND(-2e-3, 2) AS STRING)", "0.0"),
        ("OCTET_LENGTH('中a')", 4),
        # in plain calls, where Flink has words between the arguments
        ("OVERLAY('xxxxxtest', 'xxxx', 6)", "xxxxxxxxx"),
        ("OVERLAY('xxxxxtest', 'xxxx', 6, 2)", "xxxxxxxxxst"),
        ("OVERLAY('abc', 'x', 0)", "abc"),
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)", "xxxxxxxxx"),
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "xxxxxxxxxst"),
        ("OVERLAY('abc', 'x', 4)", "abc"),
        ("OVERLAY('abc', 'x', 2, 0)", "ax"),
        ("OVERLAY('abc', 'xyz', 3)", "abxyz"),
        ("JSON_OBJECT('a', JSON_OBJECT('b', 1, 'c', TRUE), 'd', ARRAY[1.5])", '{"a":{"b":1,"c":true},"d":[1.5]}'),
        ("JSON_ARRAY(JSON_ARRAY(1), 'x', NULL, DATE '2020-01-01')", '[[1],"x","2020-01-01"]'),
        ("`EXTRACT`('DOW', DATE '2020-01-05')", 1),
        ("`EXTRACT`('ISODOW', DATE '2020-01-05')", 7),
        ("`EXTRACT`('DOY', DATE '2020-12-31')", 366),
        ("`EXTRACT`('EPOCH', TIMESTAMP '2020-01-05 00:00:01.9')", 1578182401),
        ("`EXTRACT`('ISOYEAR', DATE '2021-01-01')", 2020),
        ("`EXTRACT`('CENTURY', DATE '2000-01-01')", 20),
        ("`EXTRACT`('MILLENNIUM', DATE '2001-01-01')", 3),
        # where Flink's result is wrong or silent
        ("CEIL(TIMESTAMP '2020-05-01 00:00:01' TO MONTH)", micros("2020-06-01")),
        ("TIMESTAMPDIFF(MONTH, TIMESTAMP '2020-03-15 11:00:00', TIMESTAMP '2020-02-15 12:00:00')", 0),
        ("TIMESTAMPDIFF(MILLISECOND, TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP '2020-01-01 00:00:01.9')", 1900),
        ("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', '+08:00')", "1970-01-01 08:00:00"),
        ("DATE_FORMAT(DATE '2020-01-02', 'yyyyMMdd')", "20200102"),
        ("TO_TIMESTAMP_LTZ('nope')", None),
        ("ENCODE('ä', 'UTF-16')", b"\xfe\xff\x00\xe4"),
        ("CAST('NaN' AS DOUBLE) IN (CAST('NaN' AS DOUBLE), 1)", False),
        ("UPPER('straße')", "STRASSE"),
        ("JSON_STRING(TIME '03:04:05')", '"03:04:05"'),
        ("CAST(INTERVAL '1 02:03:04.5' DAY TO SECOND AS STRING)", "+1 02:03:04.500"),
        # regular expressions of Java
        (r"REGEXP_EXTRACT('a1٣', '\d+$')", None),
        ("REGEXP_EXTRACT('ab12', '(?<word>[a-z]+)', 1)", "ab"),
        (r"REGEXP_EXTRACT('aa', '(?<x>a)\k<x>')", "aa"),
        (r"REGEXP_COUNT('a.b', '\Q.\E')", 1),
        (r"REGEXP_COUNT('aB1_ ', '[\p{Alpha}\p{Digit}]')", 3),
        (r"REGEXP_COUNT('aB1_ ', '\P{Alpha}')", 3),
        (r"REGEXP_REPLACE('x', 'x', '\1$1')", r"\1$1"),
    ],
)  # fmt: skip
def test_a_value(expression: str, expected: Any) -> None:
    found = evaluate(expression)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("expression", "row", "reason"),
    [
        ("REPEAT(a, 2000000)", {"a": ("STRING", "x")}, "REPEAT would make 2000000 characters"),
        ("LPAD(a, 2000000, 'x')", {"a": ("STRING", "x")}, "text of 2000000 characters would be created"),
        ("CAST(a AS CHAR(2147483646))", {"a": ("STRING", "x")}, "CHAR(2147483646) is filled up to 2147483646"),
        ("CAST(a AS BINARY(1000001))", {"a": ("STRING", "x")}, "BINARY(1000001) is filled up to 1000001 characters"),
        ("RPAD(a, 2147483647, 'x')", {"a": ("STRING", "x")}, "text of 2147483647 characters"),
        ("REPLACE(a, '', REPEAT(a, 100))", {"a": ("STRING", "x" * 10_000)}, "at most a hundred million are allowed"),
        ("FROM_BASE64(a)", {"a": ("STRING", "!!!")}, "'!!!' is not base 64"),
        ("DECODE(ENCODE('x', 'UTF-8'), a)", {"a": ("STRING", "KLINGON")}, "'KLINGON' is not a character set"),
        ("SHA2('x', a)", {"a": ("INT", 1)}, "SHA2 has 224, 256, 384 or 512 bits, not 1"),
        ("INSTR('x', 'x', 1, a)", {"a": ("INT", 0)}, "INSTR looks for occurrence 0"),
        ("REGEXP_COUNT('x', a)", {"a": ("STRING", "(")}, "'(' is not a regular expression"),
        ("REGEXP('x', a)", {"a": ("STRING", "(?u)x")}, "'(?u)x' is not a regular expression: ASCII and"),
        ("REGEXP('b', a)", {"a": ("STRING", "^[a-z&&[^a]]$")}, "&& within a class (Java's union or intersection)"),
        ("REGEXP('b', a)", {"a": ("STRING", "[a-c[x-z]]")}, "[ within a class"),
        ("a * INTERVAL '1' DAY", {"a": ("BIGINT", 1 << 60)}, "is out of range of INTERVAL DAY TO SECOND"),
        ("a * INTERVAL '1' YEAR", {"a": ("BIGINT", 1 << 30)}, "is out of range of INTERVAL YEAR TO MONTH"),
        ("'x' SIMILAR TO a", {"a": ("STRING", "(")}, "'(' is not a pattern of SIMILAR TO"),
        ("'x' LIKE a ESCAPE '!'", {"a": ("STRING", "!x")}, "%, _ or ! must follow !"),
        ("'x' LIKE 'x' ESCAPE a", {"a": ("STRING", "ab")}, "'ab' must be one character"),
        ("ELEMENT(a)", {"a": ("ARRAY<INT>", [1, 2])}, "ELEMENT takes an array of one element, but this one has 2"),
        ("MAP_FROM_ARRAYS(a, a)", {"a": ("ARRAY<INT>", [])}, None),
        ("MAP_FROM_ARRAYS(a, ARRAY[1])", {"a": ("ARRAY<INT>", [])}, "MAP_FROM_ARRAYS has 0 keys and 1 values"),
        ("TO_TIMESTAMP_LTZ(1, a)", {"a": ("INT", 6)}, "the precision 0 (seconds) or 3 (milliseconds), not 6"),
        ("CONVERT_TZ('2020-01-01 00:00:00', a, 'UTC')", {"a": ("STRING", "Nowhere")}, "'Nowhere' is not a time zone"),
        ("CONVERT_TZ('0001-01-01 00:00:00', 'UTC', a)", {"a": ("STRING", "GMT-08:00")}, "not in the years"),
        ("DATE_FORMAT(NOW(), a)", {"a": ("STRING", "yyyy b")}, "the format 'yyyy b' has the unknown letter b"),
        ("DATE_FORMAT(NOW(), a)", {"a": ("STRING", "ddd")}, "has the letter d too often"),
        ("FROM_UNIXTIME(a)", {"a": ("BIGINT", 1 << 60)}, f"{1 << 60} seconds from 1970 are not in the years 1 to 9999"),
        ("FROM_UNIXTIME(a, 'yyyy')", {"a": ("BIGINT", -62135596801)}, ": -62135596801 seconds from 1970 are not in"),
        ("FROM_UNIXTIME(a)", {"a": ("BIGINT", 253402300800)}, ": 253402300800 seconds from 1970 are not in the years"),
        ("YEAR(a)", {"a": ("TIMESTAMP(3)", 1 << 62)}, "not in the years 1 to 9999"),
        ("CEIL(a TO MINUTE)", {"a": ("TIME(0)", values.DAY_US - 1)}, "is the next day"),
        ("TIMESTAMPADD(YEAR, a, DATE '2020-01-01')", {"a": ("INT", 9000)}, "the year 11020 is out of range"),
        ("TIMESTAMPDIFF(SECOND, TIMESTAMP '0001-01-01 00:00:00', a)", {"a": ("TIMESTAMP(3)", 0)}, "out of range"),
        ("ROUND(a, -1)", {"a": ("TINYINT", 127)}, "130 is out of range of an integer of 8 bits"),
        ("ROUND(a, -1)", {"a": ("BIGINT", (1 << 63) - 1)}, "is out of range of an integer of 64 bits"),
        ("RAND_INTEGER(a)", {"a": ("INT", 0)}, "the bound of RAND_INTEGER is 0"),
        ("JSON_VALUE('{}', a)", {"a": ("STRING", "$.a[?(@.b)]")}, "is not a JSON path"),
        ("JSON_OBJECT(a, 1)", {"a": ("STRING", None)}, "a key of JSON_OBJECT is NULL"),
        ("JSON_STRING(MAP[a, 1])", {"a": ("STRING", None)}, "a key of the MAP is NULL, which JSON does not have"),
        ("JSON_OBJECT('k', MAP[a, 1])", {"a": ("INT", None)}, "a key of the MAP is NULL, which JSON does not have"),
        ("JSON_ARRAY(ARRAY[MAP[a, 1]])", {"a": ("DATE", None)}, "a key of the MAP is NULL, which JSON does not have"),
    ],
)  # fmt: skip
def test_a_failure_says_why(expression: str, row: Mapping[str, tuple[str, Any]], reason: str | None) -> None:
    if reason is None:
        assert evaluate(expression, row) == {}
        return
    with pytest.raises(ValueFailure, match=re.escape(reason)):
        evaluate(expression, row)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("DATE_FORMAT(NOW(), 'yyyy-bb')", "the format 'yyyy-bb' has the unknown letter b; they are"),
        ("TO_TIMESTAMP('x', 'yyyy''')", "the quote in the format"),
        ("FROM_UNIXTIME(1, 'u')", "the letter u is not supported here"),
        ("REGEXP_EXTRACT('x', '(')", "'(' is not a regular expression"),
        *(
            (
                rf"REGEXP_EXTRACT('x', '{each}')",
                f"'{each}': there is no {each}; there are categories of Unicode (\\p{{L}}",
            )
            for each in (r"\p{InGreek}", r"\p{script=Latin}", r"\P{IsLatin}", r"\pQ")
        ),
        (r"REGEXP_EXTRACT('x', '[\P{Alpha}]')", r"'[\P{Alpha}]': there is no \P{Alpha} here;"),
        (r"REGEXP_EXTRACT('x', '\y')", r"'\y' is not a regular expression: bad escape \y at position 0"),
        ("MAP[ARRAY[1], 2]", "a key of a MAP cannot be ARRAY<INT>"),
        ("MAP[ROW(1, MAP['a', 1]), 2]", "a key of a MAP cannot be ROW<"),
        ("CAST(NULL AS MAP<ARRAY<INT>, INT>)", "a key of a MAP cannot be ARRAY<INT>"),
        ("MAP_FROM_ARRAYS(ARRAY[ARRAY[1]], ARRAY[1])", "MAP_FROM_ARRAYS does not take (ARRAY<ARRAY<INT>>, ARRAY<INT>)"),
        ("ROW()", "a ROW of nothing has no fields"),
        ("(1, 2) = (1, 2, 3)", "cannot be compared: they differ in length"),
        ("'x' SIMILAR TO 'a!' ESCAPE '!'", "or ! must follow !"),
        ("EXTRACT(DAY FROM INTERVAL '1' MONTH)", "INTERVAL YEAR TO MONTH has no DAY: it has YEAR, QUARTER and MONTH"),
        ("JSON_VALUE('{}', '$..a')", "is not a JSON path"),
        ("JSON_OBJECT('a')", "one value is missing"),
        ("JSON_OBJECT(1, 2)", "a key of JSON_OBJECT must be STRING, not INT"),
        ("TIMESTAMPADD(SECOND, 5, '2020-01-31 00:00:00')", "adds to a time, not STRING"),
        ("TIMESTAMPADD(MONTH, 5, TIME '00:00:00')", "a TIME has no months"),
        ("TIMESTAMPADD(DAY, 5)", "TIMESTAMPADD is written TIMESTAMPADD(unit, number, time)"),
        ("TIMESTAMPDIFF(SECOND, TIMESTAMP '2020-01-01 00:00:00', NOW())", "takes two TIMESTAMP_LTZ, or none"),
        ("TIMESTAMPDIFF(SECOND, TIME '00:00:00', TIME '00:00:00')", "takes dates or timestamps"),
        ("FLOOR('x' TO DAY)", "FLOOR TO rounds a time, not STRING"),
        ("FLOOR(TIME '00:00:00' TO DAY)", "a TIME has no DAY"),
        ("YEAR('2020-01-01')", "YEAR takes a DATE or a TIMESTAMP, not STRING"),
        ("YEAR(TIME '00:00:00')", "not TIME(0)"),
        ("ARRAY_MAX(ARRAY[ARRAY[1]])", "ARRAY_MAX does not take (ARRAY<ARRAY<INT>>)"),
        ("ARRAY_JOIN(ARRAY[1], ',')", "ARRAY_JOIN does not take (ARRAY<INT>, STRING)"),
        ("ARRAY_CONTAINS(ARRAY[1], 'x')", "ARRAY_CONTAINS does not take (ARRAY<INT>, STRING)"),
        ("ARRAY_UNION(ARRAY[1], ARRAY['x'])", "ARRAY_UNION does not take"),
        ("ELT(1, 'a', 2)", "ELT does not take (INT, STRING, INT)"),
        ("TYPEOF()", "TYPEOF takes one argument"),
        ("JSON_STRING(1, 2)", "JSON_STRING takes one argument"),
    ],
)
def test_a_call_is_refused(expression: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        evaluate(expression)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("ROUND(a, 2)", "DECIMAL(8, 2)"),
        ("ROUND(a)", "DECIMAL(6, 0)"),
        ("ROUND(a, 9)", "DECIMAL(10, 5)"),
        ("ROUND(a, -1)", "DECIMAL(6, 0)"),
        ("ROUND(a, n)", "DECIMAL(10, 5)"),
        ("CEIL(a)", "DECIMAL(10, 0)"),
        ("ROUND(n, 1)", "INT"),
        ("ARRAY_UNION(ARRAY[1], ARRAY[CAST(1 AS BIGINT)])", "ARRAY<BIGINT> NOT NULL"),
        ("MAP_ENTRIES(MAP['a', n])", "ARRAY<ROW<key STRING, value INT>> NOT NULL"),
        ("TIMESTAMPADD(HOUR, 1, DATE '2020-01-01')", "TIMESTAMP(6) NOT NULL"),
        ("TIMESTAMPADD(DAY, 1, DATE '2020-01-01')", "DATE NOT NULL"),
        ("TIMESTAMPADD(MINUTE, n, DATE '2020-01-01')", "TIMESTAMP(6)"),
        ("TIMESTAMPADD(WEEK, 1, DATE '2020-01-01')", "DATE NOT NULL"),
        ("CAST(NULL AS TIMESTAMP)", "TIMESTAMP(6)"),
        ("TIMESTAMP '2020-01-01 00:00:00.123456000'", "TIMESTAMP(6) NOT NULL"),
        ("TIMESTAMP '2020-01-01 00:00:00.10'", "TIMESTAMP(2) NOT NULL"),
        ("TIME '00:00:00.123'", "TIME(3) NOT NULL"),
        ("CAST(n AS FLOAT) + n", "FLOAT"),
        ("n / CAST(n AS FLOAT)", "FLOAT"),
        ("CASE WHEN n > 0 THEN CAST(n AS FLOAT) ELSE 1 END", "FLOAT"),
        ("CAST(n AS FLOAT) * a", "DOUBLE"),
        ("CAST(NULL AS TIMESTAMP_LTZ)", "TIMESTAMP_LTZ(6)"),
        ("FLOOR(DATE '2020-01-01' TO MONTH)", "DATE NOT NULL"),
        ("TIMESTAMPDIFF(DAY, DATE '2020-01-01', DATE '2020-01-02')", "INT NOT NULL"),
        ("0.25", "DECIMAL(3, 2) NOT NULL"),
        ("-0.025", "DECIMAL(4, 3) NOT NULL"),
        ("12.50", "DECIMAL(4, 2) NOT NULL"),
        ("COALESCE(CAST(n AS DECIMAL(38, 0)), a)", "DECIMAL(38, 0)"),
        ("GREATEST(CAST(n AS DECIMAL(38, 38)), a)", "DECIMAL(38, 33)"),
        ("n % CAST(n AS DECIMAL(38, 0))", "DECIMAL(38, 0)"),
        ("a * a", "DECIMAL(21, 10)"),
        ("a * n", "DECIMAL(21, 5)"),
        ("CAST(a AS DECIMAL(20, 6)) * CAST(a AS DECIMAL(20, 6))", "DECIMAL(38, 9)"),
    ],
)
def test_the_type_of_a_call(expression: str, kind: str) -> None:
    found, _ = bound(expression, {"a": ("DECIMAL(10, 5)", None), "n": ("INT", None)})
    assert str(found.type) == kind


def test_a_nan_is_the_largest_number_wherever_it_stands() -> None:
    """Flink's ARRAY_MAX and ARRAY_MIN keep a NaN that comes first."""
    row = {"a": ("DOUBLE", float("nan")), "b": ("DOUBLE", 1.0), "c": ("DOUBLE", float("nan"))}
    for pair in ("a, b", "b, a"):
        found = [evaluate(f"{each}", row) for each in (f"GREATEST({pair})", f"ARRAY_MAX(ARRAY[{pair}])")]
        assert list(map(str, found)) == ["nan", "nan"]
        assert [evaluate(each, row) for each in (f"LEAST({pair})", f"ARRAY_MIN(ARRAY[{pair}])")] == [1.0, 1.0]
        assert str(evaluate(f"ARRAY_SORT(ARRAY[{pair}])", row)) == "[1.0, nan]"


@pytest.mark.parametrize("pair", ["a, b", "b, a"])
def test_of_both_zeros_the_negative_one_is_the_least(pair: str) -> None:
    """As in Flink's GREATEST and LEAST. Its functions of arrays keep the order of the elements."""
    row = {"a": ("DOUBLE", 0.0), "b": ("DOUBLE", -0.0)}
    for each in (f"GREATEST({pair})", f"ARRAY_MAX(ARRAY[{pair}])"):
        assert str(evaluate(each, row)) == "0.0"
    for each in (f"LEAST({pair})", f"ARRAY_MIN(ARRAY[{pair}])"):
        assert str(evaluate(each, row)) == "-0.0"
    assert str(evaluate(f"ARRAY_SORT(ARRAY[{pair}])", row)) == "[-0.0, 0.0]"
    assert str(evaluate(f"ARRAY_SORT(ARRAY[{pair}], FALSE)", row)) == "[0.0, -0.0]"
    assert [evaluate(each, row) for each in (f"ARRAY_MAX(ARRAY[{each}])" for each in ("'', 'a'", "-1, 0"))] == ["a", 0]


NANS: list[tuple[str, Any]] = [
    ("a = c", False),
    ("a IN (a, c)", False),
    ("ROW(a) = ROW(c)", False),
    ("ARRAY_CONTAINS(ARRAY[a], c)", False),
    ("ARRAY_POSITION(ARRAY[a], c)", 0),
    ("CARDINALITY(ARRAY_REMOVE(ARRAY[a, b], c))", 2),
    ("CARDINALITY(ARRAY_DISTINCT(ARRAY[a, b, c, a]))", 4),
    ("CARDINALITY(ARRAY_UNION(ARRAY[a], ARRAY[c]))", 2),
    ("CARDINALITY(ARRAY_INTERSECT(ARRAY[a], ARRAY[c]))", 0),
    ("CARDINALITY(ARRAY_EXCEPT(ARRAY[a], ARRAY[c]))", 1),
    # in arrays, maps and rows, too: Flink says so of columns, and compares the bytes of what is written in the query
    ("ARRAY[a, b] = ARRAY[c, b]", False),
    ("ARRAY[a, b] <> ARRAY[c, b]", True),
    ("ARRAY[a] = ARRAY[a]", False),
    ("ARRAY[a] IN (ARRAY[b], ARRAY[c])", False),
    ("MAP['x', a] = MAP['x', c]", False),
    ("MAP[a, 1] = MAP[c, 1]", False),
    ("ROW(a) <> ROW(c)", True),
    ("ROW(a, b) <> ROW(c, b)", True),
    ("ROW(a) IN (ROW(b), ROW(c))", False),
    ("ROW(ROW(a), 1) = ROW(ROW(c), 1)", False),
    ("ROW(a) IS NOT DISTINCT FROM ROW(c)", False),
    ("CASE ARRAY[a] WHEN ARRAY[c] THEN 1 ELSE 0 END", 0),
    ("NULLIF(ARRAY[a], ARRAY[c]) IS NULL", False),
    ("r = q", False),
    ("r <> q", True),
    ("r = r", False),
    ("r <> r", True),
    ("r = ROW(c)", False),
    ("r IN (q, ROW(b))", False),
    ("r IS DISTINCT FROM q", True),
    ("NULLIF(r, q) IS NULL", False),
    ("CASE r WHEN q THEN 1 ELSE 0 END", 0),
    ("ARRAY_CONTAINS(ARRAY[ARRAY[a]], ARRAY[c])", False),
    ("ARRAY_CONTAINS(ARRAY[ROW(a, 1)], ROW(c, 1))", False),
    ("ARRAY_CONTAINS(ARRAY[r], q)", False),
    ("ARRAY_CONTAINS(ARRAY[MAP['x', a]], MAP['x', c])", False),
    ("ARRAY_POSITION(ARRAY[ARRAY[b], ARRAY[a]], ARRAY[c])", 0),
    ("CARDINALITY(ARRAY_REMOVE(ARRAY[ARRAY[a], ARRAY[b]], ARRAY[c]))", 2),
    ("CARDINALITY(ARRAY_DISTINCT(ARRAY[ARRAY[a], ARRAY[c]]))", 2),
    ("CARDINALITY(ARRAY_DISTINCT(ARRAY[r, q, r]))", 3),
    ("CARDINALITY(ARRAY_DISTINCT(ARRAY[MAP[a, 1], MAP[c, 1]]))", 2),
    ("CARDINALITY(ARRAY_UNION(ARRAY[ARRAY[a]], ARRAY[ARRAY[c]]))", 2),
    ("CARDINALITY(ARRAY_INTERSECT(ARRAY[ARRAY[a]], ARRAY[ARRAY[c]]))", 0),
    ("CARDINALITY(ARRAY_EXCEPT(ARRAY[ARRAY[a]], ARRAY[ARRAY[c]]))", 1),
    # a map has it once as a key, and by no number does one find it
    ("MAP_VALUES(MAP[a, 1, c, 2])", [2]),
    ("MAP_VALUES(MAP[ROW(a), 1, ROW(c), 2])", [2]),
    ("MAP_VALUES(MAP_FROM_ARRAYS(ARRAY[a, c], ARRAY[1, 2]))", [2]),
    ("MAP_VALUES(MAP_UNION(MAP[a, 1], MAP[c, 2]))", [2]),
    ("MAP_VALUES(MAP_UNION(m, MAP[c, 2]))", [2]),
    ("m[c]", None),
    ("MAP[a, 1][c]", None),
    ("MAP[b, 1][1]", 1),
    ("MAP[ROW(a), 1][ROW(c)]", None),
]


@pytest.mark.parametrize(("expression", "expected"), NANS)
def test_which_object_a_nan_is_does_not_matter(expression: str, expected: Any) -> None:
    nan = float("nan")
    for other in (nan, float("nan")):
        row = {"a": ("DOUBLE", nan), "b": ("DOUBLE", 1.0), "c": ("DOUBLE", other), "m": ("MAP<DOUBLE, INT>", {nan: 1})}
        row |= {"r": ("ROW<x DOUBLE>", (nan,)), "q": ("ROW<x DOUBLE>", (other,))}
        assert evaluate(expression, row) == expected


def test_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_577_934_245_678_901_234)
    now = micros("2020-01-02 03:04:05.678")
    assert evaluate("NOW()") == evaluate("CURRENT_TIMESTAMP") == evaluate("LOCALTIMESTAMP") == now
    assert evaluate("CURRENT_DATE") == now // values.DAY_US
    assert evaluate("CURRENT_TIME") == evaluate("LOCALTIME()") == values.time_of_text("03:04:05")
    assert evaluate("UNIX_TIMESTAMP()") == 1_577_934_245


def test_random_numbers_differ_from_row_to_row() -> None:
    assert len({evaluate(each) for each in ("RAND()", "RAND()", "RAND(1)", "RAND(1)")}) == 4
    assert 0 <= evaluate("RAND_INTEGER(3)") < 3
    assert 0 <= evaluate("RAND_INTEGER(7, 3)") < 3
    assert len(evaluate("UUID()")) == 36
