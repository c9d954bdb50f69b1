"""The Avro schemas of this package: files `SUBJECT.vN.avsc`, read as a schema registry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqio.serde.registry import FolderRegistry

__all__ = ["load", "registry"]

_REGISTRY: Final = FolderRegistry(Path(__file__).parent)


def registry() -> FolderRegistry:
    """Return the registry of this package's own schemas."""
    return _REGISTRY


def load(name: str, version: int | None = None) -> str:
    """Return a schema as JSON text, by default the newest version. Raises `UnknownSchema`, naming the known ones."""
    return _REGISTRY.by_version(name, version).schema
