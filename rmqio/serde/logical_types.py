"""Avro's logical types: which ones the specification ignores, because their type does not fit. Needs no fastavro."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "decimal": ("bytes", "fixed"), "uuid": ("string", "fixed"), "duration": ("fixed",),
    "date": ("int",), "time-millis": ("int",),
    **dict.fromkeys(("time-micros", "time-nanos"), ("long",)),
    **{f"{each}timestamp-{unit}": ("long",) for each in ("", "local-") for unit in ("millis", "micros", "nanos")},
}  # fmt: skip
"""The types that a logical type of the specification can have."""
_SIZES: Final = {"uuid": 16, "duration": 12}


def is_ignored(node: Mapping[str, Any]) -> bool:
    """Returns whether the specification ignores the logical type of a schema, so that it is what it is made of.

    Names that the specification does not have are not ignored here: they can be of the user's own.
    """
    logical, kind = node.get("logicalType"), node.get("type")
    if not isinstance(logical, str):
        return True
    if logical not in KNOWN:
        return False
    if not isinstance(kind, str) or kind not in KNOWN[logical]:
        return True
    if logical == "decimal":
        return not _is_decimal(node, node.get("size") if kind == "fixed" else None)
    return kind == "fixed" and node.get("size") != _SIZES[logical]


def _is_decimal(node: Mapping[str, Any], size: Any) -> bool:
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not type(precision) is type(scale) is int or not 0 <= scale <= precision or not precision:
        return False
    return size is None or (type(size) is int and precision <= math.floor(math.log10(2) * (8 * size - 1)))


def without_ignored(schema: Any) -> Any:
    """Returns a copy of a schema, as of JSON, without the logical types that are ignored."""
    if isinstance(schema, list):
        return [without_ignored(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: without_ignored(each) if key in ("type", "items", "values", "fields") else each
        for key, each in schema.items()
    }
    if "logicalType" in made and is_ignored(made):
        del made["logicalType"]
    return made
