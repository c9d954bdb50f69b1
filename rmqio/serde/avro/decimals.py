"""Decimals as they were written. fastavro rounds what has more digits than the schema says, without a word."""

from __future__ import annotations

import decimal
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from rmqio.serde.avro.nodes import Node

_OURS: Final = "rmqio-decimal"
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC)


def read_decimal(data: bytes, precision: int, scale: int) -> decimal.Decimal:
    """Raises ValueError: no bytes, or more digits than `precision`."""
    return _read(data, _with_limits({"precision": precision, "scale": scale}))


def with_exact_decimals(node: Node) -> Node:
    """A parsed schema for fastavro to read with, which is changed nowhere: a copy, if it has decimals."""
    return _copied(node, {}) if _has_decimals(node, set()) else node


def _read(data: bytes, node: Node, _: Node = None) -> decimal.Decimal:
    unscaled, limit = int.from_bytes(data, "big", signed=True), node["limit"]
    if not data or not -limit < unscaled < limit:
        raise ValueError(f"no decimal of {node['precision']} digits")
    return decimal.Decimal(unscaled).scaleb(node["exponent"], _EXACT)


# As fastavro's documentation has it for logical types of one's own: the name is ours alone.
LOGICAL_READERS[f"bytes-{_OURS}"] = LOGICAL_READERS[f"fixed-{_OURS}"] = _read


def _is_decimal(node: Node) -> bool:
    return node.get("logicalType") == "decimal" and node.get("type") in ("bytes", "fixed")


def _has_decimals(node: Any, seen: set[int]) -> bool:
    if id(node) in seen or not isinstance(node, (dict, list)):
        return False
    seen.add(id(node))
    if isinstance(node, list):
        return any(_has_decimals(each, seen) for each in node)
    return _is_decimal(node) or any(_has_decimals(each, seen) for each in node.values())


def _copied(node: Any, made: dict[int, Any]) -> Any:
    """With all that fastavro keeps beside the schema; what is one object stays one."""
    if isinstance(node, list):
        return [_copied(each, made) for each in node]
    if not isinstance(node, dict):
        return node
    if id(node) not in made:
        copy = made[id(node)] = {name: _copied(each, made) for name, each in node.items()}
        if _is_decimal(node):
            copy.update(_with_limits(copy), logicalType=_OURS)
    return made[id(node)]


def _with_limits(node: Node) -> Node:
    return {**node, "limit": 10 ** node["precision"], "exponent": -node.get("scale", 0)}
