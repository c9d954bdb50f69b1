"""Functions of dates and times."""

from __future__ import annotations

import datetime
import re
import time
from calendar import monthrange
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.functions import time_formatting
from rmqio.sql.functions.operators import add_months, add_months_to_date
from rmqio.sql.functions.registry import define
from rmqio.sql.types import SqlType
from rmqio.sql.values import DAY_US, ValueFailure, shown

# Fields of times: what EXTRACT takes, and what FLOOR and CEIL round to. The planner picks one by unit and type.

_DATE_FIELDS: Final[dict[str, Callable[[datetime.date], int]]] = {
    "YEAR": lambda day: day.year,
    "QUARTER": lambda day: (day.month + 2) // 3,
    "MONTH": lambda day: day.month,
    "WEEK": lambda day: day.isocalendar()[1],
    "DAY": lambda day: day.day,
    "DOW": lambda day: day.isoweekday() % 7 + 1,
    "ISODOW": lambda day: day.isoweekday(),
    "DOY": lambda day: day.timetuple().tm_yday,
    "ISOYEAR": lambda day: day.isocalendar()[0],
    "DECADE": lambda day: day.year // 10,
    "CENTURY": lambda day: (day.year + 99) // 100,
    "MILLENNIUM": lambda day: (day.year + 999) // 1000,
}
_TIME_FIELDS: Final = {
    "HOUR": "{0} // 3600000000 % 24", "MINUTE": "{0} // 60000000 % 60", "SECOND": "{0} // 1000000 % 60",
    "MILLISECOND": "{0} // 1000 % 1000", "MICROSECOND": "{0} % 1000000", "NANOSECOND": "{0} % 1000000 * 1000",
}  # fmt: skip
SPAN_FIELDS: Final[dict[str, tuple[str, int, int]]] = {
    "DAY": ("INTERVAL_DAY", DAY_US, 0), "HOUR": ("INTERVAL_DAY", 3_600_000_000, 24),
    "MINUTE": ("INTERVAL_DAY", 60_000_000, 60), "SECOND": ("INTERVAL_DAY", 1_000_000, 60),
    "MILLISECOND": ("INTERVAL_DAY", 1000, 1000), "MICROSECOND": ("INTERVAL_DAY", 1, 1_000_000),
    "YEAR": ("INTERVAL_MONTH", 12, 0), "QUARTER": ("INTERVAL_MONTH", 3, 4), "MONTH": ("INTERVAL_MONTH", 1, 12),
}  # fmt: skip
"""The fields of an interval: of which type, how large, and how many of them make the next larger one; 0: none does."""
FIELDS: Final = (*_DATE_FIELDS, *_TIME_FIELDS, "EPOCH")
"""The fields of a DATE and of a TIMESTAMP. Sunday is day 1 of DOW and day 7 of ISODOW; weeks are those of ISO 8601."""
TIME_FIELDS: Final = tuple(_TIME_FIELDS)
"""The fields of a TIME."""


def _of_date(field: Callable[[datetime.date], int], days: int) -> int:
    return field(values.date_of(days))


def _of_timestamp(field: Callable[[datetime.date], int], micros: int) -> int:
    return field(values.date_of(micros // DAY_US))


for _name, _field in _DATE_FIELDS.items():
    define(f"EXTRACT {_name} OF DATE", "d -> l", partial(_of_date, _field))
    define(f"EXTRACT {_name} OF TIMESTAMP", "ts -> l", partial(_of_timestamp, _field))
for _name, _inline in _TIME_FIELDS.items():
    define(f"EXTRACT {_name} OF DATE", "d -> l", inline="{0} * 0")
    define(f"EXTRACT {_name} OF TIMESTAMP", "ts -> l", inline=_inline)
    define(f"EXTRACT {_name} OF TIME", "t -> l", inline=_inline)


def part_of_span(size: int, count: int, span: int) -> int:
    """Returns the whole units of an interval, without those that make a larger one; of a negative one, negative."""
    found = abs(span) // size
    found = found % count if count else found
    return found if span >= 0 else -found


for _name, (_, _size, _count) in SPAN_FIELDS.items():
    define(f"EXTRACT {_name} OF INTERVAL", "any -> l", partial(part_of_span, _size, _count))
define("EXTRACT EPOCH OF DATE", "d -> l", inline="{0} * 86400")
define("EXTRACT EPOCH OF TIMESTAMP", "ts -> l", inline="{0} // 1000000")

# ---- FLOOR and CEIL -------------------------------------------------------------------------------------------------

_MICROS: Final = {
    "MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
    "DAY": DAY_US,
}  # fmt: skip
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SUNDAY: Final = 3
"""1970-01-04 was a Sunday; weeks begin on it here, as in Flink, and not in EXTRACT."""


def floor_date(unit: str, days: int) -> int:
    """Returns the first day of the date's week, month, quarter or year; the date itself for shorter units."""
    if unit == "WEEK":
        return days - (days - _SUNDAY) % 7
    months = _MONTHS.get(unit)
    if months is None:
        return days
    day = values.date_of(days)
    return values.days_of(datetime.date(day.year, (day.month - 1) // months * months + 1, 1))


def ceil_date(unit: str, days: int) -> int:
    """Returns the first day of a week, month, quarter or year that is not before the date."""
    floor = floor_date(unit, days)
    return floor if floor == days else _next(unit, floor)


def _next(unit: str, floor: int) -> int:
    if unit == "WEEK":
        return floor + 7
    day = values.date_of(floor)
    years, month = divmod(day.month - 1 + _MONTHS[unit], 12)
    if day.year + years > 9999:
        raise ValueFailure(f"the year {day.year + years} is out of range")
    return values.days_of(datetime.date(day.year + years, month + 1, 1))


def floor_time(unit: str, micros: int) -> int:
    """Returns the time at which its unit began."""
    size = _MICROS.get(unit)
    return micros - micros % size if size else floor_date(unit, micros // DAY_US) * DAY_US


def ceil_time(unit: str, micros: int) -> int:
    """Returns the time at which a unit begins that is not before the time."""
    floor = floor_time(unit, micros)
    if floor == micros:
        return floor
    return floor + _MICROS[unit] if unit in _MICROS else _next(unit, floor // DAY_US) * DAY_US


def _of_instant(rounded: Callable[[str, int], int], unit: str, micros: int) -> int:
    """Rounds by the clock of the session's zone; hours and what is shorter begin there twice when it is set back."""
    local = values.local_of_instant(micros)
    found = rounded(unit, local)
    return micros + found - local if _MICROS.get(unit, DAY_US) < DAY_US else values.instant_of_local(found)


def ceil_time_of_day(unit: str, micros: int) -> int:
    """Returns the time of day at which a unit begins. Raises `ValueFailure` if that is the next day."""
    found = ceil_time(unit, micros)
    if found >= DAY_US:
        raise ValueFailure(f"{values.text_of_time(micros)} rounded up to {unit} is the next day")
    return found


def _second(given: Sequence[SqlType]) -> SqlType:
    return given[1]


define("FLOOR OF DATE", "s d", floor_date, returns=_second)
define("CEIL OF DATE", "s d", ceil_date, returns=_second)
define("FLOOR OF TIME", "s t", floor_time, returns=_second)
define("CEIL OF TIME", "s t", ceil_time_of_day, returns=_second)
define("FLOOR OF TIMESTAMP", "s ts", floor_time, returns=_second)
define("CEIL OF TIMESTAMP", "s ts", ceil_time, returns=_second)
define("FLOOR OF TIMESTAMP_LTZ", "s ts", partial(_of_instant, floor_time), returns=_second)
define("CEIL OF TIMESTAMP_LTZ", "s ts", partial(_of_instant, ceil_time), returns=_second)
define("TIME OF DAY +", "t any", inline="({0} + {1}) % 86400000000", returns=lambda given: given[0])
define("LOCAL OF INSTANT", "ts", values.local_of_instant, returns=lambda given: types.TIMESTAMP)
define("LAST INSTANT", "ts", values.last_instant, returns=lambda given: types.TIMESTAMP_LTZ)


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
        if not time_formatting.is_of_day(hour, minute, second, micros):
            return None
        day = min(day, monthrange(year, month)[1])
    time = datetime.timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros)
    try:
        return values.micros_of(datetime.datetime(year, month, 1) + time)
    except OverflowError:
        return None


def timestamp(text: str, pattern: str | None = None) -> int | None:
    """Returns the TIMESTAMP(3) of text in a format, or in SQL's own; None: it is in neither."""
    found = None if pattern is None else time_formatting.parsed(text, pattern, is_lenient=False)
    micros = _of_sql(text, is_lenient=pattern is not None) if found is None else found[0]
    return None if micros is None else values.scaled_time(micros, 3)


def date(text: str, pattern: str | None = None) -> int | None:
    """Returns the DATE of text in a format, or in SQL's own; None: it is not."""
    if pattern is not None:
        found = time_formatting.parsed(text, pattern, is_lenient=True)
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
    found = None if pattern is None else time_formatting.parsed(text, pattern, is_lenient=False)
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
    found = time_formatting.parsed(text, pattern, is_lenient=True)
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
    return time_formatting.formatted_instant(seconds * 1_000_000, pattern)


def format_time(time: int | str, pattern: str) -> str | None:
    """Returns a TIMESTAMP, or text such as `2020-01-31 23:59:59`, in a format; None: the text is not a time."""
    return format_text(time, pattern) if isinstance(time, str) else time_formatting.formatted(time, pattern)


def format_text(text: str, pattern: str) -> str | None:
    """Returns text such as `2020-01-31 23:59:59` in another format; None: it is not a time."""
    found = time_formatting.parsed(text, _STANDARD, is_lenient=True)
    return None if found is None else time_formatting.formatted_utc(found[0], pattern)


def convert_zone(text: str, given: str, wanted: str) -> str | None:
    """Returns text such as `2020-01-31 23:59:59` of a zone in another zone; None: it is not a time.

    A time that the zone skips, or has twice, is taken by the smaller offset. Raises `ValueFailure` for a zone.
    """
    found = time_formatting.parsed(text, _STANDARD, is_lenient=True)
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
        time_formatting.pieces(value)
    else:
        _check_precision(value)


def _older_format(pattern: str) -> None:
    """The functions of Java's older class read u as the day of the week."""
    if any(each.letter == "u" for each in time_formatting.pieces(pattern)):
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
define("TO_TIMESTAMP", "s [s] -> ts", timestamp, can_be_null=True, constants={1: time_formatting.pieces})
define("TO_TIMESTAMP_LTZ", "n [i] -> ltz | s [s] [s] -> ltz", instant, can_be_null=True,
       constants={1: _precision_or_format, 2: values.zone})  # fmt: skip
define("TO_DATE", "s [s] -> d", date, can_be_null=True, constants={1: _older_format})
define("DATE_FORMAT", "dt s -> s | s s -> s", format_time, takes=_dates_as_timestamps, can_be_null=True,
       constants={1: time_formatting.pieces})  # fmt: skip
define("CONVERT_TZ", "s s s -> s", convert_zone, can_be_null=True, constants={1: values.zone, 2: values.zone})
define("LAST_DAY", "d -> d | s -> d", last_day, can_be_null=True)
define("DATE_ADD", "s i -> s | d i -> s", days_after, can_be_null=True)
define("DATE_SUB", "s i -> s | d i -> s", days_before, can_be_null=True)
define("DATEDIFF", "s s -> i | d s -> i | s d -> i | d d -> i", days_between, can_be_null=True)
define("MICROSECONDS BETWEEN", "l ts ts -> l", difference)
define("MONTHS BETWEEN", "l ts ts -> l", months_between)
