"""Schemas of classes: what is inferred, and that its values come back as they were."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from rmqio.errors import LocalError
from rmqio.serde.avro import AvroDeserializer, AvroSchema, AvroSerializer, Duration, schema_of_class
from tests.helpers.transforms.records import record_of

Money = Annotated[decimal.Decimal, {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]


class State(enum.Enum):
    NEW = 1
    PAID = 2


class Line(NamedTuple):
    sku: str
    price: Money
    state: State


@dataclass
class Order:
    id: int
    lines: list[Line]
    state: State
    when: datetime.datetime
    day: datetime.date
    at: datetime.time
    key: uuid.UUID
    every: Duration
    raw: bytes
    share: float
    is_new: bool
    by_name: dict[str, Line]
    parent: Order | None = None
    note: str = "none"
    numbers: tuple[int, ...] = field(default=())


LINE = Line("a", decimal.Decimal("1.25"), State.PAID)
ORDER = Order(
    1, [LINE], State.NEW, datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC), datetime.date(2020, 1, 2),
    datetime.time(1, 2, 3, 4), uuid.UUID(int=5), Duration(1, 2, 3), b"\0", 0.5, True, {"x": LINE},
)  # fmt: skip


@pytest.mark.parametrize("parent", [None, ORDER])
def test_values_come_back_as_they_were(parent: Order | None) -> None:
    order = Order(**{**vars(ORDER), "parent": parent, "numbers": (1, 2)})
    schema = schema_of_class(Order)
    body = AvroSerializer(schema)(order).body
    assert AvroDeserializer(schema, to=Order)(record_of(body)) == order


class Plain(NamedTuple):
    a: int
    b: str | None = None
    c: bool = False
    d: Sequence[float] = ()
    e: Mapping[str, int] = {}
    f: int | str = 5
    g: str | None = "x"


def test_the_schema_is_what_it_should_be() -> None:
    assert schema_of_class(Plain, namespace="com.example") == {
        "type": "record",
        "name": "Plain",
        "namespace": "com.example",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": "boolean", "default": False},
            {"name": "d", "type": {"type": "array", "items": "double"}},
            {"name": "e", "type": {"type": "map", "values": "long"}},
            {"name": "f", "type": ["long", "string"], "default": 5},
            {"name": "g", "type": ["string", "null"], "default": "x"},  # a default is of the first type
        ],
    }


class OfDecimal(NamedTuple):
    a: decimal.Decimal


class OfAny(NamedTuple):
    a: Any


class OfNumbers(NamedTuple):
    a: dict[int, int]


class OfUnknown(NamedTuple):
    a: Nowhere  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (OfDecimal, "OfDecimal.a is annotated <class 'decimal.Decimal'>: its precision and scale are unknown"),
        (OfAny, "OfAny.a is annotated typing.Any: it has no type in Avro"),
        (OfNumbers, "it has no type in Avro"),
        (OfUnknown, "the annotations of OfUnknown cannot be evaluated"),
        (int, "is neither a NamedTuple nor a dataclass"),
    ],
)
def test_what_has_no_schema(cls: Any, why: str) -> None:
    with pytest.raises(LocalError) as caught:
        schema_of_class(cls)
    assert why in str(caught.value)


def test_two_classes_of_one_name_are_refused() -> None:
    class Other(NamedTuple):
        x: int

    Other.__name__ = "Line"
    both = dataclasses.make_dataclass("Both", [("a", Line), ("b", Other)])
    with pytest.raises(LocalError, match="have the same name"):
        schema_of_class(both)


class Prices(NamedTuple):
    net: Annotated[bytes, {"type": "fixed", "name": "Cents", "size": 8}]
    gross: Annotated[bytes, {"type": "fixed", "name": "Cents", "size": 8}]
    rate: float = 0
    limit: float | None = 2
    share: float = math.nan


def test_defaults_and_types_that_are_given_twice() -> None:
    schema = schema_of_class(Prices)
    assert [each["type"] for each in schema["fields"][:2]] == [{"type": "fixed", "name": "Cents", "size": 8}, "Cents"]
    assert schema["fields"][2:] == [
        {"name": "rate", "type": "double", "default": 0.0},
        {"name": "limit", "type": ["double", "null"], "default": 2.0},
        {"name": "share", "type": "double"},  # NaN is not JSON
    ]
    assert AvroSchema(schema).name == "Prices"
