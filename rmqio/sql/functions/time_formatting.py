"""Patterns of Java for times, such as `yyyy-MM-dd HH:mm:ss.SSS`: written and read.

Letters: y u (year), M L (month), d (day), D (day of the year), E (weekday), Q (quarter), H k (hour of the day from 0 or
1), h K (hour of the half day from 1 or 0), a (AM or PM), m, s, S (fraction of a second), X x Z (offset), z (zone). Text
stands in single quotes; two of them are one.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from rmqio.sql import values
from rmqio.sql.values import ValueFailure, shown

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|(([a-zA-Z])\3*)|([^a-zA-Z']+)")
_MOST: Final = {"d": 2, "D": 3, "H": 2, "k": 2, "h": 2, "K": 2, "m": 2, "s": 2, "a": 1, "S": 9, "E": 5, "M": 5, "L": 5,
                "Q": 2, "X": 3, "x": 3, "Z": 3, "z": 4, "y": 9, "u": 9}  # fmt: skip
LETTERS: Final = "yuMLdDEQHkhKamsSXxZz"


class Piece(NamedTuple):
    """A part of a pattern: a letter and how often it stands there, or text (`letter` is empty)."""

    letter: str
    repeats: int
    text: str


@lru_cache(maxsize=500)
def pieces(pattern: str) -> tuple[Piece, ...]:
    """Returns the parts of a pattern. Raises `ValueFailure` for an unknown letter, and for a quote without its end."""
    return tuple(_pieces(pattern))


def _pieces(pattern: str) -> Iterator[Piece]:
    start = 0
    while start < len(pattern):
        found = _TOKEN.match(pattern, start)
        if found is None:
            raise ValueFailure(f"the quote in the format {shown(pattern)} does not end")
        start = found.end()
        if found[2]:
            letter, count = found[3], len(found[2])
            if letter not in _MOST:
                raise ValueFailure(f"the format {shown(pattern)} has the unknown letter {letter}; they are {LETTERS}")
            if count > _MOST[letter]:
                raise ValueFailure(f"the format {shown(pattern)} has the letter {letter} too often")
            yield Piece(letter, count, "")
        else:
            text = found[4] if found[1] is None else found[1].replace("''", "'") or "'"
            yield Piece("", 0, text)


# ---- writing --------------------------------------------------------------------------------------------------------


class _Zone(NamedTuple):
    """The zone of an instant: its offset in minutes, and its short name."""

    offset: int
    name: str

    @property
    def digits(self) -> str:
        """The offset as RFC 822 writes it."""
        return f"{'-' if self.offset < 0 else '+'}{abs(self.offset) // 60:02}{abs(self.offset) % 60:02}"

    @property
    def iso(self) -> tuple[str, str, str, str]:
        """The offset as ISO 8601 writes it, by the count of its letters."""
        return ("", self.digits[:3], self.digits, f"{self.digits[:3]}:{self.digits[3:]}") if self.offset else ("Z",) * 4


@dataclass(frozen=True)
class _More:
    """Parts of a time that a `datetime` does not have."""

    time: datetime
    zone: _Zone | None

    @cached_property
    def day_of_year(self) -> int:
        return self.time.timetuple().tm_yday

    @property
    def short_year(self) -> int:
        return self.time.year % 100

    @property
    def quarter(self) -> int:
        return (self.time.month + 2) // 3

    @property
    def weekday(self) -> str:
        return _DAYS[self.time.weekday()]

    @property
    def month(self) -> str:
        return _MONTHS[self.time.month - 1]

    @property
    def hour_from_1(self) -> int:
        return self.time.hour or 24

    @property
    def half_hour(self) -> int:
        return self.time.hour % 12

    @property
    def half_hour_from_1(self) -> int:
        return self.time.hour % 12 or 12

    @property
    def half(self) -> str:
        return "PM" if self.time.hour > 11 else "AM"

    @property
    def fraction(self) -> str:
        return f"{self.time.microsecond:06}000"


_FIELDS: Final = {
    "y": "d.year", "u": "d.year", "d": "d.day", "D": "x.day_of_year", "H": "d.hour", "k": "x.hour_from_1",
    "K": "x.half_hour", "h": "x.half_hour_from_1", "m": "d.minute", "s": "d.second", "Q": "x.quarter",
}  # fmt: skip


@lru_cache(maxsize=500)
def _template(pattern: str, has_zone: bool) -> str:
    """The pattern as one of `str.format`: of d, the datetime, and x, the rest. Raises `ValueFailure`."""
    return "".join(_field(each, has_zone, pattern) for each in pieces(pattern))


def _field(piece: Piece, has_zone: bool, pattern: str) -> str:
    letter, count, text = piece
    match letter:
        case "":
            # what stands in brackets is optional where it is read, but in the older class, the one with a zone
            text = text if has_zone else text.replace("[", "").replace("]", "")
            return text.replace("{", "{{").replace("}", "}}")
        case "y" | "u" if count == 2:
            return "{x.short_year:02}"
        case "M" | "L" if count > 2:
            return {3: "{x.month:.3}", 4: "{x.month}", 5: "{x.month:.1}"}[count]
        case "M" | "L":
            return f"{{d.month:0{count}}}"
        case "E":
            return {4: "{x.weekday}", 5: "{x.weekday:.1}"}.get(count, "{x.weekday:.3}")
        case "a":
            return "{x.half}"
        case "S":
            return f"{{x.fraction:.{count}}}"
        case "X" | "x" | "Z" | "z" if not has_zone or f"{letter}{count}" in ("x1", "x2", "x3", "z4"):
            raise ValueFailure(
                f"the letter {letter} of the format {shown(pattern)} cannot be written of a time without a zone"
            )
        case "X":
            return f"{{x.zone.iso[{count}]}}"
        case "Z":
            return "{x.zone.digits}"
        case "z":
            return "{x.zone.name}"
    return f"{{{_FIELDS[letter]}:0{count}}}"


_UNITS: Final = {"S": 1, "s": 1_000_000, "m": 60_000_000, **dict.fromkeys("HkhKa", 3_600_000_000)}
_DAY: Final = 86_400_000_000


@lru_cache(maxsize=500)
def _unit(pattern: str) -> int:
    """The microseconds within which a pattern gives the same text."""
    return min((_UNITS.get(piece.letter, _DAY) for piece in pieces(pattern)), default=_DAY)


def formatted(micros: int, pattern: str) -> str:
    """Returns microseconds since 1970 by a pattern. Raises `ValueFailure`."""
    return _formatted(micros - micros % _unit(pattern), pattern, None)


def formatted_instant(micros: int, pattern: str) -> str:
    """Returns an instant in the zone of the session, as Java's older class writes it. Raises `ValueFailure`."""
    local = values.local_of_instant(micros)
    zone = values.datetime_of(micros).replace(tzinfo=UTC).astimezone(values.zone(values.session_zone())).tzname() or ""
    return _formatted(local - local % _unit(pattern), pattern, _Zone((local - micros) // 60_000_000, zone))


def formatted_utc(micros: int, pattern: str) -> str:
    """Returns an instant in UTC, as `formatted_instant` does. Raises `ValueFailure`."""
    return _formatted(micros - micros % _unit(pattern), pattern, _Zone(0, "UTC"))


@lru_cache(maxsize=2_000)  # neighbours in a topic are of the same day or minute
def _formatted(micros: int, pattern: str, zone: _Zone | None) -> str:
    time = values.datetime_of(micros)
    template = _template(pattern, zone is not None)
    return template.format(d=time, x=_More(time, zone) if "{x." in template else None)


# ---- reading --------------------------------------------------------------------------------------------------------

_NAMES: Final = "[A-Za-z]+"
_GROUPS: Final = {
    "y": "year", "u": "year", "M": "month", "L": "month", "d": "day", "D": "yday", "H": "hour", "k": "hour24",
    "h": "half12", "K": "half", "a": "ampm", "m": "minute", "s": "second", "S": "fraction", "X": "offset",
    "x": "offset", "Z": "offset", "z": "offset", "Q": "quarter", "E": "weekday",
}  # fmt: skip


@lru_cache(maxsize=500)
def _reader(pattern: str, is_lenient: bool) -> re.Pattern[str]:
    """The regular expression that reads a pattern; lenient: any number of digits, spaces before and text after."""
    found, known = [], set[str]()
    parts = pieces(pattern)
    for position, (letter, count, text) in enumerate(parts):
        if not letter:
            escaped = re.escape(text)
            found.append(escaped if is_lenient else escaped.replace(r"\[", "(?:").replace(r"\]", ")?"))
            continue
        follows = position + 1 < len(parts) and parts[position + 1].letter in tuple("yuMdHhmsSkKD")
        group = _GROUPS[letter]
        code = _digits(letter, count, is_lenient and not follows)
        spaces = "[ \\t]*" if is_lenient else ""
        found.append(spaces + (f"(?P={group})" if group in known else f"(?P<{group}>{code})"))
        known.add(group)
    try:
        return re.compile("".join(found), re.ASCII | (re.IGNORECASE if is_lenient else re.NOFLAG))
    except re.error:
        raise ValueFailure(f"the format {shown(pattern)} cannot be read") from None


def _digits(letter: str, count: int, is_lenient: bool) -> str:
    match letter:
        case "M" | "L" if count > 2:
            return _NAMES
        case "E" | "a":
            return _NAMES
        case "X" | "x" | "Z" | "z":
            return r"Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?"
        case "S" if not is_lenient:
            return rf"\d{{{count}}}"
    if is_lenient:
        return r"\d{1,9}"
    if letter in "yu":
        return r"\d{2}" if count == 2 else (rf"\d{{{count}}}" if count > 1 else r"\d{1,4}")
    return r"\d{1,2}" if count == 1 and letter != "D" else (r"\d{1,3}" if count == 1 else rf"\d{{{count}}}")


def parsed(text: str, pattern: str, *, is_lenient: bool) -> tuple[int, int | None] | None:
    """Returns microseconds since 1970 without a zone, and the offset in microseconds if the text has one.

    None: the text is not of the pattern. Lenient is Java's older class: 30 February is 1 or 2 March, fewer digits are
    read too, and text after it is left out.
    """
    reader = _reader(pattern, is_lenient)
    found = reader.match(text) if is_lenient else reader.fullmatch(text)
    if found is None or (is_lenient and not found[0]):
        return None
    given = found.groupdict()
    year, month, day = _year(given, pattern, is_lenient), _month(given, is_lenient), int(given.get("day") or 1)
    hour = _hour(given, is_lenient)
    if year is None or month is None or hour is None:
        return None
    minute, second = int(given.get("minute") or 0), int(given.get("second") or 0)
    if given.get("yday"):
        month, day = 1, int(given["yday"])
    elif not is_lenient and not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    fraction = _fraction(given, is_lenient)
    if not is_lenient:
        if not is_of_day(hour, minute, second, fraction):
            return None
        if not given.get("yday"):
            day = min(day, monthrange(year, month)[1])
        elif not 1 <= day <= 365 + isleap(year):
            return None
    try:
        start = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
        moment = start + timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second)
    except (ValueError, OverflowError):
        return None
    return values.micros_of(moment) + fraction, _offset(given.get("offset"))


def is_of_day(hour: int, minute: int, second: int, fraction: int) -> bool:
    """Returns whether it is a time of day, or 24:00:00, which is the end of one."""
    return (hour < 24 and minute < 60 and second < 60) or (hour == 24 and not (minute or second or fraction))


def _year(given: dict[str, str | None], pattern: str, is_lenient: bool) -> int | None:
    text = given.get("year")
    if text is None:
        return 1970
    year = int(text)
    if len(text) == 2 and "yyy" not in pattern and "uuu" not in pattern:
        year += 2000
        if is_lenient and year > datetime.now(UTC).year + 20:  # the older class takes years from 80 ago to 20 ahead
            year -= 100
    return year if 1 <= year <= 9999 else None


def _month(given: dict[str, str | None], is_lenient: bool) -> int | None:
    text = given.get("month")
    if text is None:
        return 1
    if text.isdecimal():
        return int(text)
    text = text.capitalize() if is_lenient else text
    found = [i for i, each in enumerate(_MONTHS, 1) if text in (each, each[:3])]
    return found[0] if found else None


_MOST_HOURS: Final = {"hour24": 24, "half12": 12, "half": 11}


def _hour(given: dict[str, str | None], is_lenient: bool) -> int | None:
    if (hour := given.get("hour")) is not None:
        return int(hour)
    for name, most in _MOST_HOURS.items():
        if not is_lenient and int(given.get(name) or 0) > most:
            return None
    if (hour := given.get("hour24")) is not None:
        return int(hour) % 24
    half = given.get("half12") or given.get("half")
    mark = (given.get("ampm") or "AM").upper() if is_lenient else given.get("ampm") or "AM"
    if mark not in ("AM", "PM"):
        return None
    return int(half or 0) % 12 + (12 if mark == "PM" else 0)


def _fraction(given: dict[str, str | None], is_lenient: bool) -> int:
    text = given.get("fraction")
    if not text:
        return 0
    return int(text) * 1000 if is_lenient else int(f"{text}000000"[:6])  # the older class reads milliseconds


def _offset(text: str | None) -> int | None:
    if text is None:
        return None
    if text[0] not in "+-":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[3:].lstrip(":") or 0)
    return (-minutes if text[0] == "-" else minutes) * 60_000_000
