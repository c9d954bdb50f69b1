"""Elements wait for the watermark: they come out by time, and each is read a bounded number of times."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.transforms.parts import GRAIN_US, WAITING_LEVELS, Waiting, second_after


class Bag:
    """A bag state that counts what is read from it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.count = 0

    def read(self) -> list[bytes]:
        self.count += len(self.values)
        return list(self.values)

    def add(self, value: bytes) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values = []


class Number:
    """A state of one integer."""

    def __init__(self) -> None:
        self.value: int | None = None

    def read(self) -> int | None:
        return self.value

    def write(self, value: int) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


class Key:
    """The states of one key, and what has come out."""

    def __init__(self) -> None:
        self.bags = [Bag() for _ in range(WAITING_LEVELS)]
        self.used = Number()
        self.done_us: int | None = None
        self.earliest: int | None = None

    def waiting(self) -> Waiting:
        return Waiting(self.bags, self.used, self.done_us)

    def add(self, time_us: int, element: bytes = b"") -> None:
        self.waiting().add(time_us, element)
        self.earliest = time_us if self.earliest is None else min(self.earliest, time_us)

    def take(self, until_us: int) -> list[tuple[int, bytes]]:
        taken, self.earliest = self.waiting().take(until_us)
        self.done_us = until_us
        return sorted(taken)

    def pass_to(self, time_us: int) -> list[tuple[int, bytes]]:
        """As a DoFn does: each second in which something waits ends by itself."""
        found: list[tuple[int, bytes]] = []
        while self.earliest is not None and second_after(self.earliest) <= time_us:
            found += self.take(second_after(self.earliest))
        return found


# From milliseconds to months, so that all levels have elements.
gaps = st.integers(0, 4).flatmap(lambda level: st.integers(0, 40 * GRAIN_US * 16**level))
steps = st.lists(st.tuples(st.lists(gaps, max_size=6), gaps), max_size=12)


@given(first=st.integers(-(10**15), 10**15), steps=steps)
def test_elements_come_out_once_in_order_of_their_seconds_and_nothing_is_left(
    first: int, steps: list[tuple[list[int], int]]
) -> None:
    key, now_us, count = Key(), first, 0
    expected: list[tuple[int, bytes]] = []
    found: list[tuple[int, bytes]] = []
    for added, advance in steps:
        for gap in added:
            # Nothing is before what has come out; the first elements come in any order.
            time_us = max(now_us, key.done_us or now_us) + gap
            count += 1
            expected.append((time_us, b"%d" % count))
            key.add(*expected[-1])
        now_us += advance
        found += key.pass_to(now_us)
        assert found == sorted(each for each in expected if second_after(each[0]) <= now_us)
        left = [time_us for time_us, _ in expected if second_after(time_us) > now_us]
        assert key.earliest == min(left, default=None)
    found += key.pass_to(10**17)
    assert found == sorted(expected)
    assert [bag.values for bag in key.bags] == [[]] * WAITING_LEVELS
    assert key.used.value is None


@given(times=st.lists(gaps, min_size=1, max_size=20), until=gaps)
def test_a_jump_over_many_seconds_takes_all_before_it(times: list[int], until: int) -> None:
    key = Key()
    key.add(0)
    key.take(GRAIN_US)
    for time_us in times:
        key.add(GRAIN_US + time_us)
    left = [GRAIN_US + time_us for time_us in times]
    until_us = 2 * GRAIN_US + until
    assert [time_us for time_us, _ in key.take(until_us)] == sorted(each for each in left if each < until_us)
    assert key.earliest == min((each for each in left if each >= until_us), default=None)


@pytest.mark.parametrize("seconds", [1_000, 16_000])
def test_a_backlog_is_read_a_bounded_number_of_times(seconds: int) -> None:
    key, random = Key(), Random(1)
    key.add(0)
    key.take(GRAIN_US)
    for _ in range(seconds):
        key.add(GRAIN_US + random.randrange(seconds * GRAIN_US))
    assert len(key.pass_to(10**15)) == seconds
    assert sum(bag.count for bag in key.bags) <= seconds * 16 * WAITING_LEVELS


def test_what_waited_under_a_version_with_one_bag_comes_out() -> None:
    key = Key()
    key.done_us = 7 * GRAIN_US
    for second in (900_000, 8, 90):
        key.bags[0].add((second * GRAIN_US).to_bytes(8, "big") + b"x")
    key.earliest = 8 * GRAIN_US
    assert [time_us // GRAIN_US for time_us, _ in key.pass_to(10**15)] == [8, 90, 900_000]


def test_clear_forgets_all_levels() -> None:
    key = Key()
    key.add(0)
    key.take(GRAIN_US)
    for level in range(WAITING_LEVELS):
        key.add(GRAIN_US * (2 + 16**level))
    key.waiting().clear()
    assert key.take(10**15) == []
    assert key.used.value is None
