"""Functions of dates and times."""

from __future__ import annotations

import datetime
import re
import time
from calendar import monthrange
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.functions.operators import add_months, add_months_to_date
from rmqio.sql.functions.registry import define
from rmqio.sql.functions.time import formatting
from rmqio.sql.types import SqlType
from rmqio.sql.values import DAY_US, ValueFailure, shown

_STANDARD: Final = "yyyy-MM-dd HH:mm:ss"
_SQL: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)
_OLDER_SQL: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,9}):(\d{1,9}):(\d{1,9})(?:\.(\d{1,9}))?)?", re.ASCII
)
FIRST_INSTANT: Final = -62_135_596_800_000_000
LAST_INSTANT: Final = 253_402_300_799_999_999
_NO_TIME: Final = -(1 << 63)
"""The result of UNIX_TIMESTAMP for text that is not a time."""

# ---- now ------------------------------------------------------------------------------------------------------------


def now_us() -> int:
    """Returns microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def now_ms() -> int:
    """Returns microseconds since 1970, UTC, in whole milliseconds."""
    return time.time_ns() // 1_000_000 * 1000


def local_now() -> int:
    """Returns the TIMESTAMP of now in the session's zone, in whole milliseconds."""
    return values.local_of_instant(now_ms())


def today() -> int:
    """Returns the DATE of now in the session's zone."""
    return values.local_of_instant(now_us()) // DAY_US


def time_of_day() -> int:
    """Returns the TIME of now in the session's zone, in whole seconds."""
    return values.local_of_instant(now_us()) % DAY_US // 1_000_000 * 1_000_000


# ---- text to times --------------------------------------------------------------------------------------------------


def _of_sql(text: str, *, is_lenient: bool) -> int | None:
    """Microseconds of `2020-1-31` or `2020-1-31 23:59:59.123`; None: it is neither.

    30 February is the last of February, and 24:00:00 the start of the next day. Lenient: 30 February is 1 or 2 March,
    and hours, minutes and seconds are any numbers, as for Java's older class, which Flink asks second, without the
    spaces around it.
    """
    found = _OLDER_SQL.fullmatch(text.strip()) if is_lenient else _SQL.fullmatch(text)
    if found is None:
        return None
    year, month, day = map(int, found.groups()[:3])
    hour, minute, second = (int(each or 0) for each in found.groups()[3:6])
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    micros = int(f"{found[7] or ''}000000"[:6])
    if not is_lenient:
        if not formatting.is_of_day(hour, minute, second, micros):
            return None
        day = min(day, monthrange(year, month)[1])
    time = datetime.timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros)
    try:
        return values.micros_of(datetime.datetime(year, month, 1) + time)
    except OverflowError:
        return None


def timestamp(text: str, pattern: str | None = None) -> int | None:
    """Returns the TIMESTAMP(3) of text in a format, or in SQL's own; None: it is in neither."""
    found = None if pattern is None else formatting.parsed(text, pattern, is_lenient=False)
    micros = _of_sql(text, is_lenient=pattern is not None) if found is None else found[0]
    return None if micros is None else values.scaled_time(micros, 3)


def date(text: str, pattern: str | None = None) -> int | None:
    """Returns the DATE of text in a format, or in SQL's own; None: it is not."""
    if pattern is not None:
        found = formatting.parsed(text, pattern, is_lenient=True)
        return None if found is None else found[0] // DAY_US
    try:
        return values.date_of_text(text)
    except ValueFailure:
        return None


def _check_precision(precision: int) -> None:
    if precision not in (0, 3):
        raise ValueFailure(f"TO_TIMESTAMP_LTZ takes the precision 0 (seconds) or 3 (milliseconds), not {precision}")


def instant_of_number(number: int | float | Decimal, precision: int = 3) -> int | None:
    """Returns the TIMESTAMP_LTZ of seconds (precision 0) or milliseconds (3) since 1970; None: it is out of range."""
    _check_precision(precision)
    try:
        if isinstance(number, float):
            micros = int(number * 1000) * 1000 if precision == 0 else int(number) * 1000
        else:
            micros = int(number) * (1_000_000 if precision == 0 else 1000)
    except (ValueError, OverflowError):  # NaN, infinite
        return None
    return micros if FIRST_INSTANT <= micros <= LAST_INSTANT else None


def instant_of_text(text: str, pattern: str | None = None, zone: str = values.UTC) -> int | None:
    """Returns the TIMESTAMP_LTZ of text in a format, in a zone or that of the text; None: it is no such text."""
    found = None if pattern is None else formatting.parsed(text, pattern, is_lenient=False)
    if found is None:
        micros = _of_sql(text, is_lenient=pattern is not None)
        found = None if micros is None else (micros, None)
    if found is None:
        return None
    micros, offset = found
    if offset is None:
        offset = _offset_us(values.datetime_of(micros).replace(tzinfo=values.zone(zone)))
    return values.scaled_time(micros - offset, 3) if FIRST_INSTANT <= micros - offset <= LAST_INSTANT else None


def instant(value: int | float | Decimal | str, *how: Any) -> int | None:
    """Returns the TIMESTAMP_LTZ of a number, or of text."""
    return instant_of_text(value, *how) if isinstance(value, str) else instant_of_number(value, *how)


def _offset_us(local: datetime.datetime) -> int:
    return (local.utcoffset() or datetime.timedelta()) // datetime.timedelta(microseconds=1)


def _smaller_offset_us(micros: int, zone: datetime.tzinfo) -> int:
    """The offset of a TIMESTAMP that the zone skips, or has twice: the smaller one, as Java's older class takes it."""
    local = values.datetime_of(micros).replace(tzinfo=zone)
    return min(_offset_us(local), _offset_us(local.replace(fold=1)))


def seconds_of_text(text: str, pattern: str = _STANDARD) -> int:
    """Returns seconds since 1970 of text in a format and in the session's zone; the least BIGINT: it is not."""
    found = formatting.parsed(text, pattern, is_lenient=True)
    if found is None:
        return _NO_TIME
    micros, offset = found
    if offset is None:
        offset = _smaller_offset_us(micros, values.zone(values.session_zone()))
    return (micros - offset) // 1_000_000


def seconds(text: str | None = None, pattern: str = _STANDARD) -> int:
    """Returns seconds since 1970, of text or of now."""
    return now_us() // 1_000_000 if text is None else seconds_of_text(text, pattern)


# ---- times to text --------------------------------------------------------------------------------------------------


def text_of_seconds(seconds: int, pattern: str = _STANDARD) -> str:
    """Returns seconds since 1970 in a format and in the session's zone."""
    if not values.FIRST_US <= seconds * 1_000_000 <= values.LAST_US:
        raise ValueFailure(f"{seconds} seconds from 1970 are not in the years 1 to 9999")
    return formatting.formatted_instant(seconds * 1_000_000, pattern)


def format_time(time: int | str, pattern: str) -> str | None:
    """Returns a TIMESTAMP, or text such as `2020-01-31 23:59:59`, in a format; None: the text is not a time."""
    return format_text(time, pattern) if isinstance(time, str) else formatting.formatted(time, pattern)


def format_text(text: str, pattern: str) -> str | None:
    """Returns text such as `2020-01-31 23:59:59` in another format; None: it is not a time."""
    found = formatting.parsed(text, _STANDARD, is_lenient=True)
    return None if found is None else formatting.formatted_utc(found[0], pattern)


def convert_zone(text: str, given: str, wanted: str) -> str | None:
    """Returns text such as `2020-01-31 23:59:59` of a zone in another zone; None: it is not a time.

    A time that the zone skips, or has twice, is taken by the smaller offset. Raises `ValueFailure` for a zone.
    """
    found = formatting.parsed(text, _STANDARD, is_lenient=True)
    source, target = values.zone(given), values.zone(wanted)
    if found is None:
        return None
    try:
        micros = found[0] - _smaller_offset_us(found[0], source)
        moment = values.datetime_of(micros).replace(tzinfo=datetime.UTC).astimezone(target)
    except OverflowError:
        raise ValueFailure(f"{shown(text)} is not in the years 1 to 9999 in that zone") from None
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment.year > 999 else str(moment.replace(tzinfo=None))[:19]


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def difference(size: int, start: int, end: int) -> int:
    """Returns the whole units of so many microseconds between two timestamps; negative: the second is earlier."""
    found = end - start
    return found // size if found >= 0 else -(-found // size)


def months_between(size: int, start: int, end: int) -> int:
    """Returns the whole units of so many months between two timestamps; negative: the second is earlier."""
    found = _months(end, start) if end // DAY_US >= start // DAY_US else -_months(start, end)
    if found and add_months(start // DAY_US * DAY_US, found) == end // DAY_US * DAY_US:
        rest = end % DAY_US - start % DAY_US
        if found > 0 and rest < 0:
            found -= 1
        elif found < 0 and rest > 0:
            found += 1
    return found // size if found >= 0 else -(-found // size)


def _months(later: int, earlier: int) -> int:
    first, last = values.date_of(earlier // DAY_US), values.date_of(later // DAY_US)
    found = (last.year - first.year) * 12 + last.month - first.month
    return found - (add_months_to_date(earlier // DAY_US, found) > later // DAY_US)


def last_day(value: int | str) -> int | None:
    """Returns the last day of the date's month; None: the text is not a date."""
    days = _days(value)
    if days is None:
        return None
    day = values.date_of(days)
    if (day.year, day.month) == (9999, 12):
        return days + 31 - day.day
    return values.days_of(datetime.date(day.year + day.month // 12, day.month % 12 + 1, 1)) - 1


def _days(value: int | str) -> int | None:
    return date(value) if isinstance(value, str) else value


def days_after(value: int | str, days: int) -> str | None:
    """Returns the text of the date so many days later; None: the text is not a date."""
    start = _days(value)
    return None if start is None else values.text_of_date(start + days)


def days_before(value: int | str, days: int) -> str | None:
    """Returns the text of the date so many days earlier; None: the text is not a date."""
    return days_after(value, -days)


def days_between(end: int | str, start: int | str) -> int | None:
    """Returns the days from the second to the first; None: a text is not a date."""
    last, first = _days(end), _days(start)
    return None if last is None or first is None else last - first


def _precision_or_format(value: int | str) -> None:
    if isinstance(value, str):
        formatting.pieces(value)
    else:
        _check_precision(value)


def _older_format(pattern: str) -> None:
    """The functions of Java's older class read u as the day of the week."""
    if any(each.letter == "u" for each in formatting.pieces(pattern)):
        raise ValueFailure("the letter u is not supported here: y is the year")


def _dates_as_timestamps(given: Sequence[SqlType]) -> list[SqlType]:
    first, *rest = given
    return [types.TIMESTAMP.nullable(first.is_nullable) if first.kind == "DATE" else first, *rest]


define("CURRENT_TIMESTAMP, NOW, CURRENT_ROW_TIMESTAMP, PROCTIME", "-> ltz", now_ms, is_pure=False)
define("LOCALTIMESTAMP", "-> ts", local_now, is_pure=False)
define("CURRENT_DATE", "-> d", today, is_pure=False)
define("CURRENT_TIME, LOCALTIME", "-> t", time_of_day, is_pure=False)
define("UNIX_TIMESTAMP", "-> l | s [s] -> l", seconds, is_pure=False, constants={1: _older_format})
define("FROM_UNIXTIME", "i [s] -> s", text_of_seconds, constants={1: _older_format})
define("TO_TIMESTAMP", "s [s] -> ts", timestamp, can_be_null=True, constants={1: formatting.pieces})
define("TO_TIMESTAMP_LTZ", "n [i] -> ltz | s [s] [s] -> ltz", instant, can_be_null=True,
       constants={1: _precision_or_format, 2: values.zone})  # fmt: skip
define("TO_DATE", "s [s] -> d", date, can_be_null=True, constants={1: _older_format})
define("DATE_FORMAT", "dt s -> s | s s -> s", format_time, takes=_dates_as_timestamps, can_be_null=True,
       constants={1: formatting.pieces})  # fmt: skip
define("CONVERT_TZ", "s s s -> s", convert_zone, can_be_null=True, constants={1: values.zone, 2: values.zone})
define("LAST_DAY", "d -> d | s -> d", last_day, can_be_null=True)
define("DATE_ADD", "s i -> s | d i -> s", days_after, can_be_null=True)
define("DATE_SUB", "s i -> s | d i -> s", days_before, can_be_null=True)
define("DATEDIFF", "s s -> i | d s -> i | s d -> i | d d -> i", days_between, can_be_null=True)
define("MICROSECONDS BETWEEN", "l ts ts -> l", difference)
define("MONTHS BETWEEN", "l ts ts -> l", months_between)
