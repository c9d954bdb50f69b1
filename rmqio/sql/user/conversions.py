"""Values on their way into a function and out of it. NULL is None on both sides.

Times are integers in SQL, and Python's own there. Lists and dicts are copied, so that a function can change its own.
"""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import types, values
from rmqio.sql.casts import single
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.user import hints
from rmqio.sql.values import ValueFailure, shown_value

Convert = Callable[[Any], Any]

QUICK: Final = {
    "VARCHAR": str, "DOUBLE": float, "BOOLEAN": bool, "VARBINARY": bytes,
}  # fmt: skip
"""Types whose values need no more than a look at Python's type, if there is no length."""


def into(kind: SqlType, hint: Any = None) -> Convert | None:
    """Returns what makes Python's value of one of SQL, which is not NULL; None: they are the same."""
    inner, _ = hints.without_none(hint)
    match kind.kind:
        case "DATE":
            return values.date_of
        case "TIME":
            return _time_of
        case "TIMESTAMP":
            return values.datetime_of
        case "TIMESTAMP_LTZ":
            return _instant_of
        case "ARRAY" | "MULTISET":
            element = _into_element(kind.elements[0], _argument(inner, 0))
            make: Callable[[Any], Any] = tuple if typing.get_origin(inner) is tuple else list
            return make if element is None else lambda found: make(map(element, found))
        case "MAP":
            return _into_dict(*(_into_element(each, _argument(inner, i)) for i, each in enumerate(kind.elements)))
        case "ROW":
            return _into_row(kind, inner)
    return None


def _into_element(kind: SqlType, hint: Any) -> Convert | None:
    convert = into(kind, hint)
    return None if convert is None else lambda found: None if found is None else convert(found)


def _into_dict(key: Convert | None, value: Convert | None) -> Convert:
    if key is None and value is None:
        return dict
    of_key, of_value = key or _same, value or _same
    return lambda found: {of_key(k): of_value(v) for k, v in found.items()}


def _into_row(kind: SqlType, hint: Any) -> Convert:
    fields = hints.fields_of(hint)
    inner = [each for _, each in fields] if fields else [_argument(hint, i) for i in range(len(kind.elements))]
    parts = [_into_element(each, one) or _same for each, one in zip(kind.elements, inner, strict=True)]
    make: Callable[..., Any] = hint if fields else lambda *found: found
    return lambda row: make(*(convert(each) for convert, each in zip(parts, row, strict=True)))


def _argument(hint: Any, position: int) -> Any:
    arguments = typing.get_args(hint)
    return arguments[position] if position < len(arguments) else None


def _same(value: Any) -> Any:
    return value


def _time_of(micros: int) -> time:
    return (datetime.min + timedelta(microseconds=micros)).time()


def _instant_of(micros: int) -> datetime:
    return values.datetime_of(micros).replace(tzinfo=UTC)


# ---- out of Python --------------------------------------------------------------------------------------------------


def out_of(kind: SqlType) -> Convert:
    """Returns what makes SQL's value of one of Python. It raises `ValueFailure` for a value of another type."""
    convert = _out_of(kind)

    def checked(found: Any) -> Any:
        if found is None:
            if kind.is_nullable:
                return None
            raise ValueFailure(f"it returned None, but its result is {kind.text}: the hint needs | None")
        return convert(found)

    return checked


def _out_of(kind: SqlType) -> Convert:
    if kind.kind in BITS:
        return lambda found: _integer(found, kind)
    match kind.kind:
        case "VARCHAR":
            return lambda found: values.well_formed(_of(found, str, kind, str.__str__)[: kind.precision or None])
        case "VARBINARY":
            return lambda found: _of(found, (bytes, bytearray, memoryview), kind, bytes)[: kind.precision or None]
        case "BOOLEAN":
            return lambda found: _boolean(found, kind)
        case "DOUBLE":
            return lambda found: _float(found, kind)
        case "FLOAT":
            return lambda found: single(_float(found, kind))
        case "DECIMAL":
            return lambda found: _decimal(found, kind)
        case "DATE":
            return lambda found: _date(found, kind)
        case "TIME":
            return lambda found: _time(found, kind)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return lambda found: _timestamp(found, kind)
        case "ARRAY":
            element = out_of(kind.elements[0].nullable())
            return lambda found: [element(each) for each in _of(found, (list, tuple), kind)]
        case "MAP":
            key, value = (out_of(each) for each in (kind.elements[0].nullable(False), kind.elements[1].nullable()))
            return lambda found: {key(k): value(v) for k, v in _of(found, Mapping, kind).items()}
    return _row(kind)


def _of(found: Any, wanted: Any, kind: SqlType, make: Callable[[Any], Any] | None = None) -> Any:
    if not isinstance(found, wanted):
        raise _another(found, kind)
    return found if make is None else make(found)


def _another(found: Any, kind: SqlType) -> ValueFailure:
    return ValueFailure(f"it returned {type(found).__name__}, but its result is {kind.text}")


def _boolean(found: Any, kind: SqlType) -> bool:
    if not isinstance(found, bool) and _numpy_kind(found) != "b":
        raise _another(found, kind)
    return bool(found)


def _numpy_kind(found: Any) -> str:
    """The kind of a number or an array of NumPy's: `b` for booleans, `m` for spans of time. Others have none."""
    return str(getattr(getattr(found, "dtype", None), "kind", ""))


def _integer(found: Any, kind: SqlType) -> int:
    if isinstance(found, bool) or not hasattr(found, "__index__"):
        raise _another(found, kind)
    try:
        number = int(operator.index(found))  # of a subclass, too, which can compute in another way
    except TypeError:  # an array, for example
        raise _another(found, kind) from None
    limit = 1 << (BITS[kind.kind] - 1)
    if not -limit <= number < limit:
        raise ValueFailure(f"{shown_value(number)} is out of range of {kind.text}")
    return number


def _float(found: Any, kind: SqlType) -> float:
    # Booleans, texts and times of NumPy have a `__float__`.
    if isinstance(found, (bool, Decimal)) or not hasattr(found, "__float__") or _numpy_kind(found) in tuple("bmMSU"):
        raise _another(found, kind)
    try:
        return float(found)
    except TypeError:
        raise _another(found, kind) from None
    except OverflowError:
        raise ValueFailure(f"an integer is out of range of {kind.text}") from None


def _decimal(found: Any, kind: SqlType) -> Decimal:
    if isinstance(found, bool) or not isinstance(found, (int, Decimal)):
        raise _another(found, kind)
    number = Decimal(found)
    made = values.rounded(number, kind.precision, kind.scale) if number.is_finite() else None
    if made is None:
        raise ValueFailure(f"{shown_value(number, str)} is out of range of {kind.text}")
    return made


def _date(found: Any, kind: SqlType) -> int:
    if not isinstance(found, date) or isinstance(found, datetime):
        raise _another(found, kind)
    return values.days_of(found)


def _time(found: Any, kind: SqlType) -> int:
    if not isinstance(found, time):
        raise _another(found, kind)
    if found.tzinfo is not None:
        raise ValueFailure("it returned a time with a zone, but TIME has none")
    seconds = (found.hour * 60 + found.minute) * 60 + found.second
    return values.scaled_time(seconds * 1_000_000 + found.microsecond, kind.precision)


def _timestamp(found: Any, kind: SqlType) -> int:
    moment = values.plain_datetime(found) if isinstance(found, datetime) else None
    if moment is None:
        raise _another(found, kind)
    if kind.kind == "TIMESTAMP_LTZ":
        if moment.tzinfo is None:
            raise ValueFailure("it returned a datetime without a zone, but TIMESTAMP_LTZ needs one")
        return values.scaled_time(values.instant_of(moment), kind.precision)
    if moment.tzinfo is not None:
        raise ValueFailure(
            "it returned a datetime with a zone, and TIMESTAMP has none: state TIMESTAMP_LTZ with a decorator"
        )
    return values.scaled_time(values.micros_of(moment), kind.precision)


def _row(kind: SqlType) -> Convert:
    parts = [out_of(each.nullable()) for each in kind.elements]
    names = kind.names

    def convert(found: Any) -> tuple[Any, ...]:
        if dataclasses.is_dataclass(found) and not isinstance(found, type):
            row: Any = [getattr(found, each.name) for each in dataclasses.fields(found)]
        elif isinstance(found, (tuple, list)):
            row = found
        else:
            raise _another(found, kind)
        if len(row) != len(parts):
            raise ValueFailure(f"it returned {len(row)} values, but {kind.text} has {len(names)}")
        return tuple([each(one) for each, one in zip(parts, row, strict=True)])

    return convert


def is_quick(kind: SqlType) -> bool:
    """Returns whether a value of Python's own type (`QUICK`) is right as it is."""
    return kind.kind in QUICK and not kind.precision and kind.kind in types.ORDERED
