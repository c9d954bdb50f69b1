"""Avro bodies as Arrow batches: of older schemas, in each framing, broken, cast, and in Beam."""

from __future__ import annotations

import datetime
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")

import apache_beam as beam
import pyarrow as pa
from apache_beam.testing.util import assert_that, equal_to

from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.model import Record
from rmqio.serde.avro.arrow import AvroToArrow
from rmqio.serde.registry import FolderRegistry, MemoryRegistry, RegistryUnavailable, UnknownSchema
from tests.helpers.serde.avro_records import LINE, ONE_LINE, body_of, logical, record, written
from tests.helpers.transforms.records import record_of

# ---- evolution and framings -----------------------------------------------------------------------------------------

ONE = record("Order", id="int", gone="string", day=logical("int", "date"), amount="double")
TWO = record(
    "Order",
    amount="double",
    id="long",
    state={"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]},
    day="int",
    due=["null", logical("int", "date")],
    tags={"type": "array", "items": "string"},
)
for field, default in (("state", "NEW"), ("due", None), ("tags", ["a"])):
    next(each for each in TWO["fields"] if each["name"] == field)["default"] = default
WRITTEN = {"id": 1, "gone": "x", "day": datetime.date(1970, 1, 3), "amount": 1.5}
READ = {"amount": 1.5, "id": 1, "state": "NEW", "day": 2, "due": None, "tags": ["a"]}


def test_bare_bodies_of_an_older_schema() -> None:
    records = written(ONE, WRITTEN)
    assert AvroToArrow(TWO, ONE)(records).to_pylist() == [READ]
    with pytest.raises(LocalError, match=r"decimal\(4, 2\) cannot be read as decimal\(4, 1\)"):
        AvroToArrow(*(record(a=logical("bytes", "decimal", precision=4, scale=each)) for each in (1, 2)))


def test_logical_types_are_the_readers_also_where_a_number_is_widened() -> None:
    writer, reader = record(a=logical("int", "date")), record(a=logical("long", "timestamp-millis"))
    batch = AvroToArrow(reader, writer)(written(writer, {"a": datetime.date(1970, 1, 3)}))
    assert batch.column("a").cast(pa.int64()).to_pylist() == [2]


@pytest.fixture(params=["folder", "memory"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: Any = FolderRegistry(tmp_path) if request.param == "folder" else MemoryRegistry()
    made.register("order", json.dumps(ONE))
    made.register("order", json.dumps(TWO))
    return made


@pytest.mark.parametrize("framing", ["single_object", "confluent", "container", "auto"])
def test_each_body_says_what_it_was_written_with(framing: Any, registry: Any) -> None:
    by = ["single_object", "confluent", "container"] if framing == "auto" else [framing]
    newer = READ | {"tags": [], "id": 2**40}
    records = [
        each
        for name in by
        for schema, element in ((ONE, WRITTEN), (TWO, newer), (ONE, WRITTEN))
        for each in written(
            schema, element, framing=name, **({"registry": registry, "subject": "order"} if name == "confluent" else {})
        )
    ]
    made = AvroToArrow("order", framing=framing, registry=registry)
    assert made(records).to_pylist() == [READ, newer, READ] * len(by)
    assert pickle.loads(pickle.dumps(made))(records) == made(records)


def test_bodies_of_many_schemas_in_one_batch(registry: Any) -> None:
    """More than are decoded in bulk, one after another and mixed, and broken ones between them."""
    writers = [record("Order", **{f"gone{n}": "string"}, id="int") for n in range(12)]
    reader = record("Order", id="long")
    for writer in writers:
        registry.register("many", json.dumps(writer))
    how: Any = {"framing": "confluent", "registry": registry, "subject": "many"}
    records = [written(writer, {f"gone{n}": "x", "id": n}, **how)[0] for n, writer in enumerate(writers)] * 3
    records = [each._replace(body=b"\0" if n in (0, 20) else each.body) for n, each in enumerate(records)]
    made = AvroToArrow(reader, framing="confluent", registry=registry, on_error="null")
    found = made.decode(records).to_pylist()
    assert found == [None if n in (0, 20) else {"id": n % 12} for n in range(36)]


def test_a_single_object_of_the_same_schema_needs_no_registry() -> None:
    records = written(LINE, ONE_LINE, framing="single_object")
    assert AvroToArrow(LINE, framing="single_object")(records).to_pylist() == [ONE_LINE]
    other = written(record(a="int"), {"a": 1}, framing="single_object")
    with pytest.raises(SerdeError, match="which is not known here: give registry="):
        AvroToArrow(LINE, framing="single_object")(other)


# ---- what cannot be decoded -----------------------------------------------------------------------------------------


def broken(records: list[Record], *numbers: int) -> list[Record]:
    return [each._replace(body=b"\x02") if n in numbers else each for n, each in enumerate(records)]


def test_the_first_broken_body_is_named() -> None:
    records = broken(written(LINE, *[ONE_LINE] * 500), 321, 400)
    with pytest.raises(SerdeError, match="queue orders/broker-a/3, offset 321: body of 1 bytes does not deserialize"):
        AvroToArrow(LINE)(records)


def test_broken_bodies_as_rows_of_nulls() -> None:
    records = broken(written(LINE, *[ONE_LINE] * 500), 0, 321)
    made = AvroToArrow(LINE, on_error="null")
    assert made.decode(records).to_pylist() == [None if n in (0, 321) else ONE_LINE for n in range(500)]
    batch = made(records)
    batch.validate(full=True)
    assert all(field.nullable for field in batch.schema)
    assert batch.schema == made.schema
    assert batch.to_pylist()[0] == {"sku": None, "quantity": None}
    assert batch.to_pylist()[1] == ONE_LINE


def test_a_field_of_nulls_in_records_of_an_array() -> None:
    """Arrow's cast gives such a field the length of the batch, and then the array is broken."""
    schema = record(items={"type": "array", "items": record("Item", never="null", a="int")})
    records = written(schema, {"items": [{"never": None, "a": n} for n in range(3)]})
    found = AvroToArrow(schema, on_error="null").decode(records)
    found.validate(full=True)
    assert found.to_pylist() == [{"items": [{"never": None, "a": n} for n in range(3)]}]


class Away:
    """A registry that cannot be asked."""

    def by_id(self, schema_id: int) -> str:
        raise (UnknownSchema if schema_id == 1 else RegistryUnavailable)("away")


def test_a_registry_that_does_not_answer_is_no_broken_body() -> None:
    made = AvroToArrow(LINE, framing="confluent", registry=Away(), on_error="null")  # type: ignore[arg-type]
    assert made.decode([record_of(b"\0\0\0\0\1x")]).to_pylist() == [None]
    with pytest.raises(RmqioError, match="away"):
        made.decode([record_of(b"\0\0\0\0\2x")])


def test_a_cast_and_values_that_do_not_fit_it() -> None:
    schema = record(a=logical("long", "timestamp-millis"), b={"type": "map", "values": logical("int", "time-millis")})
    micros = pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.map_(pa.string(), pa.int32()))])
    plain = record(a="long", b={"type": "map", "values": "int"})
    records = [body_of(plain, {"a": 2**62 if n == 150 else n, "b": {"x": n}}) for n in range(300)]
    records = [each._replace(queue_offset=n) for n, each in enumerate(records)]
    with pytest.raises(SerdeError, match=r"offset 150: body of .* a value that its Arrow type does not hold"):
        AvroToArrow(schema, cast_to=micros)(records)
    found = AvroToArrow(schema, cast_to=micros, on_error="null").decode(records)
    assert found.type == pa.struct(list(micros))
    assert [n for n, each in enumerate(found.is_null().to_pylist()) if each] == [150]
    assert found[299]["a"].cast(pa.int64()).as_py() == 299_000
    assert found[299]["b"].as_py() == [("x", 299)]


# ---- as a value, and in Beam ----------------------------------------------------------------------------------------


def test_it_is_a_value() -> None:
    made = AvroToArrow(TWO, ONE, on_error="null")
    same_again = pickle.loads(pickle.dumps(made))
    assert same_again == made == AvroToArrow(json.dumps(TWO), json.dumps(ONE), on_error="null")
    assert hash(same_again) == hash(made)
    assert made != AvroToArrow(TWO, ONE)
    assert same_again(written(ONE, WRITTEN)) == made(written(ONE, WRITTEN))
    assert repr(made) == "AvroToArrow(AvroSchema(Order), framing='bare')"


def _numbers(batch: Any) -> list[int]:
    assert isinstance(batch, pa.RecordBatch)
    found: list[int] = batch.column("a").to_pylist()
    return found


def test_batches_in_beam() -> None:
    schema = record(a="long")
    with beam.Pipeline() as pipeline:
        records = pipeline | beam.Create(written(schema, *({"a": n} for n in range(50))))
        batches = records | beam.BatchElements() | beam.Map(AvroToArrow(schema))
        assert_that(batches | beam.FlatMap(_numbers), equal_to(range(50)))
