"""Many offsets at once, with a broker or a name server that is silent: over sockets, with fake brokers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.environment import Environment
from rmqio.errors import (
    BrokerSilent,
    LocalError,
    NoPermission,
    RequestTimeout,
    RmqioError,
    SystemBusy,
    TopicNotExist,
    TransportError,
)
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import NAME_SERVER, FakeBroker, ManualClock, ScriptedNetwork, ScriptedTransport, faults
from rmqio.testing.faults import Exchange
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command

DEADLINE_S = 0.6
A, B = "broker-a", "broker-b"


class Setup:
    """Two brokers with two queues each, a client, and a clock that can be put forward."""

    def __init__(self, broker: FakeBroker, **options: Any) -> None:
        self.broker = broker
        self.skipped_s = 0.0
        self.queues = broker.cluster.create_topic("t", 2, (A, B))
        for queue in self.queues:
            for _ in range(queue.queue_id + (10 if queue.broker == B else 1)):
                broker.cluster.append("t", b"x", queue_id=queue.queue_id, broker=queue.broker)
        self.options = ClientOptions(
            broker.name_server, **{"request_timeout_ms": int(DEADLINE_S * 1000), "retry_backoff_ms": 10} | options
        )
        self.environment = Environment(clock=lambda: time.monotonic() + self.skipped_s)
        self.client = RemotingQueueClient(self.options, self.environment)

    def ends(self) -> list[int | RmqioError | None]:
        return list(self.client.look_up([OffsetQuery(queue, "max") for queue in self.queues]))

    def kinds(self) -> list[object]:
        """Numbers, and the classes of errors."""
        return [end if isinstance(end, int) else type(end) for end in self.ends()]

    def until_answered(self, wanted: list[object]) -> int:
        """Look, a second after the other, until all is answered; after how many."""
        for count in range(1, 10):
            self.skipped_s += 1.0
            if self.kinds() == wanted:
                return count
            time.sleep(0.02)  # an answer takes its time, whatever the client's clock says
        raise AssertionError(f"{self.ends()}")


@pytest.fixture
def setup() -> Iterator[Setup]:
    with FakeBroker(brokers=(A, B)) as broker:
        setup = Setup(broker)
        yield setup
        setup.client.close()


ALL = [1, 2, 10, 11]
B_TIMED_OUT = [1, 2, RequestTimeout, RequestTimeout]
B_SILENT = [1, 2, BrokerSilent, BrokerSilent]


def test_answers_come_in_the_order_of_the_queries_whatever_they_ask_for(setup: Setup) -> None:
    a, b = setup.queues[1], setup.queues[2]
    setup.broker.cluster.delete_before(b, 4)
    setup.client.commit_offset("g", b, 7)
    queries = [
        OffsetQuery(b, "committed", group="g"),
        OffsetQuery(a, "max"),
        OffsetQuery(b, "min"),
        OffsetQuery(a, "committed", group="g"),
        OffsetQuery(b, "time", timestamp_ms=0),
        OffsetQuery(a, "time", timestamp_ms=2**42),
        OffsetQuery(b, "max"),
    ]
    assert list(setup.client.look_up(queries)) == [7, 2, 4, None, 4, 2, 10]
    assert list(setup.client.look_up([])) == []


def test_each_broker_is_written_to_once_and_the_route_is_asked_for_once(setup: Setup) -> None:
    setup.ends()
    sessions = [setup.client._pool.connection(setup.broker.address(name)).session for name in (A, B)]
    writes: Counter[str] = Counter()
    for session in sessions:
        assert session is not None
        stream = session._stream

        def write(data: bytes, timeout_ms: float, stream: Any = stream, original: Any = stream.write) -> None:
            writes[stream._address] += 1
            original(data, timeout_ms)

        stream.write = write  # type: ignore[method-assign]
    queries = [OffsetQuery(queue, kind) for queue in setup.queues for kind in ("min", "max")]
    setup.client.look_up(queries)
    assert writes == {setup.broker.address(A): 1, setup.broker.address(B): 1}
    assert setup.broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1


def test_all_are_on_their_way_before_any_is_answered(setup: Setup) -> None:
    kept: list[Exchange] = []

    def answer_when_all_are_here(exchange: Exchange) -> None:
        kept.append(exchange)
        if len(kept) == 8:
            for each in kept:
                each.send(each.handle())

    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        setup.broker.on(code, answer_when_all_are_here, times=None)
    queries = [OffsetQuery(queue, kind) for queue in setup.queues for kind in ("min", "max")]
    assert all(isinstance(answer, int) for answer in setup.client.look_up(queries, timeout_ms=10_000))


class Scripted:
    """A name server and two brokers without sockets, on a clock that only waiting puts forward."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.silent: set[str] = {"b:1"}
        self.asked: Counter[str] = Counter()
        addresses = ("ns:9876", "a:1", "b:1")
        self.network = ScriptedNetwork({address: lambda a=address: self.transport(a) for address in addresses})  # type: ignore[misc]
        environment = Environment(
            connect=self.network,
            clock=self.clock.monotonic,
            sleep=self.clock.sleep,
            random=lambda: 0.5,
            wall_clock=self.clock.time,
        )
        self.client = RemotingQueueClient(ClientOptions("ns:9876", request_timeout_ms=3_000), environment)
        self.queries = [OffsetQuery(MessageQueue("t", name, n), "max") for name in ("a", "b") for n in range(4)]

    def transport(self, address: str) -> ScriptedTransport:
        def answer(request: Command) -> list[Command]:
            self.asked[address] += 1
            if address in self.silent:
                return []
            if address != "ns:9876":
                return [Command(0, {"offset": "7"})]
            queues = [{"brokerName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in ("a", "b")]
            brokers = [{"brokerName": name, "brokerAddrs": {"0": f"{name}:1"}} for name in ("a", "b")]
            return [Command(0, body=json.dumps({"queueDatas": queues, "brokerDatas": brokers}).encode())]

        return ScriptedTransport(responder=answer, clock=self.clock)

    def look(self) -> list[object]:
        return [end if isinstance(end, int) else type(end) for end in self.client.look_up(self.queries)]


def test_a_silent_broker_costs_one_deadline_once_and_the_others_answers_come() -> None:
    scripted = Scripted()
    assert scripted.look() == [7] * 4 + [RequestTimeout] * 4
    assert scripted.clock.monotonic() == pytest.approx(3.0)  # not one for each of its queues, nor for each try
    assert scripted.asked == {"ns:9876": 1, "a:1": 4, "b:1": 4}
    for _ in range(5):
        assert scripted.look() == [7] * 4 + [BrokerSilent] * 4
    assert scripted.clock.monotonic() == pytest.approx(3.0)
    assert scripted.asked["a:1"] == 24
    assert scripted.asked["b:1"] == 4
    for _ in range(20):
        scripted.clock.advance(1)
        scripted.look()
    assert scripted.clock.monotonic() == pytest.approx(23.0), "no look waits for a probe"
    assert 24 - 4 >= scripted.asked["b:1"] - 4 > 0
    assert scripted.network.connected.count("b:1") > 1, "a connection that stays silent is made anew"
    scripted.silent.clear()
    for _ in range(3):
        scripted.clock.advance(1)
        found = scripted.look()
    assert found == [7] * 8


def test_a_broker_that_takes_no_connection_is_silent_too() -> None:
    scripted = Scripted()
    transport = scripted.transport("b:1")
    transport.wait_connected = lambda timeout_ms: False  # type: ignore[method-assign]
    made = scripted.network._transports
    made["b:1"] = iter([transport])
    assert scripted.look() == [7] * 4 + [RequestTimeout] * 4
    assert scripted.clock.monotonic() == pytest.approx(3.0)
    assert scripted.look() == [7] * 4 + [BrokerSilent] * 4
    assert scripted.clock.monotonic() == pytest.approx(3.0)


def test_a_broker_that_takes_no_more_bytes_is_silent_too() -> None:
    scripted = Scripted()
    scripted.silent = set()
    scripted.look()
    session = scripted.client._pool.connection("b:1").session
    assert session is not None

    def send_all(data: bytes, timeout_ms: float) -> None:
        scripted.clock.sleep(timeout_ms / 1000)
        raise RequestTimeout("5 of 9 bytes not taken in time")

    session._stream._transport.send_all = send_all  # type: ignore[method-assign]
    assert scripted.look() == [7] * 4 + [RequestTimeout] * 4
    assert scripted.clock.monotonic() <= 3.0
    assert scripted.look() == [7] * 4 + [BrokerSilent] * 4


def test_silent_name_servers_cost_no_more_than_the_deadline_and_nothing_in_the_next_look() -> None:
    scripted = Scripted()
    scripted.silent = {"ns:9876"}
    assert all(isinstance(kind, type) and issubclass(kind, TransportError) for kind in scripted.look())
    assert scripted.clock.monotonic() == pytest.approx(3.0)
    assert scripted.look() == [TransportError] * 8
    assert scripted.clock.monotonic() == pytest.approx(3.0)


def test_a_route_that_is_held_does_while_the_name_server_is_silent() -> None:
    scripted = Scripted()
    scripted.silent = set()
    assert scripted.look() == [7] * 8
    scripted.clock.advance(31)  # it is due to be looked up again
    scripted.silent = {"ns:9876"}
    assert scripted.look() == [7] * 8
    assert scripted.clock.monotonic() <= 31 + 1.5, "half of the time is left for the brokers"
    waited = scripted.clock.monotonic()
    scripted.clock.advance(31)
    assert scripted.look() == [7] * 8
    assert scripted.clock.monotonic() == pytest.approx(waited + 31)


def test_what_is_left_of_the_deadline_is_shared_by_all_tries() -> None:
    scripted = Scripted()
    scripted.silent = set()
    scripted.look()
    busy = ScriptedTransport(responder=lambda _: [Command(2, remark="busy")], clock=scripted.clock)
    scripted.client._pool.connection("b:1").close()
    scripted.client._pool._connections.pop("b:1")
    scripted.network._transports["b:1"] = iter([busy])
    assert scripted.look() == [7] * 4 + [SystemBusy] * 4
    assert len(busy.requests) == 4 * 4, "each is tried four times"
    assert busy.writes == 4, "and all together"
    assert scripted.clock.monotonic() == pytest.approx(0.05 + 0.1 + 0.2)


def test_the_error_says_who_is_silent_since_when_and_what_to_do(setup: Setup) -> None:
    setup.broker.pause_broker(B)
    setup.ends()
    setup.skipped_s += 0.5
    error = setup.ends()[2]
    assert isinstance(error, BrokerSilent)
    told = str(error)
    address = setup.broker.address(B)
    assert f"broker 'broker-b' at {address} is silent for 0." in told
    assert "since 20" in told
    assert "has not accepted" in told or "has not answered" in told
    assert "restart it" in told
    assert error.retriable


def test_a_late_answer_has_the_broker_probed_at_once(setup: Setup) -> None:
    setup.broker.pause_broker(B)
    assert setup.kinds() == B_TIMED_OUT
    setup.broker.resume_broker(B)
    time.sleep(0.1)
    asked = setup.broker.count(RequestCode.GET_MAX_OFFSET, B)
    assert setup.kinds() == B_SILENT
    assert setup.broker.count(RequestCode.GET_MAX_OFFSET, B) == asked + 1
    time.sleep(0.1)
    assert setup.kinds() == ALL


def test_a_broker_that_always_answers_late_is_not_waited_for_again(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.delay(1_500 * DEADLINE_S), times=None, broker=B)
    assert setup.kinds() == B_TIMED_OUT
    for _ in range(40):
        assert setup.kinds() == B_SILENT
        time.sleep(DEADLINE_S / 10)


def test_a_probe_each_second_is_sent_for_which_nobody_waits(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=None, broker=B)
    assert setup.kinds() == B_TIMED_OUT

    def asked() -> int:
        time.sleep(0.02)
        return setup.broker.count(RequestCode.GET_MAX_OFFSET, B)

    before = asked()
    for _ in range(10):
        assert setup.kinds() == B_SILENT
    assert asked() == before, "within the first second"
    for probes in (1, 2):
        setup.skipped_s += 1.0
        for _ in range(5):
            assert setup.kinds() == B_SILENT
        assert asked() == before + probes
    setup.broker.heal()
    assert setup.until_answered(list(ALL)) <= 3


def test_a_probe_replaces_a_dead_connection(setup: Setup) -> None:
    setup.kinds()
    setup.broker.pause_broker(B)
    assert setup.kinds() == B_TIMED_OUT
    setup.broker.drop_connections(B)
    setup.broker.resume_broker(B)
    assert setup.until_answered(list(ALL)) <= 3


def test_a_broker_that_is_down_is_refused_after_a_few_tries_and_asked_again_when_it_is_back(setup: Setup) -> None:
    setup.kinds()
    setup.broker.stop_broker(B)
    first = setup.kinds()
    assert first[:2] == [1, 2]
    assert setup.kinds() == B_SILENT
    setup.broker.start_broker(B)
    assert setup.until_answered(list(ALL)) <= 3


def test_a_broker_that_answers_some_is_not_silent(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), broker=B)
    assert setup.kinds() == [1, 2, RequestTimeout, 11]
    assert setup.kinds() == ALL


@pytest.mark.parametrize("code", [1, 2, 14, 215])
def test_a_busy_broker_is_asked_again_for_what_failed_only(setup: Setup, code: int) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.answer(code, "busy"), times=1, broker=B)
    before = setup.broker.count(RequestCode.GET_MAX_OFFSET)
    assert setup.kinds() == ALL
    assert setup.broker.count(RequestCode.GET_MAX_OFFSET) == before + 5


def test_a_refusal_is_in_the_place_of_its_query_and_not_tried_again(setup: Setup) -> None:
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.answer(16, "no"), times=1, broker=B)
    kinds = setup.kinds()
    assert sorted(map(str, kinds[2:]))[1] == str(NoPermission)
    assert kinds[:2] == [1, 2]


def test_a_connection_that_broke_is_made_again_within_the_deadline(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.close(), times=1, broker=B)
    assert setup.kinds() == ALL


def test_what_does_not_exist_is_told_for_each_query(setup: Setup) -> None:
    queue = setup.queues[0]
    answers = setup.client.look_up(
        [
            OffsetQuery(queue._replace(queue_id=2), "max"),
            OffsetQuery(queue, "max"),
            OffsetQuery(queue._replace(topic="nothing"), "min"),
            OffsetQuery(queue._replace(broker="nobody"), "min"),
        ]
    )
    assert isinstance(answers[0], LocalError)
    assert answers[1] == 1
    assert isinstance(answers[2], TopicNotExist)
    assert "no name server knows broker 'nobody'" in str(answers[3])
    setup.broker.cluster.create_topic("t", 3, (A,))
    assert list(setup.client.look_up([OffsetQuery(queue._replace(queue_id=2), "max")])) == [0]


def test_a_topic_that_was_deleted_behind_our_back_is_not_empty(setup: Setup) -> None:
    setup.kinds()
    setup.broker.cluster.delete_topic("t")
    assert setup.kinds() == [TopicNotExist] * 4


def test_a_second_name_server_answers_for_a_silent_one() -> None:
    with FakeBroker() as silent, FakeBroker(brokers=(A, B)) as broker:
        silent.pause_broker(NAME_SERVER)
        setup = Setup(broker)
        both = ClientOptions((silent.name_server, broker.name_server), request_timeout_ms=1_000)
        client = RemotingQueueClient(both)
        queries = [OffsetQuery(queue, "max") for queue in setup.queues]
        assert list(client.look_up(queries)) == ALL
        asked = silent.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        client._routes.invalidate("t")
        assert list(client.look_up(queries)) == ALL
        assert silent.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == asked
        client.close()
        setup.client.close()


def test_single_questions_keep_their_tries_and_their_answers_close_the_breaker(setup: Setup) -> None:
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=2, broker=B)
    assert setup.kinds() == B_TIMED_OUT
    assert setup.kinds() == B_SILENT
    assert setup.client.max_offset(setup.queues[3]) == 11
    assert setup.kinds() == ALL


# ---- commits --------------------------------------------------------------------------------------------------------


def test_commits_go_together_and_the_group_is_made_known_once(setup: Setup) -> None:
    offsets = {queue: queue.queue_id + 1 for queue in setup.queues}
    assert setup.client.commit_offsets("new", offsets) == {}
    queries = [OffsetQuery(queue, "committed", group="new") for queue in setup.queues]
    assert list(setup.client.look_up(queries)) == [1, 2, 1, 2]
    assert setup.broker.count(RequestCode.PULL_MESSAGE) <= 2, "one for each broker"


def test_what_fails_to_be_committed_is_told_by_queue(setup: Setup) -> None:
    first, second, third, _ = setup.queues
    setup.client.commit_offset("g", first, 1)
    setup.broker.cluster.reset_group("g", first, 0)
    failed = setup.client.commit_offsets("g", {first: 1, second: -1, third: 5, first._replace(queue_id=9): 1})
    assert {queue: type(error).__name__ for queue, error in failed.items()} == {
        first: "CommitIgnored",
        second: "LocalError",
        first._replace(queue_id=9): "LocalError",
    }
    assert setup.client.committed_offset("g", third) == 5


def test_looks_and_commits_share_what_they_learn_and_no_commit_is_a_probe(setup: Setup) -> None:
    offsets = dict.fromkeys(setup.queues, 1)
    assert setup.client.commit_offsets("g", offsets) == {}
    setup.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, faults.drop(), times=None, broker=B)
    failed = setup.client.commit_offsets("g", offsets)
    assert {queue.broker: type(error) for queue, error in failed.items()} == {B: RequestTimeout}
    assert setup.kinds() == B_SILENT
    commits = setup.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert setup.until_answered(list(ALL)) <= 3
    assert setup.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == commits


# ---- threads, forks, the end ----------------------------------------------------------------------------------------


def test_many_threads_look_at_once() -> None:
    with FakeBroker(brokers=(A, B)) as broker, ThreadPoolExecutor(8) as pool:
        setup = Setup(broker, request_timeout_ms=3_000)  # for eight threads on a busy machine
        assert list(pool.map(lambda _: setup.kinds(), range(200))) == [ALL] * 200
        setup.broker.pause_broker(B)
        assert all(kinds in (B_TIMED_OUT, B_SILENT) for kinds in pool.map(lambda _: setup.kinds(), range(16)))
        setup.broker.resume_broker(B)
        setup.until_answered(list(ALL))
        assert list(pool.map(lambda _: setup.kinds(), range(50))) == [ALL] * 50
        setup.client.close()
    assert threading.active_count() < 20


def test_a_forked_child_looks_for_itself(setup: Setup) -> None:
    setup.broker.pause_broker(B)
    assert setup.kinds() == B_TIMED_OUT
    setup.broker.resume_broker(B)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if setup.kinds() == ALL else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    setup.kinds()  # the late answer has it probed
    time.sleep(0.1)
    assert setup.kinds() == ALL


def test_a_closed_client_answers_with_errors_and_forgets_who_was_silent(setup: Setup) -> None:
    setup.broker.pause_broker(B)
    setup.kinds()
    setup.client.close()
    assert setup.kinds() == [LocalError] * 4
    assert repr(setup.client._breaker) == "<Breaker open for []>"
    (error,) = setup.client.commit_offsets("g", {setup.queues[0]: 1}).values()
    assert str(error) == "the client is closed"


def test_a_deadline_of_nothing_is_refused(setup: Setup) -> None:
    with pytest.raises(LocalError, match="timeout_ms"):
        setup.client.look_up([], timeout_ms=0)
