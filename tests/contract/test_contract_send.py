"""Sends: single, in batches, delayed, large; properties and keys."""

from __future__ import annotations

import time

import pytest

from rmqio.errors import LocalError, RmqioError
from rmqio.model import DELAY, SHARDING_KEY, TOMBSTONE, UNIQ_KEY, Message, MessageQueue, SendStatus
from rmqio.topics import queue_for_key
from rmqio.wire import requests
from rmqio.wire.batch import MAX_MESSAGE_BYTES
from rmqio.wire.command import Command
from tests.contract.support import Backend, read
from tests.helpers.wire.batches import encode_batch

MIB = 1024 * 1024


@pytest.fixture
def queue(backend: Backend) -> MessageQueue:
    return MessageQueue(backend.topic(queues=1), "broker-a", 0)


def test_a_message_arrives_as_it_was_sent(backend: Backend, queue: MessageQueue) -> None:
    message = Message(
        bytes(range(256)),
        tags="tag-ä",
        keys=("key-1", "schlüssel-2"),
        properties={"plain": "value", "wörtlich": "中文 \U0001f680 ", "=;,": "a=b;c,d"},
        sharding_key="customer-\U0001f600",
    )
    before_ms = time.time() * 1000
    sent = backend.producer().send(message, queue, message_id="0123456789ABCDEF0123456789ABCDEF")
    (record,) = read(backend.client(), queue, until=1)
    assert (sent.queue, sent.queue_offset, sent.status) == (queue, 0, SendStatus.OK)
    assert sent.message_id == record.message_id == "0123456789ABCDEF0123456789ABCDEF"
    assert sent.offset_message_id == record.offset_message_id
    assert record.body == message.body
    assert (record.tags, record.keys) == (message.tags, message.keys)
    assert record.sharding_key == record.properties[SHARDING_KEY] == message.sharding_key
    assert {name: record.properties[name] for name in message.properties} == message.properties
    assert record.topic == queue.topic
    assert abs(record.born_timestamp_ms - before_ms) < 60_000
    assert abs(record.store_timestamp_ms - before_ms) < 60_000


def test_a_batch_arrives_whole_in_order_with_ids(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    messages = [Message(b"%d" % i, tags="t", keys=(f"k{i}",), properties={"n": str(i)}) for i in range(70)]
    ids = [f"ID-{i}" for i in range(70)]
    results = producer.send_batch(messages, queue, message_ids=ids)
    records = read(backend.client(), queue, until=70)
    assert [r.queue_offset for r in results] == list(range(70))
    assert [r.message_id for r in results] == ids == [record.message_id for record in records]
    assert [r.offset_message_id for r in results] == [record.offset_message_id for record in records]
    assert [record.body for record in records] == [message.body for message in messages]
    assert [record.properties["n"] for record in records] == [str(i) for i in range(70)]
    assert {r.queue for r in results} == {queue}


def test_ids_are_made_unless_given(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    results = [producer.send(Message(b"x"), queue), *producer.send_batch([Message(b"x")] * 3, queue)]
    records = read(backend.client(), queue, until=4)
    assert [record.get_property(UNIQ_KEY) for record in records] == [r.message_id for r in results]
    assert len({r.message_id for r in results}) == 4


def test_submitted_batches_are_all_stored(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    pending = [producer.submit([Message(b"%d-%d" % (n, i)) for i in range(20)], queue) for n in range(30)]
    offsets = [r.queue_offset for p in pending for r in p.result()]
    assert sorted(offsets) == list(range(600))
    assert all(p.is_done() for p in pending)
    records = read(backend.client(), queue, until=600)
    by_offset = {record.queue_offset: record.body for record in records}
    assert [by_offset[o] for o in offsets] == [b"%d-%d" % (n, i) for n in range(30) for i in range(20)]


def test_ordered_batches_are_stored_in_the_order_of_submission(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    pending = [producer.submit([Message(b"%d" % n)], queue, ordered=True) for n in range(50)]
    assert [p.result()[0].queue_offset for p in pending] == list(range(50))
    assert [record.body for record in read(backend.client(), queue, until=50)] == [b"%d" % n for n in range(50)]


def test_close_stores_what_was_submitted(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    for n in range(10):
        producer.submit([Message(b"%d" % n)], queue)
    producer.close()
    producer.close()
    assert len(read(backend.client(), queue, until=10)) == 10
    with pytest.raises(LocalError):
        producer.send(Message(b"late"), queue)
    with pytest.raises(LocalError):
        producer.submit([Message(b"late")], queue)


def test_a_sharding_key_always_goes_to_the_queue_of_javas_rule(backend: Backend) -> None:
    topic = backend.topic(queues=5)
    producer, client = backend.producer(), backend.client()
    queues = producer.queues(topic)
    keys = [f"order-{i}" for i in range(20)] + ["ключ", "\U0001f680"]
    for round_ in range(3):
        for key in keys:
            sent = producer.send(Message(b"%d" % round_, topic=topic, sharding_key=key))
            assert sent.queue == queue_for_key(queues, key)
    for queue in queues:
        end = sum(3 for key in keys if queue_for_key(queues, key) == queue)
        records = read(client, queue, until=end)
        for found in {record.sharding_key for record in records}:
            assert [record.body for record in records if record.sharding_key == found] == [b"0", b"1", b"2"]


def test_a_batch_goes_to_the_queue_of_its_keys_if_that_is_one(backend: Backend) -> None:
    topic = backend.topic(queues=5)
    producer = backend.producer()
    expected = queue_for_key(producer.queues(topic), "key")
    for _ in range(2):
        sent = producer.send_batch([Message(b"x", topic=topic, sharding_key="key"), Message(b"y", topic=topic)])
        assert {r.queue for r in sent} == {expected}
    with pytest.raises(LocalError, match="queues"):
        producer.send_batch([Message(b"x", topic=topic, sharding_key=key) for key in "abcde"])


def test_messages_without_a_key_take_the_queues_in_turn(backend: Backend) -> None:
    topic = backend.topic(queues=4)
    producer = backend.producer()
    used = [producer.send(Message(b"x", topic=topic)).queue.queue_id for _ in range(8)]
    assert used[:4] == used[4:]
    assert sorted(used[:4]) == [0, 1, 2, 3]


@pytest.mark.parametrize(("delay_level", "after_ms"), [(1, None), (None, 1_500)])
def test_a_delayed_message_comes_later(
    backend: Backend, queue: MessageQueue, delay_level: int | None, after_ms: int | None
) -> None:
    producer, client = backend.producer(), backend.client()
    deliver_at_ms = None if after_ms is None else int(time.time() * 1000) + after_ms
    producer.send(Message(b"delayed", delay_level=delay_level, deliver_at_ms=deliver_at_ms), queue)
    producer.send(Message(b"at once"), queue)
    first, second = read(client, queue, until=2)
    assert (first.body, second.body) == (b"at once", b"delayed")
    assert second.store_timestamp_ms >= second.born_timestamp_ms + 900


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message(b""), id="empty body"),
        pytest.param(Message(b"x", tags="a\x01b"), id="separator"),
        pytest.param(Message(b"x", properties={"TAGS": "x"}), id="reserved name"),
        pytest.param(Message(b"x", properties={"p": "x" * 33_000}), id="properties too long"),
        pytest.param(Message(b"x" * (MAX_MESSAGE_BYTES + 1)), id="body too large"),
        pytest.param(Message(b"x", topic="another"), id="topic of another queue"),
        pytest.param(Message("text"), id="not bytes"),  # type: ignore[arg-type]
    ],
)
def test_what_no_broker_takes_is_refused_here(backend: Backend, queue: MessageQueue, message: Message) -> None:
    producer = backend.producer()
    with pytest.raises(LocalError):
        producer.send(message, queue)
    with pytest.raises(LocalError):
        producer.submit([Message(b"good"), message], queue)
    assert backend.client().max_offset(queue) == 0


def test_a_tombstone_has_no_body_alone_and_in_a_batch(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    tombstone = Message(b"", keys=("k",), properties={TOMBSTONE: "true"}, sharding_key="k")
    sent = producer.send(tombstone, queue, message_id="0123456789ABCDEF0123456789ABCDEF")
    producer.submit([Message(b"x", keys=("k",)), tombstone, Message(b"y")], queue).result()
    records = read(backend.client(), queue, until=4)
    assert [each.body for each in records] == [b"", b"x", b"", b"y"]
    assert records[0].message_id == sent.message_id == "0123456789ABCDEF0123456789ABCDEF"
    assert [each.keys for each in records] == [("k",), ("k",), ("k",), ()]
    assert records[0].properties[TOMBSTONE] == records[2].properties[TOMBSTONE] == "true"


def test_a_delayed_message_is_refused_in_a_batch(backend: Backend, queue: MessageQueue) -> None:
    with pytest.raises(LocalError):
        backend.producer().submit([Message(b"x", delay_level=1)], queue)


def test_illegal_names_are_refused_here(backend: Backend) -> None:
    with pytest.raises(LocalError):
        backend.producer("no group")
    with pytest.raises(LocalError):
        backend.producer().send(Message(b"x", topic="no topic"))
    with pytest.raises(LocalError):
        backend.producer().send(Message(b"x"))


def test_nothing_is_sent_for_an_empty_batch(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    assert producer.send_batch([], queue) == []
    assert producer.submit([], queue).result() == []


def test_the_largest_body_arrives(backend: Backend, queue: MessageQueue) -> None:
    body = bytes(range(256)) * (MAX_MESSAGE_BYTES // 256)
    backend.producer().send(Message(body), queue)
    (record,) = read(backend.client(), queue, until=1)
    assert record.body == body


def test_a_batch_over_the_cap_is_refused_here(backend: Backend, queue: MessageQueue) -> None:
    producer = backend.producer()
    with pytest.raises(LocalError):
        producer.submit([Message(b"x" * 600_000)] * 2, queue)
    with pytest.raises(LocalError):
        producer.submit([Message(b"x")] * 4097, queue)


# ---- what a broker says to those who ask it directly -----------------------------------------------------------------


def _send(server: Backend, queue: MessageQueue, body: bytes, *, properties: str = "", batch: bool = False) -> Command:
    born_ms = int(time.time() * 1000)
    return requests.send("contract-raw", queue, body, properties=properties, born_ms=born_ms, batch=batch)


@pytest.fixture
def wire_queue(server: Backend) -> MessageQueue:
    return MessageQueue(server.topic(queues=1), "broker-a", 0)


def test_a_broker_fails_on_an_empty_body_but_not_in_a_batch(server: Backend, wire_queue: MessageQueue) -> None:
    assert server.ask(_send(server, wire_queue, b"")).code == 1
    batch = requests.send("contract-raw", wire_queue, bytes(3) + b"\x16" + bytes(18), born_ms=1, batch=True)
    assert server.ask(batch).code == 0


@pytest.mark.parametrize(("extra", "is_batch", "code"), [(0, False, 0), (1, False, 13), (0, True, 0), (1, True, 1)])
def test_a_broker_takes_four_mebibytes_and_no_more(
    server: Backend, wire_queue: MessageQueue, extra: int, is_batch: bool, code: int
) -> None:
    size = MAX_MESSAGE_BYTES + extra
    body = b"x" * size
    if is_batch:
        overhead = len(encode_batch([Message(b"x")], ["i"])) - 1
        body = encode_batch([Message(b"x" * (MAX_MESSAGE_BYTES - overhead))], ["i"])
        if extra:
            body = b"".join((encode_batch([Message(b"x" * (MIB - overhead))], ["i"]),) * 4) + b"x"
    assert len(body) == size
    answer = server.ask(_send(server, wire_queue, body, batch=is_batch))
    assert answer.code == code, answer.remark


def test_a_broker_goes_by_the_batch_field_not_by_the_code(server: Backend, wire_queue: MessageQueue) -> None:
    blob = encode_batch([Message(b"1"), Message(b"2")], ["a", "b"])
    as_batch = _send(server, wire_queue, blob, batch=True)
    as_batch.code = 310
    assert server.ask(as_batch).code == 0
    as_one = _send(server, wire_queue, blob)
    as_one.code = 320
    assert server.ask(as_one).code == 0
    assert [record.body for record in read(server.client(), wire_queue, until=3)] == [b"1", b"2", blob]


def test_a_broker_picks_a_queue_for_queue_minus_one(server: Backend, wire_queue: MessageQueue) -> None:
    status, queue_id, offset, ids = requests.parse_send(
        server.ask(_send(server, wire_queue._replace(queue_id=-1), b"x")), "send"
    )
    assert (status, queue_id, offset, len(ids)) == (SendStatus.OK, 0, 0, 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [({"e": "1"}, 29), ({"b": "no topic"}, 29), ({"b": "x" * 128}, 29), ({"b": "contract-missing"}, 17)],
)
def test_a_broker_refuses_illegal_targets(
    server: Backend, wire_queue: MessageQueue, change: dict[str, str], code: int
) -> None:
    command = _send(server, wire_queue, b"x")
    command.ext = {**command.ext, **change}
    assert server.ask(command).code == code


def test_a_broker_refuses_long_properties_and_reserved_ones(server: Backend, wire_queue: MessageQueue) -> None:
    assert server.ask(_send(server, wire_queue, b"x", properties="p\x01" + "x" * 32_700 + "\x02")).code == 13
    assert server.ask(_send(server, wire_queue, b"x", properties="INNER_NUM\x011\x02")).code == 13


def test_a_broker_adds_its_own_properties_to_single_sends_only(server: Backend, wire_queue: MessageQueue) -> None:
    server.ask(_send(server, wire_queue, b"x"))
    server.ask(_send(server, wire_queue, bytes(3) + b"\x17" + bytes(15) + b"\x01y" + bytes(2), batch=True))
    single, member = read(server.client(), wire_queue, until=2)
    assert {UNIQ_KEY, "CLUSTER", "MSG_REGION", "TRACE_ON"} <= set(single.properties)
    assert member.properties == {}
    assert member.message_id == member.offset_message_id


def test_a_broker_ignores_a_delay_inside_of_a_batch(server: Backend, wire_queue: MessageQueue) -> None:
    properties = f"{DELAY}\x013\x02".encode()
    size = 22 + 1 + len(properties)
    member = size.to_bytes(4, "big") + bytes(12) + b"\0\0\0\x01x" + len(properties).to_bytes(2, "big") + properties
    assert server.ask(_send(server, wire_queue, member, batch=True)).code == 0
    assert server.ask(_send(server, wire_queue, b"sent later")).code == 0
    assert [each.body for each in read(server.client(), wire_queue, until=2)] == [b"x", b"sent later"]
    assert server.ask(_send(server, wire_queue, member, batch=True, properties=f"{DELAY}\x013\x02")).code == 13


def test_a_broker_refuses_a_batch_that_is_none(server: Backend, wire_queue: MessageQueue) -> None:
    assert server.ask(_send(server, wire_queue, b"garbage" * 10, batch=True)).code == 1
    assert server.client().max_offset(wire_queue) == 0


def test_a_compressed_body_is_given_back_plain(server: Backend, wire_queue: MessageQueue) -> None:
    from rmqio.client.producer import RemotingProducer
    from rmqio.options import ClientOptions

    body = b"hello rocketmq " * 1_000
    with RemotingProducer(
        ClientOptions(server.name_server, compress_over_bytes=4096), "contract-producers"
    ) as producer:
        producer.send(Message(body), wire_queue)
        producer.send(Message(b"short"), wire_queue)
    long, short = read(server.client(), wire_queue, until=2)
    assert (long.body, short.body) == (body, b"short")
    assert long.stored_size < 2_000
    assert (long.sys_flag & 0x701, short.sys_flag & 0x701) == (0x301, 0)


def test_a_failure_that_no_retry_heals_is_raised(server: Backend, wire_queue: MessageQueue) -> None:
    with pytest.raises(RmqioError):
        server.producer().send(Message(b"x"), wire_queue._replace(broker="broker-of-another-cluster"))
