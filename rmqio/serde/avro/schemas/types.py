"""The Python type of a schema's values, and whether an annotation fits it."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.serde.avro.schemas.leaves import DURATION, Duration
from rmqio.serde.avro.schemas.nodes import Node

_PRIMITIVE: Final[dict[str, type]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "fixed": bytes,
    "enum": str,
}
_LOGICAL: Final[dict[tuple[str, str], type]] = {
    ("bytes", "decimal"): decimal.Decimal,
    ("fixed", "decimal"): decimal.Decimal,
    ("int", "date"): datetime.date,
    ("int", "time-millis"): datetime.time,
    ("long", "time-micros"): datetime.time,
    ("long", "timestamp-millis"): datetime.datetime,
    ("long", "timestamp-micros"): datetime.datetime,
    ("long", "local-timestamp-millis"): datetime.datetime,
    ("long", "local-timestamp-micros"): datetime.datetime,
    ("string", "uuid"): uuid.UUID,
}


def type_of_leaf(node: Node) -> type:
    """The type for a schema that is not a record, union, array or map."""
    if isinstance(node, str):
        return _PRIMITIVE[node]
    kind, logical = node["type"], node.get("logicalType", "")
    if kind == "fixed" and logical == "duration" and node["size"] == DURATION.size:
        return Duration
    if kind == "fixed" and logical == "uuid" and node["size"] == len(uuid.UUID(int=0).bytes):
        return uuid.UUID
    return _LOGICAL.get((kind, logical), _PRIMITIVE[kind])


def is_record_class(hint: Any) -> bool:
    """Whether the annotation is a NamedTuple or a dataclass."""
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or is_named_tuple(hint))


def is_named_tuple(hint: Any) -> bool:
    """Whether the annotation is a NamedTuple; also one of `collections.namedtuple`."""
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def fields_of_class(cls: type) -> dict[str, Any]:
    """Names and annotations of the constructor's parameters, in order; `Any` if there is no annotation.

    Raises `LocalError` if an annotation cannot be evaluated.
    """
    try:
        hints = typing.get_type_hints(cls, include_extras=False)
    except (NameError, TypeError) as error:
        raise LocalError(f"the annotations of {cls.__qualname__} cannot be evaluated: {error}") from error
    if is_named_tuple(cls):
        return {name: hints.get(name, Any) for name in cls._fields}  # type: ignore[attr-defined]
    return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(cls) if field.init}


def required_fields(cls: type) -> set[str]:
    """The names of the fields without a default."""
    if is_named_tuple(cls):
        return set(cls._fields) - set(cls._field_defaults)  # type: ignore[attr-defined]
    none = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.default is none and field.default_factory is none
    }


def choices(hint: Any) -> tuple[list[Any], bool]:
    """The types that an annotation permits, and whether it permits None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        every = typing.get_args(hint)
        return [each for each in every if each is not type(None)], type(None) in every
    return ([] if hint is type(None) else [hint]), hint is type(None)


def item_of(hint: Any) -> Any:
    """The annotation of a sequence's items; `Any` if there is none. Raises TypeError if it is not a sequence."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any or hint is object:
        return Any
    if not (isinstance(origin, type) and issubclass(origin, (list, tuple, Sequence))) or issubclass(
        origin, (str, bytes)
    ):
        raise TypeError
    return args[0] if args else Any


def value_of(hint: Any) -> Any:
    """The annotation of a map's values. Raises TypeError if it is not a map."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any or hint is object:
        return Any
    if not (isinstance(origin, type) and issubclass(dict, origin) and issubclass(origin, Mapping)):
        raise TypeError
    return args[1] if args else Any


def takes(hint: Any, leaf: type) -> bool:
    """Whether a value of this type fits the annotation."""
    if hint is Any or not isinstance(hint, type):
        return True  # a type variable, a Literal and the like cannot be checked here
    if issubclass(hint, enum.Enum):
        return leaf is str
    return issubclass(leaf, hint) or (leaf is int and hint is float)
