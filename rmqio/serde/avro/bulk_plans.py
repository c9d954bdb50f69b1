"""Plans for the C extension: how to decode bodies of the reader's schema, or of another, to Python values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import IntEnum
from operator import itemgetter
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from rmqio.errors import LocalError
from rmqio.serde.avro import bulk
from rmqio.serde.avro.encoding import MAX_DEPTH
from rmqio.serde.avro.exact import exact_reader
from rmqio.serde.avro.nodes import Node
from rmqio.serde.avro.schema import AvroSchema
from rmqio.serde.avro.typed import MakeRow, class_for, enum_of, hint_for, leaf_converter, record_maker
from rmqio.serde.avro.types import choices, fields_of_class, is_named_tuple, item_of, value_of

# Plans for the C extension: how to decode a schema's bodies to the values of fastavro and `typed` together.


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


_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NUMBERS: Final = ("int", "long", "float", "double")
_LEAF: Final = ("logicalType", "precision", "scale", "size")
_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")
_SIMPLE: Final = ("null", "boolean", *_NUMBERS, "string")


class _NotHere(Exception):
    """This plan does not know how to resolve two types."""


def resolved_values_of(
    writer: AvroSchema, reader: AvroSchema, target: type | None, make_row: MakeRow | None
) -> bulk.Values | None:
    """The decoder of a writer's bodies to values of the reader's schema. None: only Python can decode them."""
    if bulk.new_values is None:
        return None
    if any(each.shape.is_hollow or each.shape.levels > MAX_DEPTH for each in (writer, reader)):
        return None
    plan = _Resolution(writer, reader, make_row)
    try:
        root = plan.of_pair(writer.parsed, reader.parsed, Any if target is None else target)
    except (_NotHere, LocalError, RecursionError, OverflowError):
        return None
    return bulk.new_values(tuple(plan.nodes), root)


class _Resolution(Plan):
    def __init__(self, writer: AvroSchema, reader: AvroSchema, make_row: MakeRow | None) -> None:
        super().__init__(reader, make_row)
        self._writer = writer
        self._pairs: dict[tuple[str, str, Any, bool], int] = {}
        self._is_kept = True
        """Whether the value is in the result. Others are decoded, too, as by fastavro: they may be broken."""
        self._unread: dict[str, int] = {}

    def of_pair(self, written: Node, wanted: Node, hint: Any) -> int:
        """The index of the node that reads `written` as `wanted`. Raises `_NotHere`, or as `Plan.of`."""
        written, wanted = self._written(written), self._wanted(wanted)
        if isinstance(wanted, list):
            if isinstance(written, list):
                return self._add(Kind.UNION, [self._branch(each, wanted, hint) for each in written])
            return self._branch(written, wanted, hint)
        if isinstance(written, list):
            raise _NotHere
        kind, reads = type_name(written), type_name(wanted)
        if kind != reads:
            return self._promoted(written, wanted, hint)
        if kind == "null":
            return self._add(Kind.NULL)
        if kind in _NAMED and short_name(written) != short_name(wanted):
            raise _NotHere
        permitted, _ = choices(hint)
        if kind in _RECORDS:
            return self._records(written, wanted, class_for(wanted, permitted, wanted["name"]))
        hint = permitted[0] if len(permitted) == 1 else enum_of(permitted) if kind == "enum" else Any
        if kind == "array":
            is_tuple = getattr(hint, "__origin__", hint) is tuple
            item = self.of_pair(written["items"], wanted["items"], item_of(hint))
            return self._add(Kind.TUPLE if is_tuple else Kind.LIST, [item])
        if kind == "map":
            return self._add(Kind.MAP, [self.of_pair(written["values"], wanted["values"], value_of(hint))])
        if kind == "enum":
            return self._symbols(written, wanted, hint)
        if _of_leaf(written) != _of_leaf(wanted):
            raise _NotHere
        return self._leaf(wanted, kind, hint)

    def _branch(self, written: Node, wanted: list[Node], hint: Any) -> int:
        """As fastavro: the first branch of the reader's union that can take the value."""
        written, branches = self._written(written), [self._wanted(each) for each in wanted]
        kind = type_name(written)
        others = [each for each in branches if each != "null"]
        if self._is_kept and len(others) > 1 and not all(type_name(each) in _SIMPLE for each in others):
            raise _NotHere  # the branch that was written is not always the one that its value is converted as
        for each in branches:
            reads = type_name(each)
            if reads in _PROMOTED.get(kind, ()) or (kind in _NAMED and reads in _NAMED and each.get("aliases")):
                raise _NotHere
            if kind == reads and (kind not in _NAMED or short_name(written) == short_name(each)):
                return self.of_pair(written, each, hint_for(each, hint))
        raise _NotHere

    def _promoted(self, written: Node, wanted: Node, hint: Any) -> int:
        kind, reads = type_name(written), type_name(wanted)
        is_number = kind in _NUMBERS and reads in _PROMOTED.get(kind, ())
        if not is_number or any(_of_leaf(written)) or any(_of_leaf(wanted)):
            raise _NotHere
        permitted, _ = choices(hint)
        found = self._leaf(kind, kind, Any)
        convert = leaf_converter(wanted, permitted[0] if len(permitted) == 1 else Any, reads)
        for function in (float if reads in ("float", "double") else None, convert):
            if function is not None:
                found = self._add(Kind.CALL, [found], function)
        return found

    def _symbols(self, written: Node, wanted: Node, hint: Any) -> int:
        if not {*written["symbols"]} <= {*wanted["symbols"]}:
            raise _NotHere
        convert = leaf_converter(wanted, hint, "enum")
        return self._add(Kind.ENUM, argument=tuple(convert(each) if convert else each for each in written["symbols"]))

    def _records(self, written: Node, wanted: Node, cls: type | None) -> int:
        key = written["name"], wanted["name"], cls, self._is_kept
        if key in self._pairs:
            return self._pairs[key]
        index = self._pairs[key] = self._add(Kind.NULL)  # it can contain itself
        known = {field["name"]: field for field in wanted["fields"]}
        there = [field["name"] for field in written["fields"]]
        if any(alias in there for field in wanted["fields"] for alias in field.get("aliases", ())):
            raise _NotHere
        hints = dict.fromkeys(known, Any) if cls is None else fields_of_class(cls)
        kept = [name for name in hints if name in known]
        found = [name for name in there if name in kept]
        if cls is not None:
            found.sort(key=kept.index)
        added = [name for name in kept if name not in found]
        places = tuple(found.index(name) if name in found else -1 for name in there)
        parts = [
            self._skipped(field["type"])
            if field["name"] not in known
            else self.of_pair(field["type"], known[field["name"]]["type"], hints[field["name"]])
            if field["name"] in found
            else self._left_out_pair(field["type"], known[field["name"]]["type"])
            for field in written["fields"]
        ]
        for field in wanted["fields"]:
            if field["name"] not in there and "default" not in field:
                raise _NotHere  # fastavro says so for each body
        if not self._is_kept:
            self.nodes[index] = (int(Kind.RECORD), tuple(parts), tuple(there), ())
            return index
        defaults = tuple(self._default(known[name], hints[name]) for name in added)
        if cls is None:
            kind, argument = Kind.MADE, self._dict_maker(list(known), found, added, defaults)
        else:
            is_whole = kept == list(hints)
            is_row = is_whole and not added and is_named_tuple(cls) and is_plain_tuple(cls)
            kind = Kind.ROW if is_row else Kind.MADE
            make = record_maker(cls, kept, is_whole=is_whole)
            argument = cls if is_row else _with_defaults(make, kept, [*found, *added], defaults)
        self.nodes[index] = (int(kind), tuple(parts), argument, places)
        return index

    def _dict_maker(
        self, order: list[str], found: list[str], added: list[str], defaults: tuple[Any, ...]
    ) -> Callable[[tuple[Any, ...]], Any]:
        make_row = self._make_row
        names = [*found, *added]  # as fastavro: a dict has what was written first
        if make_row is None:
            return lambda values: dict(zip(names, values + defaults, strict=True))
        make = lambda values: make_row(dict(zip(order, values, strict=True)))  # noqa: E731
        return _with_defaults(make, order, names, defaults)

    def _default(self, field: Node, hint: Any) -> Any:
        """The converted default of a field, if it is immutable and of a simple type."""
        node, value = self._wanted(field["type"]), field["default"]
        if isinstance(node, list):
            if value is None and node[0] == "null":
                return None
            raise _NotHere
        kind = type_name(node)
        if kind not in _SIMPLE or any(_of_leaf(node)):
            raise _NotHere
        permitted, _ = choices(hint)
        convert = leaf_converter(node, permitted[0] if len(permitted) == 1 else Any, kind) if kind != "null" else None
        return value if convert is None else convert(value)

    def _left_out_pair(self, written: Node, wanted: Node) -> int:
        """The index of the node for a field that the class does not have, but the reader's schema does."""
        is_kept, self._is_kept = self._is_kept, False
        try:
            return self.of_pair(written, wanted, Any)
        finally:
            self._is_kept = is_kept

    def _skipped(self, node: Node) -> int:
        """The index of the node for a value that the reader's schema does not have: without logical types, as fastavro
        skips it."""
        node = self._written(node)
        if isinstance(node, list):
            return self._add(Kind.UNION, [self._skipped(each) for each in node])
        kind = type_name(node)
        if kind in _RECORDS:
            if node["name"] not in self._unread:
                index = self._unread[node["name"]] = self._add(Kind.NULL)
                parts = tuple(self._skipped(field["type"]) for field in node["fields"])
                self.nodes[index] = (int(Kind.RECORD), parts, tuple(field["name"] for field in node["fields"]), ())
            return self._unread[node["name"]]
        if kind == "array":
            return self._add(Kind.LIST, [self._skipped(node["items"])])
        if kind == "map":
            return self._add(Kind.MAP, [self._skipped(node["values"])])
        if kind == "enum":
            return self._add(Kind.ENUM, argument=tuple(node["symbols"]))
        if kind == "fixed":
            return self._add(Kind.FIXED, argument=node["size"])
        return self._leaf(kind, kind, Any)

    def _written(self, node: Node) -> Node:
        return inner(node, self._writer.resolve)

    def _wanted(self, node: Node) -> Node:
        return inner(node, self._schema.resolve)


def inner(node: Node, resolve: Callable[[Node], Node]) -> Node:
    """The type that a node names or wraps."""
    node = resolve(node)
    while isinstance(node, dict) and not isinstance(node["type"], str):
        node = resolve(node["type"])
    return node


def _with_defaults(
    make: Callable[[Sequence[Any]], Any], order: Sequence[str], names: Sequence[str], defaults: tuple[Any, ...]
) -> Callable[[tuple[Any, ...]], Any]:
    """`make` of values in this order, given those that were written; `names` are theirs and those of the defaults."""
    if list(order) == list(names):
        return (lambda values: make(values + defaults)) if defaults else make
    pick = itemgetter(*(names.index(name) for name in order))
    return lambda values: make(pick(values + defaults))


def type_name(node: Node) -> str:
    return str(node["type"] if isinstance(node, dict) else node)


def short_name(node: Node) -> str:
    return str(node["name"]).rpartition(".")[2]


def _of_leaf(node: Node) -> tuple[Any, ...]:
    return tuple(node.get(name) for name in _LEAF) if isinstance(node, dict) else (None,) * len(_LEAF)
