"""Answers: good, refused, and malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqio.errors import BrokerError, CorruptMessage, WireError, broker_error
from rmqio.model import BrokerData, MessageQueue, PullStatus, QueueData, SendStatus
from rmqio.wire import requests
from rmqio.wire.command import Command, refuse
from tests.helpers.wire.stored_bytes import Stored, encode_all

QUEUE = MessageQueue("orders", "broker-a", 3)


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
    assert caught.value.code == code
    assert str(caught.value.remark).partition(";")[0] == "the reason"  # a remedy can follow


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
