"""The requests for a topic's configuration and order, field by field, and answers that a broker should not give."""

from __future__ import annotations

import json

import pytest

from rmqio.errors import BrokerError, NoPermission, WireError
from rmqio.wire.admin_requests import (
    TopicConfig,
    delete_order,
    get_all_topic_configs,
    get_order,
    get_topic_config,
    is_not_supported,
    parse_all_topic_configs,
    parse_order,
    parse_topic_config,
    put_order,
    put_topic_config,
)
from rmqio.wire.command import Command

# As a 5.5.0 broker sent it.
ANSWER = (
    b'{"attributes":{"message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"orders","topicSysFlag":1,"writeQueueNums":2}'
)
CONFIG = TopicConfig(4, 2, 6, True, {"message.type": "FIFO"}, "SINGLE_TAG", 1)


def test_a_configuration_goes_there_and_back() -> None:
    assert parse_topic_config(Command(0, body=ANSWER), "x") == CONFIG
    command = put_topic_config("orders", CONFIG)
    assert (command.code, command.body) == (17, b"")
    assert command.ext == {
        "topic": "orders",
        "defaultTopic": "TBW102",  # must be there, and is not used
        "readQueueNums": "4",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "1",
        "order": "true",
        "attributes": "+message.type=FIFO",  # a broker refuses one without the sign
    }


def test_attributes_are_removed_with_a_minus() -> None:
    command = put_topic_config("orders", TopicConfig(attributes={"a": "1"}), removed=frozenset({"c", "b"}))
    assert command.ext["attributes"] == "+a=1,-b,-c"


def test_a_broker_before_5_0_sends_no_attributes() -> None:
    old = {name: value for name, value in json.loads(ANSWER).items() if name != "attributes"}
    body = json.dumps({"topicConfigTable": {"orders": old}, "dataVersion": {}}).encode()
    assert get_all_topic_configs().code == 21
    found = parse_all_topic_configs(Command(0, body=body), "orders", "x")
    assert found == TopicConfig(4, 2, 6, True, {}, "SINGLE_TAG", 1)
    assert parse_all_topic_configs(Command(0, body=body), "other", "x") is None


def test_a_topic_that_the_broker_does_not_have_is_none() -> None:
    assert (get_topic_config("orders").code, get_topic_config("orders").ext) == (351, {"topic": "orders"})
    assert parse_topic_config(Command(17, remark="No topic in this broker. topic: orders"), "x") is None
    assert is_not_supported(Command(3))
    with pytest.raises(NoPermission, match="x: code 16"):
        parse_topic_config(Command(16), "x")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"perm":"six"}', ANSWER.replace(b"4", b"null"), b"\xff"])
def test_a_malformed_answer_is_reported(body: bytes) -> None:
    with pytest.raises(WireError, match=r"^x: "):
        parse_topic_config(Command(0, body=body), "x")
    with pytest.raises(WireError, match=r"^x: "):
        parse_all_topic_configs(
            Command(0, body=b'{"topicConfigTable":{"orders":' + (body or b"x") + b"}}"), "orders", "x"
        )


def test_the_order_of_a_topic() -> None:
    place = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    command = put_order("orders", {"b": 8, "a": 4})
    assert (command.code, command.ext) == (100, place | {"value": "a:4;b:8"})
    assert (get_order("orders").code, get_order("orders").ext) == (101, place)
    assert (delete_order("orders").code, delete_order("orders").ext) == (102, place)
    assert parse_order(Command(0, {"value": "a:4"}), "x") == "a:4"
    assert parse_order(Command(22, remark="No config item"), "x") is None
    assert parse_order(Command(3), "x") is None  # a server that keeps none
    with pytest.raises(BrokerError):
        parse_order(Command(1), "x")
