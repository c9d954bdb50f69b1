"""Values as text, in formats that have nothing but text: CSV, pairs of keys and values."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.casts import single
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.base import Convert
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import DAY_US, ValueFailure

SURE_DIGITS: Final = {8: 2, 16: 4, 32: 9, 64: 18}
"""So many digits always fit into an integer of so many bits."""
_EPOCH: Final = datetime(1970, 1, 1)
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_DECIMAL: Final = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*", re.ASCII)


def require_scalars(table: Table) -> None:
    """Raises `Refusal` for a column that is not a scalar."""
    for each in table.columns:
        if each.is_physical and each.type.elements:
            raise Refusal(
                f"the column {each.name} is {each.type.text}, which the format {table.options.format} does not have: "
                "use json or avro, or make it STRING",
                None,
            )


def reader(kind: SqlType) -> Convert | None:
    """Returns what makes the SQL value of text; it raises `ValueFailure`. None: the text is the value."""
    if kind.kind in BITS:
        bits = BITS[kind.kind]
        return lambda text: integer_of_text(text, bits)
    match kind.kind:
        case "VARCHAR":
            return None
        case "BOOLEAN":
            return boolean_of_text
        case "DOUBLE":
            return double_of_text
        case "FLOAT":
            return lambda text: single(double_of_text(text))
        case "DECIMAL":
            return decimal_reader(kind)
        case "VARBINARY":
            return bytes_of_text
    return time_reader(kind)


def time_reader(kind: SqlType) -> Callable[[str], int]:
    """Returns what makes a date or time of its text."""
    match kind.kind:
        case "DATE":
            return date_of_text
        case "TIME":
            read = _time_of_text
        case "TIMESTAMP":
            read = timestamp_of_text
        case _:
            read = instant_of_text
    precision = kind.precision
    return lambda text: values.scaled_time(read(text), precision)


def date_of_text(text: str) -> int:
    """Returns days since 1970 of `2020-01-31`; a time after it is left out. Raises `ValueFailure`.

    A year, or a year and a month, is not a date here: only CAST accepts those.
    """
    if len(text) == 10 and text[4] == text[7] == "-":
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH.toordinal()
        except ValueError:
            pass
    try:
        return values.timestamp_of_text(text, is_strict=True) // DAY_US
    except ValueFailure:
        raise ValueFailure(f"{values.shown(text)} is not a date") from None


def _time_of_text(text: str) -> int:
    if ":" not in text:  # an hour alone is not a time here
        raise ValueFailure(f"{values.shown(text)} is not a time of day")
    return values.time_of_text(text)


def boolean_of_text(text: str) -> bool:
    """Returns the truth of text, also with blanks around it. Raises `ValueFailure`."""
    return values.boolean_of_text(text.strip())


def timestamp_of_text(text: str) -> int:
    """Returns what `values.timestamp_of_text` does, faster for a timestamp in its usual form."""
    size = len(text)
    if (size == 19 or (size in (23, 26) and text[19] == ".")) and text[4] == text[7] == "-" and text[10] in " T":
        try:
            since = datetime.fromisoformat(text) - _EPOCH
        except (ValueError, TypeError):  # TypeError: it has a zone
            return values.timestamp_of_text(text)
        return since.days * DAY_US + since.seconds * 1_000_000 + since.microseconds
    return values.timestamp_of_text(text)


def instant_of_text(text: str) -> int:
    """Returns what `values.instant_of_text` does, faster for one in its usual form."""
    return timestamp_of_text(text[:-1]) if text[-1:] == "Z" and text[-2:-1].isalnum() else values.instant_of_text(text)


def nullable_reader(kind: SqlType, null: str | None) -> Convert | None:
    """Returns a reader of text that can mean NULL: the null literal, and of nothing at all what has no empty value."""
    read = reader(kind)
    if read is None:
        return None if null is None else lambda text: None if text == null else text
    if null is None and kind.kind in BITS:
        bits = BITS[kind.kind]
        return lambda text: integer_of_text(text, bits) if text else None
    convert = read
    nulls = {null} if kind.kind == "VARBINARY" else {"", null}
    return lambda text: None if text in nulls else convert(text)


def writer(kind: SqlType) -> Callable[[Any], str] | None:
    """Returns what makes text of a SQL value; None: it is text."""
    match kind.kind:
        case "VARCHAR":
            return None
        case "BOOLEAN":
            return lambda truth: "true" if truth else "false"
        case "DOUBLE":
            return values.text_of_double
        case "FLOAT":
            return lambda number: values.text_of_double(shortest(number))
        case "DECIMAL":
            return lambda number: format(number, "f")
        case "VARBINARY":
            return lambda data: base64.b64encode(data).decode()
        case "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
            return time_writer(kind)
    return str


def time_writer(kind: SqlType, separator: str = " ") -> Callable[[Any], str]:
    """Returns what makes text of a date or time: of a second's fraction, only the digits before its last zeros."""
    precision = kind.precision
    match kind.kind:
        case "DATE":
            return values.text_of_date
        case "TIME":
            if not precision:
                return values.text_of_time
            return lambda micros: values.text_of_time(micros, precision).rstrip("0").rstrip(".")
    zone = "Z" if kind.kind == "TIMESTAMP_LTZ" else ""
    if not precision:
        return lambda micros: values.text_of_timestamp(micros, 0, separator) + zone
    return lambda micros: values.text_of_timestamp(micros, precision, separator).rstrip("0").rstrip(".") + zone


def integer_of_text(text: str, bits: int) -> int:
    """Returns the number. Raises `ValueFailure` for other text: a fraction is none."""
    if len(text) <= SURE_DIGITS[bits] and text.isdigit() and text.isascii():
        return int(text)
    if not _INTEGER.fullmatch(text):
        raise ValueFailure(f"{values.shown(text)} is not a whole number")
    return values.integer_of_text(text, bits)


def double_of_text(text: str) -> float:
    """Returns what `values.double_of_text` does, faster for a number in its usual form."""
    if text[-1:].isdigit() and text.isascii() and "_" not in text:
        try:
            return float(text)
        except ValueError:
            pass
    return values.double_of_text(text)


def decimal_reader(kind: SqlType) -> Callable[[str], Decimal | None]:
    """Returns what makes the number of text; None if it has too many digits. It raises `ValueFailure`."""
    make = decimal_maker(kind)

    def of(text: str) -> Decimal | None:
        if not _DECIMAL.fullmatch(text):
            raise ValueFailure(f"{values.shown(text)} is not a number")
        return make(text.strip())

    return of


def decimal_maker(kind: SqlType) -> Callable[[Any], Decimal | None]:
    """Returns what makes the number of a whole number, or of text that is a number; None if it has too many digits."""
    step = Decimal(1).scaleb(-kind.scale)
    context = Context(prec=kind.precision, rounding=ROUND_HALF_UP, traps=[InvalidOperation])

    def of(number: Any) -> Decimal | None:
        try:
            exact = Decimal(number)
        except InvalidOperation:  # an exponent that no decimal has
            raise ValueFailure(f"{values.shown(str(number))} is out of range of numbers") from None
        try:
            found = exact.quantize(step, context=context)
            return found or found.copy_abs()  # no -0
        except InvalidOperation:
            return None

    return of


def bytes_of_text(text: str) -> bytes:
    """Returns the bytes of base64. Raises `ValueFailure`."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueFailure(f"{values.shown(text)} is not base64") from None


def shortest(number: float) -> float:
    """Returns the double with the fewest digits that is the same number of 32 bits: 0.1 for 0.10000000149011612."""
    for digits in (7, 8):
        found = float(f"{number:.{digits}g}")
        if single(found) == number:
            return found
    return number
