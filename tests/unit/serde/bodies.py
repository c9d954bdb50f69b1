"""Types of users, and bodies that fit them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict

from rmqio.model import Record

SECRET = "s3cr3t"
Sku = NewType("Sku", str)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Line(NamedTuple):
    sku: str
    count: int = 1  # type: ignore[assignment]


class Order(NamedTuple):
    id: int
    name: str
    amount: float
    is_paid: bool
    at: dt.datetime
    note: str | None


@dataclasses.dataclass
class Basket:
    id: uuid.UUID
    total: Decimal
    lines: list[Line]
    color: Color = Color.RED
    tags: list[str] = dataclasses.field(default_factory=list)
    extra: Any = None
    parent: Line | None = None


@dataclasses.dataclass
class Inner:
    a: Any


@dataclasses.dataclass
class Nested:
    inner: Inner
    many: list[Inner]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    number: int
    limit: int = 10

    def __post_init__(self) -> None:
        if self.number > self.limit:
            raise ValueError(f"{self.number} is {SECRET}")


class Address(TypedDict):
    street: str
    zip: NotRequired[int]
    größe: NotRequired[Size]


class Everything(NamedTuple):
    date: dt.date
    time: dt.time
    blob: bytes
    pair: tuple[float, ...]
    by_name: Mapping[str, Decimal | None]
    either: int | str | list[bool]
    literal: Literal["a", "b", 3] | None
    address: Address
    number: int | float
    names: Sequence[Sku] = ()
    id: Annotated[int, "an id"] = -1


class Tree(NamedTuple):
    name: str
    children: list[Tree]


ORDER = {"id": 7, "name": "Zoë", "amount": 1, "is_paid": True, "at": "2026-01-31T10:00:00.123456Z", "note": None}
BASKET = {
    "id": "12345678-1234-5678-1234-567812345678",
    "total": "9.90",
    "lines": [{"sku": "a"}, {"sku": "b", "count": 2}],
}
EVERYTHING = {
    "date": "2026-01-31",
    "time": "23:59:59.5",
    "blob": "AAEC",
    "pair": [1, 2.5],
    "by_name": {"a": 1.10, "b": None, "c": "1e3"},
    "either": [True],
    "literal": "a",
    "address": {"street": "x", "zip": 3, "größe": 2},
    "number": 2,
    "names": ["n"],
}


def record(body: bytes) -> Record:
    return Record("orders", "broker-a", 3, 42, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)


def plain(value: Any) -> Any:
    """With the types, since 1 == 1.0 == True."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), plain(vars(value)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value), [plain(each) for each in value])
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return (type(value), [plain(each) for each in value])
    return (type(value), repr(value))
