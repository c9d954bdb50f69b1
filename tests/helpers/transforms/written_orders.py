"""Orders, and a serializer that does not accept all of them."""

from __future__ import annotations

from typing import NamedTuple

from rmqio.model import Message


class Order(NamedTuple):
    number: int
    kind: str


def serialize_order(order: Order) -> Message:
    if order.number < 0:
        raise ValueError("a negative number")
    return Message(str(order.number).encode(), keys=[f"order-{order.number}"], sharding_key=order.kind or None)
