"""Random Avro schemas.

Schemas are made as `Model`s. `schema_texts` returns the JSON of one, with names written in any way that Avro permits.
"""

from __future__ import annotations

import json
import string
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from tests.helpers.serde.avro_values import DEEPEST, VALUE, Draw, Model, Node, default_of

_FIELDS: Final = ("a", "_b", "C3", "type", "name", "default", "items", "camelCase", "snake_case", "d9")
_PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: Final = (
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
)


@st.composite
def schemas(draw: Draw, *, is_plain: bool = False) -> Model:
    """Draws schemas of all types and logical types. Plain ones name each type only once and have no defaults."""
    return _Builder(draw, is_plain, has_defaults=not is_plain).model()


@dataclass
class _Builder:
    draw: Draw
    is_plain: bool
    has_defaults: bool
    types: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """Records under construction, which may only be named where a value can end."""
    numbers: int = 0

    def model(self) -> Model:
        # A type without a namespace cannot be named from within a namespace, so all types have one or none has.
        self.namespaces = self.draw(st.sampled_from([("",), ("n", "n.m", "other")]))
        return Model(self.record(0) if self.one_of(*range(4)) > 0 else self.node(0), self.types)

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def node(self, depth: int, *, can_end: bool = False) -> Node:
        parts = ("array", "map", "union", "union", "record") if depth < DEEPEST else ()
        kind = self.one_of("primitive", "logical", "decimal", "enum", "fixed", "known", *parts)
        if kind == "known":
            known = [name for name in self.types if can_end or name not in self.open]
            return self.one_of(*known) if known else "string"
        if kind == "array":
            return {"type": "array", "items": self.node(depth + 1, can_end=True)}
        if kind == "map":
            return {"type": "map", "values": self.node(depth + 1, can_end=True)}
        made: Node = getattr(self, kind)(depth)
        return made

    def primitive(self, _: int) -> Node:
        return self.one_of(*_PRIMITIVES)

    def logical(self, _: int) -> Node:
        kind, name = self.one_of(*_LOGICAL, ("long", "no-such-type"))
        return {"type": kind, "logicalType": name}

    def decimal(self, _: int) -> Node:
        precision = self.draw(st.integers(1, 40))
        scale = self.draw(st.integers(0, precision))
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def enum(self, _: int) -> Node:
        symbols = self.draw(st.lists(st.sampled_from(string.ascii_letters), min_size=1, max_size=5, unique=True))
        more = {"default": self.one_of(*symbols)} if self.draw(st.booleans()) else {}
        return self.named({"type": "enum", "symbols": symbols, **more})

    def fixed(self, _: int) -> Node:
        kind = self.one_of("plain", "plain", "decimal", "uuid", "duration")
        if kind == "decimal":
            size = self.draw(st.integers(1, 12))
            most = len(str(2 ** (8 * size - 1) - 1)) - 1
            precision = self.draw(st.integers(1, most))
            more = {"logicalType": "decimal", "precision": precision, "scale": self.draw(st.integers(0, precision))}
            return self.named({"type": "fixed", "size": size, **more})
        sizes = {"uuid": 16, "duration": struct.calcsize("<III")}
        more = {"logicalType": kind} if kind in sizes else {}
        return self.named({"type": "fixed", "size": sizes.get(kind) or self.draw(st.integers(1, 5)), **more})

    def record(self, depth: int) -> Node:
        definition: dict[str, Any] = {"type": "record"}
        name = self.named(definition)
        self.open.add(name)
        names = self.draw(st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=4, unique=True))
        # The first field always takes bytes: neither a body nor the items of an array may be empty.
        kinds = [
            self.node(depth + 1),
            *("null" if self.one_of(*range(9)) == 8 else self.node(depth + 1) for _ in names),
        ]
        definition["fields"] = [self.field(*each) for each in zip(names, kinds, strict=False)]
        self.open.remove(name)
        return name

    def field(self, name: str, kind: Node) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": kind}
        if self.has_defaults and self.draw(st.booleans()) and not _mentions(kind, Model(kind, self.types), self.open):
            value, made["default"] = default_of(self.draw, kind, Model(kind, self.types))
            made[VALUE] = value
        if self.one_of(*range(6)) == 0:
            made |= {"aliases": [f"old_{name}"], "doc": 'one "of" many', "order": "descending"}
        return made

    def union(self, depth: int) -> Node:
        """Returns branches that Python types tell apart, or pairs of named ones: our writer uses the first match."""
        may_be_null = self.draw(st.booleans())
        makers: dict[str, Callable[[], list[Node]]] = {
            "boolean": lambda: ["boolean"],
            "whole": lambda: [self.one_of("int", "long")],
            "decimal": lambda: [self.decimal(depth)],
            "text": lambda: ["string"] if self.draw(st.booleans()) else [self.enum(depth), self.enum(depth)],
            "array": lambda: [{"type": "array", "items": self.node(depth + 1, can_end=True)}],
            "object": lambda: (
                [{"type": "map", "values": self.node(depth + 1, can_end=True)}]
                if self.draw(st.booleans())
                else self.some_records(depth, may_be_null)
            ),
            "float": lambda: [self.one_of("float", "double")],
        }
        if self.one_of(*range(3)) == 0:
            makers["whole"] = lambda: [{"type": "int", "logicalType": "date"}, self.one_of("long", self.instant())]
        if self.is_plain or self.one_of(*range(3)) == 0:  # a reader may confuse bytes with text
            makers["decimal"] = lambda: [self.fixed(depth)]
        families = self.draw(st.lists(st.sampled_from(list(makers)), min_size=1, max_size=3, unique=True))
        branches = [branch for family in makers if family in families for branch in makers[family]()]
        if may_be_null:
            # A default belongs to the first branch. For a record that contains itself, it would never end.
            is_within = any(isinstance(each, str) and each in self.open for each in branches)
            branches.insert(0 if is_within else self.one_of(0, len(branches)), "null")
        return branches

    def instant(self) -> Node:
        return {"type": "long", "logicalType": self.one_of("timestamp-micros", "local-timestamp-millis")}

    def some_records(self, depth: int, can_end: bool) -> list[Node]:
        if can_end and self.open and self.draw(st.booleans()):
            return [self.one_of(*sorted(self.open))]
        return [self.record(depth + 1) for _ in range(self.one_of(1, 2))]

    def named(self, definition: dict[str, Any]) -> str:
        self.numbers += 1
        name = _full(self.one_of(*self.namespaces), f"{self.one_of('T', '_t')}{self.numbers}")
        if self.one_of(*range(6)) == 0:
            definition["aliases"] = [f"Old{self.numbers}"]
        self.types[name] = definition
        return name


def _full(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _mentions(node: Node, model: Model, names: set[str], seen: frozenset[str] = frozenset()) -> bool:
    if isinstance(node, str):
        if node in names or node in seen or node not in model.types:
            return node in names
        return _mentions(model.types[node], model, names, seen | {node})
    return any(_mentions(each, model, names, seen) for each in _parts(node))


def _parts(node: Node) -> list[Node]:
    if isinstance(node, list):
        return node
    if isinstance(node, str):
        return []
    return [node[key] for key in ("items", "values") if key in node] + [each["type"] for each in node.get("fields", ())]


@st.composite
def schema_texts(draw: Draw, model: Model) -> str:
    """Draws the JSON of a schema, in which each type is defined where it first occurs."""
    return json.dumps(_Writer(draw, model).of(model.root, ""))


@dataclass
class _Writer:
    draw: Draw
    model: Model
    seen: set[str] = field(default_factory=set)

    def of(self, node: Node, enclosing: str) -> Any:
        if isinstance(node, list):
            return [self.of(each, enclosing) for each in node]
        if isinstance(node, str) and node not in self.model.types:
            ways = [node, {"type": node}, *([{"type": node, "avro.java.string": "String"}] if node == "string" else [])]
            return self.draw(st.sampled_from(ways)) if node != "null" else node
        if not isinstance(node, str):
            inside = {key: self.of(node[key], enclosing) for key in ("items", "values") if key in node}
            return {**node, **inside}
        namespace, _, name = node.rpartition(".")
        is_same = namespace == enclosing and self.draw(st.booleans())
        if node in self.seen:
            return name if is_same else node
        self.seen.add(node)
        definition = dict(self.model.types[node])
        if is_same:
            definition["name"] = name
        elif namespace and self.draw(st.booleans()):
            definition["name"] = node
        else:
            definition |= {"name": name, "namespace": namespace}
        if "fields" in definition:
            definition["fields"] = [
                {key: self.of(each[key], namespace) if key == "type" else each[key] for key in each if key != VALUE}
                for each in definition["fields"]
            ]
        return definition
