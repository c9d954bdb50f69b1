"""Values that JSON has no form for, from text. Each function raises ValueError unless the text is one, exactly.

Python's own constructors accept much more: `Decimal("4_2")` is 42, `UUID` takes braces, and `fromisoformat` drops
nanoseconds.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

_DECIMAL: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6})0*)?(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2}))?"
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_DATE_END: Final = len("2026-01-31")


def decimal_of(text: str) -> decimal.Decimal:
    """Return the decimal of a number as JSON writes it, with all of its digits."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError("not a decimal number")
    try:
        value = decimal.Decimal(text)
    except decimal.InvalidOperation as error:
        raise ValueError("an exponent out of range") from error
    if not value.is_finite():  # an exponent out of range, in a context that does not trap it
        raise ValueError("an exponent out of range")
    return value


def date_of(text: str) -> datetime.date:
    found = _DATE.fullmatch(text)
    if not found:
        raise ValueError("not a date")
    return datetime.date(*map(int, found.groups()))


def time_of(text: str) -> datetime.time:
    """With the offset that the text has, if it has one. More digits than microseconds have must be zeros."""
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError("not a time")
    hour, minute, second, fraction, zulu, sign, offset_hours, offset_minutes = found.groups()
    zone = datetime.UTC if zulu else None
    if sign:
        minutes = int(offset_hours) * 60 + int(offset_minutes)
        if int(offset_minutes) > 59:
            raise ValueError("an offset out of range")
        zone = datetime.timezone(datetime.timedelta(minutes=-minutes if sign == "-" else minutes))
    return datetime.time(int(hour), int(minute), int(second), int((fraction or "").ljust(6, "0")), zone)


def datetime_of(text: str) -> datetime.datetime:
    """From RFC 3339, also with a space for the T, and without an offset."""
    if text[_DATE_END : _DATE_END + 1] not in ("T", "t", " "):
        raise ValueError("not a timestamp")
    return datetime.datetime.combine(date_of(text[:_DATE_END]), time_of(text[_DATE_END + 1 :]))


def uuid_of(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise ValueError("not a UUID")
    return uuid.UUID(text)


def bytes_of(text: str) -> bytes:
    if not _BASE64.fullmatch(text):
        raise ValueError("not base64")
    return base64.b64decode(text)


FROM_TEXT: Final[dict[type, tuple[Callable[[str], Any], str]]] = {
    decimal.Decimal: (decimal_of, "a decimal number"),
    datetime.datetime: (datetime_of, "a timestamp as in RFC 3339, to microseconds"),
    datetime.date: (date_of, "a date as in RFC 3339"),
    datetime.time: (time_of, "a time as in RFC 3339, to microseconds"),
    uuid.UUID: (uuid_of, "a UUID"),
    bytes: (bytes_of, "base64"),
}
"""The function for each type, and what it expects, in messages."""
