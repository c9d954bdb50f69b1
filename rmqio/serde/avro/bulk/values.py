"""Plans for the C extension: how to decode a schema's bodies to the values of fastavro and `typed` together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from rmqio.errors import LocalError
from rmqio.serde.avro import bulk
from rmqio.serde.avro.reading.exact import exact_reader
from rmqio.serde.avro.reading.typed import MakeRow, class_for, enum_of, hint_for, leaf_converter, record_maker
from rmqio.serde.avro.reading.walk import MAX_DEPTH
from rmqio.serde.avro.schemas.nodes import Node
from rmqio.serde.avro.schemas.schema import AvroSchema
from rmqio.serde.avro.schemas.types import choices, fields_of_class, is_named_tuple, item_of, value_of


class Kind(IntEnum):
    """The codes of `_bulk_values.c`."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    FIXED = 8
    ENUM = 9
    LIST = 10
    TUPLE = 11
    MAP = 12
    UNION = 13
    RECORD = 14
    ROW = 15
    MADE = 16
    CALL = 17
    DECIMAL = 18


_PRIMITIVE: Final = {each.name.lower(): each for each in list(Kind)[: Kind.FIXED]}
_MAX_DIGITS: Final = 18
_OF_VARIABLE_SIZE: Final = -1

_Node = tuple[int, tuple[int, ...], Any, tuple[int, ...]]


def values_of(schema: AvroSchema, target: type | None, make_row: MakeRow | None) -> bulk.Values | None:
    """The decoder of bodies of a schema, which is the writer's and the reader's. None: only Python can decode them."""
    if bulk.new_values is None or schema.shape.is_hollow or schema.shape.levels > MAX_DEPTH:
        return None
    plan = Plan(schema, make_row)
    try:
        root = plan.of(schema.parsed, Any if target is None else target)
    except (LocalError, RecursionError, OverflowError):  # the converter in Python has reported what is wrong for users
        return None
    return bulk.new_values(tuple(plan.nodes), root)


class Plan:
    """The nodes for one schema and target, from the leaves up."""

    def __init__(self, schema: AvroSchema, make_row: MakeRow | None) -> None:
        self._schema, self._make_row = schema, make_row
        self.nodes: list[_Node] = []
        self._made: dict[tuple[str, Any], int] = {}

    def of(self, node: Node, hint: Any) -> int:
        """The index of the node for a part of the schema with its annotation. Raises `LocalError`."""
        node = self._schema.resolve(node)
        if isinstance(node, list):
            return self._add(Kind.UNION, [self.of(each, hint_for(self._schema.resolve(each), hint)) for each in node])
        kind = node["type"] if isinstance(node, dict) else node
        if not isinstance(kind, str):
            return self.of(kind, hint)
        if kind == "null":
            return self._add(Kind.NULL)
        wanted, _ = choices(hint)
        if kind in ("record", "error"):
            return self._record(node, class_for(node, wanted, node["name"]))
        hint = wanted[0] if len(wanted) == 1 else enum_of(wanted) if kind == "enum" else Any
        if kind == "array":
            is_tuple = getattr(hint, "__origin__", hint) is tuple
            return self._add(Kind.TUPLE if is_tuple else Kind.LIST, [self.of(node["items"], item_of(hint))])
        if kind == "map":
            return self._add(Kind.MAP, [self.of(node["values"], value_of(hint))])
        return self._leaf(node, kind, hint)

    def _leaf(self, node: Node, kind: str, hint: Any) -> int:
        convert = leaf_converter(node, hint, kind)
        if kind == "enum":
            return self._add(Kind.ENUM, argument=tuple(convert(each) if convert else each for each in node["symbols"]))
        if isinstance(node, dict) and node.get("logicalType") == "decimal" and node["precision"] <= _MAX_DIGITS:
            size = node["size"] if kind == "fixed" else _OF_VARIABLE_SIZE
            return self._add(Kind.DECIMAL, argument=Decimal, places=(size, node["precision"], node.get("scale", 0)))
        found = self._add(Kind.FIXED, argument=node["size"]) if kind == "fixed" else self._add(_PRIMITIVE[kind])
        read = _logical_reader(node, kind) if isinstance(node, dict) else None
        for function in (read, convert):
            if function is not None:
                found = self._add(Kind.CALL, [found], function)
        return found

    def _record(self, node: Node, cls: type | None) -> int:
        key = (node["name"], cls)
        if key in self._made:
            return self._made[key]
        index = self._made[key] = self._add(Kind.NULL)  # it can contain itself
        names = [field["name"] for field in node["fields"]]
        hints = {} if cls is None else fields_of_class(cls)
        parts = [self.of(field["type"], hints.get(field["name"], Any)) for field in node["fields"]]
        if cls is None:
            made: _Node = (int(Kind.RECORD), tuple(parts), tuple(names), ())
            if self._make_row is not None:
                self.nodes.append(made)
                made = (int(Kind.CALL), (len(self.nodes) - 1,), self._make_row, ())
        else:
            kept = [name for name in hints if name in names]
            places = tuple(kept.index(name) if name in hints else -1 for name in names)
            is_whole = kept == list(hints)
            is_row = is_whole and is_named_tuple(cls) and is_plain_tuple(cls)
            argument = cls if is_row else record_maker(cls, kept, is_whole=is_whole)
            made = (int(Kind.ROW if is_row else Kind.MADE), tuple(parts), argument, places)
        self.nodes[index] = made
        return index

    def _add(self, kind: Kind, parts: Sequence[int] = (), argument: Any = None, places: tuple[int, ...] = ()) -> int:
        if len(self.nodes) >= bulk.MAX_NODES:
            raise OverflowError
        self.nodes.append((int(kind), tuple(parts), argument, places))
        return len(self.nodes) - 1


def is_plain_tuple(cls: Any) -> bool:
    """Whether `_make` is that of every NamedTuple, which makes a tuple of the class and calls nothing of the user's."""
    own = next((each for each in cls.__mro__ if each.__bases__ == (tuple,)), None)
    return own is not None and getattr(cls._make, "__func__", None) is getattr(own._make, "__func__", cls)


def _logical_reader(node: Node, kind: str) -> Callable[[Any], Any] | None:
    """Return the decoder of a logical type, as fastavro calls it: with the schema, and without the reader's."""
    logical = node.get("logicalType")
    if not isinstance(logical, str):
        return None
    exact = exact_reader(kind, logical, node)
    if exact is not None:
        return exact
    read = LOGICAL_READERS.get(f"{kind}-{logical}")
    return None if read is None else functools.partial(_read, read, node)


def _read(read: Callable[..., Any], node: Node, value: Any) -> Any:
    return read(value, node, None)
