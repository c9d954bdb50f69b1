"""The reader on scripted transports: answers, failures, retries; with a manual clock."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import pytest

from rmqio.client.connections.connection import Connection
from rmqio.client.environment import Environment
from rmqio.client.reading.pull_results import ReadQueue
from rmqio.client.reading.reader import PipelinedReader
from rmqio.client.reading.waiting import Waiter
from rmqio.errors import (
    CorruptMessage,
    LocalError,
    NoPermission,
    OffsetOutOfRange,
    RequestTimeout,
    TopicNotExist,
    TransportError,
)
from rmqio.model import MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock, ScriptedNetwork, ScriptedTransport
from rmqio.wire.codes import CommandFlag
from rmqio.wire.command import Command
from tests.helpers.stored_bytes import Stored

ADDRESS = "broker:10911"
QUEUE = MessageQueue("orders", "broker-a", 3)


class Queue:
    """A responder that serves one queue of bodies as a broker does."""

    def __init__(self, size: int, *, cap: int = 32, tags: Sequence[str] = ("",)) -> None:
        self.size, self.cap, self.tags = size, cap, tags
        self.minimum = 0
        self.pulls: list[tuple[int, int, bool]] = []
        self.held: list[Command] = []
        self.instead: list[Callable[[Command], Sequence[Command | bytes]]] = []

    def __call__(self, request: Command) -> Sequence[Command | bytes]:
        offset, wanted = int(request.ext["queueOffset"]), int(request.ext["maxMsgNums"])
        suspend = bool(int(request.ext["sysFlag"]) & 2)
        self.pulls.append((offset, wanted, suspend))
        if self.instead:
            return self.instead.pop(0)(request)
        if offset == self.size and suspend:
            self.held.append(request)
            return []
        return [self.answer(offset, wanted)]

    def answer(self, offset: int, wanted: int) -> Command:
        if offset == self.size:
            return self.command(19, offset, remark="OFFSET_OVERFLOW_ONE")
        if offset > self.size:
            return self.command(21, self.size, remark="OFFSET_OVERFLOW_BADLY")
        if offset < self.minimum:
            return self.command(21, self.minimum, remark="OFFSET_TOO_SMALL")
        end = min(offset + min(wanted, self.cap), self.size)
        return self.command(0, end, b"".join(self.stored(n).encode() for n in range(offset, end)), "FOUND")

    def stored(self, offset: int) -> Stored:
        tag = self.tags[offset % len(self.tags)]
        properties = b"TAGS\x01" + tag.encode() + b"\x02" if tag else b""
        return Stored(body=b"%d" % offset, queue_id=3, queue_offset=offset, properties=properties)

    def command(self, code: int, next_offset: int, body: bytes = b"", remark: str | None = None) -> Command:
        ext = {
            "nextBeginOffset": next_offset,
            "minOffset": self.minimum,
            "maxOffset": self.size,
            "suggestWhichBrokerId": 0,
        }
        return Command(code, {name: str(value) for name, value in ext.items()}, body, remark=remark)


class Setup:
    """A reader, its clock and its transports. `route` is what the link does when it is asked for the connection."""

    def __init__(
        self, queue: Queue, *transports: ScriptedTransport, offset: int = 0, tags: str = "*", **options: int
    ) -> None:
        self.queue = queue
        self.clock = ManualClock()
        self.transports = list(transports) or [ScriptedTransport(responder=queue, clock=self.clock)]
        self.environment = Environment(
            connect=ScriptedNetwork({ADDRESS: self.transports}),
            clock=self.clock.monotonic,
            sleep=self.clock.sleep,
            random=lambda: 0.5,
        )
        self.options = ClientOptions("ns:9876", **options)  # type: ignore[arg-type]
        self._connection = Connection(ADDRESS, environment=self.environment)
        self.refreshes = 0
        self.is_replica = False
        self.suggested: list[int] = []
        self.reader = PipelinedReader(
            ReadQueue(QUEUE, QUEUE, MessageFilter(tags)),
            offset,
            group="readers",
            link=self,
            options=self.options,
            environment=self.environment,
        )

    def connection(self) -> Connection:
        return self._connection

    def refresh(self) -> None:
        self.refreshes += 1

    def suggest(self, broker_id: int) -> None:
        self.suggested.append(broker_id)

    def distrust(self) -> bool:
        return False

    def wait(self, timeout_ms: float = 1_000) -> bool:
        return Waiter(self.environment).wait([self.reader], timeout_ms)

    def read(self, to: int) -> list[int]:
        offsets: list[int] = []
        for _ in range(100_000):
            if self.reader.position >= to:
                return offsets
            part = self.reader.poll()
            if part is None:
                self.wait()
            else:
                assert part.skipped == 0
                offsets += [record.queue_offset for record in part.records]
        raise AssertionError(f"{self.reader!r} does not come to {to}")


@pytest.mark.parametrize("cap", [1, 7, 32, 100])
def test_backlog_is_read_in_order_whatever_the_broker_hands_out(cap: int) -> None:
    setup = Setup(Queue(1_000, cap=cap))
    assert setup.read(1_000) == list(range(1_000))


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
def test_a_broken_inner_batch_is_told_once_and_its_other_answers_are_not_waited_for(begin: int, first: int) -> None:
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
        while setup.connection().pump(0):
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
    while setup.connection().pump(0):
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
    assert not setup.wait(100)
    assert setup.reader.is_at_end
    assert queue.pulls == [(0, 32, False), (3, 32, True)]
    queue.size = 5
    (request,) = queue.held
    answer = queue.answer(3, 32)
    answer.opaque, answer.flag = request.opaque, CommandFlag.RESPONSE
    from rmqio.wire.frame import encode_frame

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
    assert not setup.wait(500)
    assert setup.reader.poll() is None
    assert queue.pulls == [(0, 32, False), (0, 32, True), (0, 32, True)]
    assert setup.reader.is_at_end


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
    assert setup.reader.resets_ignored == 1


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


def test_poll_never_waits() -> None:
    setup = Setup(Queue(5), *[ScriptedTransport(connect_failure=TransportError("refused")) for _ in range(500)])
    for _ in range(50):
        assert setup.reader.poll() is None
    assert setup.clock.monotonic() == 0
    assert setup.clock.sleeps == []
    assert not setup.reader.is_ready()


def test_pull_without_an_answer_times_out_and_is_asked_again() -> None:
    queue = Queue(50)
    setup = Setup(queue, request_timeout_ms=1_000)
    queue.instead = [lambda _: []]
    assert setup.read(50) == list(range(50))
    assert setup.clock.monotonic() == pytest.approx(6.05)  # its own second, the broker's five, and a pause


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


def test_jump_over_a_removed_file_is_counted() -> None:
    queue = Queue(100)
    queue.instead = [lambda _: [queue.command(20, 70, remark="MESSAGE_WAS_REMOVING")]]
    setup = Setup(queue)
    assert setup.wait()
    part = setup.reader.poll()
    assert part is not None
    assert (part.records, part.next_offset, part.skipped) == ([], 70, 70)


def test_answer_that_goes_backwards_is_not_followed() -> None:
    # A replica that lags behind answers "pull again" with an offset before ours.
    queue = Queue(50)
    queue.instead = [lambda _: [queue.command(20, 5, remark="OFFSET_OVERFLOW_BADLY")]]
    setup = Setup(queue, offset=20)
    assert setup.read(50) == list(range(20, 50))


def test_closed_reader_refuses_to_poll_and_forgets_its_pulls() -> None:
    setup = Setup(Queue(0))
    assert not setup.wait(10)
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
    setup.wait(10)
    assert repr(setup.reader) == "<PipelinedReader queue orders/broker-a/3 at end at 2, in flight 1>"


def test_waiting_ends_with_the_timeout_and_raises_nothing() -> None:
    setup = Setup(Queue(0))
    assert not setup.wait(700)
    assert setup.clock.monotonic() == pytest.approx(0.7)
    assert RequestTimeout.retriable
