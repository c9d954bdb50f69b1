"""Many Avro bodies to Arrow columns in C, which must agree with fastavro on values and on broken bodies."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.serde.avro import AvroSerializer, bulk
from rmqio.serde.avro.arrow import AvroToArrow
from tests.helpers.serde.avro_evolution import readers
from tests.helpers.serde.avro_records import logical, record
from tests.helpers.serde.avro_schemas import schema_texts, schemas
from tests.helpers.serde.avro_values import values
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import (
    in_python,
    spoilt,
)

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


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


def agree(schema: Any, writer: Any, bodies: list[bytes]) -> None:
    """C and fastavro make the same rows of bodies, and find the same ones broken."""
    records = [record_of(body) for body in bodies]
    found = AvroToArrow(schema, writer, on_error="null").decode(records)
    expected = in_python(lambda: AvroToArrow(schema, writer, on_error="null").decode(records))
    found.validate(full=True)
    # Not a number equals nothing, and dates can be in years that Python does not have.
    assert found.equals(expected) or repr(found.to_pylist()) == repr(expected.to_pylist())


def is_in_bulk(schema: Any, writer: Any = None) -> bool:
    return AvroToArrow(schema, writer)._columns_of(b"") is not None


WHOLE = record(
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


@given(st.data())
@settings(max_examples=150)
def test_columns_agree_with_dicts_whatever_is_broken(data: st.DataObject) -> None:
    serializer = AvroSerializer(WHOLE)
    agree(WHOLE, None, [spoilt(data, serializer(each).body) for each in data.draw(st.lists(ROWS, max_size=6))])


def test_the_schema_of_all_types_is_decoded_in_bulk() -> None:
    assert is_in_bulk(WHOLE)


@st.composite
def with_columns(draw: Any) -> Any:
    """Schemas of records that have an Arrow type."""
    model = draw(schemas())
    try:
        AvroToArrow(draw(schema_texts(model)))
    except LocalError:
        reject()
    return model


@given(st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_columns_agree_with_dicts_on_any_schema(data: st.DataObject) -> None:
    model = data.draw(with_columns())
    schema = data.draw(schema_texts(model))
    serializer = AvroSerializer(schema)
    bodies = [spoilt(data, serializer(data.draw(values(model))[0]).body) for _ in range(data.draw(st.integers(0, 5)))]
    agree(schema, None, bodies)


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_columns_agree_with_dicts_on_any_evolution(data: st.DataObject) -> None:
    model = data.draw(with_columns())
    writer, reader = data.draw(schema_texts(model)), data.draw(schema_texts(data.draw(readers(model))))
    try:
        AvroToArrow(reader, writer)
    except LocalError:  # a field was added that has no Arrow type, or decimals differ
        reject()
    serializer = AvroSerializer(writer)
    bodies = [spoilt(data, serializer(data.draw(values(model))[0]).body) for _ in range(data.draw(st.integers(0, 5)))]
    agree(reader, writer, bodies)


LINE = record("Line", sku="string", amount="int")
WIDER = record("Line", amount="long", sku=["null", "string"], note="string")
WIDER["fields"][-1]["default"] = "none"


def added(default: Any, kind: Any) -> Any:
    schema = record(id="long", added=kind)
    schema["fields"][-1]["default"] = default
    return schema


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (record(id="long", gone="string"), record(id="long"), {"id": 1, "gone": "x"}),
        (record(a="long", b="string"), record(b="string", a="long"), {"a": 1, "b": "x"}),
        (record(id="long"), added(None, ["null", LINE]), {"id": 1}),
        (record(id="long"), added([], {"type": "array", "items": "string"}), {"id": 1}),
        (record(id="long"), added({"sku": "a", "amount": 1}, LINE), {"id": 1}),
        (record(id="long"), added("1970-01-01", "string"), {"id": 1}),
        (record(id="long"), added(3, logical("int", "date")), {"id": 1}),
        (record(id="long"), added("\u0001\u00ff", logical("bytes", "decimal", precision=5, scale=2)), {"id": 1}),
        (record(n="int"), record(n="long"), {"n": -(2**31)}),
        (record(n="int"), record(n="float"), {"n": 2**24 + 1}),
        (record(n="int"), record(n=logical("long", "timestamp-micros")), {"n": 7}),
        (record(n="long"), record(n="float"), {"n": 2**63 - 2**38 - 1}),
        (record(n="long"), record(n="double"), {"n": 2**63 - 1}),
        (record(n="float"), record(n=["null", "double"]), {"n": 0.1}),
        (record(n=["null", "int"]), record(n=["long", "null"]), {"n": 5}),
        (record(n=["null"]), record(n=["null", "string"]), {"n": None}),
        (record(lines={"type": "array", "items": LINE}), record(lines={"type": "array", "items": WIDER}),
         {"lines": [{"sku": "a", "amount": 1}, {"sku": "b", "amount": 2}]}),
        (record(by={"type": "map", "values": ["null", LINE]}), record(by={"type": "map", "values": ["null", WIDER]}),
         {"by": {"x": {"sku": "a", "amount": 1}, "y": None}}),
        (record(e={"type": "enum", "name": "E", "symbols": ["A", "B"]}),
         record(e={"type": "enum", "name": "E", "symbols": ["B", "C", "A"]}), {"e": "B"}),
        (record(d=logical("int", "date"), t=logical("int", "time-millis")), record(d="int", t="int"),
         {"d": datetime.date(1970, 1, 3), "t": datetime.time(0, 0, 1)}),
    ],
)  # fmt: skip
def test_usual_evolutions_are_decoded_in_bulk(writer: Any, reader: Any, value: Any) -> None:
    assert is_in_bulk(reader, writer)
    body = AvroSerializer(writer)(value).body
    agree(reader, writer, [body, body[:-1], body, body + b"\0"])


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (record(n="string"), record(n="bytes")),
        (record(n=["null", "int"]), record(n="int")),
        (record(n=["int", "string"], id="long"), record(id="long")),
        (record(n={"type": "enum", "name": "E", "symbols": ["A", "B"]}),
         record(n={"type": "enum", "name": "E", "symbols": ["A"], "default": "A"})),
        (record(old="int"), {"type": "record", "name": "R",
                             "fields": [{"name": "new", "type": "int", "aliases": ["old"]}]}),
        (record(n=record("Deep", next=["null", "Deep"]), id="long"), record(id="long")),
    ],
)  # fmt: skip
def test_what_arrow_cannot_resolve_goes_through_fastavro(writer: Any, reader: Any) -> None:
    assert not is_in_bulk(reader, writer)
