"""The Python type of a schema's values, whether an annotation fits it, and the schema that annotations stand for."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import math
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from rmqio.errors import LocalError
from rmqio.serde.avro.nodes import DURATION, Duration, Node

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
    if kind == "fixed" and logical == "duration":
        return Duration
    if kind == "fixed" and logical == "uuid":
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


# Infers the Avro schema of a NamedTuple or dataclass from its annotations.

Json = Any
_LEAVES: Final[dict[Any, Json]] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.time: {"type": "long", "logicalType": "time-micros"},
    datetime.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
_MISSING: Final = object()


def schema_of_class(cls: type, *, namespace: str | None = None) -> dict[str, Any]:
    """The schema, as JSON values, of a record with one field for each field of the class.

    `int` becomes long, `float` double, `datetime` timestamp-micros (with a time zone), `X | None` a union with null,
    lists arrays, dicts with text keys maps, an `enum.Enum` an enum of its names, and a nested class a record. Defaults
    that are None, booleans, numbers or text are kept; in a union, the branch of the default comes first, as Avro
    requires. `Annotated` gives what annotations do not express, such as the precision of a decimal; its dict is the
    schema:

        amount: Annotated[Decimal, {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]

    Raises `LocalError` if it is not such a class, or if an annotation has no schema.
    """
    if not is_record_class(cls):
        raise LocalError(f"{cls!r} is neither a NamedTuple nor a dataclass")
    made: dict[str, Any] = _Inference().of_class(cls)
    return {**made, "namespace": namespace} if namespace is not None else made


class _Inference:
    """The inference for one class. A record or enum is defined where it first occurs, and named after that."""

    def __init__(self) -> None:
        self._defined: dict[str, type] = {}
        self._given_names: set[str] = set()

    def of_class(self, cls: type) -> Json:
        if (known := self._defined.setdefault(cls.__name__, cls)) is not cls:
            raise LocalError(f"{cls!r} and {known!r} have the same name, by which Avro identifies records and enums")
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except (NameError, TypeError) as error:
            raise LocalError(f"the annotations of {cls.__qualname__} cannot be evaluated: {error}") from error
        fields = []
        for name, default in _defaults(cls).items():
            kind = self.of(hints.get(name, Any), f"{cls.__qualname__}.{name}")
            fields.append({"name": name, **_with_default(kind, default)})
        return {"type": "record", "name": cls.__name__, "fields": fields}

    def of(self, hint: Any, path: str) -> Json:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            given = [each for each in args[1:] if isinstance(each, (dict, str)) and each]
            return self._given(given[0]) if given else self.of(args[0], path)
        if origin in (typing.Union, types.UnionType):
            branches = [self.of(each, path) for each in args]
            return [*(["null"] if "null" in branches else []), *(each for each in branches if each != "null")]
        if hint is Duration:
            return self._once(Duration, {"type": "fixed", "size": DURATION.size, "logicalType": "duration"})
        if hint in _LEAVES:
            return _LEAVES[hint]
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._once(hint, {"type": "enum", "symbols": list(hint.__members__)})
        if isinstance(hint, type) and is_record_class(hint):
            return hint.__name__ if self._defined.get(hint.__name__) is hint else self.of_class(hint)
        return self._of_collection(origin, args, hint, path)

    def _of_collection(self, origin: Any, args: tuple[Any, ...], hint: Any, path: str) -> Json:
        is_tuple = origin is tuple and len(args) == 2 and args[1] is Ellipsis
        if origin in (list, collections.abc.Sequence) or is_tuple:
            return {"type": "array", "items": self.of(args[0], f"{path}[]")}
        if origin in (dict, collections.abc.Mapping) and args[0] is str:
            return {"type": "map", "values": self.of(args[1], f"{path}[]")}
        why = "its precision and scale are unknown" if hint is decimal.Decimal else "it has no type in Avro"
        raise LocalError(f"{path} is annotated {hint}: {why}; give its schema with Annotated[..., {{...}}]")

    def _given(self, schema: Any) -> Json:
        """The schema in `Annotated`. A named type is defined only once."""
        name = schema.get("name") if isinstance(schema, dict) else None
        if name is None:
            return schema
        if name in self._given_names:
            return name
        self._given_names.add(name)
        return schema

    def _once(self, cls: type, definition: dict[str, Any]) -> Json:
        known = self._defined.get(cls.__name__)
        if known is cls:
            return cls.__name__
        if known is not None:
            raise LocalError(f"{cls!r} and {known!r} have the same name, by which Avro identifies records and enums")
        self._defined[cls.__name__] = cls
        return {**definition, "name": cls.__name__}


def _defaults(cls: type) -> dict[str, Any]:
    """Fields and their defaults, in order."""
    if is_named_tuple(cls):
        known: dict[str, Any] = cls._field_defaults  # type: ignore[attr-defined]
        return {name: known.get(name, _MISSING) for name in cls._fields}  # type: ignore[attr-defined]
    return {
        field.name: _MISSING if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(cls)
        if field.init
    }


def _with_default(kind: Json, default: Any) -> dict[str, Any]:
    """A field's type, and its default as JSON, if JSON has such a value."""
    branches = kind if isinstance(kind, list) else [kind]
    if type(default) is int and "long" not in branches and "double" in branches:
        default = float(default)
    for plain in (type(None), bool, int, float, str):
        if type(default) is plain and (own := _LEAVES[plain]) in branches:
            if isinstance(default, float) and not math.isfinite(default):
                break
            others = [each for each in branches if each != own]
            return {"type": [own, *others] if isinstance(kind, list) else kind, "default": default}
    return {"type": kind}
