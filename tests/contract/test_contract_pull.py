"""Pulls and readers: order, caps, filters, waiting."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any

import pytest

from rmqio.errors import SubscriptionParseFailed
from rmqio.model import Message, MessageFilter, MessageQueue, PullStatus
from rmqio.wire import requests
from rmqio.wire.command import Command
from tests.contract.support import ALL, Backend, fetch, read
from tests.helpers.waiting import until


def _queue(backend: Backend) -> MessageQueue:
    return MessageQueue(backend.topic(queues=1), "broker-a", 0)


def _pull(
    server: Backend, queue: MessageQueue, offset: int, *, max_messages: int = 32, message_filter: MessageFilter = ALL
) -> Command:
    return server.ask(
        requests.pull("contract-raw", queue, offset, max_messages=max_messages, message_filter=message_filter)
    )


def stands_in(method: Any, thread: int) -> bool:
    """Returns whether a thread is in a call of a method."""
    frames = traceback.walk_stack(sys._current_frames()[thread])
    return any(frame.f_code is method.__func__.__code__ for frame, _ in frames)


def test_messages_come_in_order_dense_and_whole(backend: Backend) -> None:
    queue, client = _queue(backend), backend.client()
    bodies = [b"%d" % i * (i % 50 + 1) for i in range(200)]
    backend.producer().send_batch([Message(body) for body in bodies], queue)
    got = fetch(client, queue, until=200)
    records = [record for fetched in got for record in fetched.records]
    assert [record.body for record in records] == bodies
    assert [record.queue_offset for record in records] == list(range(200))
    assert got[-1].next_offset == 200
    assert all(fetched.skipped == 0 and fetched.corrupt == () for fetched in got)


def test_reading_can_begin_anywhere(backend: Backend) -> None:
    queue, client = _queue(backend), backend.client()
    backend.producer().send_batch([Message(b"%d" % i) for i in range(10)], queue)
    read(client, queue, until=10)  # a broker acknowledges before it dispatches: 7 may lie beyond its end for a moment
    assert [record.body for record in read(client, queue, 7, until=10)] == [b"7", b"8", b"9"]


def test_a_reader_at_the_end_says_so_and_is_woken_by_a_message(backend: Backend) -> None:
    queue, client, producer = _queue(backend), backend.client(), backend.producer()
    producer.send(Message(b"first"), queue)
    reader = client.open_reader(queue, 0, message_filter=ALL)

    def is_read() -> bool:
        client.wait([reader], 1_000)
        reader.poll()
        return reader.position >= 1

    def is_at_end() -> bool:
        is_woken = client.wait([reader], 200)
        return reader.poll() is None and reader.is_at_end and not reader.is_ready() and not is_woken

    until(is_read, "the first message", details=lambda: reader, pause_s=0)
    until(is_at_end, "the end", details=lambda: reader, pause_s=0)
    reading = threading.get_ident()

    def send() -> None:
        until(lambda: stands_in(client.wait, reading), "a reader that waits")
        producer.send(Message(b"second"), queue)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert client.wait([reader], 60_000), "an answer ends the wait, no time"
        fetched = reader.poll()
    finally:
        sender.join()
    assert fetched is not None
    assert [record.body for record in fetched.records] == [b"second"]
    reader.close()
    reader.close()


def test_only_asked_for_tags_come_and_gaps_are_passed(backend: Backend) -> None:
    queue, client = _queue(backend), backend.client()
    tags = ["a", "b", None, "c"] * 10
    backend.producer().send_batch([Message(b"%d" % i, tags=tag) for i, tag in enumerate(tags)], queue)
    records = read(client, queue, until=40, message_filter=MessageFilter("a || c"))
    assert [record.tags for record in records] == ["a", "c"] * 10
    assert read(client, queue, until=40, message_filter=MessageFilter("nothing")) == []


def test_tags_with_equal_hashes_are_told_apart(backend: Backend) -> None:
    """`Aa` and `BB` have the same Java hash, which is all that a broker compares."""
    queue, client = _queue(backend), backend.client()
    backend.producer().send_batch([Message(b"1", tags="Aa"), Message(b"2", tags="BB")], queue)
    records = read(client, queue, until=2, message_filter=MessageFilter("BB"))
    assert [record.body for record in records] == [b"2"]


def test_a_broker_lets_equal_hashes_pass(server: Backend) -> None:
    queue = _queue(server)
    server.producer().send_batch([Message(b"1", tags="Aa"), Message(b"2", tags="BB")], queue)
    read(server.client(), queue, until=2)
    answer = _pull(server, queue, 0, message_filter=MessageFilter("BB"))
    assert len(requests.parse_pull(answer, queue, 0).records) == 2


def test_sql_that_does_not_compile_is_refused(backend: Backend) -> None:
    queue, client = _queue(backend), backend.client()
    with pytest.raises(SubscriptionParseFailed):
        client.open_reader(queue, 0, message_filter=MessageFilter("price >", sql=True))


def test_a_pull_is_capped_at_32_messages(server: Backend) -> None:
    queue = _queue(server)
    server.producer().send_batch([Message(b"x")] * 100, queue)
    read(server.client(), queue, until=100)
    for asked, given in ((100_000, 32), (32, 32), (5, 5), (0, 1), (-1, 1)):
        found = requests.parse_pull(_pull(server, queue, 0, max_messages=asked), queue, 0)
        assert (len(found.records), found.next_offset) == (given, given), asked


def test_a_pull_is_capped_at_256_kib_but_for_its_first_message(server: Backend) -> None:
    queue = _queue(server)
    producer = server.producer()
    for size in (300_000, 100_000, 100_000, 100_000):
        producer.send(Message(b"x" * size), queue)
    read(server.client(), queue, until=4)
    assert len(requests.parse_pull(_pull(server, queue, 0), queue, 0).records) == 1
    assert len(requests.parse_pull(_pull(server, queue, 1), queue, 1).records) == 2


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (3, PullStatus.NO_NEW_MESSAGE, 3),
        (4, PullStatus.OFFSET_ILLEGAL, 3),
        (10**9, PullStatus.OFFSET_ILLEGAL, 3),
        (-1, PullStatus.OFFSET_ILLEGAL, 0),
    ],
)
def test_what_a_pull_answers_at_the_edges(server: Backend, offset: int, status: PullStatus, next_offset: int) -> None:
    queue = _queue(server)
    server.producer().send_batch([Message(b"x")] * 3, queue)
    read(server.client(), queue, until=3)
    found = requests.parse_pull(_pull(server, queue, offset), queue, offset)
    assert (found.status, found.next_offset) == (status, next_offset)
    assert (found.min_offset, found.max_offset) == (0, 3)


def test_what_a_pull_of_an_empty_queue_answers(server: Backend) -> None:
    queue = _queue(server)
    found = requests.parse_pull(_pull(server, queue, 0), queue, 0)
    assert (found.status, found.next_offset) == (PullStatus.NO_NEW_MESSAGE, 0)
    found = requests.parse_pull(_pull(server, queue, 7), queue, 7)
    assert (found.status, found.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)


def test_a_filter_that_nothing_passes_moves_on(server: Backend) -> None:
    queue = _queue(server)
    server.producer().send_batch([Message(b"x", tags="a")] * 10, queue)
    read(server.client(), queue, until=10)
    found = requests.parse_pull(_pull(server, queue, 0, message_filter=MessageFilter("b")), queue, 0)
    assert (found.status, found.next_offset) == (PullStatus.NO_MATCH, 10)


def test_a_pull_of_what_is_not_there_is_refused(server: Backend) -> None:
    queue = _queue(server)
    assert _pull(server, queue._replace(queue_id=1), 0).code == 29
    assert _pull(server, queue._replace(queue_id=-1), 0).code == 29
    assert _pull(server, queue._replace(topic="contract-missing-topic"), 0).code == 17


def test_a_held_pull_does_not_hold_later_requests(server: Backend) -> None:
    queue = _queue(server)
    connection = server.connect(server.broker_address())
    held = connection.start(
        requests.pull("contract-raw", queue, 0, max_messages=1, message_filter=ALL, suspend_ms=15_000)
    )
    assert server.ask(requests.get_max_offset(queue)).code == 0
    assert not held.is_done
    server.producer().send(Message(b"now"), queue)
    assert [record.body for record in requests.parse_pull(held.result(10_000), queue, 0).records] == [b"now"]
