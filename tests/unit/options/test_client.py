"""Every field of `ClientOptions` has an effect: on what is written to a socket, to whom, how often, or after what time.

A field without an entry here fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from socket import gethostname
from typing import Any

import pytest

from rmqio import EnvironmentCredentials, Security
from rmqio.errors import RmqioError
from rmqio.interfaces import OffsetQuery
from rmqio.model import Message, MessageFilter
from rmqio.options import ClientOptions, option_names
from rmqio.wire.bodies import KINDS, compress, compression_flags
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.replicas import QUEUE, Pair
from tests.helpers.client.scripted_wire import BROKER, NAME_SERVER, VIP, ScriptedWire
from tests.helpers.fakes.protocol import BrokerSettings

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
TEXT = b"a text that is worth compressing, line by line; " * 200
Observe = Callable[..., Any]


def wire(options: dict[str, Any], **arguments: Any) -> ScriptedWire:
    return ScriptedWire(ClientOptions(**{"name_servers": NAME_SERVER} | options), **arguments)


def asked(options: dict[str, Any], **arguments: Any) -> ScriptedWire:
    """The maximum offset of a queue was asked for, once, by whom `arguments` let answer."""
    made = wire(options, **arguments)
    queue = made.topic()
    with suppress(RmqioError):
        made.client().max_offset(queue)
    return made


def unanswered(options: dict[str, Any]) -> ScriptedWire:
    return asked({"max_retries": 0} | options, silent=(RequestCode.GET_MAX_OFFSET,))


def refused(options: dict[str, Any]) -> ScriptedWire:
    return asked(options, busy=(RequestCode.GET_MAX_OFFSET,))


def looked_up_twice(options: dict[str, Any]) -> int:
    """Counts the requests to the name server for a route that was needed twice, ten seconds apart."""
    made = wire(options)
    made.topic()
    client = made.client()
    client.queues("t")
    made.clock.advance(10)
    client.queues("t")
    return len(made.got(RequestCode.GET_ROUTEINFO_BY_TOPIC))


def pulled(options: dict[str, Any], messages: int = 2_000) -> ScriptedWire:
    """A reader has been opened and polled once."""
    made = wire(options)
    queue = made.topic(messages)
    client = made.client()
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())
    client.wait([reader], 1_000)
    reader.poll()
    return made


def pull(name: str, messages: int = 2_000) -> Observe:
    return lambda options: pulled(options, messages).got(RequestCode.PULL_MESSAGE)[-1].ext[name]


def still_tries(options: dict[str, Any]) -> bool:
    """Whether a reader still waits for its broker after half a minute."""
    made = wire({"max_retries": 0} | options, busy=(RequestCode.PULL_MESSAGE,))
    queue = made.topic(3)
    client = made.client()
    reader = client.open_reader(queue, 0, message_filter=MessageFilter())
    with suppress(RmqioError):
        while made.elapsed_ms < 30_000:
            client.wait([reader], 1_000)
            reader.poll()
        return True
    return False


def without_master(options: dict[str, Any]) -> bool:
    """Whether the end of a queue is known while only its replica is there."""
    pair = Pair(**options)
    pair.has_master = False
    return pair.client.look_up([OffsetQuery(QUEUE, "max")]) == [1_000]


def client_id(options: dict[str, Any]) -> str:
    """The client id in a producer's heartbeat, without process and object."""
    (heartbeat,) = sent(options).got(RequestCode.HEART_BEAT)
    return re.sub(r"\d+#\d+", "", str(json.loads(heartbeat.body)["clientID"]).replace(gethostname(), "host"))


def sent(options: dict[str, Any], *messages: Message, **arguments: Any) -> ScriptedWire:
    """Messages were sent, ten seconds after one another."""
    made = wire(options, **arguments)
    queue = made.topic()
    with made.producer() as producer:
        for message in messages or (Message(b"x"),):
            producer.send(message, queue)
            made.clock.advance(10)
    return made


def sent_text(options: dict[str, Any]) -> Command:
    """A text was sent, by a producer that compresses."""
    return sent({"compress_over_bytes": 1} | options, Message(TEXT)).got(*SENDS)[0]


def level_of(options: dict[str, Any]) -> list[int]:
    """The level, among two, by which a text was compressed."""
    body = sent_text(options).body
    return [level for level in (1, 9) if body == compress(TEXT, kind=KINDS["zlib"], level=level)]


def busy_for_s(options: dict[str, Any]) -> int:
    """Tells for how many seconds a send was tried at a broker that stays busy."""
    made = wire({"max_retries": 1} | options, busy=SENDS)
    made.topic()
    with suppress(RmqioError), made.producer() as producer:
        producer.send(Message(b"x", topic="t"))
    return round(made.clock.monotonic())


def submitted(options: dict[str, Any]) -> int:
    """Counts the batches that were on their way when the next had to wait."""
    made = wire({"max_retries": 0} | options, silent=SENDS)
    queue = made.topic()
    producer = made.producer()
    with suppress(RmqioError):
        for _ in range(20):
            producer.submit([Message(b"x")], queue)
    return made.at_once(*SENDS)


def batch_id(options: dict[str, Any]) -> bool:
    """Whether a batch has a unique id of its own."""
    made = wire(options)
    queue = made.topic()
    with made.producer() as producer:
        producer.send_batch([Message(b"a"), Message(b"b")], queue)
    return bool(made.got(*SENDS)[0].ext["i"])


def made_a_topic(options: dict[str, Any]) -> bool:
    made = wire(options, settings=BrokerSettings(auto_create_topics=True))
    with suppress(RmqioError), made.producer() as producer:
        producer.send(Message(b"x", topic="new"))
    return "new" in made.cluster.topic_names()


def signer(options: dict[str, Any]) -> str | None:
    return asked(options).got(RequestCode.GET_MAX_OFFSET)[0].ext.get("AccessKey")


# field, two values, what is seen with each, how it is looked at
EFFECTS: dict[str, tuple[tuple[Any, Any], tuple[Any, Any], Observe]] = {
    "name_servers": (
        (NAME_SERVER, "other:9876"),
        (NAME_SERVER, "other:9876"),
        lambda options: asked(options).connects[0][0],
    ),
    "request_timeout_ms": ((3_000, 700), (3_000, 700), lambda options: unanswered(options).elapsed_ms),
    "connect_timeout_ms": ((3_000, 400), (3_000, 400), lambda options: asked(options).connects[0][1]),
    "route_refresh_ms": ((30_000, 5_000), (1, 2), looked_up_twice),
    "heartbeat_ms": (
        (30_000, 5_000),
        (1, 2),
        lambda options: len(sent(options, Message(b"a"), Message(b"b")).got(RequestCode.HEART_BEAT)),
    ),
    "max_retries": ((3, 1), (4, 2), lambda options: len(refused(options).got(RequestCode.GET_MAX_OFFSET))),
    "busy_timeout_ms": ((30_000, 0), (31, 0), busy_for_s),
    "retry_backoff_ms": ((100, 10), ([0.05, 0.1, 0.2], [0.005, 0.01, 0.02]), lambda o: refused(o).clock.sleeps),
    "retry_backoff_max_ms": ((5_000, 100), ([0.05, 0.1, 0.2], [0.05] * 3), lambda o: refused(o).clock.sleeps),
    "pull_depth": ((16, 3), (17, 4), lambda options: len(pulled(options).got(RequestCode.PULL_MESSAGE))),
    "pull_batch": ((32, 9), ("32", "9"), pull("maxMsgNums")),
    "long_poll_ms": ((15_000, 900), ("15000", "900"), pull("suspendTimeoutMillis", messages=0)),
    "outage_timeout_ms": ((60_000, 5_000), (True, False), still_tries),
    "pull_group": (("rmqio_reader", "pulls"), ("rmqio_reader", "pulls"), pull("consumerGroup")),
    "replica_reads": ((True, False), (True, False), without_master),
    "client_id_prefix": (("", "billing-"), ("host@", "billing-host@"), client_id),
    "unit_name": (("", "north"), ("host@", "host@@north"), client_id),
    "max_in_flight": ((8, 2), (8, 2), submitted),
    "vip_channel": ((False, True), (BROKER, VIP), lambda options: sent(options).connects[-1][0]),
    "namespace": (
        ("", "n"),
        ("t", "n%t"),
        lambda options: asked(options).got(RequestCode.GET_ROUTEINFO_BY_TOPIC)[0].ext["topic"],
    ),
    "create_topics": ((False, True), (False, True), made_a_topic),
    "compress_over_bytes": ((None, 100), (False, True), lambda options: len(sent_text(options).body) < len(TEXT)),
    "compression": (
        ("zlib", "lz4"),
        (compression_flags(KINDS["zlib"]), compression_flags(KINDS["lz4"])),
        lambda options: int(sent_text(options).ext["f"]),
    ),
    "compression_level": ((1, 9), ([1], [9]), level_of),
    "inner_batches": ((False, True), (False, True), batch_id),
    "security": ((Security(), Security(EnvironmentCredentials())), (None, "a-key"), signer),
}


@pytest.mark.parametrize("name", option_names(ClientOptions))
def test_every_option_of_a_client_is_heeded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "a-key")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "a-secret")
    assert name in EFFECTS, f"ClientOptions.{name} is new: show here what it does"
    values, expected, observe = EFFECTS[name]
    assert tuple(observe({name: value}) for value in values) == expected
    assert expected[0] != expected[1]
