"""Bodies as JSON (RFC 8259): UTF-8, without NaN and infinity on either side, which other languages' parsers refuse.

In this package, `import json` imports the standard library's module: imports are absolute.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.model import Message, Record
from rmqio.serde.base import error_of_record, message_of, undecodable, unencodable
from rmqio.serde.fields import keys_of, names_of_keys, tag_of
from rmqio.serde.json_numbers import JsonEncoder
from rmqio.serde.json_parser import DECODER, DOUBLES, NotJson, parsed
from rmqio.serde.json_schema import JsonSchema
from rmqio.serde.typed_json.decoder import TypedDecoder
from rmqio.serde.typed_json.plan import Plan, plan_of

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
        `rmqio.serde.json_schema`). Needs `pip install 'rmqio[json-schema]'`.

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
