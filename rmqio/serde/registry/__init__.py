"""Registries of Avro schemas: in memory, in a folder of files, and with Confluent's REST API."""

from __future__ import annotations

from rmqio.serde.registry.base import (
    RegisteredSchema,
    RegistryUnavailable,
    SchemaRegistry,
    SchemaRegistryError,
    UnknownSchema,
    fingerprint,
)
from rmqio.serde.registry.http import BasicAuth, TokenAuth
from rmqio.serde.registry.memory import FolderRegistry, MemoryRegistry
from rmqio.serde.registry.rest import OpenSchemaRegistry, RestRegistry, SchemaRecord

__all__ = [
    "SchemaRegistry",
    "RegisteredSchema",
    "MemoryRegistry",
    "FolderRegistry",
    "RestRegistry",
    "OpenSchemaRegistry",
    "SchemaRecord",
    "BasicAuth",
    "TokenAuth",
    "fingerprint",
    "SchemaRegistryError",
    "RegistryUnavailable",
    "UnknownSchema",
]
