"""The rules against fastavro itself: where it does otherwise, and as a property, that it does so nowhere else."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from fastavro import schemaless_reader
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.serde.avro.compatibility import find_incompatibilities
from tests.helpers.serde.avro_definitions import (
    ADDRESS,
    MILLIS,
    NO_DEFAULT,
    PRIMITIVES,
    A,
    array,
    choice,
    decimal,
    field,
    fixed,
    logical,
    mapping,
    record,
)
from tests.helpers.serde.avro_resolution import covering, differences, failures, number, read

# ---- where fastavro does otherwise ----------------------------------------------------------------------------------


def sent(writer: Any, reader: Any) -> Callable[[], Any]:
    return lambda: read(reader, writer, covering(writer)[0])


@pytest.mark.parametrize(
    ("reader", "writer", "error"),
    [
        (  # the writer defines, the reader's union names
            record("R", field("new", ADDRESS, {"zip": 1}), field("a", ["null", "Address"])),
            record("R", field("a", ADDRESS)),
            "string indices must be integers",
        ),
        (  # the writer names, the reader's union defines
            record("R", field("b", ["null", ADDRESS])),
            record("R", field("a", ADDRESS), field("b", "Address")),
            "unhashable type",
        ),
        ([record("p.E", A), choice("q.E", "X")], choice("E", "X"), "symbols"),
    ],
)
def test_fastavro_fails_where_the_rules_allow(reader: Any, writer: Any, error: str) -> None:
    assert differences(reader, writer) == []
    with pytest.raises((TypeError, KeyError), match=error):
        sent(writer, reader)()


def test_fastavro_reads_a_fixed_as_an_enum_of_that_name() -> None:
    reader, writer = choice("E", "X"), fixed("E", 1)
    assert differences(reader, writer) == ["E: the reader has enum E, the writer fixed E"]
    assert sent(writer, reader)() == b"\x01"


def test_fastavro_takes_an_alias_for_any_namespace() -> None:
    reader, writer = record("p.R", A, aliases=["S"]), record("q.S", A)
    assert differences(reader, writer) == ["R: the reader has record p.R, the writer record q.S"]
    assert sent(writer, reader)() == {"a": 3}


def test_fastavro_converts_by_the_writers_logical_type() -> None:
    assert sent(logical("date", "int"), "long")() == date(1970, 1, 4)
    assert sent("long", MILLIS)() == 2**40
    assert sent(logical("timestamp-micros", "long"), MILLIS)() == datetime.fromtimestamp(2**40 // 10**6, UTC).replace(
        microsecond=2**40 % 10**6
    )


def test_fastavro_does_not_convert_a_default_and_gives_each_record_the_same_object() -> None:
    reader = record("R", field("b", decimal(4, 2), "\u0001"), field("c", array("int"), []))
    first, second = (schemaless_reader(io.BytesIO(number(1)), record("R", A), reader) for _ in range(2))
    assert first == second == {"b": "\u0001", "c": []}
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["c"] is second["c"]


# ---- the property ---------------------------------------------------------------------------------------------------

DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 1,
    "float": 1.0,
    "double": 1.0,
    "bytes": "x",
    "string": "x",
}


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A record whose named types have different names; it may contain itself."""
    count = 0

    def make(depth: int) -> Any:
        nonlocal count
        kinds = ["primitive", "primitive", "enum", "fixed"]
        kind = draw(st.sampled_from([*kinds, "array", "map", "union", "record"] if depth < 3 else kinds))
        count += 1
        if kind == "primitive":
            return draw(st.sampled_from(PRIMITIVES))
        if kind == "enum":
            return choice(f"E{count}", *draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True)))
        if kind == "fixed":
            return fixed(f"F{count}", draw(st.integers(1, 3)))
        if kind == "array":
            return array(make(depth + 1))
        if kind == "map":
            return mapping(make(depth + 1))
        if kind == "union":
            simple: list[Any] = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
            return [*simple, choice(f"E{count}", "X", "Y")] if draw(st.booleans()) else simple
        return record(f"R{count}", *(field(name, make(depth + 1)) for name in "ab"))

    fields = [field(name, make(1)) for name in "abc"]
    if draw(st.booleans()):
        fields.append(field("self", ["null", "Root"]))
    return record("Root", *fields)


def nodes_of(schema: Any, put: Callable[[Any], None]) -> list[tuple[Any, Callable[[Any], None]]]:
    """Every type in a schema, and how to put another in its place."""

    def setter(holder: Any, key: Any) -> Callable[[Any], None]:
        return lambda value: holder.__setitem__(key, value)

    found = [(schema, put)]
    if isinstance(schema, list):
        for index, branch in enumerate(schema):
            if isinstance(branch, dict):
                found += nodes_of(branch, setter(schema, index))
    elif isinstance(schema, dict):
        for key in ("items", "values"):
            if key in schema:
                found += nodes_of(schema[key], setter(schema, key))
        for one in schema.get("fields", []):
            if "default" in one:
                continue  # it would have to fit: fastavro checks some when it parses and none when it reads
            found += nodes_of(one["type"], setter(one, "type"))
    return found


@st.composite
def mutations(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """Draws mutations of a schema: up to three changes that evolution brings, good and bad."""
    holder = {"root": copy.deepcopy(schema)}
    for step in range(draw(st.integers(1, 3))):
        nodes = nodes_of(holder["root"], lambda value: holder.__setitem__("root", value))
        node, put = draw(st.sampled_from(nodes))
        if isinstance(node, list):
            changed = draw(st.permutations(node))
            put(changed[:-1] if len(node) > 2 and draw(st.booleans()) else changed)
        elif isinstance(node, str):
            other = draw(st.sampled_from(PRIMITIVES))
            # A reference made optional is one of the pinned differences, and so is left out.
            if node in PRIMITIVES:
                put(draw(st.sampled_from([other, ["null", node] if node != "null" else other, array(node)])))
        elif node["type"] == "enum":
            symbols = draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True))
            node["symbols"] = symbols
            node.pop("default", None)
            if draw(st.booleans()):
                node["default"] = symbols[0]
        elif node["type"] == "fixed":
            node["size"] = draw(st.integers(1, 3))
        elif node["type"] == "record":
            change_record(draw, node, step)
        if isinstance(node, dict) and "name" in node and node["name"] != "Root" and draw(st.integers(0, 3)) == 0:
            old, node["name"] = node["name"], f"Renamed{step}{node['name']}"
            if draw(st.booleans()):
                node["aliases"] = [*node.get("aliases", []), old]
            else:
                node.pop("aliases", None)
    types = [node for node, _ in nodes_of(holder["root"], lambda value: None) if isinstance(node, dict)]
    # An alias of another namespace is one of the pinned differences.
    if not any("aliases" in node for node in types) and draw(st.booleans()):
        holder["root"]["namespace"] = "moved"
    return holder["root"]


def change_record(draw: st.DrawFn, node: dict[str, Any], step: int) -> None:
    fields = node["fields"]
    change = draw(st.sampled_from(["add", "add with default", "remove", "rename", "rename with alias", "reorder"]))
    if change.startswith("add"):
        kind = draw(st.sampled_from(PRIMITIVES))
        fields.append(field(f"new{step}", kind, DEFAULTS[kind] if "default" in change else NO_DEFAULT))
    elif change == "remove" and fields:
        fields.pop(draw(st.integers(0, len(fields) - 1)))
    elif change.startswith("rename") and fields:
        one = draw(st.sampled_from(fields))
        old, one["name"] = one["name"], f"renamed{step}"
        if "alias" in change:
            one["aliases"] = [*one.get("aliases", []), old]
    else:
        node["fields"] = draw(st.permutations(fields))


@settings(max_examples=400)
@given(st.data())
def test_nothing_is_found_exactly_where_fastavro_reads_every_value(data: st.DataObject) -> None:
    writer = data.draw(schemas())
    reader = data.draw(mutations(writer))
    found, raised = find_incompatibilities(reader, writer), failures(reader, writer)
    assert bool(found) == bool(raised), (found, raised)
