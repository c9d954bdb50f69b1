"""The parts of a parsed schema, and which Python values those without parts accept, by type and logical type."""

from __future__ import annotations

import datetime
import decimal
import enum
import numbers
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

# The parts of a parsed schema.

Node = Any
"""A schema in a parsed schema: a dict, a list (union) or a name. Names are full names."""
WRITTEN_AS_INT: Final = "rmqio-written-as-int"
"""The key that marks a long whose bytes are those of an int."""


def children_of(node: Node) -> list[Node]:
    """The direct children of a schema."""
    if isinstance(node, list):
        return node
    if not isinstance(node, dict):
        return []
    if node["type"] in ("record", "error"):
        return [field["type"] for field in node["fields"]]
    if node["type"] == "array":
        return [node["items"]]
    if node["type"] == "map":
        return [node["values"]]
    return [] if isinstance(node["type"], str) else [node["type"]]


def nodes_of(node: Node) -> Iterator[Node]:
    """A schema and all its descendants."""
    yield node
    for child in children_of(node):
        yield from nodes_of(child)


Check = Callable[[Any], Any]
"""Returns the value for fastavro to write; raises `BadValue`."""


class Duration(NamedTuple):
    """Avro's logical type duration: three independent counts from 0 to 2**32 - 1."""

    months: int
    days: int
    milliseconds: int


class BadValue(ValueError):
    """The schema cannot hold the value. `path` is built from the inside out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path = ""

    def within(self, part: str) -> BadValue:
        self.path = part + self.path
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.args[0]}"


# ---- what has none --------------------------------------------------------------------------------------------------


def type_of(value: Any) -> str:
    return f"a value of type {type(value).__qualname__}"


def _not(kind: str, value: Any) -> NoReturn:
    raise BadValue(f"{type_of(value)} is not {kind}")


def _whole(kind: str, bits: int) -> Check:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def check(value: Any) -> Any:
        if type(value) is not int:
            if not _is_whole(value):
                _not(f"{kind}, a whole number", value)
            value = int(value)
        if not least <= value <= most:
            raise BadValue(f"a number of more than {bits} bits is not a valid {kind}")
        return value

    return check


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number; also NumPy's, but not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _null(value: Any) -> Any:
    if value is not None:
        _not("null", value)
    return value


def _boolean(value: Any) -> Any:
    if value is not True and value is not False:
        _not("boolean", value)
    return value


def _double(value: Any) -> Any:
    if type(value) is not float and not isinstance(value, float) and not _is_whole(value):
        _not("a number", value)
    if isinstance(value, int):
        try:
            if int(float(value)) != value:
                raise BadValue("a whole number of more digits than a double has")
        except OverflowError:
            raise BadValue("a number too large for a double") from None
    return value


def _float(value: Any) -> Any:
    _double(value)
    try:
        struct.pack("<f", value)
    except OverflowError:
        raise BadValue("a number too large for a float") from None
    return value


def _string(value: Any) -> Any:
    if type(value) is not str and not isinstance(value, str):
        _not("text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadValue("a lone surrogate is not UTF-8 text") from None
    return value


def _bytes(value: Any) -> Any:
    if not isinstance(value, (bytes, bytearray)):
        _not("bytes", value)
    return value


PRIMITIVE: Final[dict[str, Check]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole("int", 32),
    "long": _whole("long", 64),
    "float": _float,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
}


def enum_of(symbols: frozenset[str]) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, enum.Enum):  # also one that is text: it has a name and a value
            value = value.name
        if not isinstance(value, str):
            _not("a symbol, which is text or an enum.Enum", value)
        if value not in symbols:
            raise BadValue(f"is not one of the {len(symbols)} symbols")
        return str(value)

    return check


def fixed_of(size: int) -> Check:
    def check(value: Any) -> Any:
        if len(_bytes(value)) != size:
            raise BadValue(f"{len(value)} bytes are not {size}")
        return value

    return check


# ---- logical types --------------------------------------------------------------------------------------------------


def _decimal(node: Node) -> Check:
    precision, scale = node["precision"], node.get("scale", 0)

    def check(value: Any) -> Any:
        if not isinstance(value, decimal.Decimal):
            _not("decimal.Decimal", value)
        if not value.is_finite():
            raise BadValue("is not a finite number")
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        if -exponent > scale:
            raise BadValue(f"more than {scale} digits after the decimal point; round it as needed")
        if value and len(digits) + exponent + scale > precision:
            raise BadValue(f"more than {precision} digits, with {scale} of them after the decimal point")
        return value if value else value.copy_abs()  # Avro has no -0, and fastavro writes a fixed -0 as -2

    return check


def _date(_: Node) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            _not("datetime.date", value)
        return value

    return check


def _time(step_us: int) -> Callable[[Node], Check]:
    def check(value: Any) -> Any:
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            _not("datetime.time without a time zone", value)
        if value.microsecond % step_us:
            raise BadValue("has microseconds, but the schema has milliseconds; round it as needed")
        return value

    return lambda _: check


def _timestamp(step_us: int, *, local: bool) -> Callable[[Node], Check]:
    def check(value: Any) -> Any:
        if not isinstance(value, datetime.datetime) or (value.tzinfo is None) != local:
            _not("datetime.datetime " + ("without a time zone" if local else "with a time zone"), value)
        if value.microsecond % step_us:
            raise BadValue("has microseconds, but the schema has milliseconds; round it as needed")
        return value

    return lambda _: check


def _uuid(_: Node) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, uuid.UUID):
            _not("uuid.UUID", value)
        return value

    return check


def _uuid_bytes(_: Node) -> Check:
    return lambda value: value.bytes if isinstance(value, uuid.UUID) else _not("uuid.UUID", value)


def _duration(_: Node) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Duration):
            _not("rmqio.serde.avro.Duration", value)
        try:
            return DURATION.pack(*value)
        except struct.error:
            raise BadValue("a count of a duration is not from 0 to 2**32 - 1") from None

    return check


DURATION: Final = struct.Struct("<III")
LOGICAL: Final[dict[tuple[str, str], Callable[[Node], Check]]] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("int", "date"): _date,
    ("int", "time-millis"): _time(1_000),
    ("long", "time-micros"): _time(1),
    ("long", "timestamp-millis"): _timestamp(1_000, local=False),
    ("long", "timestamp-micros"): _timestamp(1, local=False),
    ("long", "local-timestamp-millis"): _timestamp(1_000, local=True),
    ("long", "local-timestamp-micros"): _timestamp(1, local=True),
    ("string", "uuid"): _uuid,
    ("fixed", "uuid"): _uuid_bytes,
    ("fixed", "duration"): _duration,
}
