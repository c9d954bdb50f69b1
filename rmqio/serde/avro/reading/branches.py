"""Finds the branch of a union for a decoded value, and converts the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rmqio.serde.avro.schemas.nodes import Node

Convert = Callable[[Any], Any]
_UNNAMED: Final[dict[str, type]] = {"array": list, "map": dict}


def of_branches(branches: Sequence[tuple[Node, Convert | None]], *, is_writers: bool) -> Convert:
    """A conversion for a union, from its branches except null, and the conversion of each.

    For named types in a union of the writer, fastavro returns a pair of name and value. If only the reader has the
    union, the value comes alone, and its form selects the branch: the fields of records, the symbols of enums, and the
    size of fixed.

    Args:
      is_writers: whether the writer certainly had the same union.

    The returned function raises ValueError for a map that could be a record.
    """
    kinds = {_kind(node) for node, _ in branches}
    by_name = {node["name"]: convert for node, convert in branches if isinstance(node, dict) and "name" in node}
    by_type: dict[type, Convert | None] = {
        _UNNAMED[kind]: convert for node, convert in branches if (kind := _kind(node)) in _UNNAMED
    }
    by_fields = {
        frozenset(field["name"] for field in node["fields"]): convert
        for node, convert in reversed(branches)
        if _kind(node) == "record"
    }
    by_symbol = {
        symbol: convert
        for node, convert in reversed(branches)
        if _kind(node) == "enum" and "string" not in kinds
        for symbol in node["symbols"]
    }
    by_size = {
        node["size"]: convert for node, convert in reversed(branches) if _kind(node) == "fixed" and "bytes" not in kinds
    }

    def convert(value: Any) -> Any:
        cls = type(value)
        if cls is tuple:
            name, value = value
            found = by_name[name]
        elif cls is dict and not is_writers and (fields := frozenset(value)) in by_fields:
            if dict in by_type:
                raise ValueError
            found = by_fields[fields]
        elif cls is str:
            found = by_symbol.get(value)
        elif cls is bytes:
            found = by_size.get(len(value))
        else:
            found = by_type.get(cls)
        return value if found is None else found(value)

    return convert


def _kind(node: Node) -> str:
    return str(node["type"] if isinstance(node, dict) else node)
