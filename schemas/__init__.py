"""The Avro schemas of this package: files `SUBJECT.vN.avsc`, read as a schema registry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqio.serde.registry import FolderRegistry

__all__ = ["load", "registry"]

_REGISTRY: Final = FolderRegistry(Path(__file__).parent)


def registry() -> FolderRegistry:
    """The registry of this package's own schemas."""
    return _REGISTRY


def load(name: str, version: int | None = None) -> str:
    """A schema as JSON text; None: its newest version. Raises `UnknownSchema` naming those that there are."""
    return _REGISTRY.by_version(name, version).schema
