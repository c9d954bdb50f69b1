"""JSON bodies: one object a message, as Flink's format `json` reads and writes them, alone or behind a schema's id."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from rmqio.sql import values
from rmqio.sql.catalog.columns import JsonSchemaColumns
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import base, json_values, texts
from rmqio.sql.formats.base import CONVERSIONS, Convert, Fields, RowFailure, bounded, reason_of
from rmqio.sql.formats.json_values import Literal, Part, converter, kind_of
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import ValueFailure

_ENOUGH: Final = 8
"""So many values of another type than usual make a column one that is decoded without a check."""


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """The options of the format.

    Attributes:
      separator: between the date and the time of a timestamp that is written. Both are read.
      fails_if_missing: whether a missing field is a failure, and not NULL.
      leaves_nulls_out: whether fields with NULL are not written.
      null_keys: what becomes of NULL as a key of a map that is written: FAIL, DROP or LITERAL.
      null_key: the name of such a key.
    """

    separator: str = " "
    fails_if_missing: bool = False
    leaves_nulls_out: bool = False
    null_keys: str = "FAIL"
    null_key: str = "null"

    @staticmethod
    def of(options: FormatOptions) -> JsonOptions:
        """Returns the options of a table. Raises `Refusal`."""
        options.is_true("json_plain")  # a DECIMAL is always a plain number
        return JsonOptions(
            "T" if options.one_of("json_times", ("SQL", "ISO-8601"), "SQL") == "ISO-8601" else " ",
            options.is_true("json_fail_on_missing"),
            options.is_true("json_no_nulls"),
            options.one_of("json_null_keys", ("FAIL", "DROP", "LITERAL"), "FAIL"),
            options.text("json_null_key", "null"),
        )


DEFAULTS: Final = JsonOptions()


class JsonDecoder:
    """See `formats.base.Decoder`."""

    def __init__(self, fields: Fields, options: JsonOptions = DEFAULTS) -> None:
        self._fields, self._fails_if_missing = fields, options.fails_if_missing
        self._exact = [converter(each.type, options.fails_if_missing) for each in fields]
        self._usual = [_usual_types(each.type.kind) for each in fields]
        self._unusual = [0] * len(fields)
        # For columns that msgspec does not check: the attribute, the type that needs no conversion, the conversion.
        self._widened: list[tuple[str, type | None, Convert]] = [
            (f"c{position}", Literal, _require)
            for position, each in enumerate(fields)
            if each.type.kind == "DECIMAL" and not each.type.is_nullable
        ]
        self.columns = [f"{{}}.c{position}" for position in range(len(fields))]
        try:
            self._parts = [json_values.part(each.type, options.fails_if_missing) for each in fields]
            self._decode = json_values.row_decoder(fields, self._parts, options.fails_if_missing)
        except ValueError:  # a name with quotes, backslashes or control characters
            self._parts = [Part(None, None) for _ in fields]
            self._decode = _refuse
        self.converters = [each.convert for each in self._parts]
        self._run = self._widely if self._widened else self._decode

    def fast(self, body: bytes) -> Any:
        """Decodes a usual body. Raises anything for another one."""
        return self._run(body)

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        found = _parsed(body)
        row = []
        for position, each in enumerate(self._fields):
            given = found.get(each.name)
            try:
                value = None if given is None else self._exact[position](given)
            except CONVERSIONS as error:
                raise RowFailure(reason_of(error), each.name) from None
            if value is None:
                self._check_null(position, given, is_missing=each.name not in found)
            elif (usual := self._usual[position]) and type(given) not in usual:
                self._note(position)
            row.append(value)
        return tuple(row)

    def _check_null(self, position: int, given: Any, is_missing: bool) -> None:
        name, kind = self._fields[position].name, self._fields[position].type
        if is_missing and self._fails_if_missing:
            raise RowFailure("the field is missing", name)
        if kind.is_nullable:
            return
        if given is not None:
            raise RowFailure(f"it is NOT NULL, but {bounded(str(given))} does not fit into {kind.text}", name)
        raise RowFailure(f"it is NOT NULL, but the field is {'missing' if is_missing else 'null'}", name)

    def _note(self, position: int) -> None:
        """Counts a value of another type than usual, and after some of them decodes the column without a check."""
        self._unusual[position] += 1
        if self._unusual[position] != _ENOUGH or self._decode is _refuse:
            return
        kind, convert = self._fields[position].type, self._exact[position]
        usual = {"VARCHAR": str, "BOOLEAN": bool}.get(kind.kind)
        make = _or_null(convert) if kind.is_nullable else lambda value: convert(_require(value))
        self._widened.append((f"c{position}", usual, make))
        self._parts[position] = Part(Any, None)
        self._decode = json_values.row_decoder(self._fields, self._parts, self._fails_if_missing)
        self._run = self._widely

    def _widely(self, body: bytes) -> Any:
        row = self._decode(body)
        for name, usual, convert in self._widened:
            value = getattr(row, name)
            if type(value) is not usual:
                setattr(row, name, convert(value))
        return row


def _usual_types(kind: str) -> tuple[type, ...]:
    """The types of values for which the checked struct is enough; none: it is the only one."""
    if kind in BITS:
        return (int,)
    return {"VARCHAR": (str,), "BOOLEAN": (bool,), "DOUBLE": (int, Literal), "FLOAT": (int, Literal)}.get(kind, ())


def _require(value: Any) -> Any:
    if value is None:
        raise ValueError
    return value


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _refuse(body: bytes) -> Any:
    raise ValueError


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode(json.detect_encoding(body))
        found = _loaded(text)
    except (ValueError, RecursionError) as error:
        raise RowFailure(f"the body is not JSON: {reason_of(error)}") from None
    if type(found) is not dict:
        raise RowFailure(f"the body is not a JSON object, but {kind_of(found)}")
    return found


def _loaded(text: str) -> Any:
    how: dict[str, Any] = {"strict": False, "parse_float": Literal, "parse_constant": _refuse_constant}
    try:
        return json.loads(text, **how)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts, which may not be needed
        return json.loads(text, **how, parse_int=_whole)


def _whole(text: str) -> int | Literal:
    try:
        return int(text)
    except ValueError:
        return Literal(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


# JSON bodies: one object a message, as Flink's format `json` writes them.
#
# Nothing is lost: a DECIMAL is a number with all its digits, NaN and Infinity are strings, BYTES are base64, keys of
# maps are their text. Zeros at the end of a second's fraction are left out.


class JsonEncoder:
    """See `formats.base.Encoder`."""

    def __init__(self, fields: Fields, options: JsonOptions = DEFAULTS) -> None:
        self._writers = [writer(each.type, options) for each in fields]
        self.constants: dict[str, Any] = {
            "json_row": _row_maker([each.name for each in fields], options),
            "json_encode": msgspec.json.Encoder(decimal_format="number").encode,
            **{f"json_{i}": each for i, each in enumerate(self._writers) if each is not None},
        }

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        written = [
            name if write is None else f"(None if {name} is None else json_{i}({name}))"
            for i, (name, write) in enumerate(zip(names, self._writers, strict=True))
        ]
        return f"json_encode(json_row({', '.join(written)}))"


def _row_maker(names: Sequence[str], options: JsonOptions) -> Callable[..., Any]:
    attributes = [f"c{position}" for position in range(len(names))]
    members: list[Any] = [(each, Any, None) for each in attributes]
    try:
        return msgspec.defstruct(
            "Out", members, rename=dict(zip(attributes, names, strict=True)), omit_defaults=options.leaves_nulls_out,
            gc=False,
        )  # fmt: skip
    except ValueError:  # a name with quotes, backslashes or control characters
        return lambda *row: _object(names, row, options)


def _object(names: Sequence[str], row: Sequence[Any], options: JsonOptions) -> dict[str, Any]:
    pairs = zip(names, row, strict=True)
    return {name: value for name, value in pairs if value is not None or not options.leaves_nulls_out}


def writer(kind: SqlType, options: JsonOptions) -> Convert | None:
    """Returns what makes a value of JSON of a SQL value; None: it is one."""
    match kind.kind:
        case "DOUBLE":
            return _finite
        case "FLOAT":
            return lambda number: _finite(texts.shortest(number))
        case "DECIMAL":
            return _plain
        case "DATE" | "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
            return texts.time_writer(kind, options.separator)
        case "ARRAY":
            each = writer(kind.elements[0], options)
            return None if each is None else lambda items: [None if item is None else each(item) for item in items]
        case "MAP":
            return _map(kind, options)
        case "ROW":
            writers = [writer(each, options) or _same for each in kind.elements]
            return lambda row: _object(
                kind.names,
                [None if value is None else write(value) for write, value in zip(writers, row, strict=True)],
                options,
            )
    return None


def _map(kind: SqlType, options: JsonOptions) -> Convert:
    write_key = texts.writer(kind.elements[0]) or _same
    write = writer(kind.elements[1], options) or _same

    def of(items: dict[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items.items():
            if key is None:
                if options.null_keys == "FAIL":
                    raise ValueFailure("a key of the map is NULL; see the option json.map-null-key.mode")
                if options.null_keys == "DROP":
                    continue
            name = options.null_key if key is None else write_key(key)
            found[name] = None if value is None else write(value)
        return found

    return of


def _plain(number: Decimal) -> Any:
    """The number as JSON, without an exponent."""
    return msgspec.Raw(format(number, "f").encode())


def _finite(number: float) -> Any:
    """JSON has no NaN: it is text, as Flink writes it."""
    return number if number - number == 0 else values.text_of_double(number)


def _same(value: Any) -> Any:
    return value


# JSON bodies behind the id of a JSON Schema in a registry (`json-confluent`).
#
# JSON names its fields itself, so bodies are read without their writer's schema. A written body has the id of the
# table's schema: that of the option, or one that says what the columns are.

FORMAT: Final = "json-confluent"
_TYPES: Final = {
    "BOOLEAN": ("boolean", ""), "TINYINT": ("integer", "int8"), "SMALLINT": ("integer", "int16"),
    "INTEGER": ("integer", "int32"), "BIGINT": ("integer", "int64"), "FLOAT": ("number", "float32"),
    "DOUBLE": ("number", "float64"), "DECIMAL": ("number", ""), "VARBINARY": ("string", "bytes"),
}  # fmt: skip
"""JSON's types of SQL's, and what Kafka Connect calls them; all others are strings."""


def check(options: FormatOptions) -> None:
    """Raises `Refusal` for options that are not valid. Asks no registry."""
    base.registry_of(options, FORMAT)
    if options.has("json_schema"):
        try:
            json.loads(options.text("json_schema", ""))
        except (ValueError, RecursionError) as error:
            raise options.refusal("json_schema", f"is not the JSON of a schema: {error}") from None


def require_writable(options: FormatOptions) -> None:
    """Raises `Refusal` if the schema and what is written for NULL do not fit together."""
    if not options.has("json_schema"):
        return
    columns = JsonSchemaColumns(json.loads(options.text("json_schema", "")))
    columns.require_one_way()
    if columns.leaves_nulls_out and not JsonOptions.of(options).leaves_nulls_out:
        raise Refusal(
            "the schema has fields that can be absent and not null, which needs the option "
            "'json.encode.ignore-null-fields' = 'true'",
            None,
        )


class RegistryJsonDecoder(JsonDecoder):
    """See `formats.base.Decoder`."""

    def fast(self, body: bytes) -> Any:
        """Decodes a usual body. Raises anything for another one."""
        if body[0]:
            raise ValueError
        return super().fast(body[base.SIZE :])

    def exact(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        try:
            base.check_head(body, "JSON")
        except RowFailure as failure:
            if body[:1] == b"{":
                raise RowFailure(f"{failure}: plain JSON is the format 'json'") from None
            raise
        return super().exact(body[base.SIZE :])


class RegistryJsonEncoder(JsonEncoder):
    """See `formats.base.Encoder`. The schema is registered, unless the subject has it."""

    def __init__(self, table: Table, fields: Fields, options: FormatOptions) -> None:
        from rmqio.serde.registry.rest import JSON, TypedSubjects

        json_options = JsonOptions.of(options)
        super().__init__(fields, json_options)
        schema = options.text("json_schema", "") or json.dumps(schema_of(fields, json_options))
        subjects = TypedSubjects(base.registry_of(options, FORMAT))
        number = subjects.register(base.subject_of(table.options.topic, options), schema, JSON)
        self.constants["json_head"] = base.head(number)

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        return f"json_head + {super().source(names)}"


def schema_of(fields: Fields, options: JsonOptions) -> dict[str, Any]:
    """Returns the schema of what is written. Raises `Refusal`."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_object_schema(
        [(each.name, each.type) for each in fields], options
    )}  # fmt: skip


def _object_schema(fields: Sequence[tuple[str, SqlType]], options: JsonOptions) -> dict[str, Any]:
    is_optional = options.leaves_nulls_out
    return {
        "type": "object",
        "properties": {name: _schema(kind, options, can_be_null=not is_optional) for name, kind in fields},
        "required": [name for name, kind in fields if not (is_optional and kind.is_nullable)],
    }


def _schema(kind: SqlType, options: JsonOptions, *, can_be_null: bool = True) -> dict[str, Any]:
    match kind.kind:
        case "ARRAY":
            found = {"type": "array", "items": _schema(kind.elements[0], options)}
        case "MAP":
            found = {"type": "object", "additionalProperties": _schema(kind.elements[1], options)}
        case "ROW":
            found = _object_schema(list(zip(kind.names, kind.elements, strict=True)), options)
        case "MULTISET":
            raise Refusal(f"{kind.text} cannot be written as JSON of a registry", None)
        case name:
            of_json, of_connect = _TYPES.get(name, ("string", ""))
            found = {"type": of_json, **({"connect.type": of_connect} if of_connect else {})}
    return {"oneOf": [{"type": "null"}, found]} if can_be_null and kind.is_nullable else found
