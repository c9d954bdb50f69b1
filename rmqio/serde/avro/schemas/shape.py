"""Whether values of a schema can be deep or large, although they have only a few bytes."""

from __future__ import annotations

from typing import Final

from rmqio.serde.avro.schemas.nodes import Node

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class Shape:
    """The shape of a parsed schema, found in one pass: except within itself, a type is defined before it is named."""

    __slots__ = ("_empty", "_levels", "has_empty_items", "is_hollow", "is_recursive", "levels")

    def __init__(self, parsed: Node) -> None:
        self.is_recursive = False
        """Whether a value can contain one of the same type."""
        self.is_hollow = False
        """Whether a record has fields that take no bytes. Nested records with two such fields each double the value
        with each line of the schema, and it still takes no bytes."""
        self.has_empty_items = False
        """Whether an array has items that take no bytes, of which ten bytes can contain a billion."""
        self._levels: dict[str, int] = {}
        self._empty: set[str] = set()
        self.levels, _ = self._of(parsed)
        """The maximum nesting of records, arrays and maps, if the schema is not recursive."""

    def _of(self, node: Node) -> tuple[int, bool]:
        """The levels of a schema, and whether its values take no bytes."""
        if isinstance(node, str):
            return self._of_name(node)
        if isinstance(node, list):
            return max((self._of(each)[0] for each in node), default=0), False  # the branch's index takes a byte
        kind = node["type"]
        if not isinstance(kind, str):
            return self._of(kind)
        if kind in ("record", "error"):
            return self._of_record(node)
        if kind == "array":
            levels, is_empty = self._of(node["items"])
            self.has_empty_items |= is_empty
            return 1 + levels, False
        if kind == "map":
            return 1 + self._of(node["values"])[0], False
        is_empty = kind == "null" or (kind == "fixed" and node["size"] == 0)
        if "name" in node:
            self._set(node["name"], 0, is_empty)
        return 0, is_empty

    def _of_name(self, name: str) -> tuple[int, bool]:
        if name in self._levels:
            return self._levels[name], name in self._empty
        self.is_recursive |= name not in PRIMITIVES  # the name of an enclosing record, which is not finished
        return 0, name == "null"

    def _of_record(self, node: Node) -> tuple[int, bool]:
        found = [self._of(field["type"]) for field in node["fields"]]
        levels, is_empty = 1 + max((each for each, _ in found), default=0), all(empty for _, empty in found)
        self.is_hollow |= any(empty for _, empty in found)
        self._set(node["name"], levels, is_empty)
        return levels, is_empty

    def _set(self, name: str, levels: int, is_empty: bool) -> None:
        self._levels[name] = levels
        if is_empty:
            self._empty.add(name)
