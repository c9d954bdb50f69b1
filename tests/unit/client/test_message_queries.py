"""Queries by id and key, on answers of brokers: fake brokers have no index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from rmqio.client.admin import Admin
from rmqio.client.message_queries import MessageQueries
from rmqio.errors import CorruptMessage
from rmqio.model import BrokerData
from rmqio.wire.command import Command
from tests.helpers.wire.stored_bytes import Stored


class Answers:
    """Brokers that answer each query with these messages."""

    def __init__(self, *messages: Stored) -> None:
        self._body = b"".join(each.encode() for each in messages)

    def masters(self) -> Sequence[BrokerData]:
        return [BrokerData("broker-a", "c", {0: "127.0.0.1:10911"})]

    def answer(self, broker: BrokerData, command: Command, what: str) -> Command:
        return Command(0, body=self._body)

    def wire_name(self, topic: str) -> str:
        return topic

    users_name = wire_name


def by_key(*messages: Stored) -> list[Any]:
    return MessageQueries(cast("Admin", Answers(*messages))).by_key("orders", "k")


GOOD = Stored(queue_offset=3, properties=b"KEYS\x01k\x02")


def test_a_message_that_does_not_decode_is_not_no_message() -> None:
    damaged = GOOD.but(queue_offset=4, crc=1)
    assert [each.queue_offset for each in by_key(GOOD, damaged)] == [3]
    with pytest.raises(CorruptMessage, match="offset 4"):
        by_key(damaged)


def test_others_with_the_same_hash_are_left_out() -> None:
    assert by_key(GOOD.but(properties=b"KEYS\x01other\x02"), GOOD.but(topic=b"bills")) == []
