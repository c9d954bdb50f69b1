"""Each field of `WriteOptions` changes what `WriteToRocketMQ` writes to sockets: one DoFn, on every runner.

A field without an entry here fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import EnvironmentCredentials, Security, WriteToRocketMQ
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import RmqioError
from rmqio.interfaces import Producer, QueueClient
from rmqio.model import Message
from rmqio.options import WriteOptions, option_names
from rmqio.sending.traces import close_tracers
from rmqio.transforms.writing.write_fn import WriteFn
from rmqio.wire.bodies import KINDS, compress, compression_flags
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.scripted_wire import BROKER, NAME_SERVER, VIP, ScriptedWire
from tests.helpers.fakes.protocol import BrokerSettings

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
TEXT = b"a text that is worth compressing, line by line; " * 200


@dataclass(frozen=True, eq=False)
class WireFactory:
    """Producers of a scripted wire."""

    wire: ScriptedWire

    def queue_client(self) -> QueueClient:
        return self.wire.client()

    def producer(self, group: str) -> Producer:
        return self.wire.producer(group)


class Writing:
    """A write as the transform wires it, but for its sockets and its clock."""

    def __init__(self, options: dict[str, Any], topic: str = "t", **arguments: Any) -> None:
        given: dict[str, Any] = {"options": WriteOptions(**{"name_server": NAME_SERVER} | options)}
        transform = WriteToRocketMQ(topic, **given)
        factory = transform._backend_factory()
        assert isinstance(factory, RemotingClientFactory)
        self.wire = ScriptedWire(factory.options, **arguments)
        self.wire.topic(queues=16)
        self._fn = WriteFn(
            transform._maker,
            WireFactory(self.wire),
            transform._group,
            transform._options,
            clock=self.wire.clock.monotonic,
        )

    def bundle(self, *elements: bytes | Message) -> Writing:
        """Written in one bundle; what fails it is over."""
        with suppress(RmqioError):
            self._fn.setup()
            self._fn.start_bundle()
            for element in elements:
                list(self._fn.process(element, WindowedValue(element, 0, (GlobalWindow(),))) or ())
            list(self._fn.finish_bundle())
        return self


def written(options: dict[str, Any], *elements: bytes | Message, **arguments: Any) -> ScriptedWire:
    return Writing(options, **arguments).bundle(*(elements or (b"x",))).wire


def sends(options: dict[str, Any], count: int, size: int = 1) -> list[Command]:
    return written(options, *[bytes(size)] * count).got(*SENDS)


def silent(options: dict[str, Any], count: int = 1) -> ScriptedWire:
    """Sends were not answered."""
    return written(options, *[b"x"] * count, silent=SENDS)


def in_flight(options: dict[str, Any]) -> int:
    return silent({"max_batch_messages": 1, "max_retries": 0} | options, 20).at_once(*SENDS)


def busy_for_s(options: dict[str, Any]) -> int:
    """Tells for how many seconds a send was tried at a broker that stays busy."""
    return round(written(options, b"x", busy=SENDS).elapsed_ms / 1000)


def ten_seconds_apart(options: dict[str, Any]) -> ScriptedWire:
    """Two bundles."""
    writing = Writing(options).bundle(b"a")
    writing.wire.clock.advance(10)
    return writing.bundle(b"b").wire


def text(options: dict[str, Any]) -> Command:
    """A text, by a write that compresses."""
    return written({"compress_over_bytes": 1} | options, TEXT).got(*SENDS)[0]


def level_of(options: dict[str, Any]) -> list[int]:
    """The level, among two, by which a text was compressed."""
    body = text({"batch_flush": False} | options).body
    return [level for level in (1, 9) if body == compress(TEXT, kind=KINDS["zlib"], level=level)]


def makes_its_topic(options: dict[str, Any]) -> bool:
    wire = Writing(options, "new", settings=BrokerSettings(auto_create_topics=True)).bundle(b"x").wire
    return "new" in wire.cluster.topic_names()


def sends_of_two_queues(options: dict[str, Any]) -> int:
    """Messages go to two queues by turns."""
    messages = [Message(bytes(400), sharding_key=f"k{number % 2}") for number in range(6)]
    return len(written({"max_batch_bytes": 2_000} | options, *messages).got(*SENDS))


def sends_ten_seconds_apart(options: dict[str, Any]) -> int:
    """Two elements of one bundle; once the thread has ended, it is this one that looks what is due."""
    writing = Writing(options)
    fn = writing._fn
    fn.setup()
    fn.start_bundle()
    for element in (b"a", b"b"):
        list(fn.process(element, WindowedValue(element, 0, (GlobalWindow(),))) or ())
        writing.wire.clock.advance(10)
        if fn._timed is not None:
            fn._timed.close()
            fn._timed.send_due()
    list(fn.finish_bundle())
    return len(writing.wire.got(*SENDS))


def client_id(options: dict[str, Any]) -> str:
    (heartbeat,) = written(options).got(RequestCode.HEART_BEAT)
    return str(json.loads(heartbeat.body)["clientID"])


def traced(options: dict[str, Any]) -> int:
    """The number of messages in the trace topic, of two that were written."""
    writing = Writing(options)
    writing.wire.cluster.create_topic("Trace", 1)
    writing.bundle(b"x", b"y")
    close_tracers()
    found = writing.wire.cluster.records("Trace")
    assert sum(record.body.count(b"Pub\x01") for record in found) == 2 * len(found)
    return len(found)


# field, two values, what is seen with each, how it is looked at
EFFECTS: dict[str, tuple[tuple[Any, Any], tuple[Any, Any], Callable[[dict[str, Any]], Any]]] = {
    "batch_flush": ((True, False), (1, 5), lambda options: len(sends(options, 5))),
    "max_batch_messages": ((1_000, 2), (1, 5), lambda options: len(sends(options, 10))),
    "max_batch_bytes": ((256 * 1024, 1_000), (1, 5), lambda options: len(sends(options, 10, size=400))),
    "asynchronous": ((False, True), (1, 8), in_flight),
    "max_in_flight": ((8, 3), (8, 3), lambda options: in_flight({"asynchronous": True} | options)),
    "max_total_bytes": ((64 << 20, 2_000), (2, 6), sends_of_two_queues),
    "max_wait_ms": ((None, 200), (1, 2), sends_ten_seconds_apart),
    "request_timeout_ms": ((3_000, 700), (3_000, 700), lambda o: silent({"max_retries": 0} | o).elapsed_ms),
    "max_retries": ((3, 1), (4, 2), lambda options: len(silent(options).got(*SENDS))),
    "busy_timeout_ms": ((30_000, 0), (31, 0), busy_for_s),
    "name_server_poll_interval_ms": (
        (30_000, 5_000),
        (1, 2),
        lambda options: len(ten_seconds_apart(options).got(RequestCode.GET_ROUTEINFO_BY_TOPIC)),
    ),
    "broker_heartbeat_interval_ms": (
        (30_000, 5_000),
        (1, 2),
        lambda options: len(ten_seconds_apart(options).got(RequestCode.HEART_BEAT)),
    ),
    "namespace": (
        ("", "n"),
        ("t", "n%t"),
        lambda options: written(options).got(RequestCode.GET_ROUTEINFO_BY_TOPIC)[0].ext["topic"],
    ),
    "vip_channel": ((False, True), (BROKER, VIP), lambda options: written(options).connects[-1][0]),
    "compress_over_bytes": ((None, 100), (False, True), lambda options: len(text(options).body) < len(TEXT)),
    "compression": (
        ("zlib", "lz4"),
        (compression_flags(KINDS["zlib"]), compression_flags(KINDS["lz4"])),
        lambda options: int(text(options).ext["f"]),
    ),
    "compression_level": ((1, 9), ([1], [9]), level_of),
    "create_topics": ((False, True), (False, True), makes_its_topic),
    "client_id_prefix": (("", "billing-"), (False, True), lambda options: client_id(options).startswith("billing-")),
    "unit_name": (("", "north"), (False, True), lambda options: client_id(options).endswith("@north")),
    "trace": ((False, "Trace"), (0, 1), traced),
    "name_server": ((NAME_SERVER, "b:9876"), (NAME_SERVER, "b:9876"), lambda options: written(options).connects[0][0]),
    "producer_group": (
        (None, "mine"),
        ("rmqio_producer", "mine"),
        lambda options: written(options).got(*SENDS)[0].ext["a"],
    ),
    "security": (
        (Security(), Security(EnvironmentCredentials())),
        (None, "a-key"),
        lambda options: written(options).got(*SENDS)[0].ext.get("AccessKey"),
    ),
}


@pytest.mark.parametrize("name", option_names(WriteOptions))
def test_every_option_of_a_write_is_heeded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "a-key")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "a-secret")
    assert name in EFFECTS, f"WriteOptions.{name} is new: show here what it does"
    values, expected, observe = EFFECTS[name]
    assert tuple(observe({name: value}) for value in values) == expected
    assert expected[0] != expected[1]
