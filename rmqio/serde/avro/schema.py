"""Avro schemas: loading, parsing, and refusing what is not supported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastavro.schema import SchemaParseException, UnknownType, fingerprint, parse_schema, to_parsing_canonical_form

from rmqio.errors import LocalError, reason
from rmqio.serde.avro.exact import set_defaults
from rmqio.serde.avro.nodes import Node, nodes_of
from rmqio.serde.logical_types import without_ignored

if TYPE_CHECKING:
    from rmqio.serde.registry import SchemaRegistry


# Whether values of a schema can be deep or large, although they have only a few bytes.

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class Shape:
    """The shape of a parsed schema, found in one pass: except within itself, a type is defined before it is named."""

    __slots__ = ("_empty", "_levels", "has_empty_items", "is_hollow", "is_recursive", "levels")

    def __init__(self, parsed: Node) -> None:
        self.is_recursive = False
        """Whether a value can contain one of the same type."""
        self.is_hollow = False
        """Whether a record has fields that take no bytes. Nested records with two such fields each double the value
        with each line of the schema, and it still takes no bytes."""
        self.has_empty_items = False
        """Whether an array has items that take no bytes, of which ten bytes can contain a billion."""
        self._levels: dict[str, int] = {}
        self._empty: set[str] = set()
        self.levels, _ = self._of(parsed)
        """The maximum nesting of records, arrays and maps, if the schema is not recursive."""

    def _of(self, node: Node) -> tuple[int, bool]:
        """The levels of a schema, and whether its values take no bytes."""
        if isinstance(node, str):
            return self._of_name(node)
        if isinstance(node, list):
            return max((self._of(each)[0] for each in node), default=0), False  # the branch's index takes a byte
        kind = node["type"]
        if not isinstance(kind, str):
            return self._of(kind)
        if kind in ("record", "error"):
            return self._of_record(node)
        if kind == "array":
            levels, is_empty = self._of(node["items"])
            self.has_empty_items |= is_empty
            return 1 + levels, False
        if kind == "map":
            return 1 + self._of(node["values"])[0], False
        is_empty = kind == "null" or (kind == "fixed" and node["size"] == 0)
        if "name" in node:
            self._set(node["name"], 0, is_empty)
        return 0, is_empty

    def _of_name(self, name: str) -> tuple[int, bool]:
        if name in self._levels:
            return self._levels[name], name in self._empty
        self.is_recursive |= name not in PRIMITIVES  # the name of an enclosing record, which is not finished
        return 0, name == "null"

    def _of_record(self, node: Node) -> tuple[int, bool]:
        found = [self._of(field["type"]) for field in node["fields"]]
        levels, is_empty = 1 + max((each for each, _ in found), default=0), all(empty for _, empty in found)
        self.is_hollow |= any(empty for _, empty in found)
        self._set(node["name"], levels, is_empty)
        return levels, is_empty

    def _set(self, name: str, levels: int, is_empty: bool) -> None:
        self._levels[name] = levels
        if is_empty:
            self._empty.add(name)


# Schemas whose named types are defined in one place, next to the root, and named everywhere else.
#
# fastavro finds the reader's type only if both sides name it or both define it. A field with a type that the writer
# names and the reader's union defines fails.


def by_name(root: Node) -> Node:
    """A new copy of the parsed schema for fastavro."""
    named = {node["name"]: node for node in nodes_of(root) if isinstance(node, dict) and "name" in node}
    definitions = {name: _parts_by_name(node) for name, node in named.items()}
    marks = {"__fastavro_parsed": True, "__named_schemas": definitions}
    if isinstance(root, list):
        return [{**_parts_by_name(each), **marks} if isinstance(each, dict) else each for each in root]
    return {**_parts_by_name(root), **marks} if isinstance(root, dict) else root


def _parts_by_name(node: Node) -> Node:
    """A copy of a dict whose parts are names."""
    made = {key: value for key, value in node.items() if not key.startswith("__")}
    if "fields" in made:
        made["fields"] = [{**field, "type": _reference(field["type"])} for field in made["fields"]]
    for part in ("items", "values"):
        if part in made:
            made[part] = _reference(made[part])
    if not isinstance(made["type"], str):
        made["type"] = _reference(made["type"])
    return made


def _reference(node: Node) -> Node:
    if isinstance(node, list):
        return list(map(_reference, node))
    if not isinstance(node, dict):
        return node
    return node["name"] if "name" in node else _parts_by_name(node)


_ENDING: Final = ".avsc"
MAX_PRECISION: Final = 10_000
"""Limit for decimals: the time that Python needs to create one grows with the square of the number of digits."""
_NAMED: Final = ("record", "error", "enum", "fixed")
_NO_PYTHON_TYPE: Final = frozenset(("timestamp-nanos", "local-timestamp-nanos", "time-nanos"))


class AvroSchema:
    """One parsed schema. Schemas are equal by their text, which is pickled.

    Args:
      is_writers: whether it is another writer's schema. Its defaults are not used, and types that Python does not have
        are accepted, because the reader may not need them.
      source: a dict or list as from JSON, JSON text, or the path of an `.avsc` file, which is read once, here.

    Raises `LocalError` if the source cannot be read, or is not a schema. Schemas with unsupported or harmful data are
    refused, too: nanoseconds, for which Python's standard library has no type, decimals of more than 10,000 digits, and
    arrays of items without bytes, of which a body of ten bytes can contain a billion.
    """

    __slots__ = ("names", "parsed", "shape", "text")

    def __init__(self, source: object, *, is_writers: bool = False) -> None:
        value, origin = _value_of(source)
        try:
            self.text: Final[str] = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            for node in nodes_of(value):  # fastavro accepts a record without fields
                _refuse_union_in_union(node)
            self.parsed: Final[Node] = parse_schema(_interned(without_ignored(value)))
        except (SchemaParseException, UnknownType, ValueError, TypeError, LookupError, AttributeError) as error:
            raise LocalError(f"{origin} is not an Avro schema: {_reason(error)}") from error
        except RecursionError as error:
            raise LocalError(f"{origin} is nested too deeply") from error
        self.names: Final[dict[str, Node]] = {
            node["name"]: node for node in nodes_of(self.parsed) if isinstance(node, dict) and "name" in node
        }
        for node in nodes_of(self.parsed):
            if is_writers and isinstance(node, dict) and node.get("logicalType") in _NO_PYTHON_TYPE:
                del node["logicalType"]
            _refuse(node, origin)
        self.shape: Final = Shape(self.parsed)
        if self.shape.has_empty_items:
            raise LocalError(
                f"{origin} has an array of items that take no bytes, of which ten bytes can contain a billion"
            )
        if not is_writers:
            set_defaults(self.parsed, self.resolve, origin)
        # fastavro marks only records as parsed. It would parse everything else again for each value, and find defaults
        # that have already become values. The copies have no marks, so that none contains itself.
        named = {
            name: {key: node[key] for key in node if not key.startswith("__")} for name, node in self.names.items()
        }
        for node in self.parsed if isinstance(self.parsed, list) else [self.parsed]:
            if isinstance(node, dict) and "__fastavro_parsed" not in node:
                node.update({"__fastavro_parsed": True, "__named_schemas": named})

    @property
    def name(self) -> str:
        """The full name of a record, enum or fixed; otherwise the type."""
        if isinstance(self.parsed, dict):
            return str(self.parsed.get("name", self.parsed["type"]))
        return "union" if isinstance(self.parsed, list) else str(self.parsed)

    @property
    def is_record(self) -> bool:
        return isinstance(self.parsed, dict) and self.parsed["type"] == "record"

    @property
    def fingerprint(self) -> bytes:
        """CRC-64-AVRO of the canonical form, little endian as in the single-object encoding."""
        return bytes.fromhex(fingerprint(to_parsing_canonical_form(self.parsed), "CRC-64-AVRO"))

    @property
    def is_recursive(self) -> bool:
        """Whether a value can contain one of the same type."""
        return self.shape.is_recursive

    def resolve(self, node: Node) -> Node:
        """The type of a name; anything else is returned unchanged."""
        return self.names.get(node, node) if isinstance(node, str) else node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        return AvroSchema, (json.loads(self.text),)

    def __repr__(self) -> str:
        return f"AvroSchema({self.name})"


def is_subject(source: str) -> bool:
    """Whether a text can only be the name of a registry's subject: neither a type, nor JSON, nor a file's path."""
    return source not in PRIMITIVES and not source.endswith(_ENDING) and not source.lstrip().startswith(("{", "[", '"'))


def schema_of(source: object, registry: SchemaRegistry | None) -> AvroSchema:
    """A schema, or with a registry the newest version of a subject. Raises `LocalError` and `SchemaRegistryError`."""
    if registry is not None and isinstance(source, str) and is_subject(source):
        return AvroSchema(registry.by_version(source).schema)
    return AvroSchema(source)


def _value_of(source: object) -> tuple[Any, str]:
    """A schema as of JSON, and what messages call it."""
    if isinstance(source, AvroSchema):
        return json.loads(source.text), repr(source)
    if isinstance(source, (dict, list)):
        # Through text, so that it has only JSON's types, and the caller can no longer change it.
        try:
            return json.loads(json.dumps(source)), "the given value"
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalError(f"the given schema cannot be JSON: {error}") from error
    if isinstance(source, str) and source in PRIMITIVES:
        return source, f"{source!r}"
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(_ENDING)):
        path = Path(source)
        try:
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise LocalError(f"the schema's file {path} cannot be read: {reason(error)}") from error
        return _json(text, str(path))
    if isinstance(source, str):
        return _json(source, "the given text")
    raise LocalError(
        f"a schema is a dict, a list, JSON text or the path of an {_ENDING} file, not {type(source).__name__}"
    )


def _refuse_union_in_union(node: Node) -> None:
    """The specification forbids such a union, and fastavro accepts some of them."""
    if isinstance(node, list):
        for number, branch in enumerate(node):
            while isinstance(branch, dict) and isinstance(branch.get("type"), dict):
                branch = branch["type"]
            if isinstance(branch, list) or (isinstance(branch, dict) and isinstance(branch.get("type"), list)):
                raise ValueError(f"branch {number} of a union is a union: put its types directly into the outer one")


def _refuse(node: Node, origin: str) -> None:
    if not isinstance(node, dict):
        return
    logical, size = node.get("logicalType"), node.get("size")
    if logical in _NO_PYTHON_TYPE:
        raise LocalError(
            f"{origin} has a {logical}: no type of Python's standard library holds nanoseconds. Leave the "
            "logicalType out of the schema that you give, to get the number"
        )
    if logical == "decimal" and node["precision"] > MAX_PRECISION:
        raise LocalError(f"{origin} has a decimal of {node['precision']} digits; at most are {MAX_PRECISION}")
    if node["type"] in _NAMED and node["name"] in PRIMITIVES:
        raise LocalError(f"{origin} is not an Avro schema: {node['name']!r} is a type of Avro's own")
    if node["type"] == "fixed" and (type(size) is not int or size < 0):
        raise LocalError(f"{origin} is not an Avro schema: the size of a fixed is {size!r:.40}")


def _interned(value: Any) -> Any:
    """The same value with interned strings, which makes fastavro's look-ups faster."""
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, list):
        return [_interned(each) for each in value]
    if isinstance(value, dict):
        return {sys.intern(name): _interned(each) for name, each in value.items()}
    return value


def _json(text: str, origin: str) -> tuple[Any, str]:
    try:
        return json.loads(text), origin
    except (ValueError, RecursionError) as error:
        raise LocalError(f"{origin} is neither JSON nor the path of an {_ENDING} file: {error}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, (LookupError, AttributeError)) else str(error)
