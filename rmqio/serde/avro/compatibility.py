"""Checks whether a reader's Avro schema can read data of another schema, by Avro 1.11's "Schema Resolution".

A path starts at the reader's type and uses the reader's names: `Order.lines[].price` is a field of an array's items,
`Order.prices{}` a map's values, and `Order.state{2}` branch 2, counted from 0, of the *writer's* union. A pair of named
types is compared once, so its differences are reported at the first place where the two meet.

Logical types. Decimals need the same precision and scale, as specified. The specification does not cover the others.
Here, two different ones (timestamp-millis and timestamp-micros, date and timestamp-millis) are incompatible, because a
reader of the bytes would be off by a factor. If only one side has a logical type, the underlying types decide, so that
one can be added; only a decimal cannot be text. Unknown and invalid logical types are ignored, as specified.

fastavro 1.13 differs from the rules as follows (schemas/test_compatibility_fastavro.py pins each).
`AvroDeserializer` corrects the first and the last two:
- it fails if the reader has a union with a named type that one side names and the other defines there: writer
  `"Address"`, reader `["null", {"type": "record", "name": "Address", ...}]`, or the other way round;
- it does not compare the kinds of named types. It therefore fails if a reader's union has, before the right branch, a
  type of another kind with the same unqualified name, and reads a fixed as an enum of that name;
- it matches an alias without a namespace with a writer's name in any namespace;
- it converts only by the *writer's* logical type, so a date read as a long is still a `datetime.date`;
- it does not check, convert or copy the defaults of missing fields: one of bytes is a `str`, and an array's is one list
  for all records.
Text is UTF-8, but bytes need not be: bytes read as a string can fail because of their content, which no schema shows.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rmqio.errors import LocalError
from rmqio.serde.logical_types import KNOWN, without_ignored


class Incompatibility(NamedTuple):
    """One difference that prevents reading."""

    path: str
    """The place, in the notation above."""
    reason: str


class Level(enum.StrEnum):
    """The required compatibility of a new version, in the terms of Confluent's registry (also in upper case)."""

    NONE = enum.auto()
    BACKWARD = enum.auto()
    """The new version can read data of the previous version."""
    BACKWARD_TRANSITIVE = enum.auto()
    """The new version can read data of all previous versions."""
    FORWARD = enum.auto()
    """The previous version can read data of the new one."""
    FORWARD_TRANSITIVE = enum.auto()
    FULL = enum.auto()
    """Both directions."""
    FULL_TRANSITIVE = enum.auto()

    @classmethod
    def _missing_(cls, value: object) -> Level | None:
        return cls.__members__.get(value) if isinstance(value, str) else None


class ParsedSchema(NamedTuple):
    """A schema in which every name is a full name."""

    schema: Any
    names: dict[str, Any]
    """The named types by full name."""

    @property
    def root(self) -> str:
        """The full name of the type; the kind of type if it has no name (union, array, string)."""
        kind = _kind(self.schema)
        return str(self.schema["name"]) if kind in _NAMED else kind


def parse(schema: Any) -> ParsedSchema:
    """The schema with full names; the argument is not changed.

    Raises `LocalError` if it is not an Avro schema, or if fastavro is not installed.
    """
    try:
        from fastavro.schema import parse_schema
    except ImportError as error:
        raise LocalError("Avro schemas need fastavro: pip install 'rmqio[avro]'") from error
    names: dict[str, Any] = {}
    try:
        parsed = parse_schema(without_ignored(schema), names)
        for named in names.values():
            _require_well_named(named)
    except LocalError:
        raise
    except Exception as error:  # fastavro raises KeyError and TypeError as well as its own errors
        raise LocalError(f"no Avro schema: {type(error).__name__}: {str(error)[:200]}") from error
    return ParsedSchema(parsed, names)


def _require_well_named(named: dict[str, Any]) -> None:
    """Checks what the comparison relies on and fastavro does not check."""
    fields = named.get("fields", [])
    names = [field["name"] for field in fields]
    if len(set(names)) < len(names):
        raise LocalError(f"no Avro schema: two fields of {named['name']} have the same name")
    for holder in [named, *fields]:
        aliases = holder.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise LocalError(f"no Avro schema: the aliases of {holder['name']} are not a list of names")


def check(
    new: Any, before: Sequence[Any], level: Level, *, versions: Sequence[int] | None = None
) -> list[Incompatibility]:
    """Why a new version is incompatible with the previous ones; empty if it is compatible.

    Args:
      new: the schema of the new version, as a JSON value.
      before: the previous schemas, oldest first.
      level: the required level; levels that are not transitive compare only with the last of `before`.
      versions: the version numbers of `before` and, last, of `new`, for the paths; 1, 2, 3 ... by default.

    A path has the form `v2 cannot read v1: Order.total`. Raises `LocalError` if a schema is not an Avro schema.
    """
    schemas = [*before, new]
    numbers = range(1, len(schemas) + 1) if versions is None else versions
    if len(numbers) != len(schemas):
        raise LocalError(f"versions has {len(numbers)} numbers for {len(schemas)} schemas; it needs one for each")
    direction, _, transitive = level.partition("_")
    olds = range(len(before)) if transitive else range(len(before))[-1:]
    found = []
    for old in olds:
        pairs = {"backward": [(-1, old)], "forward": [(old, -1)], "full": [(-1, old), (old, -1)]}.get(direction, [])
        for reader, writer in pairs:
            prefix = f"v{numbers[reader]} cannot read v{numbers[writer]}: "
            found += [
                Incompatibility(prefix + path, reason)
                for path, reason in find_incompatibilities(schemas[reader], schemas[writer])
            ]
    return found


def find_incompatibilities(reader: Any, writer: Any) -> list[Incompatibility]:
    """Why a reader with the schema `reader` cannot read data of `writer`; empty if it can.

    Both are JSON values (dict, list, str). Raises `LocalError` if one is not an Avro schema.
    """
    parsed_reader, parsed_writer = parse(reader), parse(writer)
    if reader == writer:
        # Not only faster: the rules would mistake one branch for another with the same unqualified name.
        return []
    comparison = _Comparison(parsed_reader.names, parsed_writer.names)
    comparison.resolve(parsed_reader.schema, parsed_writer.schema, parsed_reader.root.rpartition(".")[2])
    return comparison.found


_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED: Final = ("record", "enum", "fixed")
_INNER: Final = {"array": ("items", "[]"), "map": ("values", "{}")}
_INTEGER_BITS: Final = {"int": 32, "long": 64}


class _Comparison:
    """Compares a reader's and a writer's schema, and collects the incompatibilities."""

    def __init__(self, reader_names: dict[str, Any], writer_names: dict[str, Any]) -> None:
        self.found: list[Incompatibility] = []
        self._reader_names, self._writer_names = reader_names, writer_names
        self._seen: set[tuple[str, str]] = set()

    def resolve(self, reader: Any, writer: Any, path: str) -> None:
        """Add what prevents `reader` from reading `writer`. Both have full names; a name stands for its type."""
        if isinstance(writer, list):
            for number, branch in enumerate(writer):
                self.resolve(reader, branch, f"{path}{{{number}}}")
            return
        if isinstance(reader, list):
            match = next((branch for branch in reader if self._mismatch(branch, writer) is None), None)
            if match is None:
                branches = ", ".join(_words(self._reader_type(branch)) for branch in reader)
                self._add(path, f"{_words(self._writer_type(writer))} matches no branch of the reader's [{branches}]")
            else:
                self.resolve(match, writer, path)
            return
        reader, writer = self._reader_type(reader), self._writer_type(writer)
        kind = _kind(reader)
        if kind == _kind(writer) and kind in _INNER:
            key, suffix = _INNER[kind]
            self.resolve(reader[key], writer[key], path + suffix)
        elif reason := self._mismatch(reader, writer) or _logical_mismatch(reader, writer):
            self._add(path, reason)
        elif kind in _NAMED and (pair := (reader["name"], writer["name"])) not in self._seen:
            self._seen.add(pair)  # before its fields: a recursive type comes here again
            if kind == "record":
                self._resolve_fields(reader, writer, path)
            elif kind == "enum":
                self._resolve_symbols(reader, writer, path)

    def _resolve_fields(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        by_name = {field["name"]: field for field in reader["fields"]}
        by_alias = {alias: field for field in reader["fields"] for alias in field.get("aliases", [])}
        sources: dict[str, str] = {}
        for written in writer["fields"]:
            field = by_name.get(written["name"]) or by_alias.get(written["name"])
            if field is None:
                continue
            name, place = field["name"], f"{path}.{field['name']}"
            if name in sources:
                self._add(place, f"the writer's {sources[name]} and {written['name']} are both it, by name or alias")
                continue
            sources[name] = written["name"]
            self.resolve(field["type"], written["type"], place)
        for name, field in by_name.items():
            if name in sources:
                continue
            if "default" not in field:
                self._add(f"{path}.{name}", "the writer has no such field, and the reader no default for it")
            elif misfit := self._misfit(field["type"], field["default"]):
                self._add(f"{path}.{name}", f"the writer has no such field, and the reader's default {misfit}")

    def _resolve_symbols(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> None:
        missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
        if missing and "default" not in reader:
            self._add(path, f"the reader's enum has neither {', '.join(missing)} nor a default")

    def _mismatch(self, reader: Any, writer: Any) -> str | None:
        """Why the two do not "match" in the specification's sense, which selects the branch of a reader's union.

        This compares the items of arrays, but neither the fields of records nor symbols.
        """
        if isinstance(reader, list) or isinstance(writer, list):
            return None
        reader, writer = self._reader_type(reader), self._writer_type(writer)
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            if kind in _PROMOTIONS.get(written, ()):
                return None
        elif kind in _INNER:
            key, _ = _INNER[kind]
            return self._mismatch(reader[key], writer[key])
        elif kind not in _NAMED or _is_same_name(reader, writer):
            if kind != "fixed" or reader["size"] == writer["size"]:
                return None
            return f"the reader's {_words(reader)} has {reader['size']} bytes, the writer's {writer['size']}"
        return f"the reader has {_words(reader)}, the writer {_words(writer)}"

    def _misfit(self, schema: Any, default: Any) -> str | None:
        """Why a default does not have the type; None if it has. A record's default can omit fields with defaults."""
        if isinstance(schema, list):
            misfit = self._misfit(schema[0], default) if schema else "has no type"
            return f"{misfit}, the first of its union" if misfit else None  # as Java 1.11; later ones take any branch
        schema = self._reader_type(schema)
        kind = _kind(schema)
        if kind == "array" and isinstance(default, list):
            return next(filter(None, (self._misfit(schema["items"], value) for value in default)), None)
        if kind == "map" and isinstance(default, dict):
            return next(filter(None, (self._misfit(schema["values"], value) for value in default.values())), None)
        if kind == "record" and isinstance(default, dict):
            for field in schema["fields"]:
                name = field["name"]
                if name not in default and "default" not in field:
                    return f"lacks the field {name} of {_words(schema)}"
                if name in default and (misfit := self._misfit(field["type"], default[name])):
                    return misfit
            return None
        return None if _is_simple_default(schema, default) else f"{_json(default)} is not valid for {_words(schema)}"

    def _reader_type(self, schema: Any) -> Any:
        return self._reader_names.get(schema, schema) if isinstance(schema, str) else schema

    def _writer_type(self, schema: Any) -> Any:
        return self._writer_names.get(schema, schema) if isinstance(schema, str) else schema

    def _add(self, path: str, reason: str) -> None:
        self.found.append(Incompatibility(path, reason))


def _kind(schema: Any) -> str:
    kind = "union" if isinstance(schema, list) else schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def _words(schema: Any) -> str:
    kind = _kind(schema)
    return f"{kind} {schema['name']}" if kind in _NAMED else kind


def _is_same_name(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    """Compares by the unqualified name, as specified (Java compares some full names), or by an alias.

    An alias without a namespace is in the reader's namespace.
    """
    namespace, dot, name = reader["name"].rpartition(".")
    aliases = (alias if "." in alias else namespace + dot + alias for alias in reader.get("aliases", []))
    return writer["name"].rpartition(".")[2] == name or writer["name"] in aliases


def _logical(schema: Any) -> str | None:
    """The logical type with its parameters; None if there is none that the specification knows."""
    name = schema.get("logicalType") if isinstance(schema, dict) else None
    if name == "decimal":
        return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
    return name if name in KNOWN else None


def _logical_mismatch(reader: Any, writer: Any) -> str | None:
    read, written = _logical(reader), _logical(writer)
    if read and written:
        return None if read == written else f"the reader has {read}, the writer {written}"
    # fastavro and Java would return a decimal's bytes as text, or read text as a number.
    is_text = "string" in (_kind(reader), _kind(writer))
    if is_text and (read or written or "").startswith("decimal"):
        return f"the reader has {read or _words(reader)}, the writer {written or _words(writer)}"
    return None


def _is_simple_default(schema: Any, default: Any) -> bool:
    kind = _kind(schema)
    if kind == "null":
        return default is None
    if kind == "boolean" or isinstance(default, bool):
        return kind == "boolean" and isinstance(default, bool)
    if kind in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[kind] - 1)
        return isinstance(default, int) and -limit <= default < limit
    if kind in ("float", "double"):
        return isinstance(default, (int, float))
    if not isinstance(default, str):
        return False
    if kind in ("bytes", "fixed"):  # one character for each byte
        is_bytes = all(ord(character) < 256 for character in default)
        return is_bytes and (kind == "bytes" or len(default) == schema["size"])
    return kind == "string" or (kind == "enum" and default in schema["symbols"])


def _json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
