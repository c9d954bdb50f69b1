"""Formats of bodies: bytes to columns, and columns to bytes."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats import delimited, json, logs, python_rows, raw, texts
from rmqio.sql.formats.base import Decoder, Encoder, Fields, RequiredParts, RowFailure
from rmqio.sql.formats.json import JsonDecoder, JsonEncoder, JsonOptions
from rmqio.sql.planning.plan import Field
from rmqio.sql.types import has_required_parts
from rmqio.sql.values import ValueFailure


def check(table: Table) -> None:
    """Raises `Refusal` if the table's options, columns and format do not fit together. Asks no registry."""
    options = FormatOptions(table.options.of_format)
    fields = _physical(table)
    if table.options.connector == DATABASE:
        return
    match table.options.format:
        case "json" | "json-confluent":
            JsonOptions.of(options)
            for each in fields:
                _require_keys(each)
            if table.options.format == json.FORMAT:
                json.check(options)
        case "csv":
            texts.require_scalars(table)
            delimited.CsvOptions.of(options)
        case "raw":
            raw.require_one_column(table)
            found = raw.Raw(fields[0].name, fields[0].type, options)
            if table.options.connector == FILES and "\n".encode(found.charset) != b"\n":
                raise options.refusal("raw_charset", f"is {found.charset}: files have lines of UTF-8, or of its kin")
        case "key-value":
            texts.require_scalars(table)
            pairs = delimited.KeyValueOptions.of(options)
            delimited.require_names(fields, pairs)
            for name, delimiter in (("pair_delimiter", pairs.pair_delimiter), ("key_delimiter", pairs.key_delimiter)):
                if table.options.connector == FILES and "\n" in delimiter:
                    raise options.refusal(name, "has a line break, which ends the row in a file")
        case "avro" | "avro-confluent" | "avro-openschema":
            _check_avro(table, fields, options)
        case "protobuf" | "protobuf-confluent":
            from rmqio.sql.formats import protobuf

            protobuf.check(table, fields, options)
        case "grok" | "syslog" | "cef":
            logs.check(table, fields, options)


def require_writable(table: Table, fields: Fields, unset: Collection[str]) -> None:
    """Raises `Refusal` if the format is only read, or the schema does not take these columns. Asks no registry.

    Args:
      unset: names of columns that are NULL in each row.
    """
    options = FormatOptions(table.options.of_format)
    if table.options.connector == "rocketmq" and table.options.format in logs.FORMATS:
        raise Refusal(f"{table.name} cannot be written: the format {table.options.format} can only be read", None)
    with _said_of(table, "written"):
        match table.options.format:
            case json.FORMAT:
                json.require_writable(options)
            case "avro" | "avro-confluent" | "avro-openschema":
                from rmqio.sql.formats import avro

                if table.options.format != "avro-openschema" or options.has("avro_schema"):  # else the subject's newest
                    avro.writers_of(avro.parsed(avro.given_schema(table, options)), fields, unset)
            case "protobuf" | "protobuf-confluent":
                from rmqio.sql.formats import protobuf

                protobuf.require_writable(table, fields, options, unset)


def require_readable(table: Table, fields: Fields) -> None:
    """Raises `Refusal` if the values of these columns cannot be read with the schema. Asks no registry."""
    if table.options.format in ("avro", "protobuf", "protobuf-confluent"):  # the others have their writers' schemas
        with _said_of(table, "read"):
            decoder_of(table, fields)


@contextlib.contextmanager
def _said_of(table: Table, done: str) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        raise Refusal(f"{table.name} cannot be {done}: {refusal.message}", refusal.span) from None


def decoder_of(table: Table, fields: Fields) -> Decoder:
    """Returns the decoder of a table's bodies to some of its columns. Raises `Refusal`."""
    decoder = _decoder_of(table, fields)
    return RequiredParts(fields, decoder) if any(has_required_parts(each.type) for each in fields) else decoder


def _decoder_of(table: Table, fields: Fields) -> Decoder:
    options = FormatOptions(table.options.of_format)
    if table.options.connector == DATABASE or table.options.format == "parquet":
        return python_rows.RowDecoder(fields)
    match table.options.format:
        case "csv":
            return delimited.CsvDecoder(table, fields, delimited.CsvOptions.of(options))
        case "raw":
            raw.require_one_column(table)
            return raw.RawDecoder(_raw(table, options), fields)
        case "key-value":
            return delimited.KeyValueDecoder(table, fields, delimited.KeyValueOptions.of(options))
        case "avro":
            from rmqio.sql.formats import avro

            return avro.AvroDecoder(avro.given_schema(table, options), fields)
        case "avro-confluent":
            from rmqio.sql.formats import avro

            return avro.RegistryDecoder(avro.registry_of(options), fields)
        case "avro-openschema":
            from rmqio.sql.formats import avro_openschema

            return avro_openschema.OpenSchemaDecoder(table, fields, options)
        case "json-confluent":
            return json.RegistryJsonDecoder(fields, JsonOptions.of(options))
        case "protobuf" | "protobuf-confluent":
            from rmqio.sql.formats import protobuf

            return protobuf.ProtobufDecoder(table, fields, options)
        case "grok" | "syslog" | "cef":
            return logs.decoder_of(table, fields, options)
    return JsonDecoder(fields, JsonOptions.of(options))


def encoder_of(table: Table, fields: Fields) -> Encoder:
    """Returns the encoder of a table's physical columns. Raises `Refusal`."""
    encoder = _encoder_of(table, fields)
    is_line = table.options.connector == FILES and table.options.format != "csv"  # which has line breaks in quotes
    return _Line(encoder) if is_line else encoder


class _Line:
    """The encoder of rows that are lines of files."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.constants: dict[str, Any] = {**encoder.constants, "one_line": _one_line}

    def source(self, names: Sequence[str]) -> str:
        """Returns Python's expression for the body, of names that hold the values. It uses `constants`."""
        return f"one_line({self._encoder.source(names)})"


def _one_line(body: bytes) -> bytes:
    if b"\n" in body or body.endswith(b"\r") or body.startswith(codecs.BOM_UTF8):
        reason = "a line break or a byte order mark, which is no part of a row in a file"
        raise ValueFailure(f"the row has {reason}: {body!r:.60}")
    return body


def _encoder_of(table: Table, fields: Fields) -> Encoder:
    options = FormatOptions(table.options.of_format)
    match table.options.format:
        case "csv":
            return delimited.CsvEncoder(fields, delimited.CsvOptions.of(options))
        case "raw":
            raw.require_one_column(table)
            return raw.RawEncoder(_raw(table, options))
        case "key-value":
            return delimited.KeyValueEncoder(fields, delimited.KeyValueOptions.of(options))
        case "avro":
            from rmqio.sql.formats import avro

            return avro.AvroEncoder(avro.given_schema(table, options), fields)
        case "avro-confluent":
            from rmqio.sql.formats import avro

            registry, subject = avro.registry_of(options), _subject(table, options)
            return avro.AvroEncoder(avro.given_schema(table, options), fields, registry, subject)
        case "avro-openschema":
            from rmqio.sql.formats import avro_openschema

            return avro_openschema.OpenSchemaEncoder(table, fields, options)
        case "json-confluent":
            return json.RegistryJsonEncoder(table, fields, options)
        case "protobuf" | "protobuf-confluent":
            from rmqio.sql.formats import protobuf

            return protobuf.ProtobufEncoder(table, fields, options)
    return JsonEncoder(fields, JsonOptions.of(options))


def _physical(table: Table) -> list[Field]:
    return [Field(each.name, each.type) for each in table.columns if each.is_physical]


def _raw(table: Table, options: FormatOptions) -> raw.Raw:
    column = _physical(table)[0]
    return raw.Raw(column.name, column.type, options)


def _require_keys(field: Field) -> None:
    """Raises `Refusal` for a map whose keys have no text."""
    pending = [field.type]
    while pending:
        kind = pending.pop()
        if kind.kind == "MAP" and kind.elements[0].elements:
            raise Refusal(f"column {field.name}: keys of {kind.text} have no text, as names in JSON need it", None)
        pending.extend(kind.elements)


def _check_avro(table: Table, fields: list[Field], options: FormatOptions) -> None:
    from rmqio.sql.formats import avro

    options.one_of("avro_encoding", ("binary",), "binary")
    if table.options.format == "avro":
        source = avro.given_schema(table, options)
        try:
            avro.Plan(source, fields)
        except Refusal:  # some tables can only be written
            with contextlib.suppress(Refusal):
                avro.writers_of(avro.parsed(source), fields)
                return
            raise
        return
    if table.options.format == "avro-openschema":
        from rmqio.sql.formats import avro_openschema

        avro_openschema.registry_of(options)
    else:
        avro.registry_of(options)
    avro.parsed(avro.given_schema(table, options))


def _subject(table: Table, options: FormatOptions) -> str:
    return options.text("registry_subject", "").strip() or f"{table.options.topic}-value"


class LenientDecoder:
    """Decodes each column by itself, if the decoder of all of them fails at one: for `'on-error' = 'null'`.

    A column that does not fit is NULL, and the others stay.

    Args:
      decoder: decodes all of them.
    """

    def __init__(self, table: Table, fields: Fields, decoder: Decoder) -> None:
        self._fields, self._decoder = fields, decoder
        self._single = [decoder_of(table, [each]) for each in fields]

    def exact(self, body: bytes, nulls: list[Exception]) -> tuple[Any, ...]:
        """Returns the SQL values, and adds the errors of columns that are NULL instead.

        Raises `RowFailure` if the body is none of the format, or if a NOT NULL column does not fit.
        """
        try:
            return self._decoder.exact(body)
        except RowFailure as error:
            if not error.column:
                raise
        row: list[Any] = []
        for field, decoder in zip(self._fields, self._single, strict=True):
            try:
                row += decoder.exact(body)
            except RowFailure as error:
                if not error.column or not field.type.is_nullable:
                    raise
                row.append(None)
                nulls.append(error)
        return tuple(row)
