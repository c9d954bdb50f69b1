"""Silent brokers and name servers cost a look one deadline, once. Without sockets, with a manual clock."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.errors import BrokerSilent, RequestTimeout, SystemBusy, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import Command
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport


class Scripted:
    """A name server and two brokers without sockets, on a clock that only waiting puts forward."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.silent: set[str] = {"b:1"}
        self.asked: Counter[str] = Counter()
        addresses = ("ns:9876", "a:1", "b:1")
        self.network = ScriptedNetwork({address: lambda a=address: self.transport(a) for address in addresses})  # type: ignore[misc]
        environment = environment_on(self.clock, self.network)
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

    session._transport.send_all = send_all  # type: ignore[method-assign]
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
