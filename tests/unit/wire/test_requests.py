"""Requests: each builder's fields against the broker's header classes; answers: good, refused, and malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqio.errors import BrokerError, CorruptMessage, LocalError, WireError, broker_error
from rmqio.model import BrokerData, MessageFilter, MessageQueue, PullStatus, QueueData, SendStatus
from rmqio.wire import requests
from rmqio.wire.command import Command, refuse
from rmqio.wire.frame import FrameDecoder
from rmqio.wire.pull_template import PullTemplate
from tests.helpers.stored_bytes import Stored, encode_all

QUEUE = MessageQueue("orders", "broker-a", 3)
SQL = MessageFilter("a > 5", sql=True)

PULL_FIELDS = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "3",
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
    ("maximum", requests.get_max_offset(QUEUE), 30, {"topic": "orders", "queueId": "3"}),
    ("minimum", requests.get_min_offset(QUEUE), 31, {"topic": "orders", "queueId": "3"}),
    (
        "by time",
        requests.search_offset(QUEUE, 1_700_000_000_123),
        29,
        {"topic": "orders", "queueId": "3", "timestamp": "1700000000123", "boundaryType": "LOWER"},
    ),
    (
        "group offset",
        requests.query_group_offset("g", QUEUE),
        14,
        {"topic": "orders", "queueId": "3", "consumerGroup": "g", "setZeroIfNotFound": "false"},
    ),
    (
        "commit",
        requests.commit_group_offset("g", QUEUE, 9),
        15,
        {"topic": "orders", "queueId": "3", "consumerGroup": "g", "commitOffset": "9"},
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


# ---- answers --------------------------------------------------------------------------------------------------------


def answer(code: int = 0, body: Any = b"", remark: str | None = None, **ext: str) -> Command:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Command(code, ext, raw, flag=1, remark=remark)


ROUTE = {
    "orderTopicConf": "broker-a:4",
    "filterServerTable": {},
    "queueDatas": [
        {"brokerName": "broker-a", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, "new": 1}
    ],
    "brokerDatas": [
        {"cluster": "c", "brokerName": "broker-a", "brokerAddrs": {"0": "1.2.3.4:10911", "1": "1.2.3.5:10911"}}
    ],
}


def test_route_is_parsed_and_unknown_fields_are_passed_over() -> None:
    route = requests.parse_route("orders", answer(body=ROUTE))
    assert route.queues == (QueueData("broker-a", 8, 4, 6),)
    assert route.brokers == {"broker-a": BrokerData("broker-a", "c", {0: "1.2.3.4:10911", 1: "1.2.3.5:10911"})}
    assert route.order_conf == "broker-a:4"


@pytest.mark.parametrize(
    "body",
    [{}, {"queueDatas": None, "brokerDatas": None}, {"queueDatas": [], "brokerDatas": []}],
    ids=["absent", "null", "empty"],
)
def test_route_without_queues_and_brokers_is_empty(body: Any) -> None:
    route = requests.parse_route("orders", answer(body=body))
    assert (route.queues, route.brokers, route.order_conf) == ((), {}, None)


@pytest.mark.parametrize("fields", [{}, {"brokerAddrs": None, "cluster": None}, {"brokerAddrs": {}}])
def test_broker_without_standard_fields_has_no_address(fields: dict[str, Any]) -> None:
    route = requests.parse_route("t", answer(body={"brokerDatas": [{"brokerName": "b"} | fields]}))
    assert route.brokers["b"] == BrokerData("b", "", {})
    assert route.brokers["b"].master is None


def test_topic_list_is_sorted_and_may_be_absent() -> None:
    assert requests.parse_topic_list(answer(body={"topicList": ["b", "%RETRY%g", "a"]})) == ["%RETRY%g", "a", "b"]
    assert requests.parse_topic_list(answer(body={})) == []


def test_cluster_info_is_sorted_by_broker() -> None:
    table = {
        "b": {"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": "h:2"}},
        "a": {"brokerAddrs": {"0": "h:1"}},
    }
    assert requests.parse_cluster_info(answer(body={"brokerAddrTable": table})) == [
        BrokerData("a", "", {0: "h:1"}),
        BrokerData("b", "c", {0: "h:2"}),
    ]
    assert requests.parse_cluster_info(answer(body={})) == []


@pytest.mark.parametrize("number", [0, 5, -1, 1 << 62])
def test_offset_is_parsed_as_64_bits(number: int) -> None:
    assert requests.parse_offset(answer(offset=str(number)), "maximum") == number
    assert requests.parse_group_offset(answer(offset=str(number)), "g") == number


def test_a_group_without_an_offset_is_none_and_not_an_error() -> None:
    assert requests.parse_group_offset(answer(22, remark="Not found"), "g") is None


def parse_route(a: Command) -> object:
    return requests.parse_route("orders", a)


def parse_offset(a: Command) -> object:
    return requests.parse_offset(a, "maximum of x")


def parse_group_offset(a: Command) -> object:
    return requests.parse_group_offset(a, "g")


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


def parse_pull(a: Command) -> object:
    return requests.parse_pull(a, QUEUE, 100)


def parse_send(a: Command) -> object:
    return requests.parse_send(a, "send to x")


def expect_success(a: Command) -> None:
    requests.expect_success(a, "commit")


PARSERS: dict[str, Callable[[Command], object]] = {
    "route": parse_route,
    "topic list": requests.parse_topic_list,
    "cluster info": requests.parse_cluster_info,
    "offset": parse_offset,
    "group offset": parse_group_offset,
    "pull": parse_pull,
    "send": parse_send,
    "success": expect_success,
}


@pytest.mark.parametrize("code", [1, 2, 16, 17, 26, 29, 4711])
@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_raises_the_error_of_the_code_with_the_remark(name: str, code: int) -> None:
    with pytest.raises(BrokerError) as caught:
        PARSERS[name](answer(code, remark="the reason"))
    assert type(caught.value) is type(broker_error(code, None, ""))
    assert (caught.value.code, caught.value.remark) == (code, "the reason")


def test_a_remark_with_success_is_no_error() -> None:
    requests.expect_success(answer(0, remark="not set any response code"), "commit")
    assert requests.parse_offset(answer(remark="java.lang.Exception", offset="1"), "x") == 1


MALFORMED: list[tuple[str, Command]] = [
    ("route", answer(body=b"")),
    ("route", answer(body=b"{0:1}")),
    ("route", answer(body=b"\xff\xfe\xfd")),
    ("route", answer(body=b"[" * 100_000)),
    ("route", answer(body=[])),
    ("route", answer(body={"queueDatas": 5})),
    ("route", answer(body={"queueDatas": [5]})),
    ("route", answer(body={"queueDatas": [{}]})),
    ("route", answer(body={"queueDatas": [ROUTE["queueDatas"][0] | {"perm": "x"}]})),  # type: ignore[index]
    ("route", answer(body={"queueDatas": [ROUTE["queueDatas"][0] | {"perm": None}]})),  # type: ignore[index]
    ("route", answer(body=b'{"queueDatas":[{"brokerName":"b","readQueueNums":Infinity,"writeQueueNums":1,"perm":6}]}')),
    ("route", answer(body={"brokerDatas": [{}]})),
    ("route", answer(body={"brokerDatas": [{"brokerName": "b", "brokerAddrs": ["h:1"]}]})),
    ("route", answer(body={"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"x": "h:1"}}]})),
    ("topic list", answer(body=b"null")),
    ("topic list", answer(body={"topicList": "abc"})),
    ("topic list", answer(body={"topicList": [1]})),
    ("topic list", answer(body={"topicList": {"a": 1}})),
    ("cluster info", answer(body=b"x")),
    ("cluster info", answer(body={"brokerAddrTable": [1]})),
    ("cluster info", answer(body={"brokerAddrTable": {"a": 1}})),
    ("cluster info", answer(body={"brokerAddrTable": {"a": {}}})),
    ("cluster info", answer(body={"brokerAddrTable": {"a": {"brokerAddrs": {"x": "h"}}}})),
    ("offset", answer()),
    ("offset", answer(offset="")),
    ("offset", answer(offset="many")),
    ("group offset", answer()),
    ("pull", answer(19)),
    ("pull", answer(19, nextBeginOffset="1", minOffset="0", maxOffset="x", suggestWhichBrokerId="0")),
    ("pull", answer(19, nextBeginOffset="1", minOffset="0", maxOffset="1")),
    ("send", answer()),
    ("send", answer(queueId="0", queueOffset="x")),
]


@pytest.mark.parametrize(("name", "malformed"), MALFORMED)
def test_a_malformed_answer_is_a_wire_error_and_nothing_else(name: str, malformed: Command) -> None:
    with pytest.raises(WireError):
        PARSERS[name](malformed)


PULL_EXT = {"nextBeginOffset": "105", "minOffset": "10", "maxOffset": "200", "suggestWhichBrokerId": "1"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MESSAGE),
        (20, PullStatus.NO_MATCH),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_pull_status_and_offsets(code: int, status: PullStatus) -> None:
    result = requests.parse_pull(answer(code, remark="R", **PULL_EXT), QUEUE, 100)
    assert result.status is status
    assert (result.next_offset, result.min_offset, result.max_offset) == (105, 10, 200)
    assert (result.suggested_broker_id, result.remark) == (1, "R")
    assert (result.records, result.corrupt) == ([], ())


def test_pull_decodes_its_messages_with_the_queues_broker() -> None:
    body = encode_all(*(Stored(queue_id=3, queue_offset=offset) for offset in (100, 101)))
    result = requests.parse_pull(answer(0, body, **PULL_EXT), QUEUE, 100)
    assert [(r.queue, r.queue_offset, r.body) for r in result.records] == [
        (QUEUE, 100, b"hello"),
        (QUEUE, 101, b"hello"),
    ]


@pytest.mark.parametrize("code", [19, 20, 21])
def test_pull_does_not_decode_the_body_of_an_answer_without_messages(code: int) -> None:
    assert requests.parse_pull(answer(code, b"garbage", **PULL_EXT), QUEUE, 100).records == []


def test_pull_reports_a_broken_message_beside_the_good_ones() -> None:
    body = encode_all(Stored(queue_id=3, queue_offset=100, crc=1), Stored(queue_id=3, queue_offset=101))
    result = requests.parse_pull(answer(0, body, **PULL_EXT), QUEUE, 100)
    assert [record.queue_offset for record in result.records] == [101]
    assert [(c.topic, c.broker, c.queue_id, c.queue_offset) for c in result.corrupt] == [("orders", "broker-a", 3, 100)]


def test_pull_raises_for_bytes_that_cannot_be_cut_into_messages() -> None:
    with pytest.raises(CorruptMessage, match="orders"):
        requests.parse_pull(answer(0, b"\x00\x00", **PULL_EXT), QUEUE, 100)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
@pytest.mark.parametrize(("ids", "parsed"), [("A,B", ["A", "B"]), ("A", ["A"]), ("", [])])
def test_a_stored_send_is_no_error_even_if_its_safety_is_not_confirmed(
    code: int, status: SendStatus, ids: str, parsed: list[str]
) -> None:
    stored = answer(code, msgId=ids, queueId="3", queueOffset="77")
    assert requests.parse_send(stored, "send") == (status, 3, 77, parsed)


@pytest.mark.parametrize(
    ("code", "remark", "ignored"),
    [
        (0, "Offset has been previously reset", True),
        (0, "Offset has been previously reset, ignore", True),
        (0, None, False),
        (0, "not set any response code", False),
        (26, "Offset has been previously reset", False),
    ],
)
def test_a_commit_that_a_pending_reset_swallowed_is_recognised(code: int, remark: str | None, ignored: bool) -> None:
    assert requests.is_ignored_commit(answer(code, remark=remark)) is ignored


def test_a_servers_request_is_refused_under_its_own_number() -> None:
    refusal = refuse(Command(309, opaque=77))
    assert refusal is not None
    assert (refusal.code, refusal.opaque, refusal.is_response, refusal.is_oneway) == (3, 77, True, False)
    assert "309" in (refusal.remark or "")


@pytest.mark.parametrize("code", [39, 40])
def test_a_oneway_request_gets_no_answer(code: int) -> None:
    assert refuse(Command(code, flag=2)) is None
