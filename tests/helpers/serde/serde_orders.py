"""An order as serializers know it: its schema, classes for it, random orders, and values that do not fit."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

SECRET = "SECRET"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LONG = st.integers(-(2**63), 2**63 - 1)
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "first", "type": LINE},
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
    ],
}


class LineTuple(NamedTuple):
    sku: str
    count: int  # type: ignore[assignment]  # the name of a method of tuples, as users have it


class OrderTuple(NamedTuple):
    id: int
    customer: str | None
    amount: Decimal
    at: datetime.datetime
    state: str
    first: LineTuple
    lines: list[LineTuple]
    prices: dict[str, float]


@dataclass(frozen=True)
class LineData:
    sku: str
    count: int


@dataclass(frozen=True)
class OrderData:
    id: int
    customer: str | None
    amount: Decimal
    at: datetime.datetime
    state: str
    first: LineData
    lines: list[LineData]
    prices: dict[str, float]


def orders(order: Callable[..., Any], line: Callable[..., Any]) -> st.SearchStrategy[Any]:
    lines = st.builds(line, sku=TEXT, count=st.integers(-(2**31), 2**31 - 1))
    return st.builds(
        order,
        id=LONG,
        customer=st.none() | TEXT,
        amount=st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
        at=st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC)),
        state=st.sampled_from(["NEW", "SENT"]),
        first=lines,
        lines=st.lists(lines, max_size=3),
        prices=st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
    )


GOOD_ORDER: dict[str, Any] = {
    "id": 1, "customer": SECRET, "amount": Decimal("1.50"), "at": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    "state": "NEW", "first": {"sku": SECRET, "count": 1}, "lines": [], "prices": {SECRET: 1.0},
}  # fmt: skip
BAD_ORDERS = tuple(
    {**GOOD_ORDER, **change}
    for change in (
        {"id": SECRET},
        {"id": 2**63},
        {"customer": SECRET.encode()},
        {"amount": Decimal("1.505")},
        {"at": datetime.datetime(2020, 1, 2)},
        {"state": SECRET},
        {"first": {"sku": SECRET}},
        {"first": [SECRET]},
        {"lines": [{"sku": SECRET, "count": SECRET}]},
        {"prices": {SECRET: SECRET}},
        {"prices": {1: 1.0}},
    )
)
