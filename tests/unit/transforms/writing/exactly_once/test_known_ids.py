"""Many ids, and where each is."""

from __future__ import annotations

import random

from rmqio.model import MessageQueue
from rmqio.transforms.writing.sink_state import KnownIds

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(4)]


def test_each_id_is_found_where_it_was_first_added_and_no_other() -> None:
    chance = random.Random(7)
    known = KnownIds()
    expected: dict[str, tuple[MessageQueue, int]] = {}
    for number in range(300_000):
        name, place = f"id-{chance.randrange(250_000)}", (chance.choice(QUEUES), number)
        known.add(place[0], [(place[1], name)])
        expected.setdefault(name, place)
        if number % 50_000 == 17:
            assert known.find([name, "nobody"]) == [expected[name], None]
    names = [f"id-{number}" for number in range(500_000)]
    assert known.find(names) == [expected.get(name) for name in names]


def test_nothing_is_found_in_nothing() -> None:
    assert KnownIds().find(["a", "b"]) == [None, None]
    assert KnownIds().find([]) == []


def test_large_offsets_and_odd_ids_are_kept() -> None:
    known = KnownIds()
    for name in ("", "\ud800", "x" * 1_000):
        known.add(QUEUES[7], [(2**47, name)])
        assert known.find([name]) == [(QUEUES[7], 2**47)]
