"""Both ways to decode many Avro bodies, classes of users, and bodies that are spoilt."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from rmqio.errors import SerdeError
from rmqio.serde.avro import AvroDeserializer, Duration, bulk
from tests.helpers.serde.avro_records import logical, record
from tests.helpers.transforms.records import record_of


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
