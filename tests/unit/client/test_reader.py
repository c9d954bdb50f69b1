"""The reader's pulls and the records that it hands out, on scripted transports."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

import pytest

from rmqio.errors import CorruptMessage, LocalError, OffsetOutOfRange, RequestTimeout, TopicNotExist, TransportError
from rmqio.wire.command import Command, CommandFlag, encode_frame
from tests.helpers.client.scripted_reader import Queue, Setup
from tests.helpers.fakes.network import ScriptedTransport
from tests.helpers.wire.stored_bytes import Stored


@pytest.mark.parametrize("cap", [1, 7, 32, 100])
def test_backlog_is_read_in_order_whatever_the_broker_hands_out(cap: int) -> None:
    setup = Setup(Queue(1_000, cap=cap))
    assert setup.read(1_000) == list(range(1_000))


def test_when_the_broker_answered_last() -> None:
    """At the end of a queue, too, where a long poll ends without messages."""
    queue = Queue(10)
    setup = Setup(queue)
    times = [setup.reader.answered_at]
    setup.read(10)
    times.append(setup.reader.answered_at)
    assert times == [None, setup.clock.time()]
    assert not setup.wait(timeout_ms=100)
    setup.clock.advance(10)
    (request,) = queue.held
    setup.transports[0].feed(
        encode_frame(dataclasses.replace(queue.answer(10, 32), opaque=request.opaque, flag=CommandFlag.RESPONSE))
    )
    assert not setup.wait(timeout_ms=100)
    last = setup.reader.answered_at
    assert last is not None
    assert setup.clock.time() - last < 1


class WithBrokenBatch(Queue):
    """Its offsets 100 to 299 are one inner batch with a wrong CRC, given whole to whoever asks for any of them.

    Only to the first who asks; the others are left without an answer.
    """

    def __call__(self, request: Command) -> Sequence[Command | bytes]:
        is_first = not self.pulls
        answers = super().__call__(request)
        return answers if is_first or not 100 < self.pulls[-1][0] < 300 else []

    def answer(self, offset: int, wanted: int) -> Command:
        if not 100 <= offset < 300:
            return super().answer(offset, min(wanted, 100 - offset) if offset < 100 else wanted)
        batch = Stored(queue_id=3, queue_offset=100, sys_flag=0xC0, crc=1, properties=b"INNER_NUM\x01200\x02")
        return self.command(0, 300, batch.encode(), "FOUND")


@pytest.mark.parametrize(("begin", "first"), [(0, 100), (150, 0)], ids=["from before it", "from inside"])
def test_a_broken_inner_batch_is_reported_once_and_its_other_answers_are_not_waited_for(begin: int, first: int) -> None:
    setup = Setup(WithBrokenBatch(1_000), offset=begin, pull_depth=4)
    told: list[CorruptMessage] = []
    offsets: list[int] = []
    while setup.reader.position < 1_000:
        part = setup.reader.poll()
        if part is None:
            setup.wait()
            continue
        assert part.skipped == 0
        told += part.corrupt
        offsets += [record.queue_offset for record in part.records]
    assert [(error.queue_offset, error.next_offset) for error in told] == [(100, 300)]
    assert offsets == [*range(first), *range(300, 1_000)]
    session = setup.connection().session
    assert session is not None
    assert session.calls_in_flight == len([0 for segment in setup.reader._plan.segments if segment.call])


class Compressed(Queue):
    """Bodies of 16 MiB, each 16 KiB when compressed: four are all that a pull has room for."""

    BODY = zlib.compress(bytes(16 * 1024 * 1024))

    def stored(self, offset: int) -> Stored:
        return super().stored(offset).but(body=self.BODY, sys_flag=1)


def test_a_poll_gives_no_more_than_pulls_have_room_for() -> None:
    setup = Setup(Compressed(16, cap=3), pull_depth=8)
    offsets: list[int] = []
    most = 0
    while setup.reader.position < 16:
        setup.wait()
        while (session := setup.connection().session) and session.pump(0):
            pass
        part = setup.reader.poll()
        if part is not None:
            assert (part.skipped, part.corrupt) == (0, ())
            most = max(most, len(part.records))
            offsets += [record.queue_offset for record in part.records]
    assert offsets == list(range(16))
    assert most <= 6, "two answers of 48 MiB are more than the 64 of a pull"


def test_what_a_pull_has_no_room_to_decompress_is_pulled_again() -> None:
    setup = Setup(Compressed(10))
    assert setup.wait()
    part = setup.reader.poll()
    assert part is not None
    assert ([record.queue_offset for record in part.records], part.next_offset) == ([0, 1, 2, 3], 4)
    assert setup.read(10) == [4, 5, 6, 7, 8, 9]


def test_pulls_are_pipelined_after_the_first_answer() -> None:
    queue = Queue(10_000)
    setup = Setup(queue, pull_depth=4)
    assert setup.wait()
    assert [offset for offset, _, _ in queue.pulls] == [0]
    part = setup.reader.poll()
    assert part is not None
    assert part.next_offset == 32
    assert [offset for offset, _, _ in queue.pulls] == [0, 32, 64, 96, 128]


def test_what_was_answered_is_handed_out_together() -> None:
    setup = Setup(Queue(10_000), pull_depth=4)
    assert setup.wait()
    setup.reader.poll()
    while (session := setup.connection().session) and session.pump(0):
        pass
    part = setup.reader.poll()
    assert part is not None
    assert len(part.records) == 128
    assert (part.next_offset, part.max_offset) == (160, 10_000)


def test_latency_is_that_of_the_oldest_answer() -> None:
    setup = Setup(Queue(10_000), pull_depth=4)
    assert setup.wait()
    setup.clock.advance(0.25)
    part = setup.reader.poll()
    assert part is not None
    assert part.latency_ms == pytest.approx(250)


def test_end_of_the_queue_is_one_held_pull() -> None:
    queue = Queue(3)
    setup = Setup(queue)
    assert setup.read(3) == [0, 1, 2]
    assert not setup.wait(timeout_ms=100)
    assert setup.reader.is_at_end
    assert queue.pulls == [(0, 32, False), (3, 32, True)]
    queue.size = 5
    (request,) = queue.held
    answer = queue.answer(3, 32)
    answer.opaque, answer.flag = request.opaque, CommandFlag.RESPONSE
    from rmqio.wire.command import encode_frame

    setup.transports[0].feed(encode_frame(answer))
    assert setup.wait()
    assert [setup.reader.is_at_end] == [False]
    part = setup.reader.poll()
    assert part is not None
    assert [record.queue_offset for record in part.records] == [3, 4]


def test_expired_long_poll_is_asked_again_and_is_nothing_for_the_caller() -> None:
    queue = Queue(0)
    setup = Setup(queue)
    queue.instead = [
        lambda _: [queue.command(19, 0, remark="NO_MESSAGE_IN_QUEUE")],
        lambda _: [queue.command(19, 0, remark="NO_MESSAGE_IN_QUEUE")],
    ]
    assert not setup.wait(timeout_ms=500)
    assert setup.reader.poll() is None
    assert queue.pulls == [(0, 32, False), (0, 32, True), (0, 32, True)]
    assert setup.reader.is_at_end


def test_tags_with_the_same_hash_are_dropped_on_arrival() -> None:
    setup = Setup(Queue(100, tags=("Aa", "BB")), tags="Aa || CC")
    offsets = setup.read(100)
    assert offsets == list(range(0, 100, 2))


@pytest.mark.parametrize("remark", ["OFFSET_OVERFLOW_BADLY", "OFFSET_TOO_SMALL", None])
def test_what_a_replica_does_not_have_is_awaited(remark: str | None) -> None:
    queue = Queue(3)
    setup = Setup(queue, outage_timeout_ms=5_000, max_retries=0)
    setup.is_replica = True
    instead = queue.command(17 if remark is None else 21, 0, remark=remark)
    queue.instead = [lambda _: [instead]] * 3
    assert setup.read(3) == [0, 1, 2]
    assert setup.refreshes == 3
    setup.read(3)
    queue.instead = [lambda _: [instead]] * 99
    setup.reader.seek(0)
    with pytest.raises(TransportError, match="its replica may lag behind"):
        setup.read(3)
    setup.is_replica = False  # the master is believed at once
    refreshes = setup.refreshes
    with pytest.raises((TopicNotExist, OffsetOutOfRange)):
        setup.read(3)
    assert setup.refreshes == refreshes


def test_poll_never_waits() -> None:
    setup = Setup(Queue(5), *[ScriptedTransport(connect_failure=TransportError("refused")) for _ in range(500)])
    for _ in range(50):
        assert setup.reader.poll() is None
    assert setup.clock.monotonic() == 0
    assert setup.clock.sleeps == []
    assert not setup.reader.is_ready()


def test_held_pull_is_given_its_time() -> None:
    queue = Queue(0)
    setup = Setup(queue, long_poll_ms=15_000)
    assert not setup.wait(24_000)
    assert len(queue.pulls) == 2
    assert not setup.wait(2_000)
    assert len(queue.pulls) == 4  # given up after 25 s; then one that tells where the end is, and a held one


def test_answers_that_lay_unread_while_nobody_polled_are_taken_not_timed_out() -> None:
    queue = Queue(1_000)
    setup = Setup(queue)
    setup.read(32)
    setup.clock.advance(3_600)
    assert setup.read(1_000) == list(range(32, 1_000))
    assert len(queue.pulls) == len(set(queue.pulls))  # none was asked for twice
    assert setup.refreshes == 0


def test_jump_over_a_removed_file_is_counted() -> None:
    queue = Queue(100)
    queue.instead = [lambda _: [queue.command(20, 70, remark="MESSAGE_WAS_REMOVING")]]
    setup = Setup(queue)
    assert setup.wait()
    part = setup.reader.poll()
    assert part is not None
    assert (part.records, part.next_offset, part.skipped) == ([], 70, 70)


def test_closed_reader_refuses_to_poll_and_forgets_its_pulls() -> None:
    setup = Setup(Queue(0))
    assert not setup.wait(timeout_ms=10)
    setup.reader.close()
    setup.reader.close()
    assert not setup.reader.is_ready()
    assert "in flight 0" in repr(setup.connection())
    with pytest.raises(LocalError, match="closed"):
        setup.reader.poll()


def test_repr_tells_the_state() -> None:
    setup = Setup(Queue(2))
    assert repr(setup.reader) == "<PipelinedReader queue orders/broker-a/3 reading at 0, in flight 0>"
    setup.read(2)
    setup.wait(timeout_ms=10)
    assert repr(setup.reader) == "<PipelinedReader queue orders/broker-a/3 at end at 2, in flight 1>"


def test_waiting_ends_with_the_timeout_and_raises_nothing() -> None:
    setup = Setup(Queue(0))
    assert not setup.wait(timeout_ms=700)
    assert setup.clock.monotonic() == pytest.approx(0.7)
    assert RequestTimeout.retriable
