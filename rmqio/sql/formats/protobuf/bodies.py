"""Protobuf bodies to columns, and columns to bodies.

A field without a value is NULL if Protobuf tells it from its default, else it is the default, as in Flink. Columns are
read by the numbers of the table's own message, so that bodies of its other versions are read, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, Final

from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import confluent
from rmqio.sql.formats.base import CONVERSIONS, Convert, Fields, RowFailure, filled, reason_of
from rmqio.sql.formats.options import FormatOptions
from rmqio.sql.formats.protobuf.columns import is_required
from rmqio.sql.formats.protobuf.descriptors import files_of, index_path, message_of
from rmqio.sql.formats.protobuf.values import Misfit, getter, require_all, row_setter
from rmqio.sql.values import ValueFailure

PLAIN: Final = "protobuf"
REGISTRY: Final = "protobuf-confluent"
FORMATS: Final = (PLAIN, REGISTRY)


def check(table: Table, fields: Fields, options: FormatOptions) -> None:
    """Raises `Refusal` if the options or the columns do not fit the message. Asks no registry."""
    message = message_of(options, table.options.format)
    if table.options.format == REGISTRY:
        confluent.registry_of(options, REGISTRY)
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
        confluent.check_head(body, "Protobuf")
        try:
            path, start = _read_path(body, confluent.SIZE)
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

    subjects = TypedSubjects(confluent.registry_of(options, REGISTRY))
    subject = confluent.subject_of(table.options.topic, options)
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
                return confluent.head(newest.id) + _path_bytes(index_path(message))
    if others := [each for each in file.dependency if not each.startswith("google/protobuf/")]:
        raise Refusal(
            f"the newest schema of {subject} is not that of the table, which cannot be registered here: it imports "
            f"{others[0]}; register it first",
            None,
        )
    text = base64.b64encode(file.SerializeToString(deterministic=True)).decode("ascii")
    return confluent.head(subjects.register(subject, text, PROTOBUF)) + _path_bytes(index_path(message))


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
