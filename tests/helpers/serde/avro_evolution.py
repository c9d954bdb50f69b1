"""Random schemas that can read what another schema wrote, by Avro's rules for schema resolution."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.helpers.serde.avro_values import VALUE, Draw, Model, Node, default_of

_PROMOTED: Final = {"int": "long", "float": "double", "string": "bytes"}
_ADDED: Final[tuple[Node, ...]] = (
    "int",
    "double",
    "string",
    ["null", "long"],
    {"type": "array", "items": "int"},
    {"type": "map", "values": "string"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
)


@st.composite
def readers(draw: Draw, writer: Model) -> Model:
    """Draws a reader's schema: adds, omits, moves and renames fields and symbols, and widens types and names.

    Fields are added with defaults.
    """
    change = _Change(draw, writer)
    return Model(change.of(writer.root), {name: change.definition(name) for name in writer.types})


class _Change:
    def __init__(self, draw: Draw, writer: Model) -> None:
        self._draw, self._writer = draw, writer

    def of(self, node: Node, *, is_branch: bool = False) -> Node:
        """Returns the changed type. A union's branches keep their kinds, or one could become the same as another."""
        if isinstance(node, list):
            return [self.of(each, is_branch=True) for each in node]
        if isinstance(node, dict):
            inside = {key: self.of(node[key]) for key in ("items", "values") if key in node}
            made = {**node, **inside}
            if "logicalType" in made and self._rarely():
                made = {"type": made["type"]}
            return made
        if is_branch or node in self._writer.types:
            return node
        return _PROMOTED.get(node, node) if self._rarely() else node

    def definition(self, name: str) -> dict[str, Any]:
        made = dict(self._writer.types[name])
        if made["type"] == "enum":
            symbols = self._draw(st.permutations([*made["symbols"], "added"]))
            if "default" in made and self._draw(st.booleans()):
                symbols = [each for each in symbols if each == made["default"] or self._draw(st.booleans())]
            made["symbols"] = list(symbols)
        elif made["type"] == "record":
            first, *others = made["fields"]
            kept = [self._field(each) for each in (first, *(each for each in others if not self._rarely()))]
            added = [self._added(number) for number in range(self._draw(st.integers(0, 2)))]
            # Keeps the first field, so that a record has a field and takes bytes.
            made["fields"] = list(self._draw(st.permutations([*kept, *added])))
        return made

    def _field(self, field: dict[str, Any]) -> dict[str, Any]:
        made = {name: each for name, each in field.items() if name not in ("default", VALUE)}
        made["type"] = self.of(field["type"])
        if not isinstance(made["type"], list) and made["type"] != "null" and self._rarely():
            made["type"] = ["null", made["type"]]
        if self._rarely():
            made |= {"name": f"new_{field['name']}", "aliases": [field["name"]]}
        return made

    def _added(self, number: int) -> dict[str, Any]:
        kind = self._draw(st.sampled_from(_ADDED))
        _, default = default_of(self._draw, kind, self._writer)
        return {"name": f"added{number}", "type": kind, "default": default}

    def _rarely(self) -> bool:
        return bool(self._draw(st.integers(0, 4)) == 4)
