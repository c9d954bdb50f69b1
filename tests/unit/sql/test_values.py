"""Conversions of values, against exact references."""

from __future__ import annotations

import enum
import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st

from rmqio.sql import values
from rmqio.sql.casts import caster, single, text_of
from rmqio.sql.formats import python_rows
from rmqio.sql.transform import row_types
from rmqio.sql.user import conversions
from rmqio.sql.values import ValueFailure
from tests.unit.sql.evaluating import evaluate, type_of

NUMBERS = st.from_regex(r"[ ]?[+-]?[0-9]{0,25}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?[ ]?", fullmatch=True)
TEXTS = st.one_of(NUMBERS, st.text(max_size=12), st.text("0123456789+-.eE_ ٣", max_size=12))


def cast(text: str, kind: str) -> Any:
    return caster(type_of("STRING"), type_of(kind))(text)


@given(TEXTS)
@example("4_2")
@example("9223372036854775807")
@example("-9223372036854775809")
@example("9" * 5000)
@example("." * 3)
def test_text_to_bigint(text: str) -> None:
    found = re.fullmatch(r"\s*([+-]?)([0-9]*)(\.[0-9]*)?\s*", text)
    digits = (found[2] or "0") if found and (found[2] or (found[3] or ".") != ".") else None
    expected = None
    if found and digits and len(digits.lstrip("0")) < 25:
        number = int(digits) * (-1 if found[1] == "-" else 1)
        expected = number if -(1 << 63) <= number < 1 << 63 else None
    if expected is None:
        with pytest.raises(ValueFailure):
            cast(text, "BIGINT")
    else:
        assert cast(text, "BIGINT") == expected


@given(TEXTS)
@example("1e999999999999999999999")
@example("1e-999999999999999999999")
@example("NaN")
@example("sNaN")
@example("Infinity")
def test_text_to_decimal(text: str) -> None:
    is_number = re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", text)
    expected = None
    if is_number:
        with localcontext(prec=2000, Emax=10**6, Emin=-(10**6)) as context:
            context.clear_traps()
            number = Decimal(text.strip())
            if number.is_finite() and (not number or number.adjusted() < 40):
                exact = number.quantize(Decimal("0.001"), rounding=ROUND_HALF_UP)
                expected = exact if abs(exact) < 10**12 else None
    if expected is None:
        with pytest.raises(ValueFailure):
            cast(text, "DECIMAL(15, 3)")
    else:
        found = cast(text, "DECIMAL(15, 3)")
        assert found == expected
        assert found.as_tuple().exponent == -3


@given(TEXTS)
@example("4_2")
@example("infinity")
def test_text_to_double(text: str) -> None:
    is_number = re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", text)
    if is_number or text.strip() in ("NaN", "Infinity", "-Infinity"):
        assert repr(cast(text, "DOUBLE")) == repr(float(text))
    else:
        with pytest.raises(ValueFailure):
            cast(text, "DOUBLE")


@given(st.floats())
def test_a_double_and_its_text(number: float) -> None:
    text = values.text_of_double(number)
    assert repr(values.double_of_text(text)) == repr(number)
    if number == number and abs(number) != float("inf") and number:
        assert ("E" in text) == (not 1e-3 <= abs(number) < 1e7)


@given(st.floats(width=32, allow_nan=False))
def test_a_float_and_its_text(number: float) -> None:
    text = text_of(type_of("FLOAT"))(number)
    assert single(values.double_of_text(text)) == number
    assert len(text.lstrip("-").replace(".", "").partition("E")[0].lstrip("0")) <= 12


@given(st.datetimes(), st.integers(0, 6), st.sampled_from("T "))
def test_text_to_timestamp(moment: datetime, precision: int, separator: str) -> None:
    text = moment.isoformat(separator)
    unit = 10 ** (6 - precision)
    expected = moment.replace(microsecond=moment.microsecond // unit * unit)
    found = cast(text, f"TIMESTAMP({precision})")
    assert values.datetime_of(found) == expected
    assert values.micros_of(expected) == found
    shown = text_of(type_of(f"TIMESTAMP({precision})"))(found)
    assert cast(shown, f"TIMESTAMP({precision})") == found
    assert len(shown) == 19 + bool(precision) + precision


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-17 * 60, 17 * 60))
def test_text_to_an_instant(moment: datetime, minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    text = f"{moment.isoformat()}{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    exact = datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
    assert values.instant_of_text(text) == values.micros_of(exact)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00+00:01"])
def test_no_instant(text: str) -> None:
    with pytest.raises(ValueFailure, match="is not in the years 1 to 9999 of UTC"):
        values.instant_of_text(text)


@given(st.dates())
def test_text_to_date(day: date) -> None:
    assert cast(day.isoformat(), "DATE") == values.days_of(day)
    assert values.date_of(values.days_of(day)) == day
    assert values.text_of_date(values.days_of(day)) == day.isoformat()


@pytest.mark.parametrize("text", ["2020-13-01", "2020-02-30", "0000-01-01", "2020-1-1x", "", "٢٠٢٠-01-01", "20200101"])
def test_no_date(text: str) -> None:
    with pytest.raises(ValueFailure, match="is not a date"):
        values.date_of_text(text)


@pytest.mark.parametrize("text", ["24:00:00", "12:60", "12:00:60", "", "123", "1:2:3:4", "٣"])
def test_no_time_of_day(text: str) -> None:
    with pytest.raises(ValueFailure, match="is not a time of day"):
        values.time_of_text(text)


def test_a_zone_makes_it_an_instant() -> None:
    with pytest.raises(ValueFailure, match="a zone makes it a TIMESTAMP_LTZ"):
        values.timestamp_of_text("2020-01-01T00:00:00Z")


@pytest.mark.parametrize("call", [values.date_of, values.datetime_of, values.text_of_date, values.text_of_timestamp])
@pytest.mark.parametrize("number", [10**17, -(10**17), 1 << 63, -(1 << 63), 1 << 80])
def test_times_out_of_range_are_failures(call: Any, number: int) -> None:
    with pytest.raises(ValueFailure, match="not in the years 1 to 9999"):
        call(number * 1000)


@pytest.mark.parametrize(
    ("call", "zone", "text", "told"),
    [
        (
            values.instant_of_local,
            "Asia/Shanghai",
            "0001-01-01 00:00:00",
            "0001-01-01 00:00 in the zone Asia",
        ),
        (
            values.instant_of_local,
            "America/New_York",
            "9999-12-31 23:00:00",
            "9999-12-31 23:00 in the zone America",
        ),
        (
            values.local_of_instant,
            "America/New_York",
            "0001-01-01 00:00:00",
            "0001-01-01 00:00 UTC is not in the",
        ),
    ],
)
def test_the_year_of_a_failure_has_four_digits(call: Any, zone: str, text: str, told: str) -> None:
    with values.in_zone(zone), pytest.raises(ValueFailure, match=f"^{told}"):
        call(values.timestamp_of_text(text))


@given(st.integers(-(10**17), 10**17))
def test_an_interval_and_its_text(micros: int) -> None:
    sign, days, clock = re.fullmatch(r"([+-])(\d+) (.+)", values.text_of_span(micros)).groups()  # type: ignore[union-attr]
    rest = timedelta(days=int(days), microseconds=values.time_of_text(clock)) // timedelta(milliseconds=1)
    assert (-rest if sign == "-" else rest) == (abs(micros) // 1000) * (-1 if micros < 0 else 1)


@pytest.mark.parametrize(
    ("name", "hours"),
    [("UTC", 0), ("GMT+08:00", 8), ("+08:00", 8), ("UTC-3", -3), ("Asia/Shanghai", 8), ("PST", -8), ("CTT", 8)],
)
def test_zones(name: str, hours: int) -> None:
    assert datetime(2020, 1, 1, tzinfo=values.zone(name)).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("name", ["", "Nowhere", "../../etc/passwd", "/etc/passwd", "+99:00", "Asia", "a" * 1000])
def test_unknown_zones(name: str) -> None:
    with pytest.raises(ValueFailure, match="is not a time zone"):
        values.zone(name)


def test_casts_of_what_values_are_made_of() -> None:
    row = {"a": ("ARRAY<INT>", [1, None]), "m": ("MAP<STRING, INT>", {"x": 1}), "r": ("ROW<p INT, q INT>", (1, None))}
    assert evaluate("CAST(a AS ARRAY<STRING>)", row) == ["1", None]
    assert evaluate("CAST(m AS MAP<STRING, DOUBLE>)", row) == {"x": 1.0}
    assert evaluate("CAST(r AS ROW<p STRING, q BIGINT>)", row) == ("1", None)
    assert evaluate("CAST(a AS STRING)", row) == "[1, NULL]"
    with pytest.raises(ValueFailure, match="out of range"):
        evaluate("CAST(a AS ARRAY<TINYINT>)", {"a": ("ARRAY<INT>", [300])})


@pytest.mark.parametrize(
    ("expression", "value", "reason"),
    [
        ("CAST(a AS INT)", "9999999999", "9999999999 is out of range of an integer of 32 bits"),
        ("CAST(a AS INT)", "x", "'x' is not a whole number"),
        ("CAST(a AS DECIMAL(3, 1))", "100", "'100' has too many digits for DECIMAL(3, 1)"),
        ("CAST(a AS BOOLEAN)", "maybe", "'maybe' is not a boolean"),
    ],
)
def test_failures_say_why(expression: str, value: str, reason: str) -> None:
    with pytest.raises(ValueFailure) as failure:
        evaluate(expression, {"a": ("STRING", value)})
    assert str(failure.value) == f"{expression}: {reason}"
    assert evaluate(expression.replace("CAST", "TRY_CAST"), {"a": ("STRING", value)}) is None


@pytest.mark.parametrize(
    ("expression", "kind", "value", "reason"),
    [
        ("CAST(a AS DECIMAL(4, 2))", "DOUBLE", 12345.5, "12345.5 has too many digits for DECIMAL(4, 2)"),
        ("CAST(a AS DECIMAL(4, 2))", "INT", 100, "100 has too many digits for DECIMAL(4, 2)"),
        ("a * a", "DECIMAL(38, 2)", Decimal(10) ** 30, "10{60} has too many digits for DECIMAL(38, 4)"),
        ("a + a", "DECIMAL(38, 0)", Decimal(6 * 10**37), "120{37} has too many digits for DECIMAL(38, 0)"),
    ],
)
def test_a_number_that_does_not_fit_into_its_decimal_fails(expression: str, kind: str, value: Any, reason: str) -> None:
    row = {"a": (kind, value)}
    with pytest.raises(ValueFailure, match=f"{re.escape(expression)}: {reason.replace('(', '.').replace(')', '.')}$"):
        evaluate(expression, row)
    if "CAST" in expression:
        assert evaluate(expression.replace("CAST", "TRY_CAST"), row) is None


# ---- values of Python: results of functions, elements, and rows of drivers ------------------------------------------


class Color(str, enum.Enum):  # noqa: UP042 - str() of it is its name
    RED = "red"


class Level(int, enum.Enum):
    HIGH = 3


class Moment(datetime):
    def __sub__(self, other: object) -> Any:
        return "a while"


class Nowhere(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None


class Bad:
    """Stands for a value that is refused."""


NAT, NA, BAD = pd.NaT, pd.NA, Bad()
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("kind", "given_value", "of_function", "of_element", "of_driver"),
    [
        *((kind, each, BAD, BAD, BAD) for kind in ("DATE", "TIME(6)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "BIGINT")
          for each in (NAT, NA, np.datetime64("NaT"), np.timedelta64("NaT", "ns"))),
        *(("DOUBLE", each, BAD, BAD, BAD) for each in (NAT, NA, np.timedelta64(5, "ns"), np.datetime64(5, "ns"))),
        ("BIGINT", np.timedelta64(5, "ns"), BAD, BAD, BAD),
        ("TIMESTAMP(6)", np.datetime64(5, "ns"), BAD, BAD, BAD),
        ("BOOLEAN", NA, BAD, BAD, BAD),
        ("BOOLEAN", np.True_, True, True, True),
        ("DOUBLE", np.True_, BAD, BAD, BAD),
        ("DOUBLE", np.str_("1.5"), BAD, BAD, 1.5),
        ("DOUBLE", np.array([1.5]), BAD, BAD, BAD),
        ("BIGINT", np.array([1]), BAD, BAD, BAD),
        ("BIGINT", Level.HIGH, 3, 3, 3),
        ("STRING", Color.RED, "red", "red", "red"),
        ("STRING", bytearray(b"a"), BAD, BAD, "a"),
        *((kind, Decimal(each), BAD, BAD, BAD) for kind in ("DECIMAL(10, 2)", "BIGINT", "BOOLEAN")
          for each in ("NaN", "sNaN", "-Infinity")),
        *(("DECIMAL(10, 2)", np.float64(each), BAD, BAD, BAD) for each in ("nan", "inf")),
        ("DECIMAL(10, 2)", np.float64(1.5), BAD, BAD, Decimal("1.50")),
        ("DOUBLE", Decimal("sNaN"), BAD, BAD, BAD),
        ("DOUBLE", 10**400, BAD, BAD, BAD),
        ("TIMESTAMP(6)", Moment(1970, 1, 2), values.DAY_US, values.DAY_US, values.DAY_US),
        ("TIMESTAMP_LTZ(6)", Moment(1970, 1, 2, 2, tzinfo=EAST), values.DAY_US, values.DAY_US, values.DAY_US),
        ("DATE", Moment(1970, 1, 2), BAD, BAD, 1),
        ("TIMESTAMP(6)", pd.Timestamp("1970-01-01 00:00:00.000001999"), 1, 1, 1),
        ("TIMESTAMP(6)", pd.Timestamp(np.datetime64("20000-01-01", "s")), BAD, BAD, BAD),
        ("TIMESTAMP_LTZ(6)", datetime(1, 1, 1, tzinfo=EAST), BAD, BAD, BAD),
        ("TIMESTAMP_LTZ(6)", datetime(1970, 1, 1, tzinfo=Nowhere()), BAD, BAD, BAD),  # type: ignore[abstract]
        ("TIME(6)", time(10, tzinfo=EAST), BAD, BAD, 28_800_000_000),
        ("TIME(0)", time(1, 0, 0, 5, EAST), BAD, BAD, 82_800_000_000),
        ("TIME(6)", time(10, tzinfo=ZoneInfo("Europe/Berlin")), BAD, BAD, BAD),
        ("TIMESTAMP(6)", time(10), BAD, BAD, BAD),
    ],
)  # fmt: skip
def test_values_of_python(kind: str, given_value: Any, of_function: Any, of_element: Any, of_driver: Any) -> None:
    known = type_of(kind)
    for convert, wanted in (
        (conversions.out_of(known), of_function),
        (row_types.reader(known), of_element),
        (python_rows.converter(known), of_driver),
    ):
        if wanted is BAD:
            with pytest.raises(ValueFailure):
                convert(given_value)
        else:
            found = convert(given_value)
            assert found == wanted
            assert type(found) is type(wanted)
