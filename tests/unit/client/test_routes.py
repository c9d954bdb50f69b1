"""Routes and retries on scripted name servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from rmqio.client.connection import ConnectionPool
from rmqio.client.reader import RouteLink
from rmqio.client.retry import backoff_ms, call_with_retries
from rmqio.client.routes import Routes
from rmqio.errors import (
    BrokerError,
    LocalError,
    NoPermission,
    RmqioError,
    SystemBusy,
    TopicNotExist,
    TransportError,
)
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import Command
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport


class NameServer:
    """Answers route requests as told: a broker's address, or a response code."""

    def __init__(self, says: str | int = "b1:1") -> None:
        self.says = says
        self.mapping: dict[str, dict[str, object]] = {}
        """Mapping of a static topic: which broker has which queue."""
        self.asked: list[str] = []

    def __call__(self, request: Command) -> Sequence[Command]:
        self.asked.append(request.ext["topic"])
        if isinstance(self.says, int):
            return [Command(self.says, remark="as told")]
        body = {
            "queueDatas": [{"brokerName": "a", "readQueueNums": 2, "writeQueueNums": 1, "perm": 6}],
            "brokerDatas": [{"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": self.says, "1": "replica:1"}}],
            "topicQueueMappingByBroker": self.mapping,
        }
        return [Command(0, body=json.dumps(body).encode())]


class Setup:
    def __init__(self, *servers: NameServer | None, **options: str | int) -> None:
        self.clock = ManualClock()
        names = [f"ns{n}:9876" for n in range(len(servers))]
        self.network = ScriptedNetwork(
            {
                name: [ScriptedTransport(responder=server, clock=self.clock) for _ in range(50)] if server else ()
                for name, server in zip(names, servers, strict=True)
            }
        )
        self.environment = environment_on(self.clock, self.network)
        self.options = ClientOptions(tuple(names), **options)  # type: ignore[arg-type]
        self.routes = Routes(self.options, ConnectionPool(self.options, self.environment), self.environment)


def test_route_is_kept_for_its_time() -> None:
    server = NameServer()
    setup = Setup(server, route_refresh_ms=30_000)
    assert setup.routes.route("t").readable() == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1))
    setup.clock.advance(29)
    setup.routes.route("t")
    assert len(server.asked) == 1
    setup.clock.advance(2)
    setup.routes.route("t")
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "again", [lambda routes: routes.invalidate("t"), lambda routes: routes.route("t", refresh=True)]
)
def test_stale_route_is_looked_up_again(again: Callable[[Routes], object]) -> None:
    server = NameServer()
    setup = Setup(server)
    assert setup.routes.master("t", "a") == "b1:1"
    server.says = "b2:2"
    again(setup.routes)
    assert setup.routes.master("t", "a") == "b2:2"


def test_other_name_server_is_asked_and_preferred_from_then_on() -> None:
    good = NameServer()
    setup = Setup(None, good)
    setup.routes.route("t")
    setup.routes.route("t", refresh=True)
    assert setup.network.connected == ["ns0:9876", "ns1:9876"]
    assert len(good.asked) == 2


def test_name_server_that_is_not_ready_is_passed_over_and_retried() -> None:
    server = NameServer(1)
    setup = Setup(server)
    setup.clock.call_later(0.1, lambda: setattr(server, "says", "b1:1"))
    assert setup.routes.master("t", "a") == "b1:1"
    assert setup.clock.sleeps == [0.05, 0.1]


def test_unknown_topic_is_not_retried() -> None:
    setup = Setup(NameServer(17))
    with pytest.raises(TopicNotExist, match="route of topic 't'"):
        setup.routes.route("t")
    assert setup.clock.sleeps == []


def test_a_broker_in_place_of_a_name_server_is_told() -> None:
    setup = Setup(NameServer(3))
    with pytest.raises(BrokerError, match=r"; ns0:9876 seems to be a broker, or a proxy of RocketMQ 5, which does"):
        setup.routes.route("t")


def test_a_topic_is_unknown_when_no_name_server_knows_it() -> None:
    fresh, other = NameServer(17), NameServer("b1:1")
    setup = Setup(fresh, other)
    assert setup.routes.master("t", "a") == "b1:1"
    other.says = 17
    with pytest.raises(TopicNotExist):
        setup.routes.route("t", refresh=True)
    assert (len(fresh.asked), len(other.asked)) == (2, 2)


def test_no_name_server_names_every_failure() -> None:
    setup = Setup(None, None)
    with pytest.raises(TransportError, match=r"no name server answers: cannot connect to ns0:9876.*; .*ns1:9876"):
        setup.routes.route("t")
    assert len(setup.clock.sleeps) == setup.options.max_retries


def test_old_route_serves_while_no_name_server_answers() -> None:
    server = NameServer()
    setup = Setup(server)
    setup.routes.route("t")
    server.says = 1
    setup.clock.advance(3_600)
    assert setup.routes.master("t", "a") == "b1:1"


def test_name_servers_that_do_not_answer_are_waited_for_once_and_not_with_each_topic() -> None:
    server = NameServer()
    setup = Setup(server)
    topics = [f"t{number}" for number in range(5)]
    for topic in topics:
        setup.routes.route(topic)
    server.says = 1  # not ready
    setup.clock.advance(3_600)
    asked = len(server.asked)
    for topic in topics * 3:
        assert setup.routes.route(topic).queues
    assert len(server.asked) == asked + 1
    assert not setup.clock.sleeps, "an old route is better than a new one later"
    server.says = "b2:1"
    setup.clock.advance(3_600)
    assert setup.routes.master("t0", "a") == "b2:1"


def test_held_address_outlives_a_name_server_that_forgot_the_topic() -> None:
    server = NameServer()
    setup = Setup(server)
    setup.routes.route("t")
    server.says = 17
    with pytest.raises(TopicNotExist):
        setup.routes.route("t", refresh=True)
    assert setup.routes.held_address("t", "a") == "b1:1"


def test_replica_is_read_while_there_is_no_master() -> None:
    setup = Setup(NameServer())
    with pytest.raises(TransportError, match="no address"):
        setup.routes.held_address("t", "a")
    route = setup.routes.route("t")
    assert setup.routes.held_broker("t", "a") == ("b1:1", 0)
    assert setup.routes.held_broker("t", "a", wanted_id=1) == ("replica:1", 1)
    assert setup.routes.held_broker("t", "a", wanted_id=2) == ("b1:1", 0)
    route.brokers["a"].addresses.pop(0)  # type: ignore[attr-defined]
    assert setup.routes.held_broker("t", "a") == ("replica:1", 1)
    assert setup.routes.held_address("t", "a") == "replica:1"


def test_a_static_topics_queue_is_that_of_the_broker_that_has_it_now() -> None:
    server = NameServer()
    server.mapping = {"a": {"bname": "a", "currIdMap": {"7": 0}, "epoch": 1, "scope": "__global__"}}
    setup = Setup(server)
    queue = MessageQueue("t", "__syslo__global__", 7)
    assert setup.routes.owner_of(queue) == "__syslo__global__", "nothing is known yet, and nobody is asked"
    assert server.asked == []
    route = setup.routes.route("t")
    assert setup.routes.owner_of(queue) == "a"
    assert setup.routes.owner_of(MessageQueue("t", "b", 7)) == "b"
    link = RouteLink(queue, ConnectionPool(setup.options, setup.environment), setup.routes)
    assert (link.connection().address, link.is_replica) == ("b1:1", False)
    route.brokers["a"].addresses.pop(0)  # type: ignore[attr-defined]
    assert (link.connection().address, link.is_replica) == ("replica:1", True)
    assert server.asked == ["t"]


def test_who_reads_a_replica_finds_the_master_that_is_back_without_a_failure() -> None:
    server = NameServer()
    setup = Setup(server)
    route = setup.routes.route("t")
    route.brokers["a"].addresses.pop(0)  # type: ignore[attr-defined]
    pool = ConnectionPool(setup.options, setup.environment)
    link = RouteLink(MessageQueue("t", "a", 0), pool, setup.routes, setup.clock.monotonic)
    for _ in range(3):
        assert (link.connection().address, link.is_replica) == ("replica:1", True)
    assert server.asked == ["t"], "the route is not old yet"
    setup.clock.advance(31)
    found = [link.connection().address for _ in range(3)]
    assert found[-1] == "b1:1"
    assert server.asked == ["t", "t"]


def test_look_up_without_blocking_takes_its_answer_at_the_next_call() -> None:
    server = NameServer()
    setup = Setup(server)
    setup.routes.route("t")
    server.says = "b2:2"
    for _ in range(2):
        assert setup.routes.held_address("t", "a") == "b1:1"
        setup.routes.refresh_soon("t")
    assert setup.routes.held_address("t", "a") == "b2:2"
    assert setup.clock.monotonic() == 0


def test_look_up_without_blocking_goes_round_the_name_servers() -> None:
    setup = Setup(None, NameServer("b3:3"))
    for _ in range(3):
        setup.routes.refresh_soon("t")
    assert setup.routes.held_address("t", "a") == "b3:3"


@pytest.mark.parametrize(
    ("name", "wire"), [("t", "ns%t"), ("ns%t", "ns%t"), ("%RETRY%g", "%RETRY%ns%g"), ("%DLQ%ns%g", "%DLQ%ns%g")]
)
def test_namespace_is_put_before_names(name: str, wire: str) -> None:
    setup = Setup(NameServer(), namespace="ns")
    assert setup.routes.wire_name(name) == wire
    assert setup.routes.wire_queue(MessageQueue(name, "a", 1)) == MessageQueue(wire, "a", 1)


def test_namespace_is_taken_off_again() -> None:
    server = NameServer()
    setup = Setup(server, namespace="ns")
    assert setup.routes.route("t").topic == "t"
    assert server.asked == ["ns%t"]
    assert setup.routes.users_names(["ns%t", "t", "other%t"]) == ["t"]


def test_pool_gives_one_connection_an_address_and_none_when_closed() -> None:
    setup = Setup(NameServer())
    pool = ConnectionPool(setup.options, setup.environment)
    assert pool.connection("ns0:9876") is pool.connection("ns0:9876")
    pool.close()
    pool.close()
    with pytest.raises(LocalError, match="closed"):
        pool.connection("ns0:9876")


def failing(*errors: RmqioError) -> Callable[[], str]:
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


BUSY = SystemBusy(2, None, "x")


def test_retries_pause_longer_and_longer_and_end() -> None:
    setup = Setup(NameServer(), max_retries=4, retry_backoff_ms=100, retry_backoff_max_ms=300)
    assert call_with_retries(failing(BUSY, BUSY, BUSY, BUSY), setup.options, setup.environment) == "done"
    assert setup.clock.sleeps == [0.05, 0.1, 0.15, 0.15]
    with pytest.raises(SystemBusy):
        call_with_retries(failing(*[BUSY] * 5), setup.options, setup.environment)


def test_final_errors_are_not_retried() -> None:
    setup = Setup(NameServer())
    with pytest.raises(NoPermission):
        call_with_retries(failing(NoPermission(16, None, "x")), setup.options, setup.environment)
    assert setup.clock.sleeps == []


def test_stale_route_is_reported_before_the_retry_and_gets_one_more_try() -> None:
    setup = Setup(NameServer())
    calls: list[str] = []
    gone = TopicNotExist(17, None, "x")
    result = call_with_retries(
        failing(gone), setup.options, setup.environment, on_stale_route=lambda: calls.append("again")
    )
    assert (result, calls) == ("done", ["again"])
    with pytest.raises(TopicNotExist):
        call_with_retries(failing(gone, gone), setup.options, setup.environment, on_stale_route=lambda: None)


def test_no_retry_begins_behind_the_deadline() -> None:
    setup = Setup(NameServer(), max_retries=100)
    with pytest.raises(SystemBusy):
        call_with_retries(failing(*[BUSY] * 100), setup.options, setup.environment, deadline_ms=1_000)
    assert setup.clock.monotonic() <= 1


def test_backoff_is_spread_over_the_whole_range() -> None:
    options = ClientOptions("ns:1", retry_backoff_ms=100, retry_backoff_max_ms=5_000)
    assert [backoff_ms(n, options, lambda: 1.0) for n in (0, 1, 5, 6, 500)] == [100, 200, 3_200, 5_000, 5_000]
    assert backoff_ms(3, options, lambda: 0.0) == 0
