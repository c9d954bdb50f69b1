"""Values of rows as values of a table's columns: JSON has no dates, decimals and bytes."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from rmqio.connect.rows import to_json
from rmqio.connect.sink.base import RowRefused
from rmqio.near_names import did_you_mean


class Columns:
    """The columns of a table that rows can have.

    Args:
      table: SQLAlchemy's, as the database has it.
      names: the columns that are written; None: all that a row has.
      ignore_others: whether fields without a column are left out; otherwise they refuse the row.
    """

    def __init__(self, table: Any, names: tuple[str, ...] | None, *, ignore_others: bool, shown: str) -> None:
        self._shown = shown
        chosen = [column for column in table.columns if names is None or column.name in names]
        self._converters = {column.name: converter_of(column.type) for column in chosen}
        self._ignore_others = ignore_others or names is not None

    def convert(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the values for the database. Raises `RowRefused`."""
        found = {}
        for name, value in row.items():
            converter = self._converters.get(name)
            if converter is None:
                if self._ignore_others:
                    continue
                raise RowRefused(f"{self._shown} has no column {name}{did_you_mean(name, self._converters)}")
            try:
                found[name] = None if value is None else converter(value)
            except (ValueError, TypeError, InvalidOperation, binascii.Error, OverflowError) as error:
                raise RowRefused(f"{self._shown}, column {name}: {error}") from error
        if not found:
            raise RowRefused(f"{self._shown}: the row has none of its columns")
        return found


def converter_of(kind: Any) -> Callable[[Any], Any]:
    """Returns the function from a value that is not None to one of SQLAlchemy's type."""
    import sqlalchemy as sa

    for types, converter in (
        ((sa.JSON,), _same),  # SQLAlchemy writes it
        ((sa.ARRAY,), _same),
        ((sa.LargeBinary, sa.types._Binary), _bytes),
        ((sa.DateTime,), _aware if getattr(kind, "timezone", False) else _naive),
        ((sa.Date,), _date),
        ((sa.Time,), _time),
        ((sa.Boolean,), _boolean),
        ((sa.Float,), _float),
        ((sa.Numeric,), _decimal),
        ((sa.Integer,), _integer),
        ((sa.String,), _text),
    ):
        if isinstance(kind, types):
            return converter
    return _plain


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    return to_json(value) if isinstance(value, (dict, list, tuple)) else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return to_json(value) if isinstance(value, (dict, list, tuple)) else str(value)


def _integer(value: Any) -> int:
    if isinstance(value, int):  # a boolean is 0 or 1: MySQL's BOOLEAN is a TINYINT
        return int(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    if isinstance(value, (float, str)):
        return int(_digits(value))
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    raise ValueError(f"{type(value).__name__} is not a whole number")


def _float(value: Any) -> float:
    return float(_digits(value))


def _digits(value: Any) -> Any:
    if isinstance(value, str) and "_" in value:  # Python leaves it out
        raise ValueError(f"{value!r:.40} is not a number")
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    text = repr(value) if isinstance(value, float) else _digits(value)
    found = value if isinstance(value, Decimal) else Decimal(text)
    if not found.is_finite():
        raise ValueError(f"{value!r} is not a number of the column")
    return found


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r:.40} is not a boolean")


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(memoryview(value))


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if isinstance(value, int) and not isinstance(value, bool):  # as RocketMQ's times
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=value)
    raise ValueError(f"{type(value).__name__} is not a time: ISO 8601, or milliseconds since 1970")


def _naive(value: Any) -> dt.datetime:
    """For a column without a time zone: UTC."""
    found = _moment(value)
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


def _aware(value: Any) -> dt.datetime:
    found = _moment(value)
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return value.date()
    return value if isinstance(value, dt.date) else dt.date.fromisoformat(value)


def _time(value: Any) -> Any:
    return value if isinstance(value, (dt.time, dt.timedelta)) else dt.time.fromisoformat(value)
