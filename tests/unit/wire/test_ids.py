"""Unique ids of messages: one by one, and many at once, which are written when somebody looks."""

from __future__ import annotations

import os
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.wire import accelerator
from rmqio.wire.batch import BatchBuilder
from rmqio.wire.ids import ConsecutiveIds, MessageIds
from tests.helpers.wire.batches import encode_batch
from tests.helpers.wire.implementations import BOTH, needs_c, using

PREFIX = "AB" * 10


def test_ids_are_32_upper_case_hexadecimal_digits_in_rising_order() -> None:
    ids = MessageIds(entropy=lambda size: b"\xab" * size)
    assert [next(ids) for _ in range(2)] == ["AB" * 10 + "000000000000", "AB" * 10 + "000000000001"]
    many = [next(ids) for _ in range(1000)]
    assert many == sorted(many)
    assert len(set(many)) == 1000
    assert many[-1] == "AB" * 10 + f"{1001:012X}"


@pytest.mark.parametrize("number", [0, 1, 255, 256, 257, 1000])
def test_ids_taken_at_once_are_as_good_as_one_by_one(number: int) -> None:
    ids = MessageIds(entropy=lambda size: b"\xab" * size)
    drawn = [next(ids), *ids.take(number), next(ids), *ids.take(number)]
    assert len(set(drawn)) == len(drawn) == 2 + 2 * number
    assert all(len(message_id) == 32 and message_id.startswith("AB" * 10) for message_id in drawn)
    assert all(set(message_id) <= set("0123456789ABCDEF") for message_id in drawn)


def test_ids_of_two_generators_differ() -> None:
    assert next(MessageIds())[:20] != next(MessageIds())[:20]


def test_a_pickled_generator_draws_its_own_bits() -> None:
    ids = MessageIds()
    assert next(pickle.loads(pickle.dumps(ids)))[:20] != next(ids)[:20]


def test_a_forked_child_draws_its_own_bits() -> None:
    ids = MessageIds()
    first = next(ids)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, ids.take(256)[0].encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    theirs = os.read(read_end, 100).decode()
    os.close(read_end)
    assert len(theirs) == 32
    assert theirs[:20] != first[:20] == next(ids)[:20]


def test_threads_never_get_the_same_id() -> None:
    ids = MessageIds()
    drawn: list[list[str]] = [[] for _ in range(4)]

    def draw(into: list[str]) -> None:
        for _ in range(10):
            into.extend(next(ids) for _ in range(250))
            into.extend(ids.take(300))

    threads = [threading.Thread(target=draw, args=(into,)) for into in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({message_id for into in drawn for message_id in into}) == 4 * 5500


# ---- many at once ----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([0, 1, 255, 256, 300, 2**32 - 3, 2**48 - 600]),
    st.integers(0, 600),
    st.slices(600),
    st.integers(-601, 600),
)
def test_consecutive_ids_are_a_sequence(first: int, length: int, part: slice, at: int) -> None:
    ids = ConsecutiveIds(PREFIX, first, length)
    expected = [f"{PREFIX}{number:012X}" for number in range(first, first + length)]
    assert list(ids) == expected
    assert len(ids) == length
    assert ids[part] == expected[part]
    if -length <= at < length:
        assert ids[at] == expected[at]
    else:
        with pytest.raises(IndexError):
            ids[at]
    assert ids.first == f"{PREFIX}{first:012X}"


def test_neither_blocks_nor_ranges_ever_meet() -> None:
    ids = MessageIds()
    drawn = [[*ids.take(32), next(ids), *ids.take(4096), *ids.take(5000)] for _ in range(3)]
    flat = [each for some in drawn for each in some]
    assert len(set(flat)) == len(flat) == 3 * (32 + 1 + 4096 + 5000)


MESSAGES = [Message(b"%d" % number, keys=(f"k{number}",), tags="t") for number in range(600)]
BROKEN = Message(b"x", tags="\x01")


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize("first", [0, 250, 2**44 - 5, 2**48 - 300])
def test_a_batch_with_consecutive_ids_has_the_bytes_of_one_with_their_list(implementation: str, first: int) -> None:
    ids = ConsecutiveIds(PREFIX, first, len(MESSAGES))
    with using("python"):
        expected = encode_batch(MESSAGES, list(ids))
    with using(implementation):
        assert encode_batch(MESSAGES, ids) == expected


@needs_c
def test_a_message_that_is_not_usual_gets_the_id_of_its_place() -> None:
    class Special(Message):
        __slots__ = ()

    messages = [*MESSAGES[:40], Special(b"x"), *MESSAGES[40:]]
    ids = ConsecutiveIds(PREFIX, 200, len(messages))
    with using("c"):
        assert encode_batch(messages, ids) == encode_batch(messages, list(ids))
        builder = BatchBuilder()
        with pytest.raises(LocalError, match="TAGS"):
            builder.add_all([*MESSAGES[:7], BROKEN], ConsecutiveIds(PREFIX, 200, 8))
        assert builder.encode() == encode_batch(MESSAGES[:7], list(ids)[:7])


@needs_c
@pytest.mark.parametrize(
    "first", ["", "A" * 31, "A" * 33, "a" * 32, "A" * 31 + "\x00", "A" * 31 + "G", "Ä" * 32, "\x01" * 20 + "0" * 12]
)
def test_text_that_cannot_count_up_is_left_to_python(first: str) -> None:
    assert accelerator.encode_usual is not None
    assert accelerator.encode_usual(MESSAGES, first, 0, 9, 1 << 20) == (b"", 0)


@needs_c
def test_ids_with_more_digits_than_there_is_room_for_are_left_to_python() -> None:
    assert accelerator.encode_usual is not None
    assert accelerator.encode_usual(MESSAGES, "F" * 31 + "D", 0, 9, 1 << 20)[1] == 3


@pytest.mark.parametrize("implementation", BOTH)
def test_fewer_ids_than_messages_are_refused(implementation: str) -> None:
    with using(implementation), pytest.raises(ValueError, match="599 ids for 600 messages"):
        BatchBuilder().add_all(MESSAGES, ConsecutiveIds(PREFIX, 0, 599))
