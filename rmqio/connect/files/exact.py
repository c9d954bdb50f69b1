"""Values that PyArrow would change to fit a type: 2.5 would be 2 among integers, and a time would be its day."""

from __future__ import annotations

import datetime as dt
import numbers
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from rmqio.connect.rows import is_beyond_float
from rmqio.serde.strict_json import JsonNumber

_NUMBERS: Final[tuple[Any, ...]] = (numbers.Number, UUID)


def misfit(pa: Any, value: Any, kind: Any, path: str, *, is_given: bool) -> str | None:
    """Says which part of a value its type would drop or change; None: PyArrow takes it as it is, or refuses it.

    Args:
      is_given: whether a user has chosen the type. Then integers can be times in its unit, and times can be days.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        return _misfit_of_object(pa, value, kind, path, is_given=is_given) if pa.types.is_struct(kind) else None
    if isinstance(value, (list, tuple, set, frozenset)):
        if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
            for part in value:
                if found := misfit(pa, part, kind.value_type, path, is_given=is_given):
                    return found
        return None
    name, safe = _rule(pa, kind)
    if type(value) in safe or not _is_changed(value, name, is_given=is_given):
        return None
    return f"{path} is {value!r:.60}, which {kind} would change"


def is_safe(pa: Any, values: list[Any], kind: Any) -> bool:
    """Whether no value of a column needs a closer look. Fast."""
    _, safe = _rule(pa, kind)
    return not pa.types.is_nested(kind) and safe.issuperset(map(type, values))


def _misfit_of_object(pa: Any, value: dict[Any, Any], kind: Any, path: str, *, is_given: bool) -> str | None:
    for name, part in value.items():
        place = kind.get_field_index(name) if isinstance(name, str) else -1
        if place < 0:
            return f"{path} has no field {name}"
        if found := misfit(pa, part, kind.field(place).type, f"{path}.{name}", is_given=is_given):
            return found
    return None


@lru_cache(maxsize=1024)
def _rule(pa: Any, kind: Any) -> tuple[str, frozenset[type]]:
    """The rule of a type, and the types of Python of which it changes no value."""
    types, nothing = pa.types, type(None)
    if types.is_integer(kind):
        return "integer", frozenset((int, nothing))
    if types.is_floating(kind):
        return "float", frozenset((float, int, nothing))
    if types.is_date(kind):
        return "date", frozenset((dt.date, nothing))
    if types.is_temporal(kind):
        return "time", frozenset((dt.datetime, dt.time, dt.timedelta, nothing))
    return "any", frozenset((str, int, float, bool, bytes, nothing))


def _is_changed(value: Any, name: str, *, is_given: bool) -> bool:
    if name == "date" and isinstance(value, dt.datetime):
        return not is_given
    if name == "any" or not isinstance(value, _NUMBERS):
        return False
    if name == "float":
        return isinstance(value, bool) or is_beyond_float(value)
    if name == "integer":
        if isinstance(value, JsonNumber):  # it is not the integer of its float
            return True
        try:
            return bool(int(value) != value)
        except (ValueError, OverflowError):  # NaN and infinity
            return True
    return not (is_given and isinstance(value, int) and not isinstance(value, bool))
