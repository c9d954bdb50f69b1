"""Many Avro bodies in one call: in C, and with fastavro, which must agree on values and on which bodies are broken."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import gc
import json
import os
import subprocess
import sys
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.errors import SerdeError
from rmqio.serde.avro import AvroDeserializer, AvroSerializer, Duration, bulk
from rmqio.serde.avro.bulk.values import Kind
from rmqio.serde.registry import MemoryRegistry
from tests.helpers.serde.avro_records import logical, record
from tests.helpers.serde.avro_schemas import schema_texts, schemas
from tests.helpers.serde.avro_values import values
from tests.helpers.transforms.records import record_of

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


def in_python(make: Callable[[], Any]) -> Any:
    """Makes it while there is no extension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "new_values", None)
        patch.setattr(bulk, "new_columns", None)
        return make()


def plain(value: Any) -> Any:
    """With the type of each value, since 1 == 1.0 == True and a NamedTuple equals a tuple."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), plain(vars(value)))
    if hasattr(value, "as_dict"):
        return ("row", plain(value.as_dict()))
    if isinstance(value, list | tuple):
        return (type(value), [plain(each) for each in value])
    return (type(value), repr(value))


def outcomes(deserializer: AvroDeserializer, bodies: list[bytes]) -> tuple[Any, dict[int, str]]:
    elements, errors = deserializer.many([record_of(body) for body in bodies])
    return plain(elements), {at: str(error) for at, error in errors.items()}


def one_by_one(deserializer: AvroDeserializer, bodies: list[bytes]) -> tuple[Any, dict[int, str]]:
    elements, errors = [], {}
    for at, body in enumerate(bodies):
        try:
            elements.append(deserializer(record_of(body)))
        except SerdeError as error:
            errors[at] = str(error)
    return plain(elements), errors


def spoilt(data: st.DataObject, body: bytes) -> bytes:
    """The body, or the body with some bytes changed, left out or added."""
    if data.draw(st.booleans()):
        return body
    at = data.draw(st.integers(0, len(body)))
    return body[:at] + data.draw(st.binary(max_size=4)) + body[at + data.draw(st.integers(0, 4)) :]


@given(st.data())
@settings(max_examples=400)
def test_c_and_python_agree_on_any_schema_and_any_body(data: st.DataObject) -> None:
    model = data.draw(schemas())
    schema = data.draw(schema_texts(model))
    serializer = AvroSerializer(schema)
    bodies = [spoilt(data, serializer(data.draw(values(model))[0]).body) for _ in range(data.draw(st.integers(0, 5)))]
    deserializer, reference = AvroDeserializer(schema), in_python(lambda: AvroDeserializer(schema))
    expected = one_by_one(reference, bodies)
    assert outcomes(reference, bodies) == expected
    assert outcomes(deserializer, bodies) == expected
    assert one_by_one(deserializer, bodies) == expected


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Line(NamedTuple):
    sku: str
    price: decimal.Decimal | None


class Renamed(NamedTuple):
    price: decimal.Decimal | None
    sku: str
    more: int = 7


@dataclasses.dataclass
class Order:
    id: int
    colour: Colour
    lines: tuple[Line, ...]
    either: Line | Shape | None
    by_name: dict[str, Line]
    day: datetime.date
    at: datetime.datetime
    key: uuid.UUID
    rest: Chain | None
    note: str = "none"

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("a negative id")


@dataclasses.dataclass(kw_only=True)
class Shape:
    sides: int


class Chain(NamedTuple):
    value: float
    next: Chain | None


LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "price", "type": ["null", logical("bytes", "decimal", precision=6, scale=2)]},
    ],
}
SHAPE = {"type": "record", "name": "Shape", "fields": [{"name": "sides", "type": "int"}]}
CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "value", "type": "double"}, {"name": "next", "type": ["Chain", "null"]}],
}
ORDER = record(
    id="long",
    left_out={"type": "map", "values": "bytes"},
    colour={"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
    lines={"type": "array", "items": LINE},
    either=["null", SHAPE, "Line"],
    by_name={"type": "map", "values": "Line"},
    day=logical("int", "date"),
    at=logical("long", "timestamp-micros"),
    key=logical("string", "uuid"),
    rest=["null", CHAIN],
    time=logical("int", "time-millis"),
    span={"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"},
)
AN_ORDER: dict[str, Any] = {
    "id": 2**40,
    "left_out": {"a": b"\0\xff"},
    "colour": "BLUE",
    "lines": [{"sku": "浙", "price": decimal.Decimal("1.20")}, {"sku": "", "price": None}],
    "either": {"sides": 3},
    "by_name": {"x": {"sku": "b", "price": None}},
    "day": datetime.date(2024, 2, 29),
    "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC),
    "key": uuid.UUID(int=7),
    "rest": {"value": 0.5, "next": {"value": 1.5, "next": None}},
    "time": datetime.time(23, 59, 59, 999_000),
    "span": Duration(1, 2, 3),
}


def test_the_fast_way_is_taken() -> None:
    """Else the tests would compare Python with itself."""
    for target in (dict, Order):
        deserializer = AvroDeserializer(ORDER, to=target)
        body = AvroSerializer(ORDER)(AN_ORDER).body
        assert deserializer._bare is not None
        assert deserializer._bare.fast is not None
        assert deserializer._bare.fast.many([body], 0) == ([deserializer(record_of(body))], [])
    assert plain(deserializer(record_of(body))) == plain(
        Order(
            2**40,
            Colour.BLUE,
            (Line("浙", decimal.Decimal("1.20")), Line("", None)),
            Shape(sides=3),
            {"x": Line("b", None)},
            AN_ORDER["day"],
            AN_ORDER["at"],
            AN_ORDER["key"],
            Chain(0.5, Chain(1.5, None)),
        )
    )


@given(st.data())
@settings(max_examples=300)
def test_c_and_python_agree_on_classes_of_the_user(data: st.DataObject) -> None:
    schema, target = data.draw(
        st.sampled_from([(ORDER, Order), (ORDER, dict), (LINE, Line), (LINE, Renamed), (CHAIN, Chain), (SHAPE, Shape)])
    )
    element = {"Line": AN_ORDER["lines"][0], "Chain": AN_ORDER["rest"], "Shape": {"sides": 4}}.get(
        schema["name"], AN_ORDER | {"id": data.draw(st.integers(-2, 2))}
    )
    bodies = [spoilt(data, AvroSerializer(schema)(element).body) for _ in range(3)]
    reference = in_python(lambda: AvroDeserializer(schema, to=target))
    expected = one_by_one(reference, bodies)
    deserializer = AvroDeserializer(schema, to=target)
    assert outcomes(deserializer, bodies) == expected
    assert one_by_one(deserializer, bodies) == expected


@pytest.mark.parametrize("framing", ["single_object", "confluent", "auto"])
def test_batches_of_several_schemas_and_broken_frames(framing: Any) -> None:
    registry = MemoryRegistry()
    older = record(id="long", gone="string")
    newer = record(id="long", note="string")
    newer["fields"][1] = {"name": "note", "type": "string", "default": "-"}
    how: Any = "confluent" if framing == "auto" else framing
    more: dict[str, Any] = {"registry": registry, "subject": "orders"} if how == "confluent" else {}
    writers = [AvroSerializer(each, framing=how, **more) for each in (newer, older)]
    for each in (newer, older):
        registry.register("orders", json.dumps(each))
    bodies = [writers[n % 3 == 1]({"id": n, "gone" if n % 3 == 1 else "note": "x"}).body for n in range(20)]
    bodies[4] = b""
    bodies[7] = bodies[7][:-1]
    bodies[9] = bodies[9] + b"\0"
    bodies[11] = b"\0\0\0\xff\xff\0"
    make = lambda: AvroDeserializer(newer, framing=framing, registry=registry)  # noqa: E731
    expected = one_by_one(in_python(make), bodies)
    assert set(expected[1]) == {4, 7, 9, 11}
    assert outcomes(make(), bodies) == expected
    assert outcomes(make(), bodies[4:]) == one_by_one(in_python(make), bodies[4:]), "the first one is broken"


def exact(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=60)))


def whole_millis(time: datetime.time) -> datetime.time:
    return time.replace(microsecond=time.microsecond // 1_000 * 1_000)


LINES = st.none() | st.fixed_dictionaries(
    {"sku": st.text(max_size=3), "tags": st.lists(st.none() | st.text(max_size=2), max_size=3)}
)
MAPS = st.dictionaries(st.text(max_size=1), st.floats(allow_nan=False), max_size=2)
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(max_size=9),
        "flag": st.booleans(),
        "ratio": st.none() | st.floats(width=32, allow_nan=False),
        "price": exact(38, 10),
        "fixed": exact(9, 3),
        "raw": st.binary(min_size=3, max_size=3),
        "state": st.sampled_from(["NEW", "PAID"]),
        "never": st.none(),
        "time": st.times(),
        "milli": st.times().map(whole_millis),
        "at": st.none()
        | st.integers(-(10**9), 10**10).map(lambda at: datetime.datetime.fromtimestamp(at, datetime.UTC)),
        "line": LINES,
        "lines": st.lists(LINES, max_size=3),
        "by_name": st.dictionaries(st.text(max_size=2), st.none() | MAPS, max_size=2),
    }
)


def test_columns_agree_with_dicts_whatever_is_broken() -> None:
    pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")
    from rmqio.serde.avro.arrow import AvroToArrow

    schema = record(
        id="long",
        text=["string", "null"],
        flag="boolean",
        ratio=["null", "float"],
        price=logical("bytes", "decimal", precision=38, scale=10),
        fixed={"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
        raw={"type": "fixed", "name": "G", "size": 3},
        state={"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]},
        never=["null"],
        time=logical("long", "time-micros"),
        milli=logical("int", "time-millis"),
        at=["null", logical("long", "timestamp-millis")],
        line=["null", record("Line", sku="string", tags={"type": "array", "items": ["null", "string"]})],
        lines={"type": "array", "items": ["null", "Line"]},
        by_name={"type": "map", "values": ["null", {"type": "map", "values": "double"}]},
    )

    serializer = AvroSerializer(schema)

    @given(st.data())
    @settings(max_examples=150)
    def agree(data: st.DataObject) -> None:
        bodies = [spoilt(data, serializer(each).body) for each in data.draw(st.lists(ROWS, max_size=6))]
        records = [record_of(body) for body in bodies]
        made, reference = AvroToArrow(schema, on_error="null"), in_python(lambda: AvroToArrow(schema, on_error="null"))
        assert made._columns is not None
        assert reference._columns is None
        found = made.decode(records)
        found.validate(full=True)
        assert found.equals(reference.decode(records))
        assert found.to_pylist() == reference.decode(records).to_pylist()

    agree()


def test_a_count_that_lies_claims_no_memory() -> None:
    """An array of 2**40 items, in a body of few bytes."""
    lying = bytes([0x80] * 5 + [0x40]) + b"\0" * 100
    schema = record(items={"type": "array", "items": "int"})
    tracemalloc.start()
    try:
        elements, errors = AvroDeserializer(schema).many([record_of(lying)] * 3)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert (elements, len(errors)) == ([], 3)


def test_nothing_leaks() -> None:
    good = AvroSerializer(ORDER)(AN_ORDER).body
    records = [record_of(good), record_of(good[:-3]), record_of(good + b"\0")]
    deserializer = AvroDeserializer(ORDER, to=Order)

    def run(times: int) -> int:
        for _ in range(times):
            deserializer.many(records)
        gc.collect()
        return sys.getallocatedblocks()

    run(50)
    before = run(50)
    assert run(500) - before < 50


def test_an_interrupt_inside_of_a_users_function_is_no_broken_body() -> None:
    @dataclasses.dataclass
    class Interrupts:
        sides: int

        def __post_init__(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        AvroDeserializer(SHAPE, to=Interrupts).many([record_of(b"\x02")])


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        ((99, (), None, ()),),
        ((Kind.LIST, (), None, ()),),
        ((Kind.LIST, (1,), None, ()),),
        ((Kind.FIXED, (), -1, ()),),
        ((Kind.ROW, (0, 0), tuple, (0, 0)),),
        ((Kind.ROW, (0, 0), tuple, (1, -1)),),
        ((Kind.ROW, (0,), list, (0,)),),
        ((Kind.RECORD, (0,), ("a", "b"), ()),),
        ((Kind.ENUM, (), ["a"], ()),),
        ("text",),
    ],
)
def test_nodes_that_lead_nowhere_are_refused(nodes: Any) -> None:
    assert bulk.new_values is not None
    with pytest.raises((ValueError, TypeError)):
        bulk.new_values(tuple((int(each[0]), *each[1:]) if isinstance(each, tuple) else each for each in nodes), 0)


def test_without_the_extension_everything_works() -> None:
    program = (
        "from rmqio.serde.avro import bulk, AvroDeserializer; from tests.helpers.transforms.records import record_of;"
        "print(bulk.new_values, AvroDeserializer('long').many([record_of(b'\\x02'), record_of(b'')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RMQIO_PURE_PYTHON": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("None ([1], {1: SerdeError(")


def test_rows_that_cannot_be_part_of_a_cycle_are_not_looked_at_by_the_collector() -> None:
    class WithAttributes(Chain):
        pass

    body = AvroSerializer(CHAIN)(AN_ORDER["rest"]).body
    assert not gc.is_tracked(AvroDeserializer(CHAIN, to=Chain)(record_of(body)))
    assert gc.is_tracked(AvroDeserializer(CHAIN, to=WithAttributes)(record_of(body)))
    order = AvroSerializer(ORDER)(AN_ORDER).body
    assert gc.is_tracked(AvroDeserializer(ORDER)(record_of(order)))


@given(st.integers(1, 20), st.data())
@settings(max_examples=300)
def test_decimals_have_the_same_digits_and_exponent(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    most = 10**precision
    kind = data.draw(st.sampled_from(["bytes", "fixed"]))
    more = {"name": "D", "size": 9} if kind == "fixed" else {}
    schema = logical(kind, "decimal", precision=precision, scale=scale, **more)
    unscaled = data.draw(st.integers(-most, most) | st.sampled_from([0, -1, 1 - most, most - 1]))
    number = unscaled.to_bytes(9, "big", signed=True)
    body = number if kind == "fixed" else bytes([2 * len(number)]) + number
    short = unscaled.to_bytes(max(1, (unscaled.bit_length() + 8) // 8), "big", signed=True)
    bodies = [body] if kind == "fixed" else [body, bytes([2 * len(short)]) + short, b"\0"]
    reference = in_python(lambda: AvroDeserializer(schema))
    assert outcomes(AvroDeserializer(schema), bodies) == one_by_one(reference, bodies)
