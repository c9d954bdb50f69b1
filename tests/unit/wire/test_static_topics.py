"""Static topics: routes that name their queues after no broker, and stored messages that tell where they are stored."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from rmqio.client.connection import ConnectionPool
from rmqio.client.producer import RemotingProducer
from rmqio.client.routes import Routes
from rmqio.errors import LocalError, WireError
from rmqio.model import Message, MessageQueue, PullResult, PullStatus
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode
from rmqio.wire.requests import broker_of_handle
from rmqio.wire.stored import INNER_BATCH, NEED_UNWRAP
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.wire.stored_bytes import Stored, encode_all, encode_member

QUEUE = MessageQueue("orders", "__syslo__global__", 5)
PULL = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1003", "minOffset": "1000", "maxOffset": "1003"}


def mapping(broker: str, epoch: int, queues: dict[str, int], **changes: Any) -> dict[str, Any]:
    return {
        "bname": broker,
        "currIdMap": queues,
        "dirty": False,
        "epoch": epoch,
        "scope": "__global__",
        "topic": "orders",
        "totalQueues": 4,
        **changes,
    }


def route(mappings: dict[str, Any], *, masters: str = "ab") -> Command:
    brokers = [{"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"{name}:1"}} for name in masters]
    queues = [{"brokerName": name, "readQueueNums": 9, "writeQueueNums": 9, "perm": 6} for name in "ab"]
    body = {"queueDatas": queues, "brokerDatas": brokers, "topicQueueMappingByBroker": mappings}
    return Command(0, body=json.dumps(body).encode())


def test_queues_are_the_global_ones_each_at_the_broker_that_took_it_last() -> None:
    parsed = requests.parse_route(
        "orders",
        route({"a": mapping("a", 7, {"0": 0, "1": 1, "2": 2}), "b": mapping("b", 9, {"1": 0, "3": 1})}),
    )
    expected = tuple(MessageQueue("orders", "__syslo__global__", number) for number in range(4))
    assert parsed.readable() == parsed.writable() == expected
    assert [parsed.owner(*queue[1:]) for queue in expected] == ["a", "b", "a", "b"]


def test_a_queue_whose_broker_is_gone_cannot_be_read() -> None:
    mappings = {"a": mapping("a", 7, {"0": 0}), "b": mapping("b", 7, {"1": 0}, scope="team")}
    assert requests.parse_route("orders", route(mappings, masters="b")).readable() == (
        MessageQueue("orders", "__syslo__team", 1),
    )


@pytest.mark.parametrize("wrong", [{"a": 5}, {"a": mapping("a", 7, {"x": 0})}, [1], {"a": mapping("a", "e", {})}])  # type: ignore[arg-type]
def test_a_malformed_mapping_is_a_malformed_route(wrong: Any) -> None:
    with pytest.raises(WireError, match="malformed"):
        requests.parse_route("orders", route(wrong))


def test_an_ordinary_route_names_real_brokers() -> None:
    parsed = requests.parse_route("orders", route({}))
    assert parsed.readable()[0] == MessageQueue("orders", "a", 0)
    assert parsed.owner("a", 0) == "a"


def stored(offset: int, **changes: Any) -> Stored:
    return Stored(queue_id=2, queue_offset=offset, topic=b"orders").but(**changes)


def pull(*messages: Stored, queue: MessageQueue = QUEUE, offset: int = 1000, **ext: str) -> PullResult:
    return requests.parse_pull(Command(0, PULL | ext, encode_all(*messages)), queue, offset)


def test_messages_are_of_the_queue_that_was_asked_for() -> None:
    result = pull(stored(0), stored(1), stored(2, crc=1), offsetDelta="1000")
    assert [(r.queue, r.queue_offset) for r in result.records] == [(QUEUE, 1000), (QUEUE, 1001)]
    (bad,) = result.corrupt
    assert (bad.queue_id, bad.queue_offset, bad.next_offset, bad.broker) == (5, 1002, 1003, QUEUE.broker)
    assert "CRC" in bad.reason


def test_where_a_pull_ends_for_want_of_room_is_an_offset_of_the_queue_that_was_asked_for() -> None:
    large = zlib.compress(bytes(16 * 1024 * 1024))
    messages = [stored(offset, body=large, sys_flag=1) for offset in range(6)]
    result = pull(*messages, offsetDelta="1000", nextBeginOffset="1006")
    assert ([record.queue_offset for record in result.records], result.next_offset) == ([1000, 1001, 1002, 1003], 1004)


def test_an_inner_batch_is_cut_at_the_offset_that_was_asked_for() -> None:
    members = b"".join(encode_member(b"%d" % number) for number in range(3))
    result = pull(stored(0, body=members, sys_flag=INNER_BATCH | NEED_UNWRAP), offset=1001, offsetDelta="1000")
    assert [(r.body, r.queue_offset) for r in result.records] == [(b"1", 1001), (b"2", 1002)]


def test_an_ordinary_queue_is_what_its_messages_say() -> None:
    queue = MessageQueue("orders", "a", 2)
    (record,) = pull(stored(1000), queue=queue, offsetDelta="7").records
    assert (record.queue, record.queue_offset) == (queue, 1000)


def test_a_delta_that_is_no_number_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="not a number"):
        pull(stored(0), offsetDelta="x")


@pytest.mark.parametrize(("queue", "code", "minimum", "is_border"), [
    (QUEUE, 20, "10000", True),
    (QUEUE, 20, "0", False),
    (QUEUE, 19, "10000", False),
    (MessageQueue("orders", "a", 0), 20, "10000", False),
])  # fmt: skip
def test_a_border_is_where_the_offsets_of_another_broker_begin(
    queue: MessageQueue, code: int, minimum: str, is_border: bool
) -> None:
    ext = PULL | {"nextBeginOffset": "10000", "minOffset": minimum, "maxOffset": "10000"}
    result = requests.parse_pull(Command(code, ext), queue, 4)
    assert (result.is_border, result.next_offset) == (is_border, 10_000)
    assert result.status is (PullStatus.NO_MATCH if code == 20 else PullStatus.NO_NEW_MESSAGE)


def test_a_client_finds_the_broker_of_a_queue() -> None:
    answer = route({"a": mapping("a", 7, {"0": 0, "1": 1}), "b": mapping("b", 9, {"1": 0})})
    with FakeBroker() as broker:
        options = ClientOptions(broker.name_server, namespace="ns")
        broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda exchange: exchange.send(answer), times=None)
        pool = ConnectionPool(options)
        routes = Routes(options, pool)
        queues = routes.route("orders").readable()
        assert [queue.topic for queue in queues] == ["orders", "orders"]
        assert [routes.master(*queue) for queue in queues] == ["a:1", "b:1"]
        assert [routes.held_address(*queue) for queue in queues] == ["a:1", "b:1"]
        pool.close()


def test_none_is_no_recall_handle() -> None:
    """As a `SendResult` of a message without a delivery time has it."""
    with pytest.raises(LocalError, match="recall handle None is invalid"):
        broker_of_handle(None)  # type: ignore[arg-type]


def test_the_broker_of_a_recall_handle() -> None:
    assert broker_of_handle("djEgdG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMCBJRA==") == "broker-a"
    for wrong in ("", "djIgYSBiIGMgZA==", "djEgYSBi", "/w==", "%%%", "ä"):
        with pytest.raises(LocalError, match="recall handle"):
            broker_of_handle(wrong)


def test_a_handle_is_in_the_result_of_a_timed_message() -> None:
    with FakeBroker() as broker, RemotingProducer(ClientOptions(broker.name_server), "group") as producer:
        broker.cluster.create_topic("topic", 1)
        broker.on(RequestCode.SEND_MESSAGE_V2, faults.answer(0, executed=True, recallHandle="HANDLE"))
        assert producer.send(Message(b"x", topic="topic", deliver_at_ms=1)).recall_handle == "HANDLE"
        assert producer.send(Message(b"x", topic="topic")).recall_handle is None
