"""The C extension for Avro: memory, references, interrupts, nodes that lead nowhere, and how it goes without it."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")


from rmqio.serde.avro import AvroDeserializer, AvroSerializer, bulk
from rmqio.serde.avro.bulk_plans import Kind
from tests.helpers.leaks import assert_leaks_nothing
from tests.helpers.own_process import in_own_process
from tests.helpers.serde.avro_records import record
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import AN_ORDER, CHAIN, ORDER, SHAPE, Chain, Order

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


@in_own_process
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
    assert_leaks_nothing(lambda: deserializer.many(records), records)


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
