"""Avro, with fastavro: `pip install 'rmqio[avro]'`."""

from __future__ import annotations

try:
    import fastavro  # noqa: F401
except ImportError as error:
    raise ImportError("rmqio.serde.avro needs fastavro: pip install 'rmqio[avro]'") from error

from rmqio.serde.avro.deserializer import AvroDeserializer
from rmqio.serde.avro.nodes import Duration
from rmqio.serde.avro.schema import AvroSchema
from rmqio.serde.avro.serializer import AvroSerializer
from rmqio.serde.avro.types import schema_of_class

__all__ = ["AvroDeserializer", "AvroSchema", "AvroSerializer", "Duration", "schema_of_class"]
