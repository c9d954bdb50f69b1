"""Batches: their header, when the bodies in them are compressed, and how inner ones are read ahead."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.client.read_ahead import ReadAhead
from rmqio.errors import LocalError
from rmqio.model import Message, MessageQueue, PullResult, PullStatus, Record
from rmqio.options import ClientOptions, WriteOptions
from rmqio.wire.bodies import KINDS, compress, compression_flags
from rmqio.wire.command import Command, RequestCode
from rmqio.wire.stored import INNER_BATCH
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.peers.interop import read

BATCH = RequestCode.SEND_BATCH_MESSAGE
QUEUE = MessageQueue("topic", "broker-a", 0)
LONG = b"repeat " * 1000
TEXT = b" ".join(b"%d" % (i * i % 1009) for i in range(2000))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.cluster.create_topic("topic", 1)
        yield fake


def producer(broker: FakeBroker, **changes: Any) -> RemotingProducer:
    return RemotingProducer(ClientOptions(broker.name_server, **changes), "group")


def batches(broker: FakeBroker) -> list[Command]:
    return [request for _, request in broker.requests if request.code == BATCH]


@pytest.mark.parametrize("kind", KINDS)
def test_all_bodies_of_a_batch_are_compressed_when_one_is_long(broker: FakeBroker, kind: Any) -> None:
    messages = [Message(b"short", tags="a"), Message(LONG, keys=("k",))]
    with producer(broker, compress_over_bytes=len(LONG), compression=kind, inner_batches=True) as made:
        made.send_batch(messages, QUEUE)
        made.send(Message(LONG), QUEUE)
    (batch,) = batches(broker)
    assert int(batch.ext["f"]) == compression_flags(KINDS[kind])
    assert batch.ext["i"] == "", "a topic of inner batches is not to make one record of it"
    assert len(batch.body) < len(LONG) / 4
    records = read(RemotingClientFactory(ClientOptions(broker.name_server)), "topic", 3)
    assert [(r.body, r.tags, r.keys) for r in records] == [(b"short", "a", ()), (LONG, None, ("k",)), (LONG, None, ())]
    assert {r.sys_flag for r in records} == {compression_flags(KINDS[kind])}


@pytest.mark.parametrize("messages", [[Message(b"x" * 99)] * 3, [Message(bytes(range(200)))]], ids=["short", "noise"])
def test_a_batch_that_gains_nothing_is_sent_as_it_is(broker: FakeBroker, messages: list[Message]) -> None:
    with producer(broker, compress_over_bytes=100, inner_batches=True) as made:
        results = made.send_batch(messages, QUEUE)
    (batch,) = batches(broker)
    assert (batch.ext["f"], batch.ext["i"]) == ("0", f"UNIQ_KEY\x01{results[0].message_id}\x02")


def test_a_batch_has_no_id_of_its_own_unless_asked_for(broker: FakeBroker) -> None:
    """A broker before 5.0 would give it to every message: tests/helpers/servers/old_broker.py."""
    with producer(broker) as made:
        made.send_batch([Message(b"a"), Message(b"b")], QUEUE)
    (batch,) = batches(broker)
    assert batch.ext["i"] == ""


@pytest.mark.parametrize(("kind", "level"), [("zlib", 9), ("zstd", 19), ("lz4", 9)])
def test_a_level_is_used_where_there_is_one(broker: FakeBroker, kind: Any, level: int) -> None:
    with producer(broker, compress_over_bytes=1, compression=kind, compression_level=level) as made:
        made.send(Message(TEXT), QUEUE)
    (sent,) = (request.body for _, request in broker.requests if request.code == RequestCode.SEND_MESSAGE_V2)
    assert sent == compress(TEXT, kind=KINDS[kind], level=level)
    assert (sent != compress(TEXT, kind=KINDS[kind], level=1)) is (kind != "lz4")


def test_a_long_body_in_a_batch_may_be_larger_than_a_broker_takes_if_it_shrinks(broker: FakeBroker) -> None:
    body = b"a" * (5 * 1024 * 1024)
    with producer(broker, compress_over_bytes=4096) as made:
        made.send_batch([Message(body)], QUEUE)
    assert read(RemotingClientFactory(ClientOptions(broker.name_server)), "topic", 1)[0].body == body


@pytest.mark.parametrize("body", [b"", "text", None])
def test_a_body_that_no_broker_takes_is_refused_as_ever(broker: FakeBroker, body: Any) -> None:
    with producer(broker, compress_over_bytes=1) as made, pytest.raises(LocalError):
        made.send_batch([Message(b"good"), Message(body)], QUEUE)


def test_members_of_an_inner_batch_share_one_place(broker: FakeBroker) -> None:
    """As a broker answers whose topic is of type BatchCQ."""
    broker.on(BATCH, faults.answer(0, queueId="0", queueOffset="7", msgId="PLACE", batchUniqId="x"))
    with producer(broker) as made:
        results = made.send_batch([Message(b"a"), Message(b"b")], QUEUE, message_ids=["one", "two"])
    assert [(r.message_id, r.queue_offset, r.offset_message_id) for r in results] == [
        ("one", 7, "PLACE"),
        ("two", 8, "PLACE"),
    ]


@pytest.mark.parametrize("options", [ClientOptions, WriteOptions])
def test_compression_is_checked(options: Any) -> None:
    more = {"name_servers": "a:1"} if options is ClientOptions else {}
    options(**more, compression="zstd", compression_level=22)
    for wrong in (
        {"compression": "snappy"},
        {"compression_level": 0},
        {"compression_level": 10},
        {"compression": "zstd", "compression_level": 23},
        {"compress_over_bytes": 0},
    ):
        with pytest.raises(LocalError, match="compress"):
            options(**more, **wrong)


def _member(offset: int, size: int) -> Record:
    return Record("t", "b", 0, offset, b"x", 0, 0, b"", 0, INNER_BATCH if size > 1 else 0, 0, 0, 0, b"", b"", 0, 1)


def _pulled(sizes: list[int], begin: int) -> int:
    """Read stored records that take so many offsets each, from an offset on; how many offsets were handed out."""
    bases = [0, *accumulate(sizes)]
    plan: ReadAhead[str] = ReadAhead(begin, depth=16, batch=32, is_filtered=False, max_bytes=1 << 22)
    offsets: list[int] = []
    handed = 0
    while plan.position < bases[-1]:
        for segment in plan.plan():
            segment.call = "on its way"
        head = plan.head
        assert head is not None
        first = last = bisect_right(bases, head.begin) - 1
        while last < len(sizes) and last - first < 32 and bases[last + 1] - bases[first] <= head.max_messages:
            last += 1
        last = max(last, first + 1)  # the first is always given, and whole
        members = [_member(o, sizes[i]) for i in range(first, last) for o in range(bases[i], bases[i + 1])]
        handed += len(members)
        wanted = [record for record in members if record.queue_offset >= head.begin]
        taken = plan.take(PullResult(PullStatus.FOUND, bases[last], 0, bases[-1], wanted), 1)
        assert taken.skipped == 0
        offsets += [record.queue_offset for record in taken.records]
    assert offsets == list(range(begin, bases[-1]))
    return handed


@pytest.mark.parametrize(
    ("sizes", "most"),
    [([1000] * 30, 1.1), ([100] * 300, 1.1), ([7] * 3000, 1.5), ([1] * 3000 + [500] * 20 + [1] * 3000, 2.5)],
    ids=["of 1000", "of 100", "of 7", "between single ones"],
)
def test_inner_batches_are_not_pulled_again_for_each_of_their_parts(sizes: list[int], most: float) -> None:
    total = sum(sizes)
    assert _pulled(sizes, 0) <= most * total
    assert _pulled(sizes, 10) <= 2 * most * total, "pulls that begin and end inside of records"


@given(st.lists(st.sampled_from([1, 2, 5, 40, 300]), min_size=1, max_size=60), st.data())
def test_inner_batches_of_any_sizes_are_read_whole(sizes: list[int], data: st.DataObject) -> None:
    _pulled(sizes, data.draw(st.integers(0, sum(sizes) - 1)))
