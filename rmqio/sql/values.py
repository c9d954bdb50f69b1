"""Values at run time: conversions between types, and times as text. Every function takes and returns no NULL.

Semantics are those of Flink SQL, but integer overflow, which wraps there, is an error.
"""

from __future__ import annotations

import contextlib
import re
import zoneinfo
from calendar import monthrange
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from rmqio.errors import SerdeError, quoted
from rmqio.sql.secrets import masked_error

DECIMALS: Final = Context(prec=76, rounding=ROUND_HALF_UP)
DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_DECIMAL: Final = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*", re.ASCII)
_DECIMAL_PART: Final = re.compile(r"\s*([+-]?)([0-9]*)\.[0-9]*\s*", re.ASCII)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?")
_MONTH: Final = re.compile(r"([0-9]{4})(?:-([0-9]{1,2}))?")
_TIMESTAMP: Final = re.compile(_DATE.pattern + r"(?:[ T]" + _TIME.pattern + r")?")
_ZONED: Final = re.compile(_TIMESTAMP.pattern + r"(Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?")


class ValueFailure(SerdeError):
    """A value that cannot be converted or computed. `reason` is the text; what UTF-8 does not have is escaped."""

    def __init__(self, reason: str) -> None:
        self.reason = reason if reason.isascii() else reason.encode("utf-8", "backslashreplace").decode()
        super().__init__(self.reason)

    def __str__(self) -> str:
        return self.reason


# ---- text to values -------------------------------------------------------------------------------------------------


def integer_of_text(text: str, bits: int) -> int:
    """Returns the integer; a fraction is cut off. Raises `ValueFailure` for other text and out of range."""
    if not _INTEGER.fullmatch(text):
        with_fraction = _DECIMAL_PART.fullmatch(text)
        if with_fraction is None or text.strip(" \t\r\n+-") == ".":
            raise ValueFailure(f"{shown(text)} is not a whole number")
        text = with_fraction[1] + (with_fraction[2] or "0")
    text = text.strip()
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > 19:  # int() refuses thousands of digits, also zeros, with another error
        raise ValueFailure(f"{shown(text)} is out of range of an integer of {bits} bits")
    return ranged(-int(digits) if text[0] == "-" else int(digits), bits)


def ranged(number: int, bits: int) -> int:
    """Returns the number. Raises `ValueFailure` if it needs more bits."""
    limit = 1 << (bits - 1)
    if not -limit <= number < limit:
        raise ValueFailure(f"{shown_value(number)} is out of range of an integer of {bits} bits")
    return number


def double_of_text(text: str) -> float:
    """Returns the number. Raises `ValueFailure`."""
    if not _DECIMAL.fullmatch(text) and text.strip(" \t\n\r\f\v") not in ("NaN", "Infinity", "-Infinity"):
        raise ValueFailure(f"{shown(text)} is not a number")
    return float(text)


def decimal_of_text(text: str, precision: int, scale: int) -> Decimal:
    """Returns the number. Raises `ValueFailure` for other text, and if it has too many digits."""
    if not _DECIMAL.fullmatch(text):
        raise ValueFailure(f"{shown(text)} is not a number")
    try:
        found = rounded(Decimal(text.strip()), precision, scale)
    except InvalidOperation:  # an exponent that Python does not take
        found = None
    if found is None:
        raise ValueFailure(f"{shown(text)} has too many digits for DECIMAL({precision}, {scale})")
    return found


def boolean_of_text(text: str) -> bool:
    """Returns the truth of true, t, yes, y, 1 and their opposites. Raises `ValueFailure`."""
    found = _BOOLEANS.get(text.lower())
    if found is None:
        raise ValueFailure(f"{shown(text)} is not a boolean")
    return found


_BOOLEANS: Final = {"true": True, "t": True, "yes": True, "y": True, "1": True,
                    "false": False, "f": False, "no": False, "n": False, "0": False}  # fmt: skip


def date_of_text(text: str) -> int:
    """Returns days since 1970 of `2020-01-31`; a time after it is left out. Raises `ValueFailure`.

    `2020-01` and `2020` are the first day of the month and of the year.
    """
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        month = _MONTH.fullmatch(text.strip())
        if month is None:
            raise ValueFailure(f"{shown(text)} is not a date")
        return _days(text, month[1], month[2] or "1", "1", is_strict=True)
    return _days(text, *found.groups()[:3], is_strict=True)


def time_of_text(text: str) -> int:
    """Returns microseconds of the day of `23:59:59.123`. Raises `ValueFailure`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        hour = text.strip()
        if len(hour) <= 2 and hour.isdecimal() and hour.isascii():
            return _microseconds(text, hour, "0", None, None)
        raise ValueFailure(f"{shown(text)} is not a time of day")
    return _microseconds(text, *found.groups())


def timestamp_of_text(text: str, *, is_strict: bool = False) -> int:
    """Returns microseconds since 1970 of `2020-01-31 23:59:59.123`, also with a T. Raises `ValueFailure`.

    Args:
      is_strict: 30 February, and 24:00:00, are refused, as in literals. Else, as in Java, the first is the last day of
        February, and the second the start of the next day.
    """
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        hint = "; a zone makes it a TIMESTAMP_LTZ" if _ZONED.fullmatch(text.strip()) else ""
        raise ValueFailure(f"{shown(text)} is not a timestamp{hint}")
    return _local(text, found.groups(), is_strict=is_strict)


def instant_of_text(text: str, *, is_local: bool = False) -> int:
    """Returns microseconds since 1970 in UTC of a timestamp with `Z` or an offset. Raises `ValueFailure`.

    Args:
      is_local: one without is of the session's zone.
    """
    found = _ZONED.fullmatch(text.strip())
    if is_local and found is not None and not found[8]:
        return instant_of_local(timestamp_of_text(text))
    if found is None or not found[8]:
        how = "" if is_local else " with a zone, as in 2020-01-31T23:59:59Z"
        raise ValueFailure(f"{shown(text)} is not a timestamp{how}")
    local, zone = _local(text, found.groups()[:-1]), found[8]
    if zone == "Z":
        return local
    offset = int(zone[1:3]) * 60 + int(zone[-2:])
    found_us = local - (offset if zone[0] == "+" else -offset) * 60_000_000
    if not FIRST_US <= found_us <= LAST_US:
        raise ValueFailure(f"{shown(text)} is not in the years 1 to 9999 of UTC")
    return found_us


def _local(text: str, parts: tuple[Any, ...], *, is_strict: bool = False) -> int:
    days, hour = _days(text, *parts[:3], is_strict=is_strict), parts[3]
    if hour is None:
        return days * DAY_US
    ends = hour == "24" and not is_strict and not "".join(filter(None, parts[4:])).strip("0")
    found = days * DAY_US + (DAY_US if ends else _microseconds(text, *parts[3:]))
    if found > LAST_US:
        raise ValueFailure(f"{shown(text)} is not in the years 1 to 9999")
    return found


def _days(text: str, year: str, month: str, day: str, *, is_strict: bool) -> int:
    try:
        last = int(day) if is_strict or int(day) > 31 else min(int(day), monthrange(int(year), int(month))[1])
        return date(int(year), int(month), last).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueFailure(f"{shown(text)} is not a date") from None


def _microseconds(text: str, hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    seconds = int(second or 0)
    if int(hour) > 23 or int(minute) > 59 or seconds > 59:
        raise ValueFailure(f"{shown(text)} is not a time of day")
    micros = int(((fraction or "") + "000000")[:6])
    return ((int(hour) * 60 + int(minute)) * 60 + seconds) * 1_000_000 + micros


# ---- values to text -------------------------------------------------------------------------------------------------


def text_of_double(number: float) -> str:
    """Returns the text that Java prints: 1.0, 1.0E10, 1.0E-5, NaN, Infinity."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "-0.0" if str(number)[0] == "-" else "0.0"
    if 1e-3 <= abs(number) < 1e7:
        text = repr(number)
        return text if "e" not in text else format(Decimal(text), "f")
    text = repr(number)
    # Java prints two digits at least, the nearest ones: 4.9E-324
    sign, digits, exponent = Decimal(text if "." in text else f"{number:.1e}").as_tuple()
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{figures[0]}.{figures[1:] or '0'}E{power}"


def text_of_boolean(truth: bool) -> str:
    """Returns TRUE or FALSE."""
    return "TRUE" if truth else "FALSE"


def text_of_date(days: int) -> str:
    """Returns `2020-01-31`. Raises `ValueFailure` outside the years 1 to 9999."""
    return date_of(days).isoformat()


def text_of_time(micros: int, precision: int = 0) -> str:
    """Returns `23:59:59`, with as many digits of the fraction."""
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}"[: len(text) + 1 + precision] if precision else text


def text_of_timestamp(micros: int, precision: int = 3, separator: str = " ") -> str:
    """Returns `2020-01-31 23:59:59.123`."""
    days, rest = divmod(micros, DAY_US)
    return f"{text_of_date(days)}{separator}{text_of_time(rest, precision)}"


def date_of(days: int) -> date:
    """Returns the date of days since 1970. Raises `ValueFailure` outside the years 1 to 9999."""
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueFailure(f"{days} days from 1970 are not in the years 1 to 9999") from None


def days_of(day: date) -> int:
    """Returns days since 1970."""
    return day.toordinal() - _EPOCH_DAY


def text_of_months(months: int) -> str:
    """Returns the interval as `+1-02`: years and months."""
    return f"{'-' if months < 0 else '+'}{abs(months) // 12}-{abs(months) % 12:02}"


def text_of_span(micros: int) -> str:
    """Returns the interval as `+1 02:03:04.500`: days, hours, minutes, seconds."""
    days, rest = divmod(abs(micros), DAY_US)
    return f"{'-' if micros < 0 else '+'}{days} {text_of_time(rest, 3)}"


def datetime_of(micros: int) -> datetime:
    """Returns the timestamp without a zone. Raises `ValueFailure` outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise ValueFailure(f"{micros} microseconds from 1970 are not in the years 1 to 9999") from None


def micros_of(moment: datetime) -> int:
    """Returns microseconds since 1970 of a timestamp without a zone."""
    since = moment - _EPOCH
    return since.days * DAY_US + since.seconds * 1_000_000 + since.microseconds


def plain_datetime(moment: datetime) -> datetime | None:
    """Returns the datetime with the fields of one of a subclass, which can compute in another way.

    None: its fields are no numbers, as those of the `NaT` of pandas, which is a datetime to Python. Raises
    `ValueFailure` outside the years 1 to 9999, which pandas does not know.
    """
    if type(moment) is datetime:
        return moment
    day, clock = (moment.year, moment.month, moment.day), (moment.hour, moment.minute, moment.second)
    if any(each != each for each in day):
        return None
    try:
        return datetime(*day, *clock, moment.microsecond, moment.tzinfo, fold=moment.fold)
    except ValueError:
        raise ValueFailure(f"{shown_value(moment, str)} is not in the years 1 to 9999") from None


def instant_of(moment: datetime) -> int:
    """Returns the TIMESTAMP_LTZ of a datetime with a zone. Raises `ValueFailure` outside the years 1 to 9999 of UTC."""
    if moment.utcoffset() is None:  # Python would take the zone of the machine
        raise ValueFailure(f"{moment} has a zone without an offset")
    try:
        return micros_of(moment.astimezone(_UTC).replace(tzinfo=None))
    except OverflowError:
        raise ValueFailure(f"{moment} is not in the years 1 to 9999 of UTC") from None


# ---- numbers that are times: what all sources of such numbers call ---------------------------------------------------


def in_years(micros: int) -> int:
    """Returns the timestamp, in microseconds since 1970. Raises `ValueFailure` outside the years 1 to 9999."""
    if not FIRST_US <= micros <= LAST_US:
        raise ValueFailure(f"{shown_value(micros)} microseconds from 1970 are not in the years 1 to 9999")
    return micros


def date_in_years(days: int) -> int:
    """Returns the date, in days since 1970. Raises `ValueFailure` outside the years 1 to 9999."""
    if not FIRST_US <= days * DAY_US <= LAST_US:
        date_of(days)  # raises
    return days


def of_day(micros: int) -> int:
    """Returns the TIME, in microseconds since midnight. Raises `ValueFailure` before 00:00 and from 24:00 on."""
    if not 0 <= micros < DAY_US:
        raise ValueFailure(f"{shown_value(micros)} microseconds from midnight are not in a day")
    return micros


# ---- time zones -----------------------------------------------------------------------------------------------------
# All that depends on the session's zone calls these functions, or takes its name to where there is no session.

UTC: Final = "UTC"
_UTC: Final = zoneinfo.ZoneInfo("UTC")
_QUARTER_US: Final = 900_000_000
FIRST_US: Final = (datetime.min - _EPOCH) // timedelta(microseconds=1)
LAST_US: Final = (datetime.max - _EPOCH) // timedelta(microseconds=1)
"""The first and the last microsecond of the years 1 to 9999."""
_SESSION: Final[ContextVar[str]] = ContextVar("session", default=UTC)


def session_zone() -> str:
    """Returns the name of the session's time zone."""
    return _SESSION.get()


@contextlib.contextmanager
def in_zone(name: str) -> Iterator[None]:
    """Makes it the session's time zone in this block."""
    token = _SESSION.set(name)
    try:
        yield
    finally:
        _SESSION.reset(token)


def local_of_instant(micros: int) -> int:
    """Returns the TIMESTAMP in the session's zone of a TIMESTAMP_LTZ."""
    return local_in(_SESSION.get(), micros)


def local_in(name: str, micros: int) -> int:
    """Returns the TIMESTAMP in a zone of a TIMESTAMP_LTZ. Raises `ValueFailure` outside the years 1 to 9999."""
    if name == UTC:
        return micros
    offset = _offset_of_quarter(name, micros // _QUARTER_US)
    return micros + (_offset_us(name, micros) if offset is None else offset)


@lru_cache(maxsize=50_000)
def _offset_of_quarter(name: str, quarter: int) -> int | None:
    """The offset of a zone in a quarter of an hour since 1970; None: it changes within, as a few of long ago do."""
    first = _offset_us(name, quarter * _QUARTER_US)
    return first if first == _offset_us(name, (quarter + 1) * _QUARTER_US - 1) else None


def _offset_us(name: str, micros: int) -> int:
    moment = datetime_of(micros).replace(tzinfo=_UTC)
    try:
        return micros_of(moment.astimezone(zone(name)).replace(tzinfo=None)) - micros
    except OverflowError:
        raise ValueFailure(f"{str(moment)[:16]} UTC is not in the years 1 to 9999 in the zone {name}") from None


def last_instant(end: int) -> int:
    """Returns the time of the rows of a window in the session's zone, see `last_instant_in`."""
    return last_instant_in(_SESSION.get(), end)


@lru_cache(maxsize=10_000)
def last_instant_in(name: str, end: int) -> int:
    """Returns the last millisecond of what ends at a TIMESTAMP in a zone, as a TIMESTAMP_LTZ.

    When clocks are set back, a time that is there twice is the second one: the first is not the last of its hour. When
    they are set forward, a time that is not there is as much later.
    """
    local = end - 1000
    if name == UTC:
        return local
    moment = datetime_of(min(max(local, FIRST_US), LAST_US)).replace(tzinfo=zone(name))
    offsets = (each.utcoffset() or timedelta() for each in (moment, moment.replace(fold=1)))
    return local - min(offsets) // timedelta(microseconds=1)


def instant_of_local(micros: int) -> int:
    """Returns the TIMESTAMP_LTZ of a TIMESTAMP in the session's zone.

    When clocks are set back, a time that is there twice is the first one; when they are set forward, a time that is not
    there is as much later.
    """
    name = _SESSION.get()
    if name == UTC:
        return micros
    moment = datetime_of(micros)
    try:
        return micros_of(moment.replace(tzinfo=zone(name)).astimezone(_UTC).replace(tzinfo=None))
    except OverflowError:
        raise ValueFailure(f"{str(moment)[:16]} in the zone {name} is not in the years 1 to 9999 of UTC") from None


@lru_cache(maxsize=1000)
def zone(name: str) -> tzinfo:
    """Returns the time zone of a name of the tz database, an offset such as `+08:00`, or one of Java's short names.

    Raises `ValueFailure` if it is unknown.
    """
    found = _OFFSET.fullmatch(name)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        if minutes <= 18 * 60:
            return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(_JAVA_ZONES.get(name, name))
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueFailure(f"{shown(name)} is not a time zone, such as Europe/Berlin or GMT+08:00") from None


_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_JAVA_ZONES: Final = {
    "Z": "UTC", "GMT": "UTC", "EST": "Etc/GMT+5", "MST": "Etc/GMT+7", "HST": "Etc/GMT+10", "PST": "America/Los_Angeles",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "JST": "Asia/Tokyo", "IST": "Asia/Kolkata", "ECT": "Europe/Paris",
    "AET": "Australia/Sydney", "PRC": "Asia/Shanghai", "VST": "Asia/Ho_Chi_Minh", "BST": "Asia/Dhaka",
}  # fmt: skip


# ---- numbers --------------------------------------------------------------------------------------------------------


def rounded(number: Decimal, precision: int, scale: int) -> Decimal | None:
    """Returns the number with so many digits after the point, rounded half up; None if it has too many before it.

    There is no -0: as a key or as text, it would differ from 0.
    """
    try:
        found = number.quantize(Decimal(1).scaleb(-scale), context=DECIMALS)
    except InvalidOperation:
        return None
    if not found:
        return found.copy_abs()
    return found if len(found.as_tuple().digits) <= precision else None


def fitting(number: Decimal, precision: int, scale: int) -> Decimal:
    """Returns the number with so many digits after the point. Raises `ValueFailure` if it has too many before it.

    Flink has NULL there.
    """
    found = rounded(number, precision, scale)
    if found is None:
        text = format(number, "f")
        short = text if len(text) <= 80 else f"{number:.9e}"
        raise ValueFailure(f"{short} has too many digits for DECIMAL({precision}, {scale})")
    return found


def integer_of_double(number: float, bits: int) -> int:
    """Returns the number without its fraction. Raises `ValueFailure` for NaN and out of range."""
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueFailure(f"{text_of_double(number)} is not a whole number")
    return ranged(int(number), bits)


def in_order(value: Any) -> tuple[bool, Any, bool]:
    """Returns what values are ordered by if one is chosen: a NaN is the largest number, and -0.0 comes before 0.0."""
    return value != value, value, not value and str(value)[:1] != "-"


def well_formed(text: str) -> str:
    """Returns the text. Raises `ValueFailure` if it cannot be UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueFailure(f"{text[:50]!r} has half of a surrogate pair, which is not UTF-8") from None
    return text


def truncated(text: str, length: int) -> str:
    """Returns the first characters."""
    return text[:length]


def scaled_time(micros: int, precision: int) -> int:
    """Returns the time with so many digits of a second's fraction; the others are cut off."""
    unit: int = 10 ** (6 - precision)
    return micros - micros % unit


RAISED: Final = BaseException
"""What code of the user's can raise: also `SystemExit`, asyncio's `CancelledError`, a panic of a library in Rust."""
_OF_PROCESS: Final = (KeyboardInterrupt, MemoryError)
_LONGEST_TEXT: Final = 2_000
"""Characters of an error that are looked at for secrets."""


def failure_reason(error: BaseException) -> str:
    """Returns one line that says what code of the user's has raised.

    Raises:
      BaseException: the error itself, if it is of the process: Ctrl-C, no memory.
    """
    if isinstance(error, _OF_PROCESS):
        raise error
    if isinstance(error, ValueFailure):
        return str(error)
    name = type(error).__name__
    try:
        text = masked_error(" ".join(str(error)[:_LONGEST_TEXT].split()))  # drivers quote their URLs
    except _OF_PROCESS:
        raise
    except RAISED:  # a `__str__` of the user's
        return f"{name} without a text"
    return f"{name}: {text:.300}" if text else name


def shown_value(value: Any, text_of: Callable[[Any], str] = repr) -> str:
    """Returns the text of a value of Python for a message, of a bounded length. Values of users may have no text."""
    try:
        text = text_of(value)
    except _OF_PROCESS:
        raise
    except RAISED:  # more than 4,300 digits, a `__repr__` of the user's
        name = type(value).__name__
        return f"{name} of {value.bit_length():,} bits" if isinstance(value, int) else f"a value of {name}"
    return text if len(text) <= 50 else f"{text[:47]}..."


def shown(text: str) -> str:
    """Returns the text for a message, of a bounded length."""
    return quoted(text if len(text) <= 50 else f"{text[:47]}...")
