"""Schemas whose named types are defined in one place, next to the root, and named everywhere else.

fastavro finds the reader's type only if both sides name it or both define it. A field with a type that the writer names
and the reader's union defines fails.
"""

from __future__ import annotations

from rmqio.serde.avro.schemas.nodes import Node, nodes_of


def by_name(root: Node) -> Node:
    """A new copy of the parsed schema for fastavro."""
    named = {node["name"]: node for node in nodes_of(root) if isinstance(node, dict) and "name" in node}
    definitions = {name: _parts_by_name(node) for name, node in named.items()}
    marks = {"__fastavro_parsed": True, "__named_schemas": definitions}
    if isinstance(root, list):
        return [{**_parts_by_name(each), **marks} if isinstance(each, dict) else each for each in root]
    return {**_parts_by_name(root), **marks} if isinstance(root, dict) else root


def _parts_by_name(node: Node) -> Node:
    """A copy of a dict whose parts are names."""
    made = {key: value for key, value in node.items() if not key.startswith("__")}
    if "fields" in made:
        made["fields"] = [{**field, "type": _reference(field["type"])} for field in made["fields"]]
    for part in ("items", "values"):
        if part in made:
            made[part] = _reference(made[part])
    if not isinstance(made["type"], str):
        made["type"] = _reference(made["type"])
    return made


def _reference(node: Node) -> Node:
    if isinstance(node, list):
        return list(map(_reference, node))
    if not isinstance(node, dict):
        return node
    return node["name"] if "name" in node else _parts_by_name(node)
