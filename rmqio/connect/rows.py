"""Rows: elements as dicts, and values as JSON."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import math
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from rmqio.errors import SerdeError
from rmqio.serde.strict_json import JsonEncoder, JsonNumber, json_value


def to_row(element: Any) -> dict[str, Any]:
    """Returns the fields of an element.

    Elements are dicts, `beam.Row`s, NamedTuples, dataclasses, or JSON objects: as bytes, as text, or as the body of a
    `Record`, a `Message` or a `KafkaRecord`. A number of JSON that no float holds is a `JsonNumber`: the nearest float,
    which keeps all digits. Raises `SerdeError`.
    """
    if isinstance(element, dict):
        return element
    body = element if isinstance(element, (bytes, bytearray, str)) else getattr(element, "body", None)
    if isinstance(body, (bytes, bytearray, str)):
        return _object(body)
    if hasattr(element, "_asdict"):
        found = element._asdict()
    elif dataclasses.is_dataclass(element) and not isinstance(element, type):
        found = {each.name: getattr(element, each.name) for each in dataclasses.fields(element)}
    elif type(element).__name__ == "Row" and hasattr(element, "__dict__"):  # beam.Row
        found = dict(vars(element))
    else:
        raise SerdeError(
            f"{type(element).__name__} is not a row; "
            "rows are dicts, beam.Rows, NamedTuples, dataclasses, and JSON objects"
        )
    return dict(found)


def _object(body: bytes | bytearray | str) -> dict[str, Any]:
    try:
        found = json_value(body)
    except (ValueError, RecursionError) as error:  # or it is nested too deeply
        raise SerdeError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SerdeError(f"the body is JSON, but not an object: {type(found).__name__}")
    return found


def to_json(value: Any, *, ensure_ascii: bool = False) -> str:
    """Returns JSON in one line. Dates are ISO 8601, decimals and UUIDs text, bytes Base64. Raises `SerdeError`."""
    try:
        return _ENCODERS[ensure_ascii].encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerdeError(f"the row cannot be written as JSON: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return text_of_duration(value)
    if isinstance(value, Decimal):
        return text_of_decimal(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    try:
        return to_row(value)
    except SerdeError:
        raise TypeError(f"{type(value).__name__} has no form in JSON") from None


_ENCODERS: Final = {ascii_only: JsonEncoder(default=_plain, ensure_ascii=ascii_only) for ascii_only in (False, True)}


def is_beyond_float(value: Any) -> bool:
    """Whether a number is not infinite as it is written, such as JSON's 1e400, but would be as a float."""
    return isinstance(value, JsonNumber) and math.isinf(value)


def text_of_decimal(value: Decimal) -> str:
    """Returns all digits in plain notation: Python writes 0.0000000000 as 0E-10."""
    return f"{value:f}" if abs(value.adjusted()) < _LONGEST_DECIMAL else str(value)


_LONGEST_DECIMAL: Final = 10_000
"""Digits before the point. 1E+1000000 would be a million."""


def text_of_duration(value: dt.timedelta) -> str:
    """Returns `-26:05:00` or `09:05:00.000001`: databases read it as a TIME of MySQL and as an INTERVAL."""
    sign = "-" * (value < dt.timedelta(0))
    minutes, rest = divmod(abs(value), dt.timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    fraction = f".{rest.microseconds:06}" if rest.microseconds else ""
    return f"{sign}{hours:02}:{minutes:02}:{rest.seconds:02}{fraction}"


def size_of(value: Any) -> int:
    """Returns about how many bytes of memory a row takes. Cheap: it is called for each row."""
    if isinstance(value, (bytes, bytearray, str)):
        return 60 + len(value)
    if isinstance(value, dict):
        return 200 + sum(
            [60 + len(each) if isinstance(each, (str, bytes)) else _nested(each) for each in value.values()]
        )
    return _nested(value)


def _nested(value: Any) -> int:
    if isinstance(value, dict):
        return size_of(value)
    return 60 + sum(map(size_of, value)) if isinstance(value, (list, tuple)) else 40
