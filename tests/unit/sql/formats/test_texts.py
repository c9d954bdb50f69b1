"""The fast readers of text do what those of `values` do."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.sql import types, values
from rmqio.sql.casts import single
from rmqio.sql.formats import texts
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure
from tests.unit.sql.formats.support import values_of

TIMES = [
    "2020-01-31 23:59:59", "2020-01-31T23:59:59", "2020-01-31 23:59:59.123", "2020-01-31T23:59:59.123456",
    "2020-W05-1 10:00:00", "2020-01-31 10:00+08:00", "2020-01-31 23:59:59,123", "2020-01-31 1000000.123",
    "2020-01-31 24:00:00", "2020-02-30 10:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2020-1-1",
    "2020-01-31", "2020-01-31 10:00", "", "x", "20200131 10:00:00.1", "2020-01-31  9:00:00", "2020-01-31 23:59:59.12 ",
    "2020-01-31+23:59:59", "2020-01-31\u300023:59:59", "\u0662020-01-31 23:59:59", "2020-01-31 235959+00:00",
]  # fmt: skip


def outcome(convert: Callable[[str], Any], text: str) -> Any:
    """Returns the value, or that there is none."""
    try:
        return convert(text)
    except ValueFailure:
        return "refused"


times = st.sampled_from(TIMES) | st.from_regex(
    r"\A[12]\d{3}-[01]\d-[0-3]\d[ T]?[012]\d:?[0-5]\d:?[0-5]\d([.,]\d{1,9})?([+-]\d\d)?\Z"
)


@given(times)
def test_timestamps(text: str) -> None:
    assert outcome(texts.timestamp_of_text, text) == outcome(values.timestamp_of_text, text)


@given(times, st.sampled_from(["Z", "", "+08:00", "-0130", "ZZ"]))
def test_instants(text: str, zone: str) -> None:
    assert outcome(texts.instant_of_text, text + zone) == outcome(values.instant_of_text, text + zone)


numbers = st.sampled_from(
    ["1_0", "nan1", "inf", "+1", " 1 ", "1.", ".5", "-.5e3", "1e5", "\u0661", "0x1", "1e400", "NaN"]
)


@given(numbers | st.from_regex(r"\A[ +-]?\d{0,25}\.?\d{0,25}([eE][+-]?\d{1,2})?\Z"))
def test_doubles(text: str) -> None:
    assert repr(outcome(texts.double_of_text, text)) == repr(outcome(values.double_of_text, text))


@given(numbers | st.from_regex(r"\A[ +-]?\d{0,25}\Z"), st.sampled_from([8, 16, 32, 64]))
def test_integers(text: str, bits: int) -> None:
    expected = outcome(lambda given: values.integer_of_text(given, bits), text)
    assert outcome(lambda given: texts.integer_of_text(given, bits), text) == ("refused" if "." in text else expected)


@example("0\x1f")
@example("0\u00a0")
@given(st.from_regex(r"\A[ +-]?\d{0,25}\.?\d{0,25}([eE][+-]?\d{1,2})?\Z") | st.text(max_size=5))
@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (5, 2), (10, 0), (38, 18), (38, 38)])
def test_decimals(precision: int, scale: int, text: str) -> None:
    kind = types.decimal(precision, scale)
    found = outcome(texts.decimal_reader(kind), text)
    is_number = outcome(values.double_of_text, text) != "refused" and not text.strip().endswith(("N", "y"))
    expected = values.rounded(Decimal(text.strip()), precision, scale) if is_number else "refused"
    assert (found, str(found)) == (expected, str(expected))


@pytest.mark.parametrize("text", ["1e999999999999999999999", "1e-999999999999999999999"])
def test_exponents_without_end_are_refused(text: str) -> None:
    with pytest.raises(ValueFailure, match="out of range of numbers"):
        texts.decimal_reader(types.decimal(10, 2))(text)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (" 42 ", types.INTEGER, 42),
        ("+5", types.TINYINT, 5),
        ("42.7", types.INTEGER, "refused"),
        ("4_2", types.INTEGER, "refused"),
        ("\uff11", types.INTEGER, "refused"),
        ("128", types.TINYINT, "refused"),
        ("9" * 5000, types.BIGINT, "refused"),
        ("0" * 5000 + "7", types.BIGINT, 7),
        ("NaN", types.DOUBLE, "nan"),
        ("0.1", types.FLOAT, single(0.1)),
        ("1_0", types.decimal(5, 0), "refused"),
        ("99.995", types.decimal(5, 2), Decimal("100.00")),
        ("1000", types.decimal(5, 2), None),
        ("TRUE", types.BOOLEAN, True),
        (" true ", types.BOOLEAN, True),
        ("maybe", types.BOOLEAN, "refused"),
        ("YWI=", types.BYTES, b"ab"),
        ("YWI", types.BYTES, "refused"),
        ("2020-01-31", types.DATE, 18292),
        ("2020-1-31", types.DATE, 18292),
        ("2020-01-31 23:59:59", types.DATE, 18292),
        ("1969-12-31 23:59:59", types.DATE, -1),
        ("2020-02-30", types.DATE, "refused"),
        ("2020-02-30 10:00:00", types.DATE, "refused"),
        ("2020-01-31 24:00:00", types.DATE, "refused"),
        ("2024-02-30 10:00:00", types.TIMESTAMP, 1709200800000000),  # this, and the next ones: as Flink
        ("2024-04-31 24:00:00", types.TIMESTAMP, 1714521600000000),
        ("2024-02-28 24:00:00.001", types.TIMESTAMP, "refused"),
        ("2024-02-30 10:00:00Z", types.TIMESTAMP_LTZ, 1709200800000000),
        ("2020-W05-5", types.DATE, "refused"),
        ("2020-01", types.DATE, "refused"),
        ("2020", types.DATE, "refused"),
        ("10", types.TIME, "refused"),
        ("10:00", types.TIME, 36000000000),
        ("10:00:00.129", SqlType("TIME", precision=2), 36000120000),
        ("1970-01-01 00:00:01.999", SqlType("TIMESTAMP"), 1000000),
        ("1970-01-01 01:00:00.5+01:00", types.TIMESTAMP_LTZ, 500000),
        ("1970-01-01 01:00:00.5", types.TIMESTAMP_LTZ, "refused"),
    ],
)
def test_reading(text: str, kind: SqlType, expected: Any) -> None:
    read = texts.reader(kind)
    assert read is not None
    found = outcome(read, text)
    assert (str(found) if expected == "nan" else found) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, types.BOOLEAN, "true"),
        (single(0.1), types.FLOAT, "0.1"),
        (16777216.0, types.FLOAT, "1.6777216E7"),
        (float("-inf"), types.FLOAT, "-Infinity"),
        (1e10, types.DOUBLE, "1.0E10"),
        (Decimal("0E-10"), types.decimal(20, 10), "0.0000000000"),
        (b"ab", types.BYTES, "YWI="),
        (36000120000, SqlType("TIME", precision=3), "10:00:00.12"),
        (36000000000, SqlType("TIME", precision=3), "10:00:00"),
        (0, SqlType("TIMESTAMP"), "1970-01-01 00:00:00"),
        (0, types.TIMESTAMP, "1970-01-01 00:00:00"),
        (500000, types.TIMESTAMP_LTZ, "1970-01-01 00:00:00.5Z"),
        (7, types.TINYINT, "7"),
    ],
)
def test_writing(value: Any, kind: SqlType, expected: str) -> None:
    write = texts.writer(kind)
    assert write is not None
    assert write(value) == expected


@given(values_of(types.FLOAT.nullable(False)))
def test_the_shortest_number_is_the_same_number(number: float) -> None:
    assert repr(single(texts.shortest(number))) == repr(number)
