"""The parts of a parsed schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Node = Any
"""A schema in a parsed schema: a dict, a list (union) or a name. Names are full names."""
WRITTEN_AS_INT: Final = "rmqio-written-as-int"
"""The key that marks a long whose bytes are those of an int."""


def children_of(node: Node) -> list[Node]:
    """The direct children of a schema."""
    if isinstance(node, list):
        return node
    if not isinstance(node, dict):
        return []
    if node["type"] in ("record", "error"):
        return [field["type"] for field in node["fields"]]
    if node["type"] == "array":
        return [node["items"]]
    if node["type"] == "map":
        return [node["values"]]
    return [] if isinstance(node["type"], str) else [node["type"]]


def nodes_of(node: Node) -> Iterator[Node]:
    """A schema and all its descendants."""
    yield node
    for child in children_of(node):
        yield from nodes_of(child)
