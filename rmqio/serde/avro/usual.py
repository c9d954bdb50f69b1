"""The fast path of writing: an element that can be passed to fastavro unchanged, or once its records are dicts.

fastavro writes such an element exactly, or raises: numbers of more than 64 bits, lone surrogates, unknown symbols.

The test runs for each element, so it is compiled: Python functions for a schema and the classes of its records, built
only from constants and names of this module. `checked` handles the elements that fail the test.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from rmqio.serde.avro.nodes import LOGICAL, BadValue, Check, Node, children_of
from rmqio.serde.avro.schema import AvroSchema
from rmqio.serde.avro.types import is_named_tuple

Ready = Callable[[Any], Any]
"""Returns the value for fastavro to write, or `UNUSUAL`."""


class _Unusual:
    def __repr__(self) -> str:
        return "UNUSUAL"


UNUSUAL: Final = _Unusual()
_PRIMITIVE: Final = {
    "null": "{0} is None",
    "boolean": "({0} is True or {0} is False)",
    "int": f"type({{0}}) is int and {-(1 << 31)} <= {{0}} <= {(1 << 31) - 1}",
    "long": "type({0}) is int",
    "float": "type({0}) is float and -3e38 < {0} < 3e38",
    "double": "type({0}) is float",
    "string": "type({0}) is str",
    "bytes": "type({0}) is bytes",
}
_EXACT: Final = {
    "date": datetime.date,
    "time-millis": datetime.time,
    "time-micros": datetime.time,
    "timestamp-millis": datetime.datetime,
    "timestamp-micros": datetime.datetime,
    "local-timestamp-millis": datetime.datetime,
    "local-timestamp-micros": datetime.datetime,
    "uuid": uuid.UUID,
}
_BUILTINS: Final = {
    each.__name__: each for each in (type, int, float, str, bytes, dict, list, len, all, map, AttributeError, KeyError)
}


def usual(schema: AvroSchema) -> Ready | None:
    """None if there is no usual case: recursive schemas, unions of several types, fixed that are more than bytes."""
    if schema.is_recursive:
        return None
    try:
        return _Compiler(schema).ready(schema.parsed)
    except _NoUsualCase:
        return None


class _NoUsualCase(Exception):
    """A type has no usual case."""


class _Compiler:
    """Builds expressions of variables. The objects that they call and compare with are in `_known`."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._numbers: Iterator[int] = itertools.count()
        self._known: dict[str, Any] = {"UNUSUAL": UNUSUAL}
        # One per record type, compiled once, however many fields have this type.
        self._records: dict[str, Ready] = {}
        self._predicates: dict[str, str] = {}

    def ready(self, node: Node) -> Ready:
        """The function for values of one type. Raises `_NoUsualCase`."""
        node = self._schema.resolve(node)
        if _kind(node) == "record":
            if node["name"] not in self._records:
                self._records[node["name"]] = _Record(self, node).ready
            return self._records[node["name"]]
        if not self.has_records(node):
            return self.function(f"return value if {self._as_it_is(node, 'value')} else UNUSUAL")
        if isinstance(node, list):
            inside = self.ready(_only_branch(node))
            return lambda value: None if value is None else inside(value)
        return (
            _ready_items(self.ready(node["items"]))
            if node["type"] == "array"
            else _ready_values(self.ready(node["values"]))
        )

    def of_field(self, node: Node, name: str) -> str:
        """An expression for whether the variable `name` can be written. It sets the variable to the value to write."""
        node = self._schema.resolve(node)
        if not self.has_records(node):
            return self._as_it_is(node, name)
        return f"({name} := {self.keep(self.ready(node))}({name})) is not UNUSUAL"

    def function(self, *lines: str) -> Ready:
        """Compiles a function of `value`."""
        scope = {"__builtins__": {}, **_BUILTINS, **self._known}
        exec("\n    ".join(["def ready(value):", *lines]), scope)
        made: Ready = scope["ready"]
        return made

    def of_dict(self, fields: list[Node], yes: str, otherwise: str) -> list[str]:
        """Lines that return `yes` for a dict that can be written as it is, `otherwise` for one that lacks a field."""
        names = {field["name"]: self.name("v") for field in fields}
        tests = [f"({self._as_it_is(field['type'], names[field['name']])})" for field in fields]
        return [
            "if type(value) is dict:",
            "    try:",
            *[f"        {variable} = value[{name!r}]" for name, variable in names.items()],
            "        pass",
            f"    except KeyError: return {otherwise}",
            f"    if {' and '.join([f'len(value) == {len(names)}', *tests])}: return {yes}",
        ]

    def keep(self, thing: Any) -> str:
        """Store an object and return a name for it."""
        name = self.name("k")
        self._known[name] = thing
        return name

    def name(self, letter: str) -> str:
        """An unused name."""
        return f"{letter}{next(self._numbers)}"

    def has_records(self, node: Node) -> bool:
        """Whether values contain records, which may have to become dicts."""
        node = self._schema.resolve(node)
        return _kind(node) == "record" or any(map(self.has_records, children_of(node)))

    def _as_it_is(self, node: Node, name: str) -> str:
        """An expression for whether a variable can be written as it is, with dicts as records."""
        node = self._schema.resolve(node)
        kind = _kind(node)
        if isinstance(node, list):
            inside = self._as_it_is(_only_branch(node), name)
            return f"({name} is None or {inside})" if "null" in node else inside
        if isinstance(node, str):
            return _PRIMITIVE[node].format(name)
        logical = node.get("logicalType", "")
        if kind == "record":
            return f"{self._predicate(node)}({name})"
        if kind == "array":
            return f"type({name}) is list and all(map({self._predicate(node['items'])}, {name}))"
        if kind == "map":
            values = f"all(map({self._predicate(node['values'])}, {name}.values()))"
            return f"type({name}) is dict and {values}"
        if kind == "enum":
            return f"type({name}) is str"
        if (kind, logical) in LOGICAL:
            if kind == "fixed" and logical != "decimal":
                raise _NoUsualCase  # it is converted before it is written
            if logical == "decimal":
                return self._decimal(node, name)
            check = self.keep(_passes(LOGICAL[kind, logical](node)))
            return f"type({name}) is {self.keep(_EXACT[logical])} and {check}({name})"
        if kind == "fixed":
            return f"type({name}) is bytes and len({name}) == {node['size']}"
        return _PRIMITIVE[kind].format(name)

    def _decimal(self, node: Node, name: str) -> str:
        """A test for decimals. fastavro itself checks the digits after the point. It writes a fixed -0 as -2."""
        limit = decimal.Decimal(10) ** (node["precision"] - node.get("scale", 0))
        sound = f"{name}.is_finite() and {self.keep(-limit)} < {name} < {self.keep(limit)}"
        zero = f" and ({name} or not {name}.is_signed())" if node["type"] == "fixed" else ""
        return f"type({name}) is {self.keep(decimal.Decimal)} and {sound}{zero}"

    def _predicate(self, node: Node) -> str:
        """The name of a function that tests whether a value can be written as it is."""
        node = self._schema.resolve(node)
        if _kind(node) == "record":
            if node["name"] not in self._predicates:
                made = self.function(*self.of_dict(node["fields"], "True", "False"), "return False")
                self._predicates[node["name"]] = self.keep(made)
            return self._predicates[node["name"]]
        return self.keep(self.function(f"return {self._as_it_is(node, 'value')}"))


class _Record:
    """A function for dicts. For other classes, it calls one that is compiled for the first value of the class."""

    def __init__(self, compiler: _Compiler, node: Node) -> None:
        self._compiler, self._fields = compiler, node["fields"]
        self._names = [field["name"] for field in self._fields]
        self._by_class: dict[type, Ready] = {}
        other = f"return {compiler.keep(self._of_other)}(value)"
        self.ready = compiler.function(*compiler.of_dict(self._fields, "value", "UNUSUAL"), other)

    def _of_other(self, value: Any) -> Any:
        cls = type(value)
        ready = self._by_class.get(cls)
        if ready is None:
            ready = self._by_class[cls] = self._for(cls)
        return ready(value)

    def _for(self, cls: type) -> Ready:
        if cls is dict and any(map(self._compiler.has_records, (field["type"] for field in self._fields))):
            return self._made_of("value[{!r}]".format, f"len(value) == {len(self._names)}")
        if is_named_tuple(cls) and set(cls._fields) == set(self._names):  # type: ignore[attr-defined]
            places = {name: at for at, name in enumerate(cls._fields)}  # type: ignore[attr-defined]
            return self._made_of(lambda name: f"value[{places[name]}]")
        if dataclasses.is_dataclass(cls) and sorted(each.name for each in dataclasses.fields(cls)) == sorted(
            self._names
        ):
            return self._made_of("value.{}".format)
        if hasattr(cls, "as_dict"):  # beam.Row, whose fields are its attributes
            return self._made_of(
                "fields[{!r}]".format, f"len(fields) == {len(self._names)}", before="fields = value.__dict__"
            )
        return lambda value: UNUSUAL

    def _made_of(self, get: Callable[[str], str], *tests: str, before: str = "pass") -> Ready:
        """A function that creates a dict from a value with all fields."""
        compiler = self._compiler
        names = {name: compiler.name("v") for name in self._names}
        ready = [f"({compiler.of_field(field['type'], names[field['name']])})" for field in self._fields]
        made = ", ".join(f"{name!r}: {variable}" for name, variable in names.items())
        return compiler.function(
            "try:",
            f"    {before}",
            *[f"    {variable} = {get(name)}" for name, variable in names.items()],
            "except (KeyError, AttributeError): return UNUSUAL",
            f"return {{{made}}} if {' and '.join([*tests, *ready]) or True} else UNUSUAL",
        )


def _kind(node: Node) -> str:
    return str(node["type"]) if isinstance(node, dict) else "union" if isinstance(node, list) else node


def _only_branch(node: list[Node]) -> Node:
    others = [each for each in node if each != "null"]
    if len(others) != 1:
        raise _NoUsualCase
    return others[0]


def _ready_items(ready: Ready) -> Ready:
    def items(value: Any) -> Any:
        if type(value) is not list:
            return UNUSUAL
        made = list(map(ready, value))
        return UNUSUAL if UNUSUAL in made else made

    return items


def _ready_values(ready: Ready) -> Ready:
    def values(value: Any) -> Any:
        if type(value) is not dict:
            return UNUSUAL
        made = {key: ready(each) for key, each in value.items()}
        return UNUSUAL if UNUSUAL in made.values() else made

    return values


def _passes(check: Check) -> Callable[[Any], bool]:
    def passes(value: Any) -> bool:
        try:
            check(value)
        except BadValue:
            return False
        return True

    return passes
