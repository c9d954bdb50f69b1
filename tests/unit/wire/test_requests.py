"""Requests: each builder's fields against the broker's header classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.model import MessageFilter, MessageQueue
from rmqio.wire import requests
from rmqio.wire.command import Command, FrameDecoder
from rmqio.wire.templates import PullTemplate

QUEUE = MessageQueue("orders", "broker-a", 3)
SQL = MessageFilter("a > 5", sql=True)
PULL_FIELDS = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "3",
    "bname": "broker-a",
    "queueOffset": "100",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
SEND_FIELDS = {
    "a": "pg",
    "b": "orders",
    "c": "",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "false",
    "n": "broker-a",
}
TOPIC_FIELDS = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "",
}


def pull(message_filter: MessageFilter = MessageFilter(), suspend_ms: int = 0) -> Command:  # noqa: B008
    return requests.pull("g", QUEUE, 100, max_messages=32, message_filter=message_filter, suspend_ms=suspend_ms)


def send(**options: Any) -> Command:
    return requests.send("pg", QUEUE, b"body", born_ms=1_700_000_000_000, **options)


# name, request, code, fields
REQUESTS: list[tuple[str, Command, int, dict[str, str]]] = [
    ("route", requests.get_route("orders"), 105, {"topic": "orders", "acceptStandardJsonOnly": "true"}),
    ("topic list", requests.get_topic_list(), 206, {}),
    ("cluster info", requests.get_cluster_info(), 106, {}),
    ("maximum", requests.get_max_offset(QUEUE), 30, {"topic": "orders", "queueId": "3", "bname": "broker-a"}),
    ("minimum", requests.get_min_offset(QUEUE), 31, {"topic": "orders", "queueId": "3", "bname": "broker-a"}),
    (
        "by time",
        requests.search_offset(QUEUE, 1_700_000_000_123),
        29,
        {"topic": "orders", "queueId": "3", "bname": "broker-a", "timestamp": "1700000000123", "boundaryType": "LOWER"},
    ),
    (
        "group offset",
        requests.query_group_offset("g", QUEUE),
        14,
        {"topic": "orders", "queueId": "3", "bname": "broker-a", "consumerGroup": "g", "setZeroIfNotFound": "false"},
    ),
    (
        "commit",
        requests.commit_group_offset("g", QUEUE, 9),
        15,
        {"topic": "orders", "queueId": "3", "bname": "broker-a", "consumerGroup": "g", "commitOffset": "9"},
    ),
    ("pull", pull(), 11, PULL_FIELDS),
    ("long pull", pull(suspend_ms=15_000), 11, PULL_FIELDS | {"sysFlag": "6", "suspendTimeoutMillis": "15000"}),
    ("pull of tags", pull(MessageFilter("a || b")), 11, PULL_FIELDS | {"subscription": "a || b"}),
    ("pull of blank tags", pull(MessageFilter(" ")), 11, PULL_FIELDS),
    ("pull by SQL", pull(SQL), 11, PULL_FIELDS | {"subscription": "a > 5", "expressionType": "SQL92"}),
    ("send", send(), 310, SEND_FIELDS),
    ("send a batch", send(batch=True), 320, SEND_FIELDS | {"m": "true"}),
    ("send, create the topic", send(create_topic=True, topic_queues=8), 310, SEND_FIELDS | {"c": "TBW102", "d": "8"}),
    (
        "send with flags and properties",
        send(sys_flag=1, flag=5, properties="TAGS\x01a\x02"),
        310,
        SEND_FIELDS | {"f": "1", "h": "5", "i": "TAGS\x01a\x02"},
    ),
    ("create topic", requests.create_topic("orders"), 17, TOPIC_FIELDS),
    (
        "create topic with attributes",
        requests.create_topic(
            "orders", read_queues=2, write_queues=1, permission=4, attributes={"message.type": "FIFO", "a": "b"}
        ),
        17,
        TOPIC_FIELDS
        | {"readQueueNums": "2", "writeQueueNums": "1", "perm": "4", "attributes": "+message.type=FIFO,+a=b"},
    ),
    ("delete in broker", requests.delete_topic_in_broker("orders"), 215, {"topic": "orders"}),
    ("delete in name server", requests.delete_topic_in_name_server("orders"), 216, {"topic": "orders"}),
    (
        "reset",
        requests.reset_group_offset("g", QUEUE, 7),
        222,
        {"topic": "orders", "group": "g", "queueId": "3", "offset": "7", "timestamp": "-1", "isForce": "true"},
    ),
]


@pytest.mark.parametrize(
    ("request_", "code", "fields"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
def test_request_has_its_code_and_fields(request_: Command, code: int, fields: dict[str, str]) -> None:
    assert request_.code == code
    assert dict(request_.ext) == fields
    assert not request_.is_response


@pytest.mark.parametrize("request_", [row[1] for row in REQUESTS], ids=[row[0] for row in REQUESTS])
def test_every_field_is_text_since_a_signature_is_made_of_the_texts(request_: Command) -> None:
    assert all(type(value) is str for value in request_.ext.values())


def test_send_carries_the_body_and_other_requests_none() -> None:
    assert [row[0] for row in REQUESTS if row[1].body] == [row[0] for row in REQUESTS if row[0].startswith("send")]
    assert send().body == b"body"


def test_heartbeat_is_that_of_a_producer_and_never_of_a_consumer() -> None:
    command = requests.producer_heartbeat("client-1", ["g1", "g2"])
    assert command.code == 34
    assert json.loads(command.body) == {
        "clientID": "client-1",
        "producerDataSet": [{"groupName": "g1"}, {"groupName": "g2"}],
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }


# Texts that look like a hole, or like formatting.
HOSTILE = [
    "*",
    "a || b",
    "100%d %s %%",
    '"queueOffset":"0" "maxMsgNums":"0" "opaque":0',
    'x","queueOffset":"0","maxMsgNums":"0',
    "\u00e9\U0001f600\\\n\0",
]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("sql", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_frame_of_the_template_is_the_pull_that_it_stands_for(text: str, sql: bool, is_held: bool) -> None:
    message_filter, queue = MessageFilter(text, sql=sql), MessageQueue(text, "broker-a", 3)
    template = PullTemplate(text, queue, message_filter=message_filter, suspend_ms=15_000)
    for opaque, offset, most in [(0, 0, 1), (0x7FFFFFFF, 2**63 - 1, 1024)]:
        expected = requests.pull(
            text,
            queue,
            offset,
            max_messages=most,
            message_filter=message_filter,
            suspend_ms=15_000 if is_held else 0,
        )
        expected.opaque = opaque
        decoder = FrameDecoder()
        decoder.receive_data(template.frame(opaque, offset, most, is_held))
        assert decoder.next_command() == expected
        assert repr(decoder) == "<FrameDecoder 0 B buffered>"
        assert template.code == expected.code


def test_template_of_a_filter_that_no_server_would_take_is_refused() -> None:
    with pytest.raises(LocalError, match="16 MiB"):
        PullTemplate("g", QUEUE, message_filter=MessageFilter("x" * (17 << 20)), suspend_ms=1)
