"""Decodes JSON bodies to a type with the standard library: the reference for `fast`, and its fallback.

A body that does not fit is reported by the place of the value and what was expected there, never by its content,
because error outputs end up in logs.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import enum
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any, Final, NoReturn

from rmqio.serde.json_types import (
    ARRAY,
    NULL,
    NUMBER,
    OBJECT,
    TEXT,
    TRUTH,
    WHOLE,
    Anything,
    Entries,
    Items,
    Leaf,
    Member,
    Node,
    Object,
    OneOf,
    Plan,
    is_typed_dict,
    kinds_of,
)
from rmqio.serde.strict_json import (
    LONG_TEXT_DECODER,
    TEXT_DECODER,
    NotJson,
    NumberText,
    OutOfRange,
    exact_float,
    is_deeper_than,
    parsed,
)

# Values that JSON has no form for, from text. Each function raises ValueError unless the text is one, exactly.
#
# Python's own constructors accept much more: `Decimal("4_2")` is 42, `UUID` takes braces, and `fromisoformat` drops
# nanoseconds.

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


MAX_DEPTH: Final = 200
"""Levels of arrays and objects in a body, also in fields that are left out."""
Convert = Callable[[Any], Any]
_KIND: Final[dict[type, str]] = {
    str: TEXT,
    int: WHOLE,
    float: NUMBER,
    NumberText: NUMBER,
    bool: TRUTH,
    NoneType: NULL,
    list: ARRAY,
    dict: OBJECT,
}
_ANY_NAME: Final = "*"
"""Stands for a name that the type does not have: it is content."""


class Misfit(NotJson):
    """A value is not of its type. `path` leads from the value out to the body."""

    def __init__(self, why: str, *path: str) -> None:
        super().__init__(why)
        self.why: Final = why
        self.path: Final = list(path)

    def __str__(self) -> str:
        place = "".join(f"/{each.replace('~', '~0').replace('/', '~1')}" for each in reversed(self.path))
        return f"{place or 'the value'}: {self.why}"


class ExactDecoder:
    """Decodes bodies to the type of a plan. A call raises `NotJson`."""

    __slots__ = ("_convert",)

    def __init__(self, plan: Plan) -> None:
        self._convert: Final = _Converters(plan).of(plan.root)

    def __call__(self, body: bytes) -> Any:
        try:
            value, text = parsed(body, TEXT_DECODER)
        except OutOfRange:
            value, text = parsed(body, LONG_TEXT_DECODER)  # the number may be in a field that is left out
        if is_deeper_than(MAX_DEPTH, value, text):
            raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
        try:
            return self._convert(value)
        except RecursionError as error:  # a class that contains itself needs several calls for each level
            raise NotJson("JSON nested too deeply") from error


class _Converters:
    """One converter of parsed values for each node. Nothing else uses these values: they are changed in place."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[type, Convert] = {}

    def of(self, node: Node) -> Convert:
        match node:
            case Anything():
                return _plain
            case Leaf(cls):
                return _LEAVES[cls]
            case Member(cls, values):
                return _member(cls, values)
            case Items(item, is_tuple):
                return _items(self.of(item), is_tuple)
            case Entries(value):
                return _entries(self.of(value))
            case Object(cls):
                return self._of_object(cls)
            case OneOf(members):
                return _union({kind: self.of(member) for member in members for kind in kinds_of(member)})

    def _of_object(self, cls: type) -> Convert:
        if cls not in self._made:
            self._made[cls] = lambda value: self._made[cls](value)  # it can contain itself
            fields = self._plan.fields[cls]
            required = [field.name for field in fields if field.is_required]
            self._made[cls] = _object(cls, {field.name: self.of(field.node) for field in fields}, required)
        return self._made[cls]


def _misfit(value: Any, expected: str) -> NoReturn:
    found = f"{WHOLE} of too many digits" if _is_long(value) else _KIND[type(value)]
    raise Misfit(f"expected {expected}, found {found}")


def _is_long(value: Any) -> bool:
    return type(value) is NumberText and value.removeprefix("-").isdigit()


def _exactly(cls: type) -> Convert:
    expected = _KIND[cls]

    def convert(value: Any) -> Any:
        return value if type(value) is cls else _misfit(value, expected)  # not isinstance: True is an int

    return convert


def _float(value: Any) -> float:
    if type(value) is not NumberText and type(value) is not int:
        _misfit(value, NUMBER)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    return _finite(found)


def _finite(found: float) -> float:
    if math.isinf(found):
        raise Misfit("expected a number, found one that does not fit a double")
    return found


def _from_text(make: Callable[[str], Any], expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not str:
            _misfit(value, expected)
        try:
            return make(value)
        except ValueError as error:
            raise Misfit(f"expected {expected}, found other text") from error

    return convert


_decimal_from_text: Final = _from_text(decimal_of, FROM_TEXT[Decimal][1])


def _decimal(value: Any) -> Any:
    return _decimal_from_text(str(value) if type(value) is int or type(value) is NumberText else value)


_LEAVES: Final[dict[type, Convert]] = {
    **{cls: _from_text(make, expected) for cls, (make, expected) in FROM_TEXT.items()},
    **{cls: _exactly(cls) for cls in (str, int, bool, NoneType)},
    float: _float,
    Decimal: _decimal,
}


def _member(cls: type[enum.Enum] | None, values: Sequence[str | int]) -> Convert:
    expected = f"one of the values of {cls.__qualname__}" if cls else f"one of {', '.join(map(repr, values))}"
    types = {type(each) for each in values}
    by_value = set(values)

    def convert(value: Any) -> Any:
        if type(value) not in types:
            _misfit(value, expected)
        if cls is None and value in by_value:
            return value
        if cls is not None:
            try:
                return cls(value)  # not by_value: the enum can take other values
            except Exception as error:  # noqa: BLE001 - `_missing_` is the user's
                caught = type(error)
            if caught is not ValueError:
                raise Misfit(f"{cls.__qualname__} raised {caught.__name__}")
        raise Misfit(f"expected {expected}, found another")

    return convert


def _items(convert: Convert, is_tuple: bool) -> Convert:
    def convert_all(value: Any) -> Any:
        if type(value) is not list:
            _misfit(value, ARRAY)
        at = 0
        try:
            for at, each in enumerate(value):
                value[at] = convert(each)
        except Misfit as misfit:
            misfit.path.append(str(at))
            raise
        return tuple(value) if is_tuple else value

    return convert_all


def _entries(convert: Convert) -> Convert:
    def convert_all(value: Any) -> Any:
        if type(value) is not dict:
            _misfit(value, OBJECT)
        try:
            for name, each in value.items():
                value[name] = convert(each)
        except Misfit as misfit:
            misfit.path.append(_ANY_NAME)
            raise
        return value

    return convert_all


def _plain(value: Any) -> Any:
    """Any value, with its numbers as numbers."""
    if type(value) is NumberText:
        return _misfit(value, WHOLE) if _is_long(value) else _finite(exact_float(str(value)))
    if type(value) is list:
        return _plain_items(value)
    return _plain_entries(value) if type(value) is dict else value


_plain_items, _plain_entries = _items(_plain, is_tuple=False), _entries(_plain)


def _union(by_kind: dict[str, Convert]) -> Convert:
    expected = " or ".join(kind for kind in by_kind if kind != WHOLE or NUMBER not in by_kind)

    def convert(value: Any) -> Any:
        chosen = by_kind.get(_KIND[type(value)])
        return chosen(value) if chosen is not None else _misfit(value, expected)

    return convert


def _object(cls: type, converters: Mapping[str, Convert], required: Sequence[str]) -> Convert:
    make = None if is_typed_dict(cls) else cls

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            _misfit(value, OBJECT)
        fields = {}
        name = ""
        try:
            for name, each in value.items():
                if (convert_field := converters.get(name)) is not None:
                    fields[name] = convert_field(each)
        except Misfit as misfit:
            misfit.path.append(name)
            raise
        for name in required:
            if name not in fields:
                raise Misfit("missing", name)
        if make is None:
            return fields
        try:
            return make(**fields)
        except RecursionError:
            raise
        except Exception as error:  # a user's class can raise anything
            raise Misfit(f"{cls.__qualname__} raised {type(error).__name__}") from error

    return convert
