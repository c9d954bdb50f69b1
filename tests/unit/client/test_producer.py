"""The producer's requests, its reading of the answers, and its end."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence

import pytest

from rmqio.errors import LocalError, WireError
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import Message, MessageQueue, SendResult, SendStatus
from rmqio.wire.bodies import decompress
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.scripted_producer import A0, A1, BROKER_A, NAME_SERVER, World, stored
from tests.helpers.wire.batches import encode_batch


def test_it_is_a_producer() -> None:
    world = World(stored(), stored())
    producer: Producer = world.producer
    pending: PendingSend = producer.submit([Message(b"x")], A0)
    assert isinstance(pending.result(), Sequence)
    assert isinstance(producer.send_batch([Message(b"x")], A0), list)


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


def test_a_failure_that_was_reported_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
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
