"""The rules of schema resolution as tables: what is read, and what is said of what is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.serde.avro.compatibility import Incompatibility, find_incompatibilities
from tests.helpers.serde.avro_definitions import (
    ADDRESS,
    MICROS,
    MILLIS,
    NODE,
    PRIMITIVES,
    A,
    B,
    array,
    choice,
    decimal,
    field,
    fixed,
    logical,
    mapping,
    record,
)
from tests.helpers.serde.avro_resolution import differences, failures

PROMOTED = {
    *[("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")],
    *[("float", "double"), ("string", "bytes"), ("bytes", "string")],
}


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_a_primitive_is_read_as_itself_and_where_it_is_promoted(reader: str, writer: str) -> None:
    is_readable = reader == writer or (writer, reader) in PROMOTED
    expected = [] if is_readable else [(reader, f"the reader has {reader}, the writer {writer}")]
    assert find_incompatibilities(reader, writer) == expected
    assert find_incompatibilities({"type": reader}, {"type": writer, "doc": "x"}) == expected
    assert (failures(reader, writer) == []) is is_readable


STATE, FEWER = choice("State", "NEW", "PAID"), choice("State", "NEW")
TREE = record("Tree", field("value", "int"), field("children", array("Tree")))
PLACED = record("p.R", field("e", choice("E", "X")), field("again", "E"), field("full", "p.E"))
BARE = record("R", field("e", choice("E", "X")), field("again", "E"), field("full", "E"))
READABLE = {
    "fields in another order": (record("R", B, A), record("R", A, B)),
    "a field less": (record("R", A), record("R", A, B)),
    "a new field with a default": (record("R", A, field("b", "string", "")), record("R", A)),
    "a field under its alias": (record("R", field("z", "long", aliases=["y", "a"])), record("R", A)),
    "a record under its alias": (record("S", A, aliases=["R"]), record("R", A)),
    "an alias in the reader's namespace": (record("p.S", A, aliases=["R"]), record("p.R", A)),
    "an alias with another namespace": (record("p.S", A, aliases=["q.R"]), record("R", A, namespace="q")),
    "an enum under its alias": (choice("F", "X", aliases=["E"]), choice("E", "X")),
    "a fixed under its alias": (fixed("G", 2, aliases=["F"]), fixed("F", 2)),
    "another namespace": (record("p.R", A), record("R", A, namespace="q")),
    "a namespace that is inherited": (PLACED, BARE),
    "a namespace that is given up": (BARE, PLACED),
    "an error is a record": (record("R", A), {**record("R", A), "type": "error"}),
    "more symbols": (STATE, FEWER),
    "symbols in another order": (choice("State", "PAID", "NEW"), STATE),
    "fewer symbols and a default": ({**FEWER, "default": "NEW"}, STATE),
    "items that are promoted": (array("double"), array("int")),
    "values that are promoted": (mapping("bytes"), mapping("string")),
    "made optional": (["null", "string"], "string"),
    "made optional and promoted": (["null", "double"], "int"),
    "an optional record": (["null", ADDRESS], ADDRESS),
    "a branch more": (["null", "int", "string"], ["int", "null"]),
    "branches that are all promoted to one": ("double", ["int", "long", "float"]),
    "branches that go to branches": (["null", "double", "string"], ["int", "bytes", "null"]),
    "a list in a union": (["null", array(["long", "null"])], array("int")),
    "recursive": (
        record("Node", field("value", "long"), field("next", ["null", "Node"]), field("new", "int", 0)),
        NODE,
    ),
    "recursive, renamed": (
        record("T", field("value", "float"), field("children", array("T")), aliases=["Tree"]),
        TREE,
    ),
    "a name for a definition": (
        record("R", field("new", ADDRESS, {"zip": 1}), field("a", "Address")),
        record("R", field("a", ADDRESS)),
    ),
    "a definition for a name": (
        record("R", field("b", ADDRESS)),
        record("R", field("a", ADDRESS), field("b", "Address")),
    ),
    "an alias that is another field's name": (record("R", A, field("b", "int", 0, aliases=["a"])), record("R", A)),
}


@pytest.mark.parametrize("case", READABLE)
def test_what_the_rules_allow_is_read(case: str) -> None:
    reader, writer = READABLE[case]
    assert differences(reader, writer) == []
    assert failures(reader, writer) == []


DEEP = record("R", field("rows", array(mapping(record("Cell", field("value", ["null", "int", STATE]))))))
DEEP_READER = record("R", field("rows", array(mapping(record("Cell", field("value", ["null", "long", FEWER]))))))
UNREADABLE = {
    "a new field without a default": (
        record("R", A, B),
        record("R", A),
        ["R.b: the writer has no such field, and the reader no default for it"],
    ),
    "two at once": (
        record("R", field("a", "boolean"), B),
        record("R", A),
        [
            "R.a: the reader has boolean, the writer int",
            "R.b: the writer has no such field, and the reader no default for it",
        ],
    ),
    "two fields for one": (
        record("R", field("a", "int", aliases=["c"])),
        record("R", A, field("c", "int")),
        ["R.a: the writer's a and c are both it, by name or alias"],
    ),
    "another name": (record("R", A), record("p.S", A), ["R: the reader has record R, the writer record p.S"]),
    "the alias is the writer's": (
        record("R", A),
        record("S", A, aliases=["R"]),
        ["R: the reader has record R, the writer record S"],
    ),
    "another kind": (fixed("E", 1), choice("E", "X"), ["E: the reader has fixed E, the writer enum E"]),
    "fewer symbols": (FEWER, STATE, ["State: the reader's enum has neither PAID nor a default"]),
    "another size": (fixed("F", 2), fixed("F", 3), ["F: the reader's fixed F has 2 bytes, the writer's 3"]),
    "a fixed for bytes": ("bytes", fixed("F", 3), ["bytes: the reader has bytes, the writer fixed F"]),
    "other items": (array("int"), array("long"), ["array[]: the reader has int, the writer long"]),
    "other values": (mapping("int"), mapping("null"), ["map{}: the reader has int, the writer null"]),
    "an array for a map": (array("int"), mapping("int"), ["array: the reader has array, the writer map"]),
    "no longer optional": ("string", ["null", "string"], ["string{0}: the reader has string, the writer null"]),
    "a branch less": (
        ["null", "int"],
        ["null", "int", "string"],
        ["union{2}: string matches no branch of the reader's [null, int]"],
    ),
    "no branch at all": (
        ["null", "string"],
        fixed("F", 1),
        ["union: fixed F matches no branch of the reader's [null, string]"],
    ),
    "no branch for these items": (
        ["null", array("int")],
        array("string"),
        ["union: array matches no branch of the reader's [null, array]"],
    ),
    "the first branch that matches counts": (
        [record("p.R", B), record("q.R", A)],
        record("R", A),
        ["union.b: the writer has no such field, and the reader no default for it"],
    ),
    "deep down": (
        DEEP_READER,
        DEEP,
        ["R.rows[]{}.value{2}: the reader's enum has neither PAID nor a default"],
    ),
    "recursive, told once": (
        record("Node", field("value", "boolean"), field("next", ["null", "Node"])),
        NODE,
        ["Node.value: the reader has boolean, the writer int"],
    ),
    "a type in two places, told once": (
        record("R", field("a", FEWER), field("b", "State")),
        record("R", field("a", STATE), field("b", "State")),
        ["R.a: the reader's enum has neither PAID nor a default"],
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_the_rules_forbid_is_reported_with_its_place(case: str) -> None:
    reader, writer, expected = UNREADABLE[case]
    assert differences(reader, writer) == expected
    assert failures(reader, writer) != []


def test_a_schema_reads_its_own_though_two_branches_have_the_same_unqualified_name() -> None:
    schema = [record("p.R", A), record("q.R", B)]
    assert find_incompatibilities(schema, copy.deepcopy(schema)) == []
    assert failures(schema, schema) == []


# ---- defaults of fields that the writer has not ---------------------------------------------------------------------

POINT = record("Point", field("x", "int"), field("y", "int", 0))


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("null", None),
        ("boolean", False),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 1),
        ("double", 1.5),
        ("string", "é"),
        ("bytes", "ÿ\0"),
        (fixed("F", 2), "ab"),
        (STATE, "PAID"),
        (array("int"), [1, 2]),
        (array("int"), []),
        (mapping(["null", "int"]), {"a": None}),
        (POINT, {"x": 1}),
        (["null", "string"], None),
        (["string", "null"], "x"),
    ],
)
def test_a_default_of_the_fields_type_fills_it(kind: Any, default: Any) -> None:
    reader, writer = record("R", A, field("new", kind, default)), record("R", A)
    assert differences(reader, writer) == []
    assert failures(reader, writer) == []


# fastavro refuses the plainest of these when it parses them (below), and lets these pass.
@pytest.mark.parametrize(
    ("kind", "default", "misfit"),
    [
        ("int", True, "true is not valid for int"),
        ("int", 2**31, "2147483648 is not valid for int"),
        ("long", 2**63, "9223372036854775808 is not valid for long"),
        ("double", "1.5", '"1.5" is not valid for double'),
        ("bytes", "€", '"\\u20ac" is not valid for bytes'),
        (fixed("F", 2), "abc", '"abc" is not valid for fixed F'),
        (STATE, "LOST", '"LOST" is not valid for enum State'),
        (array("int"), [1, "x"], '"x" is not valid for int'),
        (mapping("string"), {"a": 1}, "1 is not valid for string"),
        (POINT, {"y": 1}, "lacks the field x of record Point"),
        (POINT, {"x": "1"}, '"1" is not valid for int'),
        (["string", "null"], None, "null is not valid for string, the first of its union"),
        (["null", "string"], "x" * 50, f'"{"x" * 36}... is not valid for null, the first of its union'),
    ],
)
def test_a_default_of_another_type_is_reported(kind: Any, default: Any, misfit: str) -> None:
    reader, writer = record("R", A, field("new", kind, default)), record("R", A)
    assert differences(reader, writer) == [f"R.new: the writer has no such field, and the reader's default {misfit}"]
    both = record("R", A, field("new", kind))
    assert differences(reader, both) == [], "a default that is not needed does not matter"


# ---- logical types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (decimal(10, 2), decimal(10, 2), None),
        (decimal(10, 0), decimal(10, None), None),
        (decimal(10, 2), decimal(10, 3), "the reader has decimal(10, 2), the writer decimal(10, 3)"),
        (decimal(12, 2), decimal(10, 2), "the reader has decimal(12, 2), the writer decimal(10, 2)"),
        (
            decimal(4, 2, "fixed", name="D", size=4),
            decimal(4, 1, "fixed", name="D", size=4),
            "the reader has decimal(4, 2), the writer decimal(4, 1)",
        ),
        (decimal(4, 2), decimal(4, 2, "fixed", name="D", size=4), "the reader has bytes, the writer fixed D"),
        (decimal(10, 2), "bytes", None),
        ("bytes", decimal(10, 2), None),
        ("string", decimal(10, 2), "the reader has string, the writer decimal(10, 2)"),
        (decimal(10, 2), "string", "the reader has decimal(10, 2), the writer string"),
        (decimal(10, 2), logical("uuid", "string"), "the reader has decimal(10, 2), the writer uuid"),
        (MILLIS, MICROS, "the reader has timestamp-millis, the writer timestamp-micros"),
        (MICROS, logical("timestamp-nanos", "long"), "the reader has timestamp-micros, the writer timestamp-nanos"),
        (MILLIS, logical("date", "int"), "the reader has timestamp-millis, the writer date"),
        (MILLIS, "long", None),
        ("long", MILLIS, None),
        ("double", logical("date", "int"), None),
        (MILLIS, "int", None),
        (logical("uuid", "string"), "bytes", None),
        (logical("money", "long"), logical("weight", "long"), None),
        (logical("date", "string"), logical("uuid", "string"), None),
        (logical("decimal", "bytes"), decimal(10, 2), None),
        (
            logical("duration", "fixed", name="D", size=12),
            decimal(4, 2, "fixed", name="D", size=12),
            "the reader has duration, the writer decimal(4, 2)",
        ),
        (logical("duration", "fixed", name="D", size=8), decimal(4, 2, "fixed", name="D", size=8), None),
        (logical("timestamp-millis", "long"), logical("date", "long"), None),
    ],
)
def test_logical_types(reader: Any, writer: Any, expected: str | None) -> None:
    found = find_incompatibilities(record("R", field("f", reader)), record("R", field("f", writer)))
    assert found == ([] if expected is None else [Incompatibility("R.f", expected)])


# ---- what is no schema ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("integer", "UnknownType: integer"),
        ({"type": "record", "fields": []}, '"name" is a required field'),
        ({"type": "enum", "name": "E"}, "KeyError: 'symbols'"),
        ({"name": "R"}, "KeyError: 'type'"),
        (None, "TypeError"),
        (record("R", field("a", "int", "x")), "Default value <x> must match"),
        (record("R", A, A), "two fields of R have the same name"),
        (record("R", A, aliases="S"), "the aliases of R are not a list"),
        (record("R", field("a", "int", aliases=[1])), "the aliases of a are not a list"),
        (record("R", field("a", {"type": {"type": "int"}})), "TypeError"),
    ],
)
def test_what_is_no_schema_is_misuse_on_either_side(schema: Any, reason: str) -> None:
    for reader, writer in ((schema, "int"), ("int", schema), (schema, schema)):
        with pytest.raises(LocalError, match=f"no Avro schema: .*{reason}|{reason}"):
            find_incompatibilities(reader, writer)


def test_a_long_schema_is_not_quoted_whole() -> None:
    with pytest.raises(LocalError) as caught:
        find_incompatibilities({"type": "record", "doc": "x" * 1_000, "fields": []}, "int")
    assert len(str(caught.value)) < 300


def test_schemas_are_left_as_they_were() -> None:
    reader, writer = record("R", A, field("n", NODE, {"value": 1, "next": None})), record("R", A)
    before = copy.deepcopy((reader, writer))
    find_incompatibilities(reader, writer)
    assert (reader, writer) == before
