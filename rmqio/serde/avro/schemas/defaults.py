"""Converts the defaults of fields to the values that they stand for.

A schema's JSON has bytes as text and dates as numbers. fastavro returns and writes them unconverted, and gives one list
or dict to all records.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from rmqio.errors import LocalError
from rmqio.serde.avro.reading.exact import read_decimal
from rmqio.serde.avro.schemas.nodes import Node, nodes_of

_BITS: Final = {"int": 32, "long": 64}
_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
    "enum": (str,),
}


def set_defaults(parsed: Node, resolve: Callable[[Node], Node], origin: str) -> None:
    """Convert the defaults in a parsed schema. Raises `LocalError` if one does not have its field's type."""
    for node in nodes_of(parsed):
        if isinstance(node, dict) and node["type"] in ("record", "error"):
            for field in node["fields"]:
                if "default" not in field:
                    continue
                try:
                    field["default"] = _value(field["type"], field["default"], resolve)
                except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
                    name = f"{node['name']}.{field['name']}"
                    raise LocalError(f"{origin}: the default of {name} is not a value of its type") from error


def own_copy(default: Any) -> Callable[[Any], Any] | None:
    """A function that gives each record its own copy of a mutable default; None if it is immutable."""
    if not isinstance(default, (list, dict)):
        return None
    return lambda value: copy.deepcopy(value) if value is default else value


def _value(node: Node, given: Any, resolve: Callable[[Node], Node]) -> Any:
    node = resolve(node)
    if isinstance(node, list):
        return _value(node[0], given, resolve)  # as specified, a default has the type of the first branch
    kind = node["type"] if isinstance(node, dict) else node
    if not isinstance(kind, str):
        return _value(kind, given, resolve)
    if kind == "array":
        return [_value(node["items"], each, resolve) for each in list(given)]
    if kind == "map":
        return {name: _value(node["values"], each, resolve) for name, each in given.items()}
    if kind in ("record", "error"):
        return {
            field["name"]: _value(field["type"], given[field["name"]], resolve)
            if field["name"] in given
            else _value(field["type"], field["default"], resolve)
            for field in node["fields"]
        }
    value = _plain(kind, given)
    _require_held(kind, node, value)
    logical = node.get("logicalType") if isinstance(node, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return read_decimal(value, node["precision"], node.get("scale", 0))
    read = LOGICAL_READERS.get(f"{kind}-{logical}")
    return value if read is None else read(value, node, None)


def _require_held(kind: str, node: Node, value: Any) -> None:
    """Raises ValueError if the type cannot hold the value: fastavro checks only the type of a default."""
    if (
        (kind == "enum" and value not in node["symbols"])
        or (kind == "fixed" and len(value) != node["size"])
        or (kind in _BITS and not -(1 << (_BITS[kind] - 1)) <= value < 1 << (_BITS[kind] - 1))
    ):
        raise ValueError


def _plain(kind: str, given: Any) -> Any:
    if kind in ("bytes", "fixed"):
        return given if isinstance(given, bytes) else given.encode("latin-1")
    if not isinstance(given, _PLAIN[kind]) or (isinstance(given, bool) and kind != "boolean"):
        raise TypeError
    number: Any = given
    return float(number) if kind in ("float", "double") else number
