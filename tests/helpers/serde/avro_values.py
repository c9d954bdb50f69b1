"""Avro schemas as tests make them, and random values of these schemas."""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st

from rmqio.serde.avro import Duration

Node = Any
"""A type as in JSON, but a named type is its full name."""
Draw = Callable[[st.SearchStrategy[Any]], Any]
VALUE: Final = "_value"
"""The attribute of a field with a default that holds the default's Python value."""
DEEPEST: Final = 3
_UTC: Final = datetime.UTC


@dataclass(frozen=True, slots=True)
class Model:
    """A schema: its root, and the definitions of its named types."""

    root: Node
    types: dict[str, dict[str, Any]]

    def of(self, node: Node) -> Node:
        """Returns the definition for a name."""
        return self.types.get(node, node) if isinstance(node, str) else node


@st.composite
def values(draw: Draw, model: Model) -> tuple[Any, Any]:
    """Draws a value for our serializer, with fields left out and branches named, and the value that is read again."""
    found: tuple[Any, Any] = _Values(draw, model).of(model.root, 0)
    return found


def default_of(draw: Draw, node: Node, model: Model) -> tuple[Any, Any]:
    """Draws a value and its JSON."""
    _, value = _Values(draw, model, is_default=True).of(node, 0)
    return value, _json(node, value, model)


_TEXT: Final = st.one_of(st.text(max_size=5), st.sampled_from(["", "省", "\U0001f680", "\0", "\uffff"]))


def _whole(bits: int) -> st.SearchStrategy[int]:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.one_of(st.integers(least, most), st.sampled_from([least, most, 0, 63, 64, -64, -65]))


_OF_PRIMITIVE: Final[dict[str, st.SearchStrategy[Any]]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _whole(32),
    "long": _whole(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=5),
    "string": _TEXT,
}


def _cut(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


_OF_LOGICAL: Final[dict[str, st.SearchStrategy[Any]]] = {
    "date": st.dates(),
    "time-millis": st.times().map(_cut),
    "time-micros": st.times(),
    "timestamp-millis": st.datetimes(timezones=st.just(_UTC)).map(_cut),
    "timestamp-micros": st.datetimes(timezones=st.just(_UTC)),
    "local-timestamp-millis": st.datetimes().map(_cut),
    "local-timestamp-micros": st.datetimes(),
    "uuid": st.uuids(),
    "duration": st.builds(Duration, *[st.integers(0, 2**32 - 1)] * 3),
}


@dataclass
class _Values:
    draw: Draw
    model: Model
    is_default: bool = False
    """Whether it is a default: JSON has no infinite numbers, and a union's default is of its first branch."""

    def of(self, node: Node, depth: int) -> tuple[Any, Any]:
        node = self.model.of(node)
        if isinstance(node, list):
            return self.of_union(node, depth)
        kind = node if isinstance(node, str) else node["type"]
        logical = "" if isinstance(node, str) else node.get("logicalType", "")
        if kind == "record":
            pairs = {each["name"]: self.of_field(each, depth + 1) for each in node["fields"]}
            given = {name: pair[0] for name, pair in pairs.items() if pair[0] is not _LEFT_OUT}
            return given, {name: pair[1] for name, pair in pairs.items()}
        if kind in ("array", "map"):
            size = self.draw(st.integers(0, 3)) if depth < 2 * DEEPEST else 0
            pairs_of = [self.of(node["items" if kind == "array" else "values"], depth + 1) for _ in range(size)]
            if kind == "array":
                return [given for given, _ in pairs_of], [read for _, read in pairs_of]
            keys = self.draw(st.lists(_TEXT, min_size=size, max_size=size, unique=True))
            return tuple({key: pair[n] for key, pair in zip(keys, pairs_of, strict=True)} for n in (0, 1))  # type: ignore[return-value]
        if kind == "enum":
            strategy: st.SearchStrategy[Any] = st.sampled_from(node["symbols"])
        elif logical == "decimal":
            most = 10 ** node["precision"] - 1
            strategy = st.integers(-most, most).map(lambda number: _scaled(number, node["scale"]))
        elif logical in _OF_LOGICAL:
            strategy = _OF_LOGICAL[logical]
        elif kind == "fixed":
            strategy = st.binary(min_size=node["size"], max_size=node["size"])
        elif self.is_default and kind in ("float", "double"):
            strategy = st.floats(width=32, allow_nan=False, allow_infinity=False)
        else:
            strategy = _OF_PRIMITIVE[kind]
        value = self.draw(strategy)
        return value, value

    def of_field(self, each: dict[str, Any], depth: int) -> tuple[Any, Any]:
        if VALUE in each and not self.is_default and self.draw(st.booleans()):
            return _LEFT_OUT, each[VALUE]
        return self.of(each["type"], depth)

    def of_union(self, branches: list[Node], depth: int) -> tuple[Any, Any]:
        if self.is_default:
            return self.of(branches[0], depth)
        ends = "null" in branches and depth >= 2 * DEEPEST
        branch = "null" if ends else self.draw(st.sampled_from(branches))
        given, read = self.of(branch, depth + 1)
        is_alone = sum(each in self.model.types for each in branches if isinstance(each, str)) == 1
        if isinstance(branch, str) and branch in self.model.types and (not is_alone or self.draw(st.booleans())):
            given = (branch, given)
        return given, read


_LEFT_OUT: Final = object()


def _scaled(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


_EPOCH: Final = datetime.datetime(1970, 1, 1)


def _json(node: Node, value: Any, model: Model) -> Any:
    node = model.of(node)
    if isinstance(node, list):
        return _json(node[0], value, model)
    if isinstance(value, list):
        return [_json(node["items"], each, model) for each in value]
    if isinstance(value, dict) and node["type"] == "map":
        return {key: _json(node["values"], each, model) for key, each in value.items()}
    if isinstance(value, dict):
        return {each["name"]: _json(each["type"], value[each["name"]], model) for each in node["fields"]}
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()  # no arithmetic, since it rounds
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        size = node["size"] if node["type"] == "fixed" else number.bit_length() // 8 + 1
        return number.to_bytes(size, "big", signed=True).decode("latin-1")
    if isinstance(value, Duration):
        return struct.pack("<III", *value).decode("latin-1")
    if isinstance(value, uuid.UUID):
        return str(value) if node["type"] == "string" else value.bytes.decode("latin-1")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return _number(value, node) if isinstance(value, (datetime.date, datetime.time)) else value


def _number(value: datetime.date | datetime.time, node: Node) -> int:
    if isinstance(value, datetime.time):
        since = datetime.datetime.combine(_EPOCH, value) - _EPOCH
    elif isinstance(value, datetime.datetime):
        since = value.replace(tzinfo=None) - _EPOCH
    else:
        return value.toordinal() - _EPOCH.toordinal()
    return since // datetime.timedelta(microseconds=1000 if node["logicalType"].endswith("-millis") else 1)
