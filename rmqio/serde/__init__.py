"""Deserializers (`Record` to element) and serializers (element to `Message`)."""

from __future__ import annotations

from rmqio.serde.base import (
    BodyDeserializer,
    BodySerializer,
    Deserializer,
    Serializer,
    output_type_of,
)
from rmqio.serde.json import JsonDeserializer, JsonSerializer
from rmqio.serde.plain import (
    BytesDeserializer,
    BytesSerializer,
    SimpleKeyValueDeserializer,
    SimpleKeyValueSerializer,
    StringDeserializer,
    StringSerializer,
)

__all__ = [
    "Deserializer",
    "Serializer",
    "output_type_of",
    "BodyDeserializer",
    "BodySerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "StringDeserializer",
    "StringSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "SimpleKeyValueDeserializer",
    "SimpleKeyValueSerializer",
]
