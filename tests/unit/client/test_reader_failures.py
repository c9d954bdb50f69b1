"""Failures on the way to the reader: what it raises, what it asks for again, and how it goes on."""

from __future__ import annotations

import pytest

from rmqio.errors import (
    CorruptMessage,
    NoPermission,
    OffsetOutOfRange,
    SubscriptionGroupNotExist,
    TopicNotExist,
    TransportError,
)
from rmqio.wire.command import Command
from tests.helpers.client.scripted_reader import Queue, Setup
from tests.helpers.fakes.network import ScriptedTransport


def test_offset_out_of_range_is_raised_and_the_reader_stays() -> None:
    queue = Queue(100)
    queue.minimum = 40
    setup = Setup(queue, offset=10)
    for _ in range(2):
        assert setup.wait()
        with pytest.raises(OffsetOutOfRange) as caught:
            setup.reader.poll()
        assert (caught.value.wanted, caught.value.minimum, caught.value.maximum) == (10, 40, 100)
        assert setup.reader.position == 10
    setup.reader.seek(40)
    assert setup.read(100) == list(range(40, 100))


def test_retention_that_overtakes_a_pipelined_read_is_raised_behind_what_was_read() -> None:
    queue = Queue(1_000)
    setup = Setup(queue, pull_depth=2)
    queue.instead = [
        lambda _: [queue.answer(0, 32)],
        lambda _: [queue.answer(32, 32)],
        lambda _: [queue.command(21, 500, remark="OFFSET_TOO_SMALL")],
    ]
    assert setup.read(64) == list(range(64))
    assert setup.wait()
    with pytest.raises(OffsetOutOfRange) as caught:
        setup.reader.poll()
    assert caught.value.wanted == 64
    assert setup.reader.position == 64


def test_reset_of_our_pull_group_is_asked_again() -> None:
    queue = Queue(10)
    setup = Setup(queue, offset=5)
    queue.instead = [lambda _: [queue.command(21, 0, remark="OFFSET_RESET")]]
    assert setup.read(10) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("code", "error"), [(17, TopicNotExist), (16, NoPermission)])
def test_refusal_is_raised_at_once_and_the_next_poll_tries_again(code: int, error: type[Exception]) -> None:
    queue = Queue(5)
    queue.instead = [lambda _: [Command(code, remark="no")]]
    setup = Setup(queue)
    assert setup.wait()
    with pytest.raises(error):
        setup.reader.poll()
    assert setup.clock.sleeps == []
    assert setup.read(5) == [0, 1, 2, 3, 4]


def test_a_pull_group_that_the_broker_does_not_know_comes_with_the_remedy() -> None:
    queue = Queue(5)
    queue.instead = [lambda _: [Command(26, remark="subscription group [rmqio_reader] does not exist")]]
    setup = Setup(queue)
    assert setup.wait()
    with pytest.raises(SubscriptionGroupNotExist, match=r"\[rmqio_reader\] does not exist; .*mqadmin updateSubGroup"):
        setup.reader.poll()


@pytest.mark.parametrize("code", [1, 2, 14, 215])
def test_busy_broker_is_asked_again_after_a_pause(code: int) -> None:
    queue = Queue(5)
    queue.instead = [lambda _: [Command(code, remark="busy")]] * 6
    setup = Setup(queue)
    assert setup.read(5) == [0, 1, 2, 3, 4]
    assert setup.clock.monotonic() == pytest.approx((50 + 100 + 200 + 400 + 800 + 1_600) / 1_000)
    assert setup.refreshes == 6


def test_lost_connection_is_ridden_out_without_loss() -> None:
    queue = Queue(1_000)
    down = TransportError("refused")
    first = ScriptedTransport(responder=queue)
    setup = Setup(
        queue,
        first,
        ScriptedTransport(connect_failure=down),
        ScriptedTransport(connect_failure=down),
        ScriptedTransport(responder=queue),
    )
    offsets = setup.read(300)
    first.close()
    offsets += setup.read(1_000)
    assert offsets == list(range(1_000))
    assert setup.refreshes == 3


def test_outage_is_raised_when_it_lasts_too_long_and_the_reader_can_go_on_afterwards() -> None:
    queue = Queue(5)
    setup = Setup(queue, *[ScriptedTransport(connect_failure=TransportError("refused")) for _ in range(500)])
    for _ in range(1_000):
        if setup.wait():
            break
        assert setup.reader.poll() is None
    with pytest.raises(TransportError, match="refused"):
        setup.reader.poll()
    assert 60 <= setup.clock.monotonic() < 66
    assert setup.reader.position == 0
    assert setup.reader.poll() is None


def test_pull_without_an_answer_times_out_and_is_asked_again() -> None:
    queue = Queue(50)
    setup = Setup(queue, request_timeout_ms=1_000)
    queue.instead = [lambda _: []]
    assert setup.read(50) == list(range(50))
    assert setup.clock.monotonic() == pytest.approx(6.05)  # its own second, the broker's five, and a pause


def test_corrupt_message_is_handed_out_among_the_others() -> None:
    queue = Queue(3)
    body = b"".join(queue.stored(n).but(crc=1 if n == 1 else None).encode() for n in range(3))
    queue.instead = [lambda _: [queue.command(0, 3, body, "FOUND")]]
    setup = Setup(queue)
    assert setup.wait()
    part = setup.reader.poll()
    assert part is not None
    assert [record.queue_offset for record in part.records] == [0, 2]
    assert [(bad.topic, bad.queue_id, bad.queue_offset) for bad in part.corrupt] == [("orders", 3, 1)]
    assert part.skipped == 0


def test_lost_framing_is_raised_and_leaves_the_position() -> None:
    queue = Queue(3)
    body = b"".join(queue.stored(n).encode() for n in range(3))[:-5]
    queue.instead = [lambda _: [queue.command(0, 3, body, "FOUND")]]
    setup = Setup(queue)
    assert setup.wait()
    with pytest.raises(CorruptMessage, match="cut off"):
        setup.reader.poll()
    assert setup.reader.position == 0
    assert setup.read(3) == [0, 1, 2]


def test_answer_that_goes_backwards_is_not_followed() -> None:
    # A replica that lags behind answers "pull again" with an offset before ours.
    queue = Queue(50)
    queue.instead = [lambda _: [queue.command(20, 5, remark="OFFSET_OVERFLOW_BADLY")]]
    setup = Setup(queue, offset=20)
    assert setup.read(50) == list(range(20, 50))
