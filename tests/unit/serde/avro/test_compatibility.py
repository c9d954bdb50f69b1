"""The rules of schema resolution as tables, and as a property against fastavro itself.

The property needs bytes of each branch and symbol, whichever fastavro's writer would choose: the test encodes itself.
"""

from __future__ import annotations

import copy
import io
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from fastavro import schemaless_reader
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.serde.avro.compatibility import Incompatibility, Level, check, find_incompatibilities

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


def differences(reader: Any, writer: Any) -> list[str]:
    return [f"{path}: {reason}" for path, reason in find_incompatibilities(reader, writer)]


# ---- encoding, to ask fastavro --------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    value <<= 1  # zigzag, of numbers that are not negative
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


SIMPLE = {
    "null": b"",
    "boolean": b"\x01",
    "int": number(3),
    "long": number(2**40),
    "float": struct.pack("<f", 1.5),
    "double": struct.pack("<d", 1.5),
    "string": text("blå"),
    "bytes": text("blå"),  # UTF-8, so that it can be read as text
}


def unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def covering(schema: Any, names: dict[str, Any] | None = None, depth: int = 0) -> list[bytes]:
    """Values of a schema in Avro's binary form, so that every symbol and every branch is in one at least."""
    names = {} if names is None else names
    if isinstance(schema, list):
        branches = [*enumerate(schema)]
        if depth > 6:  # recursive: the way out is null
            branches = [(index, branch) for index, branch in branches if branch == "null"] or branches
        return [number(index) + value for index, branch in branches for value in covering(branch, names, depth + 1)]
    if isinstance(schema, str):
        return [SIMPLE[schema]] if schema in SIMPLE else covering(names[unqualified(schema)], names, depth + 1)
    kind = schema["type"]
    if "name" in schema:
        names[unqualified(schema["name"])] = schema
    if kind == "enum":
        return [number(index) for index in range(len(schema["symbols"]))]
    if kind == "fixed":
        return [b"\x01" * schema["size"]]
    if kind in ("array", "map"):
        inner = [] if depth > 6 else covering(schema["items" if kind == "array" else "values"], names, depth + 1)
        if not inner:
            return [number(0)]
        key = b"" if kind == "array" else text("k")
        return [number(len(inner)) + b"".join(key + value for value in inner) + number(0)]
    if kind in ("record", "error"):
        columns = [covering(one["type"], names, depth + 1) for one in schema["fields"]]
        return [
            b"".join(column[row % len(column)] for column in columns)
            for row in range(max(map(len, columns), default=1))
        ]
    return [text("12345678-1234-5678-1234-567812345678")] if schema.get("logicalType") == "uuid" else [SIMPLE[kind]]


def read(reader: Any, writer: Any, body: bytes) -> Any:
    return schemaless_reader(io.BytesIO(body), copy.deepcopy(writer), copy.deepcopy(reader))


def failures(reader: Any, writer: Any) -> list[Exception]:
    """What fastavro raises over all covering values."""
    raised = []
    for body in covering(writer):
        try:
            read(reader, writer, body)
        except Exception as error:  # noqa: BLE001 - fastavro's come from all over
            raised.append(error)
    return raised


# ---- the rules ------------------------------------------------------------------------------------------------------

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
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


A, B = field("a", "int"), field("b", "string")
STATE, FEWER = choice("State", "NEW", "PAID"), choice("State", "NEW")
ADDRESS = record("Address", field("zip", "int"))
NODE = record("Node", field("value", "int"), field("next", ["null", "Node"]))
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
def test_what_the_rules_forbid_is_told_with_its_place(case: str) -> None:
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
        ("int", True, "true is no int"),
        ("int", 2**31, "2147483648 is no int"),
        ("long", 2**63, "9223372036854775808 is no long"),
        ("double", "1.5", '"1.5" is no double'),
        ("bytes", "€", '"\\u20ac" is no bytes'),
        (fixed("F", 2), "abc", '"abc" is no fixed F'),
        (STATE, "LOST", '"LOST" is no enum State'),
        (array("int"), [1, "x"], '"x" is no int'),
        (mapping("string"), {"a": 1}, "1 is no string"),
        (POINT, {"y": 1}, "lacks the field x of record Point"),
        (POINT, {"x": "1"}, '"1" is no int'),
        (["string", "null"], None, "null is no string, the first of its union"),
        (["null", "string"], "x" * 50, f'"{"x" * 36}... is no null, the first of its union'),
    ],
)
def test_a_default_of_another_type_is_told(kind: Any, default: Any, misfit: str) -> None:
    reader, writer = record("R", A, field("new", kind, default)), record("R", A)
    assert differences(reader, writer) == [f"R.new: the writer has no such field, and the reader's default {misfit}"]
    both = record("R", A, field("new", kind))
    assert differences(reader, both) == [], "a default that is not needed does not matter"


# ---- logical types --------------------------------------------------------------------------------------------------


def decimal(precision: int, scale: int | None, kind: str = "bytes", **attributes: Any) -> dict[str, Any]:
    extra = {} if scale is None else {"scale": scale}
    return logical("decimal", kind, precision=precision, **extra, **attributes)


MILLIS, MICROS = logical("timestamp-millis", "long"), logical("timestamp-micros", "long")


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


# ---- levels ---------------------------------------------------------------------------------------------------------

V1 = record("R", A)
V2 = record("R", A, field("b", "int", 0))
V3 = record("R", A, field("b", "int"))  # reads V2 but not V1
MISSING = "the writer has no such field, and the reader no default for it"


@pytest.mark.parametrize(
    ("level", "new", "before", "expected"),
    [
        (Level.NONE, "int", ["string"], []),
        (Level.BACKWARD, V3, [], []),
        (Level.BACKWARD, V3, [V1, V2], []),
        (Level.BACKWARD_TRANSITIVE, V3, [V1, V2], ["v3 cannot read v1: R.b"]),
        (Level.BACKWARD, V1, [V3], []),
        (Level.FORWARD, V1, [V3, V2], []),
        (Level.FORWARD_TRANSITIVE, V1, [V3, V2], ["v1 cannot read v3: R.b"]),
        (Level.FORWARD, V1, [V3], ["v1 cannot read v2: R.b"]),
        (Level.FORWARD, V3, [V1], []),
        (Level.FULL, V1, [V3], ["v1 cannot read v2: R.b"]),
        (Level.FULL, V3, [V1], ["v2 cannot read v1: R.b"]),
        (Level.FULL, V3, [V1, V2], []),
        (Level.FULL_TRANSITIVE, V3, [V1, V2], ["v3 cannot read v1: R.b"]),
        (Level.FULL_TRANSITIVE, V2, [V1, V1], []),
    ],
)
def test_a_level_says_who_must_read_whom(level: Level, new: Any, before: list[Any], expected: list[str]) -> None:
    assert check(new, before, level) == [Incompatibility(path, MISSING) for path in expected]


def test_versions_may_have_their_own_numbers() -> None:
    found = check(V3, [V1, V2], Level.BACKWARD_TRANSITIVE, versions=[4, 7, 9])
    assert [path for path, _ in found] == ["v9 cannot read v4: R.b"]
    with pytest.raises(LocalError, match="2 numbers for 3 schemas"):
        check(V3, [V1, V2], Level.BACKWARD, versions=[1, 2])


def test_levels_are_confluents_words_in_either_case() -> None:
    assert Level("FULL_TRANSITIVE") is Level("full_transitive") is Level.FULL_TRANSITIVE
    with pytest.raises(ValueError, match="SIDEWAYS"):
        Level("SIDEWAYS")


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
    """What may become of a schema: up to three changes that evolution brings, good and bad."""
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
