"""Functions against slow or other references, for data that nobody thought of."""

from __future__ import annotations

import calendar
import json
import math
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.sql import values
from rmqio.sql.functions import collections, numbers, operators, texts, time_formatting, times
from rmqio.sql.functions.json import parsed, quoted, unquoted, value_at, written

MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1))
SHORT = st.text("ab%_\\c", max_size=8)


def slow_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(slow_like(text[i:], pattern[1:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and slow_like(text[1:], pattern[1:])


@given(SHORT, SHORT)
@example("\\", "\\%")  # a backslash escapes nothing, unless ESCAPE says so
def test_like(text: str, pattern: str) -> None:
    assert operators.like(text, pattern) == slow_like(text, pattern)


@given(SHORT, st.text("ab%_", max_size=6))
def test_like_with_an_escape_character(text: str, pattern: str) -> None:
    escaped = pattern.replace("%", "!%").replace("_", "!_")
    assert operators.like(text, escaped, "!") == (text == pattern)


def test_like_never_takes_long() -> None:
    assert not operators.like("a" * 20_000, "%a%a%a%a%a%a%a%a%b")


@given(MOMENTS, st.integers(-5000, 5000))
def test_adding_months(moment: datetime, months: int) -> None:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        with pytest.raises(values.ValueFailure, match="out of range"):
            operators.add_months(values.micros_of(moment), months)
        return
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    expected = moment.replace(year=year, month=month + 1, day=day)
    assert values.datetime_of(operators.add_months(values.micros_of(moment), months)) == expected


@given(MOMENTS, MOMENTS)
def test_months_between(start: datetime, end: datetime) -> None:
    first, last = values.micros_of(start), values.micros_of(end)
    found = times.months_between(1, first, last)
    assert times.months_between(1, last, first) in (-found, -found + 1, -found - 1)  # ends of months differ
    if first <= last:
        assert found >= 0
        assert operators.add_months(first, found) <= last
        if operators.add_months(first, found + 1) < (1 << 62):
            assert operators.add_months(first, found + 1) > last
    assert times.months_between(12, first, last) == int(found / 12)


@given(MOMENTS, MOMENTS, st.sampled_from([1000, 1_000_000, 3_600_000_000, values.DAY_US]))
def test_difference(start: datetime, end: datetime, size: int) -> None:
    exact = (end - start) / timedelta(microseconds=1)
    assert times.difference(size, values.micros_of(start), values.micros_of(end)) == int(
        Decimal(int(exact)) / size
    ) or abs(exact) > 2**53  # fmt: skip


@given(st.datetimes(datetime(2, 1, 1), datetime(9990, 1, 1)), st.sampled_from(
    ["MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]))  # fmt: skip
def test_floor_and_ceil(moment: datetime, unit: str) -> None:
    micros = values.micros_of(moment)
    floor, ceil = times.floor_time(unit, micros), times.ceil_time(unit, micros)
    assert floor <= micros <= ceil
    assert times.floor_time(unit, floor) == floor
    assert times.floor_time(unit, ceil) == ceil
    assert (floor == ceil) == (floor == micros)
    if ceil > micros:
        assert times.floor_time(unit, ceil - 1) == floor
    first = values.datetime_of(floor)
    match unit:
        case "WEEK":
            assert first.isoweekday() == 7
        case "MONTH":
            assert (first.year, first.month, first.day) == (moment.year, moment.month, 1)
        case "QUARTER":
            assert (first.month - 1) % 3 == 0
        case "YEAR":
            assert (first.year, first.month, first.day) == (moment.year, 1, 1)


@given(st.dates())
def test_last_day(day: date) -> None:
    found = times.last_day(values.days_of(day))
    assert found is not None
    assert values.date_of(found) == day.replace(day=calendar.monthrange(day.year, day.month)[1])


PATTERNS = [
    ("yyyy-MM-dd HH:mm:ss.SSSSSS", "%Y-%m-%d %H:%M:%S.%f"),
    ("yyyyMMddHHmmss", "%Y%m%d%H%M%S"),
    ("dd/MMM/yyyy hh:mm:ss a", "%d/%b/%Y %I:%M:%S %p"),
    ("EEEE, d MMMM yyyy", None),
    ("yyyy DDD HH", "%Y %j %H"),
    ("yyyy-MM-dd'T'HH:mm", "%Y-%m-%dT%H:%M"),
]


@given(st.datetimes(datetime(1000, 1, 1)), st.sampled_from(PATTERNS))
def test_a_format_and_back(moment: datetime, patterns: tuple[str, str | None]) -> None:
    pattern, python = patterns
    text = time_formatting.formatted(values.micros_of(moment), pattern)
    assert python is None or text == moment.strftime(python)
    for is_lenient in (False, True):
        found = time_formatting.parsed(text, pattern, is_lenient=is_lenient)
        assert found is not None
        if "SSS" not in pattern:  # the older class reads them as milliseconds
            assert time_formatting.formatted(found[0], pattern) == text
    exact = time_formatting.parsed(text, pattern, is_lenient=False)
    assert exact is not None
    assert time_formatting.formatted(exact[0], pattern) == text


@given(st.text(max_size=20), st.sampled_from(PATTERNS))
def test_any_text_in_a_format(text: str, patterns: tuple[str, str | None]) -> None:
    for is_lenient in (False, True):
        time_formatting.parsed(text, patterns[0], is_lenient=is_lenient)
    times.timestamp(text)
    times.seconds_of_text(text)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-400, 400))
def test_rounding_a_double(number: float, digits: int) -> None:
    found = numbers.round_number(number, digits)
    assert math.isfinite(found) or abs(number) > 1e307
    if -20 < digits < 15 and abs(number) < 1e15:
        expected = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, values.DECIMALS)
        assert found == float(expected)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9),
       st.integers(-30, 30))  # fmt: skip
def test_rounding_a_decimal(number: Decimal, digits: int) -> None:
    found = numbers.round_number(number, digits)
    assert found == number.quantize(Decimal(1).scaleb(-min(digits, 4)), ROUND_HALF_UP)
    assert found.as_tuple().exponent == -min(4, max(0, digits))
    assert abs(numbers.truncate_number(number, digits)) <= abs(number)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@given(JSON)
def test_json_is_written_as_it_was_read(document: Any) -> None:
    text = json.dumps(document)
    assert json.loads(written(parsed(text))) == document


@given(st.text(max_size=30), st.sampled_from(["$", "$.a", "$[0]", "$.a[*].b", "$['x y']"]))
def test_any_text_as_json(text: str, path: str) -> None:
    found = value_at(text, path)
    assert found is None or isinstance(found, str)


@given(st.text())
def test_quotes_of_json(text: str) -> None:
    assert unquoted(quoted(text)) == text
    assert json.loads(quoted(text)) == text


@given(st.lists(st.one_of(st.none(), st.integers(0, 3))), st.lists(st.one_of(st.none(), st.integers(0, 3))))
def test_sets_of_arrays(left: list[Any], right: list[Any]) -> None:
    assert set(collections.union(left, right)) == set(left) | set(right)
    assert set(collections.difference(left, right)) == set(left) - set(right)
    assert set(collections.intersection(left, right)) == set(left) & set(right)
    for found in (collections.union(left, right), collections.difference(left, right), collections.distinct(left)):
        assert len(found) == len(set(found))


@given(st.text("ab", max_size=9), st.text("ab", min_size=1, max_size=2), st.integers(-10, 10), st.integers(1, 4))
def test_instr(text: str, part: str, start: int, occurrence: int) -> None:
    places = [i + 1 for i in range(len(text)) if text.startswith(part, i)]
    if start > 0:
        found = [each for each in places if each >= start]
    elif start < 0:
        found = [each for each in reversed(places) if each + len(part) - 1 <= len(text) + start + 1]
    else:
        found = []
    assert texts.find(text, part, start, occurrence) == (found[occurrence - 1] if len(found) >= occurrence else 0)
