"""Bodies of another schema than the reader's, many in one call: in C, and with fastavro, which must agree."""

from __future__ import annotations

import datetime
import enum
import json
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.serde.avro import AvroDeserializer, AvroSerializer, bulk
from tests.helpers.serde.avro_evolution import readers
from tests.helpers.serde.avro_schemas import schema_texts, schemas
from tests.helpers.serde.avro_values import values
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import in_python, one_by_one, outcomes, plain, spoilt

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


@given(st.data())
@settings(max_examples=400)
def test_c_and_python_agree_on_any_evolution_and_any_body(data: st.DataObject) -> None:
    model = data.draw(schemas())
    writer = data.draw(schema_texts(model))
    reader = data.draw(schema_texts(data.draw(readers(model))))
    serializer = AvroSerializer(writer)
    bodies = [spoilt(data, serializer(data.draw(values(model))[0]).body) for _ in range(data.draw(st.integers(0, 5)))]
    deserializer, reference = (make() for make in _both(reader, writer, dict))
    expected = one_by_one(reference, bodies)
    assert outcomes(deserializer, bodies) == expected
    assert one_by_one(deserializer, bodies) == expected


def _both(reader: Any, writer: Any, target: type) -> tuple[Any, Any]:
    def make() -> AvroDeserializer:
        return AvroDeserializer(reader, writer, to=target)

    return make, lambda: in_python(make)


class Level(enum.Enum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Place(NamedTuple):
    city: str
    zip: int = -1


class Reading(NamedTuple):
    note: str
    level: Level | None
    places: list[Place]
    id: float
    unit: str | None = None


LEVELS = {"type": "enum", "name": "Level", "symbols": ["HIGH", "LOW"]}
MORE_LEVELS = {**LEVELS, "symbols": ["LOW", "MEDIUM", "HIGH"]}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def made(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


WRITER = made(
    "Reading",
    field("id", "int"),
    field("gone", ["null", {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}]),
    field("level", ["null", LEVELS]),
    field("places", {"type": "array", "items": made("Place", field("city", "string"), field("street", "string"))}),
    field("unit", "string"),
)
READER = made(
    "Reading",
    field("note", "string", default="-"),
    field("unit", ["null", "string"]),
    field("places", {"type": "array", "items": made("Place", field("zip", "int", default=0), field("city", "string"))}),
    field("id", "double"),
    field("level", ["null", MORE_LEVELS]),
)
VALUE = {
    "id": 7,
    "gone": {"x": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)},
    "level": "HIGH",
    "places": [{"city": "杭州", "street": "s"}, {"city": "", "street": ""}],
    "unit": "C",
}


@pytest.mark.parametrize("target", [dict, Reading])
def test_fields_that_come_go_move_and_widen_take_the_fast_way(target: type) -> None:
    bodies = [AvroSerializer(WRITER)({**VALUE, "id": n, "level": None if n % 2 else "LOW"}).body for n in range(5)]
    deserializer, reference = (make() for make in _both(READER, WRITER, target))
    decoders = deserializer._bare
    assert decoders is not None
    assert decoders.fast is not None, "else the tests would compare Python with itself"
    assert len(decoders.fast.many(bodies, 0)[0]) == 5
    bodies[2] += b"\0"
    bodies[3] = bodies[3][:-1]
    expected = one_by_one(reference, bodies)
    assert set(expected[1]) == {2, 3}
    assert outcomes(deserializer, bodies) == expected
    found = deserializer(record_of(bodies[0]))
    if target is Reading:
        assert found == Reading("-", Level.LOW, [Place("杭州", 0), Place("", 0)], 0.0, "C")
        assert type(found.id) is float
    else:
        assert list(found) == list(reference(record_of(bodies[0]))), "in the same order"


UNIONS: list[tuple[Any, Any, list[Any]]] = [
    (["null", "string"], ["string", "null"], [None, "x"]),
    ("string", ["null", "string"], ["x"]),
    (["int", "null"], ["null", "int", "string"], [1, None]),
    (["int", "double"], ["double", "int"], [1, 1.5]),
    (["int", "string"], ["long", "string"], [1, "x"]),
    (["null", "string"], "string", ["x", None]),
    ("long", "int", [5]),
    ("string", "bytes", ["x"]),
    ("bytes", ["null", "string"], [b"x", b"\xff"]),
    ("float", "double", [1.5]),
    ("long", "float", [2**60 + 1]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, ["A", "B"]),
    ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "G", "size": 2}, [b"ab"]),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, [[], [1]]),
]


@pytest.mark.parametrize(("writer", "reader", "given_values"), UNIONS, ids=[json.dumps(each[:2]) for each in UNIONS])
def test_what_resolves_and_what_does_not(writer: Any, reader: Any, given_values: list[Any]) -> None:
    written, wanted = made("R", field("v", writer), field("w", "int")), made("R", field("w", "int"), field("v", reader))
    bodies = [AvroSerializer(written)({"v": each, "w": 3}).body for each in given_values]
    deserializer, reference = (make() for make in _both(wanted, written, dict))
    assert outcomes(deserializer, bodies) == one_by_one(reference, bodies)


@pytest.mark.parametrize(
    ("kind", "default", "is_fast"), [(["null", "int"], None, True), ({"type": "array", "items": "int"}, [], False)]
)
def test_mutable_defaults_are_not_shared(kind: Any, default: Any, is_fast: bool) -> None:
    written = made("R", field("w", "int"))
    wanted = made("R", field("w", "int"), field("v", kind, default=default))
    bodies = [AvroSerializer(written)({"w": n}).body for n in range(2)]
    deserializer, reference = (make() for make in _both(wanted, written, dict))
    assert (deserializer._bare.fast is not None) is is_fast
    found = [deserializer(record_of(body)) for body in bodies]
    assert plain(found) == plain([reference(record_of(body)) for body in bodies])
    assert default is None or found[0]["v"] is not found[1]["v"]


class Only(NamedTuple):
    id: int


class Whole(NamedTuple):
    id: dict[str, Any]


def stamp() -> dict[str, str]:
    return {"type": "long", "logicalType": "timestamp-micros"}


EARLY = b"\xff" * 9 + b"\x01"  # -2**63
LEFT_OUT: list[
    Any
] = [  # the type of a field that the class does not have, the reader's, a valid value and a broken one
    pytest.param(stamp(), stamp(), b"\0", EARLY, True, id="a timestamp"),
    pytest.param({"type": "string", "logicalType": "uuid"}, None, b"\x40" + b"0" * 32, b"\2x", True, id="a uuid"),
    pytest.param({**LEVELS, "symbols": ["LOW", "OLD"]}, MORE_LEVELS, b"\0", b"\2", False, id="a symbol"),
    pytest.param(LEVELS, MORE_LEVELS, b"\0", b"\4", True, id="no symbol"),
    pytest.param({"type": "array", "items": stamp()}, None, b"\2\0\0", b"\2" + EARLY + b"\0", True, id="in an array"),
    pytest.param(made("S", field("t", stamp())), None, b"\0", EARLY, True, id="in a record"),
    pytest.param(
        ["null", made("S", field("t", stamp())), {"type": "map", "values": stamp()}],
        ["null", {"type": "map", "values": stamp()}, made("S", field("t", stamp()), field("u", "int", default=1))],
        b"\2\0",
        b"\4\2\2k" + EARLY + b"\0",
        True,
        id="in a union",
    ),
]


@pytest.mark.parametrize(("written", "wanted", "valid", "broken", "is_fast"), LEFT_OUT)
def test_a_field_that_the_class_leaves_out_is_decoded(
    written: Any, wanted: Any, valid: bytes, broken: bytes, is_fast: bool
) -> None:
    writer = made("R", field("id", "int"), field("gone", written))
    moved = made("R", field("gone", wanted or written), field("id", "int"))
    without = made("R", field("id", "long"))
    bodies = [b"\2" + valid, b"\2" + broken, b"\2" + valid]
    for reader in (moved,) if wanted == MORE_LEVELS else (moved, writer):
        deserializer, reference = (make() for make in _both(reader, writer, Only))
        assert (deserializer._bare.fast is not None) is is_fast
        expected = one_by_one(reference, bodies)
        assert set(expected[1]) == {1}
        assert outcomes(deserializer, bodies) == expected
    deserializer, reference = (make() for make in _both(without, writer, Only))
    assert outcomes(deserializer, bodies) == one_by_one(reference, bodies)


def test_a_record_is_kept_in_one_field_and_left_out_in_another() -> None:
    choice = ["null", made("A", field("t", "int")), made("B", field("t", "int"))]
    inner = made("S", field("t", stamp()), field("by", choice))
    writer = made("R", field("gone", inner), field("id", "S"))
    reader = made("R", field("id", inner), field("gone", "S"))
    bodies = [b"\0\0\0\0", EARLY + b"\0\0\0", b"\0\0" + EARLY + b"\0", b"\0\2\4\0\4\6"]
    for target in (Whole, dict):
        deserializer, reference = (make() for make in _both(reader, writer, target))
        expected = one_by_one(reference, bodies)
        assert set(expected[1]) == {1, 2}
        assert outcomes(deserializer, bodies) == expected
