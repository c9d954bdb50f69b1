"""A producer with a scripted name server and scripted brokers: no sockets and no real time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from rmqio.client.producer import RemotingProducer
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.unplugged import environment_on
from tests.helpers.fakes.network import ScriptedNetwork, ScriptedTransport

NAME_SERVER, BROKER_A, BROKER_B = "ns:9876", "a:10911", "b:10911"
A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
Answer = Command | bytes | None


def stored(offset: int = 0, ids: str | None = "ID", queue_id: int = 0, code: int = 0) -> Command:
    """Returns the answer to a send that was stored."""
    ext = {"queueId": str(queue_id), "queueOffset": str(offset)}
    return Command(code, ext if ids is None else {**ext, "msgId": ids})


class World:
    """A scripted name server and scripted brokers. Sends get `answers` in turn, and no answer when none are left."""

    def __init__(self, *answers: Answer, brokers: Sequence[str] = ("broker-a",), **options: object) -> None:
        self.clock = ManualClock()
        self.answers = list(answers)
        self.brokers = tuple(brokers)
        self.transports: dict[str, list[ScriptedTransport]] = {}
        self.network = ScriptedNetwork(
            {address: self._maker(address) for address in (NAME_SERVER, BROKER_A, BROKER_B, "a:10909")}
        )
        environment = environment_on(self.clock, self.network)
        self.options = ClientOptions(NAME_SERVER, **options)  # type: ignore[arg-type]
        self.producer = RemotingProducer(self.options, "group", environment=environment)

    def sends(self, address: str = BROKER_A) -> list[Command]:
        """Returns the sends that arrived at an address."""
        transports = self.transports.get(address, [])
        return [request for transport in transports for request in transport.requests if request.code in SENDS]

    def count(self, code: int, address: str = BROKER_A) -> int:
        return sum(request.code == code for t in self.transports.get(address, []) for request in t.requests)

    def _maker(self, address: str) -> Callable[[], ScriptedTransport]:
        def make() -> ScriptedTransport:
            transport = ScriptedTransport(responder=self._respond, clock=self.clock)
            self.transports.setdefault(address, []).append(transport)
            return transport

        return make

    def _respond(self, request: Command) -> list[Command | bytes]:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return [Command(0, body=json.dumps(self._route()).encode())]
        if request.code not in SENDS:
            return [Command(0)]
        answer = self.answers.pop(0) if self.answers else None
        return [] if answer is None else [replace(answer) if isinstance(answer, Command) else answer]

    def _route(self) -> dict[str, object]:
        addresses = {"broker-a": BROKER_A, "broker-b": BROKER_B}
        return {
            "queueDatas": [
                {"brokerName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in self.brokers
            ],
            "brokerDatas": [
                {"cluster": "c", "brokerName": name, "brokerAddrs": {"0": addresses[name]}} for name in self.brokers
            ],
        }
