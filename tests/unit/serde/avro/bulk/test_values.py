"""Many Avro bodies in one call: in C, and with fastavro, which must agree on values and on which bodies are broken."""

from __future__ import annotations

import decimal
import json
import os
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.serde.avro import AvroDeserializer, AvroSerializer, bulk
from rmqio.serde.registry import MemoryRegistry
from tests.helpers.own_process import in_own_process
from tests.helpers.serde.avro_records import logical, record
from tests.helpers.serde.avro_schemas import schema_texts, schemas
from tests.helpers.serde.avro_values import values
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import (
    AN_ORDER,
    CHAIN,
    LINE,
    ORDER,
    SHAPE,
    Chain,
    Colour,
    Line,
    Order,
    Renamed,
    Shape,
    in_python,
    one_by_one,
    outcomes,
    plain,
    spoilt,
)

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


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


@in_own_process
def test_no_thread_is_left_and_a_forked_child_decodes() -> None:
    """Spark's daemon forks its workers after it has imported and perhaps used this."""
    bodies = [AvroSerializer(ORDER)(AN_ORDER).body] * 2_000
    deserializer = AvroDeserializer(ORDER)
    expected = outcomes(deserializer, bodies)
    assert os.listdir("/proc/self/task") == [str(os.getpid())]
    child = os.fork()
    if child == 0:
        os._exit(0 if outcomes(deserializer, bodies) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
