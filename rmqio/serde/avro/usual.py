"""The usual case of writing: an element that fastavro may be given as it is.

Whether it is so is asked of each element, so the question is compiled: one Python expression for a schema, made of
constants and of names of this module only. What it says no to is looked at closely by `checked`.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from rmqio.serde.avro.leaves import LOGICAL, BadValue, Check
from rmqio.serde.avro.nodes import Node
from rmqio.serde.avro.schema import AvroSchema

IsUsual = Callable[[Any], bool]

_PRIMITIVE: Final = {
    "null": "{0} is None",
    "boolean": "({0} is True or {0} is False)",
    "int": f"type({{0}}) is int and {-(1 << 31)} <= {{0}} <= {(1 << 31) - 1}",
    "long": f"type({{0}}) is int and {-(1 << 63)} <= {{0}} <= {(1 << 63) - 1}",
    "float": "type({0}) is float and -3e38 < {0} < 3e38",
    "double": "type({0}) is float",
    "string": "type({0}) is str and {0}.isascii()",
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
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
}


def usual(schema: AvroSchema) -> IsUsual | None:
    """None where there is no usual case: recursive schemas, unions of several types, fixed that are more than bytes."""
    return None if schema.is_recursive else _Expressions(schema).compiled(schema.parsed)


class _Expressions:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._numbers: Iterator[int] = itertools.count()
        self._known: dict[str, Any] = {}
        """What the expression calls and compares with."""

    def compiled(self, node: Node) -> IsUsual | None:
        expression = self.of(node, "value")
        if expression is None:
            return None
        made: IsUsual = eval(f"lambda value: {expression}", {"__builtins__": {}, **_BUILTINS, **self._known})
        return made

    def of(self, node: Node, name: str) -> str | None:
        """An expression of the variable `name`."""
        node = self._schema.resolve(node)
        if isinstance(node, list):
            return self._of_union(node, name)
        if isinstance(node, str):
            return _PRIMITIVE[node].format(name)
        kind, logical = node["type"], node.get("logicalType", "")
        if not isinstance(kind, str):
            return self.of(kind, name)
        if kind == "record":
            return self._of_record(node, name)
        if kind == "array":
            return self._of_all(node["items"], name, "list", f"{name}")
        if kind == "map":
            values = self._of_all(node["values"], name, "dict", f"{name}.values()")
            return values and f"{values} and all(map({self._keep(_is_text)}, {name}))"
        if kind == "enum":
            return f"type({name}) is str and {name} in {self._keep(frozenset(node['symbols']))}"
        if (kind, logical) in LOGICAL:
            if kind == "fixed" and logical != "decimal":
                return None  # it is not written as it is
            check = self._keep(_passes(LOGICAL[kind, logical](node)))
            return f"type({name}) is {self._keep(_EXACT[logical])} and {check}({name})"
        if kind == "fixed":
            return f"type({name}) is bytes and len({name}) == {node['size']}"
        return _PRIMITIVE[kind].format(name)

    def _of_record(self, node: Node, name: str) -> str | None:
        missing = self._keep(_MISSING)
        parts = [f"type({name}) is dict and len({name}) == {len(node['fields'])}"]
        for field in node["fields"]:
            part = f"v{next(self._numbers)}"
            inside = self.of(field["type"], part)
            if inside is None:
                return None
            taken = f"({part} := {name}.get({field['name']!r}, {missing}))"
            parts.append(f"{taken} is not {missing} and {inside}")
        return " and ".join(parts)

    def _of_union(self, branches: list[Node], name: str) -> str | None:
        others = [each for each in branches if each != "null"]
        if len(others) != 1:
            return None
        inside = self.of(others[0], name)
        if inside is None or len(others) == len(branches):
            return inside
        return f"({name} is None or {inside})"

    def _of_all(self, node: Node, name: str, kind: str, values: str) -> str | None:
        each = self.compiled(node)
        return None if each is None else f"type({name}) is {kind} and all(map({self._keep(each)}, {values}))"

    def _keep(self, thing: Any) -> str:
        name = f"k{next(self._numbers)}"
        self._known[name] = thing
        return name


_MISSING: Final = object()
_BUILTINS: Final = {each.__name__: each for each in (type, int, float, str, bytes, dict, list, len, all, map)}


def _is_text(value: Any) -> bool:
    return type(value) is str and value.isascii()


def _passes(check: Check) -> IsUsual:
    def passes(value: Any) -> bool:
        try:
            check(value)
        except BadValue:
            return False
        return True

    return passes
