"""Gives a writer's schema the logical types of the reader's.

The specification leaves logical types to the reader, but fastavro uses the writer's: a long that the reader wants as a
timestamp stays a number, and the other way round.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from rmqio.serde.avro.reading.walk import BrokenValue
from rmqio.serde.avro.schemas.leaves import LOGICAL
from rmqio.serde.avro.schemas.nodes import WRITTEN_AS_INT, Node, nodes_of
from rmqio.serde.avro.schemas.schema import AvroSchema

_LOGICAL: Final = ("logicalType", "precision", "scale")
_KNOWN: Final = frozenset(name for _, name in LOGICAL)
_SAME_BYTES: Final = frozenset({("int", "long"), ("string", "bytes"), ("bytes", "string")})
_WIDENED: Final = frozenset(
    {("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double")}
)
"""Promotions. Types with the same bytes can be read as if they had been written as the target type."""


def like_reader(writer: AvroSchema, reader: AvroSchema) -> Node:
    """The parsed schema for fastavro. Raises `BrokenValue` for decimals whose precision or scale differ."""
    if not any(
        isinstance(node, dict) and "logicalType" in node for s in (writer, reader) for node in nodes_of(s.parsed)
    ):
        return writer.parsed
    whole = {"type": copy.deepcopy(writer.parsed)}
    _Alignment(whole, reader).align(whole, "type", reader.parsed)
    return whole["type"]


class _Alignment:
    """Changes a copy of the writer's schema in place."""

    def __init__(self, whole: Node, reader: AvroSchema) -> None:
        self._reader = reader
        self._names = {
            node["name"]: node for node in nodes_of(whole["type"]) if isinstance(node, dict) and "name" in node
        }
        self._done: set[tuple[str, str]] = set()

    def align(self, holder: Any, key: Any, wanted: Node) -> None:
        """Align the schema that `holder` has at `key`, and all its descendants."""
        written, wanted = (
            self._names.get(holder[key], holder[key]) if isinstance(holder[key], str) else holder[key],
            self._reader.resolve(wanted),
        )
        if isinstance(written, list):
            for at, branch in enumerate(written):
                self.align(written, at, self._branch_for(branch, wanted))
            return
        wanted = self._branch_for(written, wanted)
        kind = _kind(written)
        if (kind, _kind(wanted)) in _SAME_BYTES:
            logical = written if isinstance(written, dict) else {}
            holder[key] = {"type": _kind(wanted)} | {name: logical[name] for name in _LOGICAL if name in logical}
            _take_logical_type(holder, key, holder[key], wanted)
            if kind == "int":
                holder[key][WRITTEN_AS_INT] = True
        elif (kind, _kind(wanted)) in _WIDENED:
            holder[key] = kind
        elif kind != _kind(wanted):
            return
        elif kind == "record":
            self._align_records(written, wanted)
        elif kind == "array":
            self.align(written, "items", wanted["items"])
        elif kind == "map":
            self.align(written, "values", wanted["values"])
        else:
            _take_logical_type(holder, key, written, wanted)

    def _align_records(self, written: Node, wanted: Node) -> None:
        pair = written["name"], wanted["name"]
        if pair in self._done:
            return
        self._done.add(pair)
        by_name = {name: field for field in wanted["fields"] for name in field.get("aliases", ())}
        by_name |= {field["name"]: field for field in wanted["fields"]}
        for field in written["fields"]:
            if field["name"] in by_name:
                self.align(field, "type", by_name[field["name"]]["type"])

    def _branch_for(self, written: Node, wanted: Node) -> Node:
        """The branch of the reader's union for a value; `wanted` itself if it is not a union."""
        if not isinstance(wanted, list):
            return wanted
        written = self._names.get(written, written) if isinstance(written, str) else written
        branches = [self._reader.resolve(each) for each in wanted]
        kind = _kind(written)
        fit = [each for each in branches if _kind(each) == kind or (kind, _kind(each)) in _SAME_BYTES | _WIDENED]
        return next((each for each in fit if _short(each) == _short(written)), fit[0] if fit else None)


def _kind(node: Node) -> str:
    return str(node["type"] if isinstance(node, dict) else node)


def _short(node: Node) -> str:
    return str(node.get("name", "")).rpartition(".")[2] if isinstance(node, dict) else ""


def _take_logical_type(holder: Any, key: Any, written: Node, wanted: Node) -> None:
    has, takes = (
        {name: node[name] for name in _LOGICAL if name in node} if isinstance(node, dict) else {}
        for node in (written, wanted)
    )
    if has.get("logicalType") == takes.get("logicalType") == "decimal":
        if (has["precision"], has.get("scale", 0)) != (takes["precision"], takes.get("scale", 0)):
            raise BrokenValue(
                f"what was written as decimal({has['precision']}, {has.get('scale', 0)}) cannot be read as "
                f"decimal({takes['precision']}, {takes.get('scale', 0)})"
            )
    elif has.get("logicalType") in _KNOWN and takes.get("logicalType") in _KNOWN and has != takes:
        raise BrokenValue(f"what was written as {has['logicalType']} cannot be read as {takes['logicalType']}")
    elif has != takes:
        if isinstance(written, dict) and "name" in written:
            for name in has:
                del written[name]
            written.update(takes)
        else:
            holder[key] = {"type": _kind(written), **takes}
