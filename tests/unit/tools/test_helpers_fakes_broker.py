"""The fake broker's own ways: faults, counting, starting and stopping. (tests/contract has what it answers.)"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rmqio.client.connection import Connection
from rmqio.client.session import Call
from rmqio.errors import LocalError, TransportError
from rmqio.model import MessageFilter, MessageQueue
from rmqio.testing import InMemoryCluster
from rmqio.wire import requests
from rmqio.wire.command import Command, RequestCode
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import NAME_SERVER, FakeBroker
from tests.helpers.own_process import in_own_process
from tests.helpers.waiting import at_most

Q0 = MessageQueue("topic", "broker-a", 0)
MAX = RequestCode.GET_MAX_OFFSET


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=("broker-a", "broker-b")) as fake:
        fake.cluster.create_topic("topic", 1, ("broker-a", "broker-b"))
        yield fake


@pytest.fixture
def connection(broker: FakeBroker) -> Iterator[Connection]:
    made = Connection(broker.address())
    yield made
    made.close()


def _ask(connection: Connection, timeout_ms: int = 10_000) -> Command:
    return connection.request(requests.get_max_offset(Q0), timeout_ms)


def test_faults_are_used_up_in_their_order(broker: FakeBroker, connection: Connection) -> None:
    broker.on(MAX, faults.answer(2), times=2)
    broker.on(MAX, faults.answer(14, "third", extra="field"))
    answers = [_ask(connection) for _ in range(4)]
    assert [a.code for a in answers] == [2, 2, 14, 0]
    assert (answers[2].remark, answers[2].ext["extra"]) == ("third", "field")
    assert broker.count(MAX) == 4
    assert broker.count(MAX, "broker-b") == 0


def test_faults_can_be_for_one_broker_and_be_forgotten(broker: FakeBroker, connection: Connection) -> None:
    broker.on(MAX, faults.answer(2), times=None, broker="broker-b")
    assert _ask(connection).code == 0
    other = Connection(broker.address("broker-b"))
    assert [_ask(other).code for _ in range(3)] == [2, 2, 2]
    broker.heal()
    assert _ask(other).code == 0
    other.close()
    with pytest.raises(LocalError, match="broker-c"):
        broker.on(MAX, faults.drop(), broker="broker-c")


def test_a_delayed_answer_lets_later_ones_pass(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ask(connection)
    assert connection.session is not None
    broker.on(MAX, faults.delay(1))
    answered: list[Call] = []
    finish = Call.finish

    def noted(call: Call, *outcome: Any) -> None:
        answered.append(call)
        finish(call, *outcome)

    monkeypatch.setattr(Call, "finish", noted)
    both = [requests.get_max_offset(Q0) for _ in range(2)]
    slow, other = connection.session.start_all(both, 10_000)  # the server reads both at once
    assert slow.result(10_000).code == 0
    assert answered == [other, slow]


def test_a_request_of_the_servers_own_reaches_clients(broker: FakeBroker, connection: Connection) -> None:
    _ask(connection)
    assert broker.push(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=5)) == 1
    _ask(connection)
    _ask(connection)
    assert [(a.code, a.opaque) for a in broker.client_answers] == [(3, 5)]


def test_a_stopped_broker_refuses_and_a_started_one_takes_connections_again(
    broker: FakeBroker, connection: Connection
) -> None:
    _ask(connection)
    assert broker.connections() == 1
    broker.stop_broker()
    for _ in range(2):  # the old connection is broken, and a new one refused
        with pytest.raises(TransportError):
            _ask(connection)
    broker.start_broker()
    assert _ask(connection).code == 0
    broker.drop_connections()
    assert broker.connections() == 0


def test_garbage_from_a_client_closes_its_connection(broker: FakeBroker) -> None:
    host, port = broker.address().split(":")
    for data in (b"\x7f\xff\xff\xff" + bytes(4), b"GET / HTTP/1.0\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=at_most(5)) as sock:
            sock.sendall(data)
            assert sock.recv(1) == b""


def test_the_name_server_and_brokers_answer_their_own_requests_only(broker: FakeBroker, connection: Connection) -> None:
    assert connection.request(requests.get_route("topic"), 10_000).code == 3
    name_server = Connection(broker.name_server)
    assert name_server.request(requests.get_max_offset(Q0), 10_000).code == 3
    route = requests.parse_route("topic", name_server.request(requests.get_route("topic"), 10_000))
    assert [queue.broker for queue in route.writable()] == ["broker-a", "broker-b"]
    assert route.brokers["broker-a"].master == broker.address()
    assert [role for role, _ in broker.requests] == ["broker-a", NAME_SERVER, NAME_SERVER]
    name_server.close()


def test_a_missing_field_is_an_internal_error_over_there(broker: FakeBroker, connection: Connection) -> None:
    answer = connection.request(Command(MAX, {"topic": "topic"}), 10_000)
    assert answer.code == 1
    assert "NullPointerException" in (answer.remark or "")


def test_a_held_pull_ends_in_time_or_with_a_message(broker: FakeBroker, connection: Connection) -> None:
    pull = requests.pull("g", Q0, 0, max_messages=1, message_filter=MessageFilter(), suspend_ms=50)
    assert connection.request(pull, 10_000).code == 19
    held = connection.start(
        requests.pull("g", Q0, 0, max_messages=1, message_filter=MessageFilter(), suspend_ms=60_000)
    )
    assert _ask(connection).code == 0
    broker.cluster.append("topic", b"x")
    assert held.result(10_000).code == 0


@in_own_process
def test_nothing_is_left_running() -> None:
    with InMemoryCluster() as cluster:
        with FakeBroker(cluster) as broker:
            connection = Connection(broker.address())
            connection.request(requests.get_max_offset(Q0), 2_000)
            assert threading.active_count() == 2
        assert cluster.listeners == []
        with pytest.raises(TransportError):
            connection.request(requests.get_max_offset(Q0), 200)
    assert threading.active_count() == 1


def test_sixty_thousand_messages_in_one_batch_are_acknowledged_and_lost(
    broker: FakeBroker, connection: Connection
) -> None:
    member = bytes(3) + b"\x17" + bytes(15) + b"\x01y" + bytes(2)
    command = requests.send("g", Q0, member * 40_000, born_ms=0, batch=True)
    assert connection.request(command, 20_000).code == 0
    assert broker.cluster.records("topic") == []
