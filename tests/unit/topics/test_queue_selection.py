"""Queues by key and in turn."""

from __future__ import annotations

import pytest

from rmqio.model import MessageQueue
from rmqio.topics import (
    WritableQueues,
    interleaved,
    java_string_hash,
    queue_for_key,
    queue_index_for_key,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # As Java's String.hashCode gives them.
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -2147483648),
        ("\x00", 0),
        ("ä", 228),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two UTF-16 code units
        ("\ud800", 0xD800),  # a lone surrogate is one
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@pytest.mark.parametrize(
    ("key", "count", "expected"),
    [
        ("hello", 1, 0),
        ("hello", 4, 99162322 % 4),
        ("order-1", 7, abs(java_string_hash("order-1")) % 7),
        # Java: abs(-2147483648 % 7) = abs(-2) = 2. Taking the absolute value first would overflow.
        ("polygenelubricants", 7, 2),
        ("polygenelubricants", 8, 0),
    ],
)
def test_queue_of_a_key_is_javas(key: str, count: int, expected: int) -> None:
    assert queue_index_for_key(key, count) == expected
    assert queue_for_key([f"queue-{i}" for i in range(count)], key) == f"queue-{expected}"


def test_a_negative_hash_gives_the_queue_of_its_remainder() -> None:
    assert java_string_hash("customer-42") < 0
    assert queue_index_for_key("customer-42", 10) == int(str(java_string_hash("customer-42"))[-1])


def _queues(**counts: int) -> list[MessageQueue]:
    return [MessageQueue("t", broker, i) for broker in sorted(counts) for i in range(counts[broker])]


def test_brokers_take_turns_as_long_as_there_are_several() -> None:
    queues = _queues(a=3, b=1, c=2)
    order = [queues[position] for position in interleaved(queues)]
    assert [queue.broker for queue in order] == ["a", "b", "c", "a", "c", "a"]
    assert sorted(order) == queues


def test_one_broker_is_taken_in_order() -> None:
    assert interleaved(_queues(a=4)) == [0, 1, 2, 3]
    assert interleaved([]) == []


def test_turns_and_keys_of_writable_queues() -> None:
    queues = _queues(a=2, b=2)
    writable = WritableQueues(queues)
    assert [writable.in_turn(number).broker for number in range(5)] == ["a", "b", "a", "b", "a"]
    assert writable.turns_from(3) == [writable.in_turn(number) for number in range(3, 7)]
    assert [writable.for_key("hello") for _ in range(2)] == [queue_for_key(queues, "hello")] * 2


def test_remembered_keys_are_bounded() -> None:
    writable = WritableQueues(_queues(a=4))
    for number in range(25_000):
        writable.for_key(str(number))
    assert len(writable._keys) <= 10_000
