"""Avro bodies of RocketMQ's schema registry (`avro-openschema`): the record's id, as Avro's `bytes`, then the value."""

from __future__ import annotations

import json
import struct
from typing import Final

from rmqio.errors import LocalError
from rmqio.serde.registry import OpenSchemaRegistry
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.avro import AvroEncoder, RegistryDecoder
from rmqio.sql.formats.base import TIMES, Fields, RowFailure

_HEAD: Final = struct.Struct(">BQ")
_EIGHT_BYTES: Final = 0x10
"""The length 8, as Avro writes it."""


def registry_of(options: FormatOptions) -> OpenSchemaRegistry:
    """Returns the registry of a table. Raises `Refusal`."""
    if not options.has("registry_url"):
        raise Refusal("the format avro-openschema needs the option 'avro-openschema.url'", None)
    try:
        return OpenSchemaRegistry(options.text("registry_url", "").strip(), **TIMES)
    except LocalError as error:
        raise options.refusal("registry_url", f"cannot be used: {error}") from None


def subject_of(table: Table, options: FormatOptions) -> str:
    """Returns the subject: the topic, unless the table says another one."""
    return options.text("registry_subject", "").strip() or table.options.topic or ""


class _Records:
    """The schemas of a subject, by the ids of its records."""

    def __init__(self, registry: OpenSchemaRegistry, subject: str) -> None:
        self._registry, self._subject = registry, subject

    def by_id(self, schema_id: int, /) -> str:
        return self._registry.by_record_id(self._subject, schema_id).schema


class OpenSchemaDecoder(RegistryDecoder):
    """See `formats.base.Decoder`. Schemas come from the registry by the id in the body, each once."""

    def __init__(self, table: Table, fields: Fields, options: FormatOptions) -> None:
        super().__init__(_Records(registry_of(options), subject_of(table, options)), fields)

    def _head(self, body: bytes) -> tuple[int, int]:
        if len(body) < _HEAD.size or body[0] != _EIGHT_BYTES:
            raise RowFailure(
                f"the body is not Avro of RocketMQ's schema registry: it begins with {body[:1].hex()}, and not 10"
            )
        return int(_HEAD.unpack_from(body)[1]), _HEAD.size


class OpenSchemaEncoder(AvroEncoder):
    """See `formats.base.Encoder`. The schema is one that the subject has: nothing is registered."""

    def __init__(self, table: Table, fields: Fields, options: FormatOptions) -> None:
        registry, subject = registry_of(options), subject_of(table, options)
        if options.has("avro_schema"):
            record = registry.by_schema(subject, options.text("avro_schema", ""))
        else:
            record = registry.newest(subject)
        super().__init__(json.loads(record.schema), fields)
        head, write = _HEAD.pack(_EIGHT_BYTES, record.record_id), self._write
        self._write = lambda element: head + write(element)
