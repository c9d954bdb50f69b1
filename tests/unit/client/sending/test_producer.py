"""The producer against a script: what it writes, when it retries and waits. No sockets, no real time."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from rmqio.client.environment import Environment
from rmqio.client.sending.pending import PendingRequest
from rmqio.client.sending.producer import RemotingProducer
from rmqio.client.sending.queue_choice import AVOID_S
from rmqio.errors import LocalError, RequestTimeout, SystemBusy, TransportError, WireError
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import Message, MessageQueue, SendResult, SendStatus
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock, ScriptedNetwork, ScriptedTransport
from rmqio.wire.batch import encode_batch
from rmqio.wire.bodies import decompress
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command

NAME_SERVER, BROKER_A, BROKER_B = "ns:9876", "a:10911", "b:10911"
A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

Answer = Command | bytes | None


def stored(offset: int = 0, ids: str | None = "ID", queue_id: int = 0, code: int = 0) -> Command:
    """The answer to a send that was stored."""
    ext = {"queueId": str(queue_id), "queueOffset": str(offset)}
    return Command(code, ext if ids is None else {**ext, "msgId": ids})


class World:
    """Name server and brokers as a script: `answers` are given to sends in turn; without any left, silence."""

    def __init__(self, *answers: Answer, brokers: Sequence[str] = ("broker-a",), **options: object) -> None:
        self.clock = ManualClock()
        self.answers = list(answers)
        self.brokers = tuple(brokers)
        self.transports: dict[str, list[ScriptedTransport]] = {}
        self.network = ScriptedNetwork(
            {address: self._maker(address) for address in (NAME_SERVER, BROKER_A, BROKER_B, "a:10909")}
        )
        environment = Environment(
            connect=self.network,
            clock=self.clock.monotonic,
            sleep=self.clock.sleep,
            random=lambda: 0.5,
            wall_clock=self.clock.time,
        )
        self.options = ClientOptions(NAME_SERVER, **options)  # type: ignore[arg-type]
        self.producer = RemotingProducer(self.options, "group", environment=environment)

    def sends(self, address: str = BROKER_A) -> list[Command]:
        """The sends that came to an address."""
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


def test_it_is_a_producer() -> None:
    world = World(stored())
    producer: Producer = world.producer
    pending: PendingSend = producer.submit([Message(b"x")], A0)
    assert isinstance(pending.result(), list)


# ---- what is written -------------------------------------------------------------------------------------------------


def test_a_single_send_is_written_field_by_field() -> None:
    world = World(stored(offset=7, ids="7F0000010000", queue_id=1))
    message = Message(b"body", tags="tag", keys=("k1", "k2"), properties={"p": "v"})
    result = world.producer.send(message, A1, message_id="THE-ID")
    (sent,) = world.sends()
    assert sent.code == 310
    assert sent.body == b"body"
    assert sent.ext == {
        "a": "group",
        "b": "orders",
        "c": "",  # no template: a missing topic is not made
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "UNIQ_KEY\x01THE-ID\x02KEYS\x01k1 k2\x02TAGS\x01tag\x02p\x01v\x02",
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
        "n": "broker-a",
    }
    assert result == SendResult(A1, 7, "THE-ID", "7F0000010000", SendStatus.OK)


def test_a_batch_is_written_as_one_request() -> None:
    world = World(stored(offset=3, ids="I0,I1"))
    messages = [Message(b"1", tags="t"), Message(b"2", topic="orders")]
    results = world.producer.send_batch(messages, A0, message_ids=["a", "b"])
    (sent,) = world.sends()
    assert (sent.code, sent.ext["m"], sent.ext["e"], sent.ext["i"]) == (320, "true", "0", "")
    assert sent.body == encode_batch(messages, ["a", "b"])
    assert results == [SendResult(A0, 3, "a", "I0"), SendResult(A0, 4, "b", "I1")]


def test_create_topics_names_the_template() -> None:
    world = World(stored(), create_topics=True)
    world.producer.send(Message(b"x"), A0)
    assert world.sends()[0].ext["c"] == "TBW102"


def test_the_vip_channel_is_two_ports_below() -> None:
    world = World(stored(), vip_channel=True)
    world.producer.send(Message(b"x"), A0)
    assert len(world.sends("a:10909")) == 1
    assert world.network.connected == [NAME_SERVER, "a:10909"]


def test_a_long_body_is_compressed_when_asked_to() -> None:
    world = World(stored(), stored(), compress_over_bytes=100)
    world.producer.send(Message(b"x" * 100), A0)
    world.producer.send(Message(b"x" * 99), A0)
    long, short = world.sends()
    assert long.ext["f"] == str(0x301)
    assert decompress(long.body, 0x301, limit=1000) == b"x" * 100
    assert (short.ext["f"], short.body) == ("0", b"x" * 99)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_that_compressing_does_not_make_smaller_is_sent_as_it_is(kind: str) -> None:
    noise = bytes(range(256))
    world = World(stored(), compress_over_bytes=100, compression=kind)
    world.producer.send(Message(noise), A0)
    (sent,) = world.sends()
    assert (sent.ext["f"], sent.body) == ("0", noise)


def test_a_body_that_readers_would_not_decompress_is_refused() -> None:
    """They take more than 16 MiB for a bomb, and the message for corrupt."""
    largest = Message(bytes(16 * 1024 * 1024))
    larger = Message(bytes(16 * 1024 * 1024 + 1))
    world = World(stored(), stored(), compress_over_bytes=100)
    for send in (world.producer.send, lambda message, queue: world.producer.send_batch([message], queue)):
        with pytest.raises(LocalError, match="16777217 bytes; readers decompress no more than 16777216"):
            send(larger, A0)
        send(largest, A0)
    for sent in world.sends():
        assert len(sent.body) < 20_000


def test_each_send_is_one_write() -> None:
    world = World(*[stored()] * 3)
    for _ in range(3):
        world.producer.send(Message(b"x"), A0)
    assert world.transports[BROKER_A][0].writes == 3


def test_heartbeats_go_out_with_sends_when_their_time_has_come() -> None:
    world = World(*[stored()] * 10, heartbeat_ms=30_000)
    counts = []
    for pause_s in (0, 1, 28, 2, 0, 60, 29):
        world.clock.advance(pause_s)
        world.producer.send(Message(b"x"), A0)
        counts.append(world.count(RequestCode.HEART_BEAT))
    assert counts == [1, 1, 1, 2, 2, 3, 3]
    (transport,) = world.transports[BROKER_A]
    assert transport.writes == 7
    beat = json.loads(next(r for r in transport.requests if r.code == RequestCode.HEART_BEAT).body)
    assert beat["producerDataSet"] == [{"groupName": "group"}]
    assert beat["consumerDataSet"] == []  # else the broker would hand out queues to us
    assert str(os.getpid()) in beat["clientID"]


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(None, ["", "", ""]), ("", ["", "", ""]), ("I0", ["I0", "", ""]), ("I0,I1,I2,I3", ["I0", "I1", "I2"])],
)
def test_fewer_or_more_ids_than_messages_are_no_matter(ids: str | None, expected: list[str]) -> None:
    world = World(stored(offset=5, ids=ids))
    results = world.producer.send_batch([Message(b"x")] * 3, A0, message_ids=["a", "b", "c"])
    assert [r.offset_message_id for r in results] == expected
    assert [(r.queue_offset, r.message_id) for r in results] == [(5, "a"), (6, "b"), (7, "c")]


def test_the_queue_is_the_one_that_the_broker_says() -> None:
    world = World(stored(queue_id=1))
    assert world.producer.send(Message(b"x"), A0).queue == A1


@pytest.mark.parametrize("ext", [{}, {"queueId": "0"}, {"queueId": "0", "queueOffset": "many"}])
def test_an_answer_without_its_fields_is_a_wire_error_and_final(ext: dict[str, str]) -> None:
    world = World(Command(0, ext))
    with pytest.raises(WireError):
        world.producer.send(Message(b"x"), A0)
    assert len(world.sends()) == 1


# ---- retries and time ------------------------------------------------------------------------------------------------


def test_the_pause_grows_and_is_bounded() -> None:
    world = World(*[Command(2)] * 5, stored(), max_retries=5, retry_backoff_ms=100, retry_backoff_max_ms=500)
    world.producer.send(Message(b"x"), A0)
    assert world.clock.sleeps == pytest.approx([0.05, 0.1, 0.2, 0.25, 0.25])
    assert world.producer.statistics.retries == 5


def test_a_retry_sends_the_same_bytes() -> None:
    world = World(Command(2), stored())
    world.producer.send_batch([Message(b"x", keys=("k",))] * 2, A0)
    first, second = world.sends()
    assert (first.ext, first.body) == (second.ext, second.body)
    assert first.opaque != second.opaque


def test_go_away_is_answered_at_once_on_a_new_connection() -> None:
    world = World(Command(1500), stored())
    world.producer.send(Message(b"x"), A0)
    assert world.clock.sleeps == []
    assert world.network.connected.count(BROKER_A) == 2


def test_zero_retries_are_none() -> None:
    world = World(Command(2), stored(), max_retries=0)
    with pytest.raises(SystemBusy):
        world.producer.send(Message(b"x"), A0)
    assert len(world.sends()) == 1


def test_silence_times_out_and_is_counted_as_unknown() -> None:
    world = World(request_timeout_ms=1_000, max_retries=2, retry_backoff_ms=10)
    with pytest.raises(TransportError):
        world.producer.send(Message(b"x"), A0)
    assert len(world.sends()) == 3
    assert world.producer.statistics.unknown_outcomes == 3
    assert 3.0 <= world.clock.monotonic() < 3.1


def test_an_answer_that_lies_in_the_socket_is_taken_however_late_it_is_asked_for() -> None:
    world = World(stored(), request_timeout_ms=1_000)
    pending = world.producer.submit([Message(b"x")], A0)
    world.clock.advance(3_600)
    assert len(pending.result()) == 1
    assert len(world.sends()) == 1


def test_the_time_of_a_submitted_batch_runs_from_its_start() -> None:
    world = World(request_timeout_ms=1_000, max_retries=0)
    pending = world.producer.submit([Message(b"x")], A0)
    world.clock.advance(0.6)
    with pytest.raises(RequestTimeout):
        pending.result()
    assert world.clock.monotonic() == pytest.approx(1.0, abs=0.05)


def test_asking_whether_it_is_done_takes_no_time() -> None:
    world = World(None, stored(), Command(2), Command(13))
    first, second, third, fourth = (world.producer.submit([Message(b"x")], A0) for _ in range(4))
    before = world.clock.monotonic()
    # No answer; stored; will be retried, so that result() would wait; final.
    assert [p.is_done() for p in (first, second, third, fourth)] == [False, True, False, True]
    assert world.clock.monotonic() == before
    assert len(world.sends()) == 4


def test_a_connection_that_breaks_is_opened_again() -> None:
    world = World(b"", stored())
    assert world.producer.send(Message(b"x"), A0).queue == A0
    assert world.network.connected.count(BROKER_A) == 2


def test_nobody_there_is_a_transport_error_after_retries() -> None:
    world = World(max_retries=2)
    world.brokers = ("broker-b",)
    with pytest.raises(TransportError, match="broker-a"):
        world.producer.send(Message(b"x"), A0)
    assert len(world.clock.sleeps) == 2


# ---- where to --------------------------------------------------------------------------------------------------------


def test_a_broker_that_failed_is_avoided_for_a_while() -> None:
    world = World(Command(2), *[stored()] * 100, brokers=("broker-a", "broker-b"))
    failed = world.producer.send(Message(b"x", topic="orders")).queue.broker  # after its retry elsewhere
    assert [world.producer.send(Message(b"x", topic="orders")).queue.broker for _ in range(6)] == [failed] * 6
    world.clock.advance(AVOID_S)
    brokers = [world.producer.send(Message(b"x", topic="orders")).queue.broker for _ in range(6)]
    assert sorted(brokers) == ["broker-a"] * 3 + ["broker-b"] * 3


def test_each_retry_is_at_another_broker_also_when_all_have_failed() -> None:
    world = World(*[Command(2)] * 6, stored(), brokers=("broker-a", "broker-b"), max_retries=6)
    world.producer.send(Message(b"x", topic="orders"))
    assert abs(len(world.sends(BROKER_A)) - len(world.sends(BROKER_B))) == 1
    assert len(world.sends(BROKER_A)) + len(world.sends(BROKER_B)) == 7


def test_a_given_queue_is_kept_though_its_broker_failed() -> None:
    world = World(Command(2), stored(), stored(), brokers=("broker-a", "broker-b"))
    world.producer.send(Message(b"x"), A0)
    world.producer.send(Message(b"x"), A0)
    assert len(world.sends(BROKER_A)) == 3


def test_a_moved_batch_is_addressed_anew() -> None:
    world = World(Command(2), stored(offset=9), brokers=("broker-a", "broker-b"))
    (result,) = world.producer.submit([Message(b"x")], A0).result()
    (sent,) = world.sends(BROKER_B)
    assert (sent.ext["b"], sent.ext["n"]) == ("orders", "broker-b")
    assert sent.ext["m"] == "true"
    assert result.queue.broker == "broker-b"


# ---- in flight -------------------------------------------------------------------------------------------------------


def test_the_oldest_is_awaited_when_too_many_are_in_flight() -> None:
    world = World(max_in_flight=2, request_timeout_ms=1_000, max_retries=0)
    pending = [world.producer.submit([Message(b"%d" % n)], A0) for n in range(2)]
    assert world.clock.monotonic() == 0
    pending.append(world.producer.submit([Message(b"2")], A0))
    assert world.clock.monotonic() == pytest.approx(1.0)
    assert [p.is_done() for p in pending] == [True, False, False]


def test_ordered_waits_for_its_own_queue_only() -> None:
    world = World(None, stored(), request_timeout_ms=1_000, max_retries=0)
    first = world.producer.submit([Message(b"1")], A0, ordered=True)
    other = world.producer.submit([Message(b"2")], A1, ordered=True)
    assert world.clock.monotonic() == 0
    world.producer.submit([Message(b"3")], A0)  # not ordered: does not wait
    assert world.clock.monotonic() == 0
    third = world.producer.submit([Message(b"4")], A0, ordered=True)
    assert first.is_done()
    assert len(other.result()) == 1
    # Behind the failure of the first it was not sent.
    assert len(world.sends()) == 3
    with pytest.raises(TransportError):
        third.result()


def test_what_cannot_be_sent_is_not_in_flight() -> None:
    world = World(stored())
    for bad in (
        lambda: world.producer.submit([Message(b"x", delay_level=1)], A0),
        lambda: world.producer.submit([Message(b"")], A0),
        lambda: world.producer.submit([Message(b"x", topic="others")], A0),
        lambda: world.producer.submit([Message(b"x")], A0, message_ids=["1", "2"]),
        lambda: world.producer.submit([Message(b"x")], MessageQueue("no topic", "broker-a", 0)),
        lambda: world.producer.send(Message(b"x", topic="others"), A0),
        lambda: world.producer.send(Message(b"x")),
    ):
        with pytest.raises(LocalError):
            bad()
    assert world.network.connected == []
    assert len(world.producer._in_flight) == 0


def test_an_interrupt_while_sending_leaves_nothing_behind() -> None:
    world = World(stored())
    world.producer.queues("orders")

    def interrupt(queue: MessageQueue) -> str:
        raise KeyboardInterrupt

    world.producer._choice.address = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.producer.submit([Message(b"x")], A0)
    assert len(world.producer._in_flight) == 0


def test_what_is_done_keeps_no_bodies() -> None:
    world = World(stored(), Command(13))
    for _ in range(2):
        pending = world.producer.submit([Message(b"x" * 1000)], A0)
        assert isinstance(pending, PendingRequest)
        assert pending.is_done()
        assert (pending._command.body, pending._call) == (b"", None)


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_close_waits_for_answers_and_then_refuses() -> None:
    world = World(stored(), stored())
    pending = [world.producer.submit([Message(b"x")], A0) for _ in range(2)]
    world.producer.close()
    world.producer.close()
    assert all(len(p.result()) == 1 for p in pending)
    assert all(t.is_closed for transports in world.transports.values() for t in transports)
    for use in (
        lambda: world.producer.send(Message(b"x"), A0),
        lambda: world.producer.submit([Message(b"x")], A0),
        lambda: world.producer.send_batch([Message(b"x")], A0),
        lambda: world.producer.queues("orders"),
    ):
        with pytest.raises(LocalError, match="closed"):
            use()


def test_close_takes_no_longer_than_one_request(caplog: pytest.LogCaptureFixture) -> None:
    world = World(request_timeout_ms=1_000, max_retries=50, max_in_flight=8)
    for n in range(5):
        world.producer.submit([Message(b"x")] * 10, MessageQueue("orders", "broker-a", n % 2))
    with caplog.at_level(logging.ERROR, "rmqio.client"):
        world.producer.close()
    assert world.clock.monotonic() <= 1.01
    (record,) = caplog.records
    assert "50 messages not sent, in 5 batches" in record.getMessage()


def test_a_failure_that_was_told_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Command(13), Command(13))
    told, untold = world.producer.submit([Message(b"1")], A0), world.producer.submit([Message(b"2")] * 2, A0)
    assert untold.is_done()
    with pytest.raises(Exception, match="MESSAGE_ILLEGAL"):
        told.result()
    world.producer.close()
    (record,) = caplog.records
    assert "2 messages not sent, in 1 batches" in record.getMessage()


def test_a_child_process_has_nothing_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(stored(), stored())
    world.producer.submit([Message(b"x")], A0)
    assert len(world.producer._in_flight) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    world.producer.queues("orders")
    assert len(world.producer._in_flight) == 0


def test_its_text_shows_state_and_counts() -> None:
    world = World(Command(2), stored())
    world.producer.send(Message(b"x"), A0)
    assert repr(world.producer) == (
        "<RemotingProducer 'group' open, 0 in flight, SendStatistics(retries=1, unknown_outcomes=0)>"
    )
    pending = world.producer.submit([Message(b"x")], A0)
    assert repr(pending) == "<send of 1 to queue orders/broker-a/0: in flight, 1 tries>"
