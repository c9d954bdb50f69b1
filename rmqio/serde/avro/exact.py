"""Reads ints, logical types and enums exactly as they were written, or raises; the defaults of fields too."""

from __future__ import annotations

import copy
import datetime
import decimal
from collections.abc import Callable
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from rmqio.errors import LocalError
from rmqio.serde.avro.nodes import WRITTEN_AS_INT, Node, nodes_of

_PREFIX: Final = "rmqio-"
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC)
_DAY_S: Final = 86_400
_LEAST_INT: Final = -(1 << 31)
_MOST_INT: Final = (1 << 31) - 1
_INT: Final = f"{_PREFIX}int"
_THEN: Final = f"{_PREFIX}then"
_BOOLEAN: Final = {"type": "fixed", "name": f"{_PREFIX}boolean", "size": 1, "logicalType": f"{_PREFIX}boolean"}


def read_decimal(data: bytes, precision: int, scale: int) -> decimal.Decimal:
    """The decimal in bytes. Raises ValueError if there are no bytes, or more digits than `precision`."""
    return _read_decimal(data, _with_limits({"precision": precision, "scale": scale}))


def exact_reader(kind: str, logical: str, node: Node) -> Callable[[Any], Any] | None:
    """Return the function that makes the exact value of a logical type; None: fastavro's value is exact."""
    read = _READERS.get((kind, logical))
    if read is None:
        return None
    limited = _with_limits(node) if logical == "decimal" else node
    return lambda value: read(value, limited)


def with_exact_types(node: Node) -> Node:
    """A parsed schema for fastavro to read with: a copy if it has such types, but not for ints."""
    return _copied(node, {}) if _has_such(node, set()) else node


def with_exact_ints(node: Node) -> Node:
    """A copy for bodies that may have ints of more bits: calling a function for each int takes longer than to read it.

    Args:
      node: a schema of `with_exact_types`.
    """
    return _marked(_exact_type(_copied(node, {}, ints=True)))


def _marked(node: Node) -> Node:
    """The node, marked as parsed: fastavro would parse it for each value."""
    for each in node if isinstance(node, list) else [node]:
        if isinstance(each, dict):
            each.setdefault("__fastavro_parsed", True)
            each.setdefault("__named_schemas", {})
    return node


def strict_schema(node: Node) -> Node | None:
    """A copy of a parsed schema with which fastavro raises on branches and booleans that there are not.

    It gives other values for them, and takes no reader's schema. None: the schema has neither.
    """
    is_loose = any(isinstance(each, list) or _is_boolean(each) for each in nodes_of(node))
    return _marked(_strict(node, {})) if is_loose else None


def _is_boolean(node: Node) -> bool:
    return bool(node == "boolean" or (isinstance(node, dict) and node["type"] == "boolean"))


def _strict(node: Node, made: dict[int, Any]) -> Node:
    if isinstance(node, list):  # by number, as fastavro looks them up; there is no -1
        return {"type": "union", **{at: _strict(each, made) for at, each in enumerate(node)}}
    if _is_boolean(node):
        return _BOOLEAN
    if not isinstance(node, dict):
        return node
    if id(node) in made:
        return made[id(node)]
    copy = made[id(node)] = {**node}
    copy.pop("logicalType", None)
    if "__named_schemas" in node:
        copy["__named_schemas"] = {name: _strict(each, made) for name, each in node["__named_schemas"].items()}
    if "fields" in node:
        copy["fields"] = [{**each, "type": _strict(each["type"], made)} for each in node["fields"]]
    for name in ("items", "values"):
        if name in node:
            copy[name] = _strict(node[name], made)
    if not isinstance(node["type"], str):
        copy["type"] = _strict(node["type"], made)
    return copy


def _read_boolean(data: bytes, node: Node, wanted: Node = None) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError("no boolean")
    return data == b"\1"


def _read_decimal(data: bytes, node: Node, _: Node = None) -> decimal.Decimal:
    unscaled, limit = int.from_bytes(data, "big", signed=True), node["limit"]
    if not data or not -limit < unscaled < limit:
        raise ValueError(f"no decimal of {node['precision']} digits")
    return decimal.Decimal(unscaled).scaleb(node["exponent"], _EXACT)


def _reader_of_time(of: str, per_second: int) -> Callable[..., datetime.time]:
    read, end = LOGICAL_READERS[of], _DAY_S * per_second

    def checked(value: int, node: Node, wanted: Node = None) -> datetime.time:
        if not 0 <= value < end:
            raise ValueError("no time of a day")
        found: datetime.time = read(value, node, wanted)
        return found

    return checked


_READERS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("bytes", "decimal"): _read_decimal,
    ("fixed", "decimal"): _read_decimal,
    ("int", "time-millis"): _reader_of_time("int-time-millis", 1_000),
    ("long", "time-micros"): _reader_of_time("long-time-micros", 1_000_000),
}


def _read_int(value: int, node: Node, wanted: Node = None) -> Any:
    """Continues as fastavro would without the check: with the logical type, or the number of the reader's type."""
    if not _LEAST_INT <= value <= _MOST_INT:
        raise ValueError("a number of more than 32 bits is not a valid int")
    read = node.get(_THEN)
    if read is not None:
        return read(value, node, wanted)
    wants = wanted["type"] if isinstance(wanted, dict) else wanted
    return float(value) if wants in ("float", "double") else value


# fastavro's documented way to add logical types. Only we use these names.
LOGICAL_READERS.update({f"{kind}-{_PREFIX}{logical}": read for (kind, logical), read in _READERS.items()})
LOGICAL_READERS.update({f"{kind}-{_INT}": _read_int for kind in ("int", "long")})
LOGICAL_READERS[f"fixed-{_BOOLEAN['logicalType']}"] = _read_boolean


def _is_such(node: Node) -> bool:
    kind, logical = node.get("type"), node.get("logicalType")
    return _is_enum(node) or (isinstance(kind, str) and isinstance(logical, str) and (kind, logical) in _READERS)


def _is_enum(node: Node) -> bool:
    return node.get("type") == "enum" and isinstance(node.get("symbols"), list)


def _has_such(node: Any, seen: set[int]) -> bool:
    if id(node) in seen or not isinstance(node, (dict, list)):
        return False
    seen.add(id(node))
    if isinstance(node, list):
        return any(_has_such(each, seen) for each in node)
    return _is_such(node) or any(_has_such(each, seen) for each in node.values())


def _copied(node: Any, made: dict[int, Any], *, ints: bool = False) -> Any:
    """A copy with everything that fastavro stores in the schema. One object stays one object."""
    if isinstance(node, list):
        return [_copied(each, made, ints=ints) for each in node]
    if not isinstance(node, dict):
        return node
    if id(node) not in made:
        copy = made[id(node)] = {name: _copied(each, made, ints=ints) for name, each in node.items()}
        if ints:
            _set_exact_ints(copy)
        elif _is_enum(node):
            copy["symbols"] = dict(enumerate(copy["symbols"]))  # by number, as fastavro looks them up; there is no -1
        elif _is_such(node):
            more = _with_limits(copy) if node["logicalType"] == "decimal" else {}
            copy.update(more, logicalType=_PREFIX + node["logicalType"])
    return made[id(node)]


def _set_exact_ints(node: dict[str, Any]) -> None:
    """Replaces the ints of a record, array or map, and marks an int itself."""
    kind = node.get("type")
    if kind in ("record", "error"):
        for field in node["fields"]:
            field["type"] = _exact_type(field["type"])
    elif kind == "array":
        node["items"] = _exact_type(node["items"])
    elif kind == "map":
        node["values"] = _exact_type(node["values"])
    elif isinstance(kind, (dict, list)):
        node["type"] = _exact_type(kind)
    elif kind == "int" or (kind == "long" and WRITTEN_AS_INT in node):
        read = LOGICAL_READERS.get(f"{kind}-{node.get('logicalType')}")
        node.update({"logicalType": _INT} | ({} if read is None else {_THEN: read}))


def _exact_type(node: Node) -> Node:
    """The node for a name: fastavro calls a function for types with a logical type only."""
    if isinstance(node, list):
        return list(map(_exact_type, node))
    return {"type": "int", "logicalType": _INT} if node == "int" else node


def _with_limits(node: Node) -> Node:
    return {**node, "limit": 10 ** node["precision"], "exponent": -node.get("scale", 0)}


# Converts the defaults of fields to the values that they stand for.
#
# A schema's JSON has bytes as text and dates as numbers. fastavro returns and writes them unconverted, and gives one
# list or dict to all records.

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
