"""Protobuf bodies to columns, and columns to bodies: alone, or behind a schema's id (`protobuf-confluent`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.casts import single
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import base
from rmqio.sql.formats.base import CONVERSIONS, Convert, Fields, RowFailure, bounded, filled, reason_of, whole
from rmqio.sql.formats.protobuf_schemas import (
    TIMESTAMP,
    WRAPPERS,
    Field,
    files_of,
    index_path,
    is_map,
    is_repeated,
    is_required,
    kind_of,
    message_of,
)
from rmqio.sql.types import BITS, INTEGERS, SqlType
from rmqio.sql.values import ValueFailure

# Protobuf's values and SQL's: conversions by the types of both.

Get = Callable[[Any], Any]
"""A message to the SQL value of one of its fields."""
Put = Callable[[Any, Any], None]
"""A message and a SQL value that is not NULL, for one of its fields."""
_PROTO_BITS: Final = {"int32": 32, "int64": 64, "uint32": 33, "uint64": 65}
"""Bits of a signed integer that holds all values."""


class Misfit(Exception):
    """A column whose type cannot hold what the field has. The text says which."""


# ---- reading --------------------------------------------------------------------------------------------------------


def getter(field: Field, kind: SqlType, *, with_defaults: bool) -> Get:
    """Returns what reads the field as a value of the type. Raises `Misfit`.

    Args:
      with_defaults: a field without a value has its default, at any depth: a message those of its fields, as in Flink.
        What is a value by itself here, a Timestamp and the wrappers, stays NULL: Flink reads those as rows. Without
        defaults, a list or a map without elements is NULL, too, if the type has NULL.
    """
    name, has_null = field.name, kind.is_nullable and not with_defaults
    if is_map(field):
        entry = field.message_type.fields_by_name
        if kind.kind != "MAP":
            raise _misfit(field, kind)
        parts = zip(("key", "value"), kind.elements, strict=True)
        key, value = (_reader(entry[each], part, with_defaults=with_defaults) for each, part in parts)
        return _or_null(
            lambda message: {_as(key, k): _as(value, v) for k, v in getattr(message, name).items()}, has_null
        )
    if is_repeated(field):
        if kind.kind != "ARRAY":
            raise _misfit(field, kind)
        read = _reader(field, kind.elements[0], with_defaults=with_defaults)
        if read is None:
            return _or_null(lambda message: list(getattr(message, name)), has_null)
        return _or_null(lambda message: [_as(read, each) for each in getattr(message, name)], has_null)
    read = _reader(field, kind, with_defaults=with_defaults)
    if not field.has_presence or (with_defaults and (field.message_type is None or kind.kind == "ROW")):
        return lambda message: _as(read, getattr(message, name))
    return lambda message: _as(read, getattr(message, name)) if message.HasField(name) else None


def _or_null(get: Get, has_null: bool) -> Get:
    """Protobuf does not tell a list without elements from none. Flink reads NULL."""
    return (lambda message: get(message) or None) if has_null else get


def _as(read: Convert | None, value: Any) -> Any:
    return value if read is None else read(value)


def _reader(field: Field, kind: SqlType, *, with_defaults: bool) -> Convert | None:
    """Returns the conversion of one value of the field, which is not NULL, to SQL; None: there is none."""
    of_field, of_kind = kind_of(field), kind.kind
    match of_field:
        case "message":
            return _message_reader(field, kind, with_defaults=with_defaults)
        case "bool" if of_kind == "BOOLEAN":
            return None
        case "string" if of_kind == "VARCHAR":
            return None
        case "bytes" if of_kind == "VARBINARY":
            return None
        case "float" if of_kind in ("FLOAT", "DOUBLE"):
            return None
        case "double" if of_kind in ("FLOAT", "DOUBLE"):
            return single if of_kind == "FLOAT" else None
        case "enum" if of_kind == "VARCHAR":
            return lambda number: _enum_name(field.enum_type, number)
        case "enum" if of_kind in INTEGERS:
            return lambda number: whole(number, BITS[of_kind])
        case "int32" | "int64" | "uint32" | "uint64" if of_kind in INTEGERS:
            return None if BITS[of_kind] >= _PROTO_BITS[of_field] else lambda number: whole(number, BITS[of_kind])
        case "int32" | "int64" | "uint32" | "uint64" if of_kind == "DECIMAL" and kind.scale == 0:
            return lambda number: _decimal(number, kind)
    raise _misfit(field, kind)


def _message_reader(field: Field, kind: SqlType, *, with_defaults: bool) -> Convert:
    message = field.message_type
    if message.full_name == TIMESTAMP and kind.kind in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return lambda moment: _micros(moment, kind)
    if message.full_name in WRAPPERS and kind.kind != "ROW":
        read = _reader(message.fields_by_name["value"], kind, with_defaults=with_defaults)
        return lambda wrapper: _as(read, wrapper.value)
    if kind.kind != "ROW":
        raise _misfit(field, kind)
    parts = [getter(each, part, with_defaults=with_defaults) for each, part in _fields(message, kind)]
    return lambda found: tuple(part(found) for part in parts)


def _fields(message: Any, kind: SqlType) -> list[tuple[Field, SqlType]]:
    missing = [each for each in kind.names if each not in message.fields_by_name]
    if missing:
        raise Misfit(f"the message {message.full_name} has no field {missing[0]}")
    return [(message.fields_by_name[name], part) for name, part in zip(kind.names, kind.elements, strict=True)]


def _enum_name(enum: Any, number: int) -> str:
    found = enum.values_by_number.get(number)
    if found is None:
        raise ValueFailure(f"{number} is no value of the enum {enum.full_name}")
    return str(found.name)


def _decimal(number: int, kind: SqlType) -> Decimal:
    if len(str(abs(number))) > kind.precision:
        raise ValueFailure(f"{number} does not fit into {kind.text}")
    return Decimal(number)


def _micros(moment: Any, kind: SqlType) -> int:
    if not 0 <= moment.nanos < 1_000_000_000:
        raise ValueFailure(f"{moment.nanos} nanoseconds are not within a second, as those of a Timestamp are")
    micros = values.in_years(moment.seconds * 1_000_000 + moment.nanos // 1000)
    return values.scaled_time(micros, kind.precision)


# ---- writing --------------------------------------------------------------------------------------------------------


def setter(field: Field, kind: SqlType) -> Put:
    """Returns what writes a value of the type to the field. Raises `Misfit`."""
    name = field.name
    if is_map(field):
        return _map_setter(field, kind)
    if is_repeated(field):
        if kind.kind != "ARRAY":
            raise _misfit(field, kind)
        if _is_message(field):
            fill = _filler(field, kind.elements[0])

            def put(message: Any, items: list[Any]) -> None:
                members = getattr(message, name)
                for each in items:
                    fill(members.add(), _not_null(each))

            return put
        write = _value_writer(field, kind.elements[0])
        return lambda message, items: getattr(message, name).extend(write(_not_null(each)) for each in items)
    if _is_message(field):
        fill = _filler(field, kind)

        def put_message(message: Any, value: Any) -> None:
            member = getattr(message, name)
            member.SetInParent()
            fill(member, value)

        return put_message
    write = _value_writer(field, kind)
    return lambda message, value: setattr(message, name, write(value))


def _map_setter(field: Field, kind: SqlType) -> Put:
    if kind.kind != "MAP":
        raise _misfit(field, kind)
    name, entry = field.name, field.message_type.fields_by_name
    write_key = _value_writer(entry["key"], kind.elements[0])
    if _is_message(entry["value"]):
        fill = _filler(entry["value"], kind.elements[1])

        def put(message: Any, items: dict[Any, Any]) -> None:
            members = getattr(message, name)
            for key, value in items.items():
                fill(members[write_key(_not_null(key))], _not_null(value))

        return put
    write = _value_writer(entry["value"], kind.elements[1])

    def put_scalars(message: Any, items: dict[Any, Any]) -> None:
        members = getattr(message, name)
        for key, value in items.items():
            members[write_key(_not_null(key))] = write(_not_null(value))

    return put_scalars


def _is_message(field: Field) -> bool:
    return kind_of(field) in ("message", "group")


def _not_null(value: Any) -> Any:
    if value is None:
        raise ValueFailure("a list or a map contains NULL, which Protobuf does not have")
    return value


def _value_writer(field: Field, kind: SqlType) -> Convert:
    """Returns the conversion of a SQL value that is not NULL to Protobuf."""
    of_field, of_kind = kind_of(field), kind.kind
    fits = {
        "bool": ("BOOLEAN",), "string": ("VARCHAR",), "bytes": ("VARBINARY",), "float": ("FLOAT",),
        "double": ("FLOAT", "DOUBLE"), "enum": ("VARCHAR", *INTEGERS),
    }.get(of_field, (*INTEGERS, "DECIMAL"))  # fmt: skip
    if of_kind not in fits or (of_kind == "DECIMAL" and kind.scale):
        raise _misfit(field, kind)
    if of_kind == "DECIMAL":
        return int
    if of_field == "enum" and of_kind == "VARCHAR":
        return lambda name: _enum_number(field.enum_type, name)
    return _same


def _filler(field: Field, kind: SqlType) -> Put:
    message = field.message_type
    if kind_of(field) == "group":
        raise _misfit(field, kind)
    if message.full_name == TIMESTAMP and kind.kind in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return _fill_moment
    if message.full_name in WRAPPERS and kind.kind != "ROW":
        return setter(message.fields_by_name["value"], kind)
    if kind.kind != "ROW":
        raise _misfit(field, kind)
    require_all(message, kind.names)
    return row_setter(message, [(each, part, each.name) for each, part in _fields(message, kind)])


def require_all(message: Any, names: Sequence[str]) -> None:
    """Raises `Misfit` if the message requires a field, as in proto2, that is not one of these."""
    if missing := [each.name for each in message.fields if is_required(each) and each.name not in names]:
        raise Misfit(f"the message {message.full_name} requires {missing[0]}, which is not a column")


def row_setter(message: Any, fields: list[tuple[Field, SqlType, str]]) -> Put:
    """Returns what writes a row, a tuple, to a message; NULL leaves a field out. Raises `Misfit`."""
    puts = [setter(field, kind) for field, kind, _ in fields]
    choices = [_choice(field) for field, _, _ in fields]

    def put(message: Any, row: tuple[Any, ...]) -> None:
        chosen: dict[str, str] = {}
        for (_, _, name), write, choice, value in zip(fields, puts, choices, row, strict=True):
            if value is None:
                continue
            if choice and (other := chosen.setdefault(choice, name)) != name:
                raise ValueFailure(
                    f"{other} and {name} are both not NULL, and only one can be: they are of the oneof {choice}"
                )
            try:
                write(message, value)
            except CONVERSIONS as error:
                raise ValueFailure(f"column {name}: {reason_of(error)}") from None

    return put


def _choice(field: Field) -> str:
    """The name of the oneof of the field; `optional` of proto3 makes one of one field."""
    group = field.containing_oneof
    return group.name if group is not None and len(group.fields) > 1 else ""


def _fill_moment(moment: Any, micros: int) -> None:
    moment.seconds, rest = divmod(micros, 1_000_000)
    moment.nanos = rest * 1000


def _enum_number(enum: Any, name: str) -> int:
    found = enum.values_by_name.get(name)
    if found is None:
        raise ValueFailure(f"{bounded(name)} is not the name of the enum {enum.full_name}")
    return int(found.number)


def _same(value: Any) -> Any:
    return value


def _misfit(field: Field, kind: SqlType) -> Misfit:
    what = "a map" if is_map(field) else f"{'a list of ' if is_repeated(field) else ''}{kind_of(field)}"
    return Misfit(f"the field is {what}, which does not fit {kind.text}")


PLAIN: Final = "protobuf"
REGISTRY: Final = "protobuf-confluent"
FORMATS: Final = (PLAIN, REGISTRY)


def check(table: Table, fields: Fields, options: FormatOptions) -> None:
    """Raises `Refusal` if the options or the columns do not fit the message. Asks no registry."""
    message = message_of(options, table.options.format)
    if table.options.format == REGISTRY:
        base.registry_of(options, REGISTRY)
    try:
        _getters(message, fields, options)
    except Refusal:  # some tables can only be written
        with contextlib.suppress(Refusal):
            _writer(message, fields)
            return
        raise


def require_writable(table: Table, fields: Fields, options: FormatOptions, unset: Collection[str]) -> None:
    """Raises `Refusal` if the message does not take the columns. `unset`: those that are NULL in each row."""
    message = message_of(options, table.options.format)
    _writer(message, fields)
    if missing := [each for each in unset if is_required(message.fields_by_name[each])]:
        raise Refusal(f"the column {missing[0]} gets no value, and the message {message.full_name} requires it", None)


class ProtobufDecoder:
    """See `formats.base.Decoder`. `fast` returns the SQL values."""

    def __init__(self, table: Table, fields: Fields, options: FormatOptions) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        message = message_of(options, table.options.format)
        self._fields, self._name = fields, message.full_name
        self._new = GetMessageClass(message)
        self._error = DecodeError
        self._getters = _getters(message, fields, options)
        self._path = index_path(message) if table.options.format == REGISTRY else None
        self.columns = [f"{{}}[{position}]" for position in range(len(fields))]
        self.converters: list[Convert | None] = [None] * len(fields)

    def fast(self, body: bytes) -> tuple[Any, ...]:
        """Returns the SQL values of any body. Raises `RowFailure`."""
        start = 0 if self._path is None else self._start(body)
        message = self._new()
        try:
            message.ParseFromString(body[start:] if start else body)
        except self._error as error:
            raise RowFailure(f"the body is not Protobuf of {self._name}: {error}") from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise RowFailure(f"the body has no value for what {self._name} requires: {missing}")
        row = []
        for each, get in zip(self._fields, self._getters, strict=True):
            try:
                value = get(message)
            except CONVERSIONS as error:
                raise RowFailure(reason_of(error), each.name) from None
            if value is None and not each.type.is_nullable:
                raise RowFailure("it is NOT NULL, but the body has no value for it", each.name)
            row.append(value)
        return tuple(row)

    exact = fast

    def _start(self, body: bytes) -> int:
        """Returns where the message begins: behind the schema's id and the message's place in the schema."""
        base.check_head(body, "Protobuf")
        try:
            path, start = _read_path(body, base.SIZE)
        except (IndexError, ValueError):
            raise RowFailure("the body is not Protobuf of a registry: it does not say which message it is") from None
        if path != self._path:
            raise RowFailure(
                f"the body is message {_shown(path)} of its schema, but the table's is {_shown(self._path)}"
            )
        return start


def _getters(message: Any, fields: Fields, options: FormatOptions) -> list[Any]:
    found = []
    with_defaults = options.is_true("protobuf_defaults")
    for each in fields:
        try:
            found.append(getter(_field(message, each.name), each.type, with_defaults=with_defaults))
        except Misfit as error:
            raise Refusal(f"column {each.name}: {error}", None) from None
    return found


def _field(message: Any, name: str) -> Any:
    if name not in message.fields_by_name:
        raise Misfit(f"the message {message.full_name} has no such field")
    return message.fields_by_name[name]


class ProtobufEncoder:
    """See `formats.base.Encoder`."""

    def __init__(self, table: Table, fields: Fields, options: FormatOptions) -> None:
        from google.protobuf.message import EncodeError
        from google.protobuf.message_factory import GetMessageClass

        message = message_of(options, table.options.format)
        self._new, self._error = GetMessageClass(message), EncodeError
        self._write = _writer(message, fields)
        self._head = _registered_head(table, options, message) if table.options.format == REGISTRY else b""
        self.constants: dict[str, Any] = {"protobuf_body": self._body}

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        return f"protobuf_body(({', '.join(names)}{',' * bool(names)}))"

    def _body(self, row: tuple[Any, ...]) -> bytes:
        message = self._new()
        self._write(message, row)
        try:
            return filled(self._head + message.SerializeToString(deterministic=True))
        except self._error as error:
            raise ValueFailure(f"the row cannot be written: {error}") from None


def _writer(message: Any, fields: Fields) -> Any:
    """Returns what writes a row to a message. Raises `Refusal`."""
    try:
        require_all(message, [each.name for each in fields])
    except Misfit as error:
        raise Refusal(str(error), None) from None
    found = []
    for each in fields:
        try:
            found.append((_field(message, each.name), each.type, each.name))
            row_setter(message, found[-1:])
        except Misfit as error:
            raise Refusal(f"column {each.name}: {error}", None) from None
    return row_setter(message, found)


def _registered_head(table: Table, options: FormatOptions, message: Any) -> bytes:
    """Registers the message's file, unless it is the subject's newest schema. Raises the registry's errors."""
    import base64

    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    from rmqio.serde.registry import UnknownSchema
    from rmqio.serde.registry.rest import PROTOBUF, TypedSubjects

    subjects = TypedSubjects(base.registry_of(options, REGISTRY))
    subject = base.subject_of(table.options.topic, options)
    files = files_of(options.text("protobuf_descriptor", "").strip()).file
    file = next(each for each in files if each.name == message.file.name)
    comparable = _without_name(file)
    with contextlib.suppress(UnknownSchema):
        newest = subjects.version(subject)
        if newest.kind == PROTOBUF:
            try:
                known = FileDescriptorProto.FromString(base64.b64decode(newest.schema, validate=True))
            except (ValueError, DecodeError):
                raise Refusal(
                    f"the registry does not give the schema of {subject} as a descriptor (format=serialized), so that "
                    "it cannot be compared with the table's",
                    None,
                ) from None
            if _without_name(known) == comparable:
                return base.head(newest.id) + _path_bytes(index_path(message))
    if others := [each for each in file.dependency if not each.startswith("google/protobuf/")]:
        raise Refusal(
            f"the newest schema of {subject} is not that of the table, which cannot be registered here: it imports "
            f"{others[0]}; register it first",
            None,
        )
    text = base64.b64encode(file.SerializeToString(deterministic=True)).decode("ascii")
    return base.head(subjects.register(subject, text, PROTOBUF)) + _path_bytes(index_path(message))


def _without_name(file: Any) -> bytes:
    copy = type(file)()
    copy.CopyFrom(file)
    copy.ClearField("name")
    copy.ClearField("source_code_info")
    for each in copy.message_type:
        _clear_json_names(each)
    return bytes(copy.SerializeToString(deterministic=True))


def _clear_json_names(message: Any) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_json_names(nested)


# ---- the place of a message in its schema: how many numbers, then they; one 0 for the first message ------------------


def _path_bytes(path: tuple[int, ...]) -> bytes:
    if path == (0,):
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def _varint(number: int) -> bytes:
    zigzag = number << 1
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    found.append(zigzag)
    return bytes(found)


def _read_path(body: bytes, start: int) -> tuple[tuple[int, ...], int]:
    count, start = _read_varint(body, start)
    if count == 0:
        return (0,), start
    if not 0 < count <= 100:
        raise ValueError
    path = []
    for _ in range(count):
        number, start = _read_varint(body, start)
        path.append(number)
    return tuple(path), start


def _read_varint(body: bytes, start: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = body[start]
        start += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), start
        shift += 7
        if shift > 63:
            raise ValueError


def _shown(path: tuple[int, ...] | None) -> str:
    return ".".join(map(str, path or ()))
