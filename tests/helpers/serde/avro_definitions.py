"""Short ways to write Avro schemas, and schemas that several tests start from."""

from __future__ import annotations

from typing import Any

NO_DEFAULT = object()


def field(name: str, kind: Any, default: Any = NO_DEFAULT, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **attributes, **({} if default is NO_DEFAULT else {"default": default})}


def record(name: str, *fields: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def choice(name: str, *symbols: str, **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **attributes}


def fixed(name: str, size: int, **attributes: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **attributes}


def logical(logical_type: str, kind: str, **attributes: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **attributes}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
A, B = field("a", "int"), field("b", "string")
ADDRESS = record("Address", field("zip", "int"))
NODE = record("Node", field("value", "int"), field("next", ["null", "Node"]))


def decimal(precision: int, scale: int | None, kind: str = "bytes", **attributes: Any) -> dict[str, Any]:
    extra = {} if scale is None else {"scale": scale}
    return logical("decimal", kind, precision=precision, **extra, **attributes)


MILLIS, MICROS = logical("timestamp-millis", "long"), logical("timestamp-micros", "long")
