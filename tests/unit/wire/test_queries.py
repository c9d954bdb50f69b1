"""Queries for single messages: the fields that QueryMessageProcessor reads, and its answers."""

from __future__ import annotations

import pytest

from rmqio.errors import BrokerSystemError, CorruptMessage
from rmqio.wire import requests
from rmqio.wire.command import Command
from tests.helpers.wire.stored_bytes import Stored


def test_a_query_names_the_index() -> None:
    by_key = requests.query_message("orders", "k 1", is_unique_id=False, most=64, begin_ms=5, end_ms=9)
    assert by_key.code == 12
    assert by_key.ext == {
        "topic": "orders",
        "key": "k 1",
        "maxNum": "64",
        "beginTimestamp": "5",
        "endTimestamp": "9",
        "indexType": "K",
        "_UNIQUE_KEY_QUERY": "false",
    }
    by_id = requests.query_message("orders", "AB", is_unique_id=True, most=64).ext
    assert (by_id["indexType"], by_id["_UNIQUE_KEY_QUERY"]) == ("U", "true")
    assert (by_id["beginTimestamp"], by_id["endTimestamp"]) == ("0", str((1 << 63) - 1))


def test_a_view_names_the_position() -> None:
    command = requests.view_message("orders", 4711)
    assert (command.code, command.ext) == (33, {"topic": "orders", "offset": "4711"})


def test_answers_are_messages_none_or_an_error() -> None:
    body = b"".join(Stored(queue_id=2, queue_offset=n).encode() for n in (7, 9))
    found = requests.parse_messages(Command(0, body=body), "broker-a", "query").records
    assert [(each.broker, each.topic, each.queue_id, each.queue_offset) for each in found] == [
        ("broker-a", "orders", 2, 7),
        ("broker-a", "orders", 2, 9),
    ]
    assert requests.parse_messages(Command(22, remark="can not find message"), "b", "query").records == []
    with pytest.raises(BrokerSystemError, match=r"view: .*by the offset"):
        requests.parse_messages(Command(1, remark="can not find message by the offset, 3"), "b", "view")
    with pytest.raises(CorruptMessage):
        requests.parse_messages(Command(0, body=body[:-3]), "b", "query")
