"""Bodies as JSON (RFC 8259): UTF-8, without NaN and infinity on either side, which other languages' parsers refuse.

In this package, `import json` imports the standard library's module: imports are absolute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from rmqio.errors import LocalError, reason
from rmqio.model import Message, Record
from rmqio.serde.base import error_of_record, keys_of, message_of, names_of_keys, tag_of, undecodable, unencodable
from rmqio.serde.json_exact import ExactDecoder
from rmqio.serde.json_types import Plan, plan_of
from rmqio.serde.strict_json import DECODER, DOUBLES, JsonEncoder, NotJson, children, has_digits, is_deeper_than, parsed

if TYPE_CHECKING:
    from rmqio.serde.json_msgspec import MsgspecDecoder


# JSON Schemas, with jsonschema-rs: `pip install 'rmqio[json-schema]'`. A schema imports the library when it is built.
#
# Violations are reported by place, never by content, because error outputs end up in logs.

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


# Decodes JSON bodies to a type: with msgspec if it is installed (`pip install 'rmqio[json]'`), or without.
#
# Both have the same results, and the errors are always those of `exact`.


class TypedDecoder:
    """Decodes bodies to the type of a plan."""

    __slots__ = ("exact", "fast", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        self.exact: Final = ExactDecoder(plan)
        self.fast: Final = _fast(plan)
        """None: msgspec is not installed, or the type contains itself."""

    def __call__(self, body: bytes) -> Any:
        """Raises `NotJson` if the body does not fit."""
        fast = self.fast
        if fast is not None and fast.is_usual(body):
            try:
                return fast.decode(body)
            except Exception:  # noqa: BLE001 - whatever it is, the next line says it; msgspec quotes the body
                pass
        return self.exact(body)

    def all(self, bodies: Sequence[bytes]) -> list[Any] | None:
        """The values of all bodies; None if one of them may not fit."""
        if self.fast is None or not self.fast.are_usual(bodies):
            return None
        try:
            return self.fast.decode_all(bodies)
        except Exception:  # noqa: BLE001 - as above
            return None


def _fast(plan: Plan) -> MsgspecDecoder | None:
    try:
        from rmqio.serde.json_msgspec import MsgspecDecoder
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        return None
    return None if plan.contains_itself() else MsgspecDecoder(plan)


SchemaSource = JsonSchema | dict[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class JsonDeserializer:
    """Parses the body as JSON: to dict, list, str, int, float, bool or None, or to values of a type.

    If an object repeats a name, the last value counts, as in most parsers. A number that no float holds, such as
    0.12345678901234567890, is the nearest float, and keeps all its digits: its `repr` has them, and `JsonSerializer`
    and `rmqio.connect` write them.

    Args:
      output_type: the type of the elements: a NamedTuple, dataclass or TypedDict, or any type that their fields can
        have. Values are checked against it and converted (see docs/serializers.md); fields that it does not have are
        left out. It is also the type hint for Beam. `Any`: JSON values as they are. With `pip install 'rmqio[json]'`,
        typed decoding is several times faster.
      schema: a JSON Schema that bodies must fit: a dict, JSON text, or the path of a `.json` file. `$schema` specifies
        the draft (2020-12 if it is missing); `format` is not asserted, and no `$ref` is fetched (see `JsonSchema` in
        `rmqio.serde.json`). Needs `pip install 'rmqio[json-schema]'`.

    Raises `LocalError` if the type has a field of a type that JSON is not decoded to, if the schema is not a JSON
    Schema, or its library is not installed.

    A call raises `SerdeError` for a body that is not UTF-8 or not JSON (including NaN and Infinity), for a number that
    does not fit a double, a whole number of more than 4,300 digits (Python's limit), and nesting deeper than Python's
    recursion limit; with a type, deeper than 200 levels. With a type, it also raises it for a body that does not fit,
    with the JSON Pointer of the value and what was expected; with a schema, with the JSON Pointers of the value and of
    the keyword.
    """

    output_type: Any = Any
    schema: SchemaSource | None = None
    _typed: TypedDecoder | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_any = self.output_type is Any or self.output_type is object
        self._set(_compiled(self.schema), None if is_any else plan_of(self.output_type))

    def _set(self, schema: JsonSchema | None, plan: Plan | None) -> None:
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "_typed", None if plan is None else TypedDecoder(plan))

    def __call__(self, record: Record) -> Any:
        try:
            if self._typed is not None and self.schema is None:
                return self._typed(record.body)
            value, text = parsed(record.body, DOUBLES, DECODER)
            if isinstance(self.schema, JsonSchema) and (why := self.schema.violation(value, text)):
                raise undecodable(record, why)  # without the library's error as its cause, which quotes the value
            return value if self._typed is None else self._typed(record.body)
        except NotJson as error:
            raise undecodable(record, str(error)) from error

    def many(self, records: Sequence[Record]) -> tuple[list[Any], dict[int, Exception]]:
        """The elements of the records that decode, in order, and the error of each other one by its position."""
        if self._typed is not None and self.schema is None:
            found = self._typed.all([record.body for record in records])
            if found is not None:
                return found, {}
        elements: list[Any] = []
        errors: dict[int, Exception] = {}
        for at, record in enumerate(records):
            try:
                elements.append(self(record))
            except Exception as error:  # noqa: BLE001  # it raises what no record caused
                errors[at] = error_of_record(error, self)
        return elements, errors

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self.output_type, self.schema, None if self._typed is None else self._typed.plan)


def _rebuilt(output_type: Any, schema: JsonSchema | None, plan: Plan | None) -> JsonDeserializer:
    """From the plan: a worker cannot evaluate the annotations of the main program's classes."""
    found = object.__new__(JsonDeserializer)
    object.__setattr__(found, "output_type", output_type)
    found._set(schema, plan)
    return found


@dataclass(frozen=True, slots=True)
class JsonSerializer:
    """Writes an element as JSON: compact, UTF-8, with unescaped characters.

    Args:
      deterministic: sort the names in objects, so that equal elements have equal bodies.
      key_fields: fields of the element (a dict) whose values become the message's keys, by which brokers and tools find
        it. The values are text without white space, or whole numbers; a missing field or None is refused.
      tag_field: the field that becomes the tag; if it is missing or None, the message has no tag.
      schema: a JSON Schema, as in `JsonDeserializer`. It is checked against the JSON that is sent, so a tuple is an
        array.

    Raises `LocalError` if the schema is not a JSON Schema, or its library is not installed.

    A call raises `SerdeError` for types that JSON does not have, NaN and infinity, circular references, lone
    surrogates, nesting deeper than Python's recursion limit, and elements that do not fit the schema. Tuples become
    arrays, and names that are numbers, booleans or None become text, as in the standard library. A number that was read
    from JSON keeps all its digits.
    """

    deterministic: bool = False
    key_fields: Sequence[str] = ()
    tag_field: str | None = None
    schema: SchemaSource | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_fields", names_of_keys(self.key_fields))
        object.__setattr__(self, "schema", _compiled(self.schema))

    def __call__(self, element: Any) -> Message:
        try:
            text = _ENCODERS[self.deterministic].encode(element)
            body = text.encode()
            why = self.schema.violation(DECODER.decode(text), text) if isinstance(self.schema, JsonSchema) else None
        except UnicodeEncodeError as error:
            raise unencodable(element, "a lone surrogate is not UTF-8 text") from error
        except RecursionError as error:
            raise unencodable(element, "nested too deeply for JSON") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise unencodable(element, _reason(error)) from error
        if why is not None:
            raise unencodable(element, why)
        if not self.key_fields and self.tag_field is None:
            return message_of(element, body)
        if not isinstance(element, dict):
            raise unencodable(element, "keys and tags are taken from the fields of a dict")
        return message_of(
            element,
            body,
            keys=keys_of(element, element, self.key_fields),
            tags=tag_of(element, element, self.tag_field),
        )


_ENCODERS: Final = {is_sorted: JsonEncoder(sort_keys=is_sorted) for is_sorted in (False, True)}


def _compiled(schema: SchemaSource | None) -> JsonSchema | None:
    return schema if schema is None or isinstance(schema, JsonSchema) else JsonSchema(schema)


def _reason(error: Exception) -> str:
    # Later versions of Python quote the value in the text. A value is content, so the text is not used.
    if isinstance(error, TypeError):
        return "a value or a name in it is of a type that JSON does not have, or names of mixed types cannot be sorted"
    if "ircular" in str(error):
        return "it contains itself"
    return "NaN, infinity or a whole number of too many digits is not JSON"
