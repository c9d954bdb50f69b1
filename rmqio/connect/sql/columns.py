"""Values of rows as values of a table's columns: JSON has no dates, decimals and bytes."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from rmqio.connect.rows import text_of_decimal, text_of_duration, to_json
from rmqio.connect.sink import RowRefused
from rmqio.errors import SerdeError
from rmqio.hints import did_you_mean
from rmqio.serde.strict_json import JsonNumber

# Columns of keys that can store different values as one.

_CUT: Final = """\
SELECT column_name FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name AND sub_part IS NOT NULL"""
"""Indexes of MySQL can have only the beginnings of texts."""


def loose_columns(table: Any, connection: Any) -> frozenset[str]:
    """Returns the columns that can take two values of a batch as one, beside what collations of texts do.

    They round times and decimals, fill up or cut texts and bytes, or compare what the values mean, as intervals do.
    """
    import sqlalchemy as sa

    if connection.dialect.name not in ("mysql", "mariadb"):
        return frozenset(each.name for each in table.columns if not _is_firm(each.type))
    if "STRICT" not in str(connection.execute(sa.text("SELECT @@sql_mode")).scalar()):
        return frozenset(each.name for each in table.columns)  # it cuts whatever does not fit
    cut = {row[0] for row in connection.execute(sa.text(_CUT), {"schema": table.schema, "name": table.name})}
    return frozenset(each.name for each in table.columns if each.name in cut or not _is_firm(each.type))


def _is_firm(kind: Any) -> bool:
    """Whether a column of SQLAlchemy's type keeps different values apart, but for the collation of a text."""
    import sqlalchemy as sa

    if isinstance(kind, sa.BINARY):  # of a fixed length: filled up with zeros
        return False
    return isinstance(kind, (sa.Integer, sa.String, sa.Date, sa.Boolean, sa.LargeBinary, sa.types._Binary))


def _nothing(value: float) -> bool:
    return False


def _infinite(value: float) -> bool:
    return not math.isfinite(value)


_LACKING: Final = {"mysql": _infinite, "mariadb": _infinite, "sqlite": math.isnan}
"""Numbers that databases do not have. SQLite would store NULL for NaN."""

_TOO_LARGE: Final = 1e30
"""For every column of integers."""

_DURATION: Final = re.compile(
    r"(?:(-?)([0-9]{1,6}) days?, )?(-?)([0-9]{1,6}):([0-5]?[0-9])(?::([0-5]?[0-9])(?:\.([0-9]+))?)?"
)
"""A TIME of MySQL, also as Python writes it: `-1 day, 23:00:00`."""


class Columns:
    """The columns of a table that rows can have.

    Args:
      table: SQLAlchemy's, as the database has it.
      names: the columns that are written; None: all that a row has.
      ignore_others: whether fields without a column are left out; otherwise they refuse the row.
      dialect: SQLAlchemy's name of the database.
    """

    def __init__(
        self, table: Any, names: tuple[str, ...] | None, *, ignore_others: bool, shown: str, dialect: str = ""
    ) -> None:
        self._shown = shown
        self._lacks = _LACKING.get(dialect, _nothing)
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
                made = found[name] = None if value is None else converter(value)
                if isinstance(made, float) and self._lacks(made):
                    raise ValueError(f"the database has no number {made!r}")
            except (ValueError, TypeError, InvalidOperation, binascii.Error, OverflowError, SerdeError) as error:
                raise RowRefused(f"{self._shown}, column {name}: {error}") from error
        if not found:
            raise RowRefused(f"{self._shown}: the row has none of its columns")
        return found


def converter_of(kind: Any) -> Callable[[Any], Any]:
    """Returns the function from a value that is not None to one of SQLAlchemy's type."""
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql, postgresql

    for types, converter in (
        ((sa.JSON,), _same),  # SQLAlchemy writes it
        ((sa.ARRAY,), _array_of(converter_of(kind.item_type)) if isinstance(kind, sa.ARRAY) else _same),
        ((sa.LargeBinary, sa.types._Binary), _bytes),
        ((sa.DateTime,), _aware if getattr(kind, "timezone", False) else _naive),
        ((sa.Date,), _date),
        ((mysql.TIME,), _time_of_mysql),
        ((sa.Time,), _time),
        ((postgresql.INTERVAL,), _interval),
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


def _array_of(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """For a column of arrays, also of arrays in arrays. What is no list can be a text that the database reads."""

    def item(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return array(value)
        return None if value is None else convert(value)

    def array(value: Any) -> Any:
        return [item(each) for each in value] if isinstance(value, (list, tuple)) else value

    return array


def _plain(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return to_json(value)
    return _float(value) if isinstance(value, JsonNumber) else value  # drivers know no `JsonNumber`


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return text_of_decimal(value)
    return to_json(value) if isinstance(value, (dict, list, tuple)) else str(value)


def _integer(value: Any) -> int:
    if isinstance(value, int):  # a boolean is 0 or 1: MySQL's BOOLEAN is a TINYINT
        return int(value)
    if isinstance(value, JsonNumber) and abs(value) < _TOO_LARGE:
        value = Decimal(repr(value))
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    if isinstance(value, (float, str)):
        return int(_digits(value))
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    raise ValueError(f"{value if isinstance(value, Decimal) else type(value).__name__} is not a whole number")


def _float(value: Any) -> float:
    found = float(_digits(value))
    if math.isinf(found) and "inf" not in str(value).lower():
        raise ValueError(f"{value!s:.40} is more than a double can be")
    return found


def _digits(value: Any) -> Any:
    if isinstance(value, str) and "_" in value:  # Python leaves it out
        raise ValueError(f"{value!r:.40} is not a number")
    return value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise ValueError("a boolean is not a number")
    text = repr(value) if isinstance(value, float) else _digits(value)
    found = Decimal(text)
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


def _time(value: Any) -> dt.time:
    if isinstance(value, dt.time):
        return value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return dt.time.fromisoformat(value)
    found = _duration(value)
    if not dt.timedelta(0) <= found < dt.timedelta(days=1):
        raise ValueError(
            f"{text_of_duration(found)} is no time of day, from 00:00 to 24:00; a TIME of MySQL has others"
        )
    return (dt.datetime.min + found).time()


def _time_of_mysql(value: Any) -> str:
    """The TIME, which can be negative and have many hours, as text: older versions of PyMySQL write -1:30 as -2:30."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = dt.time.fromisoformat(value)
    if isinstance(value, dt.time):
        return value.replace(tzinfo=None).isoformat()
    return text_of_duration(_duration(value))


def _interval(value: Any) -> Any:
    """The INTERVAL as text: drivers give -1:30 as -1 days +22:30."""
    return text_of_duration(value) if isinstance(value, dt.timedelta) else value


def _duration(value: Any) -> dt.timedelta:
    if isinstance(value, dt.timedelta):
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r:.40} is not a time, such as 09:05:00")
    sign, days, negative, hours, minutes, seconds, fraction = found.groups()
    time = dt.timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0), microseconds=int(f"{fraction or 0:0<6}"[:6])
    )
    return dt.timedelta(days=int(f"{sign or ''}{days or 0}")) + (-time if negative else time)
