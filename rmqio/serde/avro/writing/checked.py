"""Checks an element against a schema, and prepares it for fastavro.

fastavro itself writes 1.5 as the int 1, 2**40 as an int that Java cannot read, "no" as the boolean true, and 1e300 as
the float infinity, and drops what a date or a time of milliseconds cannot hold. These checks prevent that: an element
is written exactly, or refused with the name of the invalid field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rmqio.serde.avro.schemas.leaves import LOGICAL, PRIMITIVE, BadValue, Check, enum_of, fixed_of, type_of
from rmqio.serde.avro.schemas.nodes import Node
from rmqio.serde.avro.schemas.schema import AvroSchema
from rmqio.serde.avro.schemas.types import is_record_class


def checker(schema: AvroSchema) -> Check:
    """The check for elements of a schema: dicts, NamedTuples, dataclasses and `beam.Row`s."""
    check = _Checkers(schema).of(schema.parsed)

    def checked(element: Any) -> Any:
        try:
            return check(element)
        except BadValue as error:
            raise error.within(schema.name) from None
        except RecursionError:
            raise BadValue("nested too deeply, or contains itself").within(schema.name) from None

    return checked


class _Checkers:
    """One check for each type. That of a named type is created once, because it can contain itself."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._named: dict[str, Check] = {}

    def of(self, node: Node) -> Check:
        if isinstance(node, str) and node in self._schema.names:
            return self._reference(node)
        if isinstance(node, list):
            return _union(node, [self.of(branch) for branch in node], self._schema)
        if isinstance(node, str):
            return PRIMITIVE[node]
        kind = node["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        if "name" in node:
            self._named[node["name"]] = made = self._of_named(node, kind)
            return made
        if kind == "array":
            return _array(self.of(node["items"]))
        if kind == "map":
            return _map(self.of(node["values"]))
        logical = LOGICAL.get((kind, node.get("logicalType", "")))
        return logical(node) if logical is not None else PRIMITIVE[kind]

    def _of_named(self, node: Node, kind: str) -> Check:
        if kind == "enum":
            return enum_of(frozenset(node["symbols"]))
        if kind == "fixed":
            logical = LOGICAL.get((kind, node.get("logicalType", "")))
            return logical(node) if logical is not None else fixed_of(node["size"])
        fields = node["fields"]
        return _record(
            [(field["name"], self.of(field["type"])) for field in fields],
            {field["name"]: field["default"] for field in fields if "default" in field},
        )

    def _reference(self, name: str) -> Check:
        named = self._named

        def refer(value: Any) -> Any:
            return named[name](value)

        return named.get(name, refer)


# ---- what has parts -------------------------------------------------------------------------------------------------


def fields_of(value: Any) -> Mapping[str, Any]:
    """A record's fields by name. Raises `BadValue`."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "as_dict"):  # beam.Row
        found: Mapping[str, Any] = value.as_dict()
        return found
    raise BadValue(f"{type_of(value)} is not a record: a dict, a NamedTuple, a dataclass or a beam.Row")


def _record(fields: list[tuple[str, Check]], defaults: dict[str, Any]) -> Check:
    names = {name for name, _ in fields}

    def check(value: Any) -> Any:
        given = value if type(value) is dict else fields_of(value)
        made = {}
        for name, check_field in fields:
            if name not in given:  # a look-up could create one, as in a defaultdict
                if name not in defaults:
                    raise BadValue("is missing, and has no default").within(f".{name}")
                continue
            try:
                made[name] = check_field(given[name])
            except BadValue as error:
                raise error.within(f".{name}") from None
        if len(made) != len(given) and (unknown := [each for each in given if each not in names]):
            raise BadValue(f"has fields that the schema does not have: {', '.join(map(str, unknown))}")
        return made

    return check


def _array(check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__len__"):
            raise BadValue(f"{type_of(value)} is not an array: a list or a tuple")
        made = []
        for at, item in enumerate(value):
            try:
                made.append(check_item(item))
            except BadValue as error:
                raise error.within(f"[{at}]") from None
        return made

    return check


def _map(check_value: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise BadValue(f"{type_of(value)} is not a map: a dict with text as keys")
        made = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise BadValue(f"a key is {type_of(key)}, not text")
            try:
                made[key] = check_value(each)
            except BadValue as error:
                raise error.within("[]") from None
        return made

    return check


def _union(branches: list[Node], checks: list[Check], schema: AvroSchema) -> Check:
    """Returns the name of the first branch that accepts a value: fastavro would guess again, without inner names.

    A class with the name of a branch selects that branch.
    """
    found = [(_name(schema.resolve(branch)), check) for branch, check in zip(branches, checks, strict=True)]
    # A float has fewer digits than a double.
    others = sorted((each for each in found if each[0] != "null"), key=lambda each: each[0] == "float")
    named = {name: check for name, check in found if name in schema.names}
    short = [name.rpartition(".")[2] for name in named]
    by_class = {each: (name, named[name]) for name, each in zip(named, short, strict=True) if short.count(each) == 1}
    may_be_none = len(others) < len(branches)
    kinds = ", ".join(map(_called, map(schema.resolve, branches)))

    def check(value: Any) -> Any:
        if value is None and may_be_none:
            return None
        if type(value) is tuple and len(value) == 2 and value[0] in named:
            return value[0], named[value[0]](value[1])
        if len(others) == 1:
            name, check_other = others[0]
            return name, check_other(value)
        if (own := by_class.get(type(value).__name__)) is not None and is_record_class(type(value)):
            return own[0], own[1](value)
        for name, check_other in others:
            try:
                return name, check_other(value)
            except BadValue:
                continue
        raise BadValue(f"{type_of(value)} fits no branch of the union of {kinds}")

    return check


def _name(node: Node) -> str:
    """The name by which fastavro identifies a branch."""
    return str(node.get("name", node["type"]) if isinstance(node, dict) else node)


def _called(node: Node) -> str:
    return str(node.get("name", node["type"])) if isinstance(node, dict) else str(node)
