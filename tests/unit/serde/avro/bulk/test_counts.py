"""Blocks of arrays and maps whose count, or size, says something else than their bytes hold."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqio.serde.avro import AvroDeserializer, bulk
from rmqio.serde.avro.arrow import AvroToArrow
from tests.helpers.own_process import in_own_process
from tests.helpers.serde.avro_records import record
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import in_python, one_by_one, outcomes

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


def varint(number: int) -> bytes:
    """A long of Avro: zigzag, seven bits a byte."""
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


KINDS: dict[str, tuple[Any, bytes]] = {
    "ints": ({"type": "array", "items": "int"}, varint(3)),
    "texts": ({"type": "array", "items": "string"}, varint(2) + b"ab"),
    "options": ({"type": "array", "items": ["null", "long"]}, varint(1) + varint(9)),
    "rows": ({"type": "array", "items": record("Row", a="boolean")}, b"\x01"),
    "by_name": ({"type": "map", "values": "double"}, varint(1) + b"k" + bytes(8)),
    "nested": ({"type": "array", "items": {"type": "array", "items": "int"}}, varint(1) + varint(5) + varint(0)),
}
NOTED = -(2**63), -(2**40), -(2**31), -3, -2, -1, 0, 1, 2, 3, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1
counts = st.sampled_from(NOTED) | st.integers(-5, 5)
blocks = st.lists(st.tuples(counts, st.none() | counts, st.integers(0, 3)), max_size=3)


def body_of(item: bytes, made: list[tuple[int, int | None, int]], *, ends: bool) -> bytes:
    """Blocks, each with a count, the size that stands after a negative one (None: the right one), and real items."""
    found = b""
    for count, size, real in made:
        items = item * real
        found += varint(count) + (varint(len(items) if size is None else size) if count < 0 else b"") + items
    return found + (varint(0) if ends else b"")


@in_own_process
@given(st.sampled_from(sorted(KINDS)), blocks, st.booleans(), st.integers(0, 2))
@example("ints", [(2**40, None, 3)], True, 1)
@example("by_name", [(-2, 2**40, 2)], True, 0)
@settings(max_examples=400)
def test_a_count_that_lies_breaks_its_body_only_and_claims_no_memory(
    kind: str, made: list[tuple[int, int | None, int]], ends: bool, at: int
) -> None:
    schema, item = KINDS[kind]
    whole = record(items=schema, after="int")
    good = [body_of(item, [(real, None, real)] * (real > 0), ends=True) + varint(7) for real in (0, 1, 3)]
    bodies = [*good[:at], body_of(item, made, ends=ends) + varint(7), *good[at:]]
    to_arrow = AvroToArrow(whole, on_error="null")
    deserializer = AvroDeserializer(whole)
    tracemalloc.start()
    try:
        found = to_arrow.decode([record_of(body) for body in bodies])
        values = outcomes(deserializer, bodies)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    found.validate(full=True)
    assert found.nbytes < 100_000
    expected = in_python(lambda: AvroToArrow(whole, on_error="null").decode([record_of(body) for body in bodies]))
    assert found.equals(expected)
    assert values == in_python(lambda: one_by_one(AvroDeserializer(whole), bodies))
    others = [found[n].as_py() for n in range(len(bodies)) if n != at]
    assert all(other is not None and other["after"] == 7 for other in others)


@pytest.mark.parametrize("count", [1, 2, 12, 13, 14, 1_000])
@pytest.mark.parametrize("twice", [None, (0, 1), (0, -1), (-2, -1)])
def test_of_a_key_that_a_map_has_twice_the_last_counts(count: int, twice: tuple[int, int] | None) -> None:
    whole = record(items={"type": "map", "values": "int"}, after="int")
    keys = [b"" if n == 0 else b"key %d" % n for n in range(count)]
    if twice is not None and count > 1:
        keys[twice[0]] = keys[twice[1]]
    items = b"".join(varint(len(key)) + key + varint(n) for n, key in enumerate(keys))
    bodies = [varint(count) + items + varint(0) + varint(7)] * 2
    expected = {key.decode(): n for n, key in enumerate(keys)}
    to_arrow = AvroToArrow(whole)
    for row in to_arrow.decode([record_of(body) for body in bodies]).to_pylist():
        assert (dict(row["items"]), len(row["items"]), row["after"]) == (expected, len(expected), 7)
    columns = to_arrow._columns_of(b"")
    assert columns is not None
    left_to_python = columns.decode(bodies, 0)[1]
    assert [*left_to_python] == ([] if len(expected) == count else [0, 1])
