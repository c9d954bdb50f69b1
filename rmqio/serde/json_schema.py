"""JSON Schemas, with jsonschema-rs: `pip install 'rmqio[json-schema]'`. A schema imports the library when it is built.

Violations are reported by place, never by content, because error outputs end up in logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rmqio.errors import LocalError, reason
from rmqio.serde.json_numbers import has_digits
from rmqio.serde.json_parser import children, is_deeper_than

_ENDING: Final = ".json"
# The library recurses on the C stack without its own limit: 30,000 levels crash the process.
MAX_DEPTH: Final = 1_000
_LONGEST: Final = 200


class JsonSchema:
    """One JSON Schema, checked and compiled. Schemas are equal by their text with sorted names, which is pickled.

    `$schema` specifies the draft: 4, 6, 7, 2019-09 or 2020-12, which is the default. In every draft, `format` is an
    annotation and is not asserted, as in 2020-12. `contentEncoding` and `contentMediaType` are asserted only in 6 and
    7. Regular expressions are JavaScript's; one that backtracks a million times counts as not matched.

    `$ref` can refer to places in the schema itself, or to a draft's own schema. Nothing is fetched from the network or
    from other files.

    Args:
      source: a dict as from JSON, JSON text, or the path of a `.json` file, which is read once, here.

    Raises `LocalError` if the source cannot be read, is not a schema, or refers to elsewhere, or if jsonschema-rs is
    not installed.
    """

    __slots__ = ("_library", "_names", "_validate", "name", "text")

    def __init__(self, source: object) -> None:
        self._library: Final = _import()
        value, origin = _value_of(source)
        try:
            self.text: Final = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
            # offline: without it the library fetches what "$ref" names.
            self._validate: Final = self._library.validator_for(value, offline=True, validate_formats=False).validate
        except self._library.ValidationError as error:
            raise LocalError(f"{origin} is not a valid JSON Schema: {_invalid(error)}") from error
        except (ValueError, RecursionError) as error:  # a lone surrogate, or the library's limit on a schema's nesting
            raise LocalError(f"{origin} is not a JSON Schema that can be compiled: {error}") from error
        title = next((value[key] for key in ("$id", "title") if isinstance(value, dict) and key in value), None)
        self.name: Final = _short(title) if title else f"{len(self.text)} characters"
        self._names: Final = frozenset(_names_in(value))

    def violation(self, value: Any, text: str) -> str | None:
        """Return the path of a value's violation, and the keyword; None if it fits. Quotes nothing of the value.

        Args:
          value: as Python's parser returns it.
          text: the text that it was parsed from.
        """
        if is_deeper_than(MAX_DEPTH, value, text):
            return f"nested deeper than {MAX_DEPTH} levels, which is too deep for a check against the JSON Schema"
        if has_digits(value):
            value = json.loads(text)  # the library knows no other numbers than doubles
        try:
            self._validate(value)
        except self._library.ValidationError as error:
            return self._told(error)
        except UnicodeEncodeError:
            return "it contains a lone surrogate, which cannot be checked against the JSON Schema"
        except ValueError:  # e.g. the library does not compare values that are nested deeper than 255 levels
            return "nested too deeply for a check against the JSON Schema"
        return None

    def _told(self, error: Any) -> str:
        # A name that is not in the schema comes from the sender, so it is content.
        path = (each if isinstance(each, int) or each in self._names else "*" for each in error.instance_path)
        where, rule = _pointer(path) or "the value", _pointer(error.schema_path) or "false"
        missing = f": {error.kind.property!r} is missing" if error.kind.name == "required" else ""
        return f"{where} does not fit {rule} of the JSON Schema{missing}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        return JsonSchema, (self.text,)  # the library's validators cannot be pickled

    def __repr__(self) -> str:
        return f"JsonSchema({self.name})"


def _import() -> ModuleType:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise LocalError("JSON Schemas need jsonschema-rs: pip install 'rmqio[json-schema]'") from error
    return jsonschema_rs


def _value_of(source: object) -> tuple[Any, str]:
    """A schema as JSON values, and its name in messages."""
    if isinstance(source, dict):
        # Through text, so that it has only JSON's types, and the caller can no longer change it.
        try:
            return json.loads(json.dumps(source, allow_nan=False)), "the given dict"
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalError(f"the given JSON Schema cannot be converted to JSON: {error}") from error
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(_ENDING)):
        path = Path(source)
        try:
            return _parsed(path.read_text("utf-8-sig"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise LocalError(f"the JSON Schema's file {path} cannot be read: {reason(error)}") from error
    if isinstance(source, str):
        return _parsed(source, "the given text")
    raise LocalError(f"a JSON Schema is a dict, JSON text or the path of a {_ENDING} file, not {type(source).__name__}")


def _parsed(text: str, origin: str) -> tuple[Any, str]:
    try:
        return json.loads(text), origin
    except (ValueError, RecursionError) as error:
        raise LocalError(f"{origin} is neither JSON nor the path of a {_ENDING} file: {error}") from error


def _invalid(error: Any) -> str:
    """Return the error in a schema, and its path. A schema is configuration, so it can be quoted."""
    if error.kind.name == "$ref":
        return f"{_short(error.message)}; nothing is fetched: a $ref refers to the schema itself, $schema to a draft"
    return f"at {_pointer(error.instance_path) or 'its root'}: {_short(error.message)}"


def _names_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema
    for value in children(schema):
        yield from _names_in(value)


def _pointer(path: Iterable[str | int]) -> str:
    """A JSON Pointer (RFC 6901)."""
    return _short("".join(f"/{str(each).replace('~', '~0').replace('/', '~1')}" for each in path))


def _short(text: object) -> str:
    text = str(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
