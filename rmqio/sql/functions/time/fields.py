"""Fields of times: what EXTRACT takes, and what FLOOR and CEIL round to. The planner picks one by unit and type."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rmqio.sql import types, values
from rmqio.sql.functions.registry import define
from rmqio.sql.types import SqlType
from rmqio.sql.values import DAY_US, ValueFailure

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
