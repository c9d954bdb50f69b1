"""When the producer tries again, where, and for what it waits."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio.client.pending import PendingRequest
from rmqio.client.queue_choice import AVOID_S
from rmqio.errors import LocalError, RequestTimeout, SystemBusy, TransportError
from rmqio.model import Message, MessageQueue
from rmqio.wire.command import Command
from tests.helpers.client.scripted_producer import A0, A1, BROKER_A, BROKER_B, World, stored

# ---- retries and time ------------------------------------------------------------------------------------------------


def test_the_pause_grows_and_is_bounded() -> None:
    backoff: Any = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 500, "busy_timeout_ms": 0}
    world = World(*[Command(2)] * 5, stored(), max_retries=5, **backoff)
    world.producer.send(Message(b"x"), A0)
    assert world.clock.sleeps == pytest.approx([0.05, 0.1, 0.2, 0.25, 0.25])
    assert world.producer.statistics.retries == 5


def test_a_retry_sends_the_same_bytes() -> None:
    world = World(Command(2), stored())
    world.producer.send_batch([Message(b"x", keys=("k",))] * 2, A0)
    first, second = world.sends()
    assert (first.ext, first.body) == (second.ext, second.body)
    assert first.opaque != second.opaque


def test_go_away_is_answered_at_once_on_a_new_connection() -> None:
    world = World(Command(1500), stored())
    world.producer.send(Message(b"x"), A0)
    assert world.clock.sleeps == []
    assert world.network.connected.count(BROKER_A) == 2


def test_zero_retries_are_none() -> None:
    world = World(Command(2), stored(), max_retries=0)
    with pytest.raises(SystemBusy):
        world.producer.send(Message(b"x"), A0)
    assert len(world.sends()) == 1


def test_silence_times_out_and_is_counted_as_unknown() -> None:
    world = World(request_timeout_ms=1_000, max_retries=2, retry_backoff_ms=10)
    with pytest.raises(TransportError):
        world.producer.send(Message(b"x"), A0)
    assert len(world.sends()) == 3
    assert world.producer.statistics.unknown_outcomes == 3
    assert 3.0 <= world.clock.monotonic() < 3.1


def test_an_answer_that_lies_in_the_socket_is_taken_however_late_it_is_asked_for() -> None:
    world = World(stored(), request_timeout_ms=1_000)
    pending = world.producer.submit([Message(b"x")], A0)
    world.clock.advance(3_600)
    assert len(pending.result()) == 1
    assert len(world.sends()) == 1


def test_the_time_of_a_submitted_batch_runs_from_its_start() -> None:
    world = World(request_timeout_ms=1_000, max_retries=0)
    pending = world.producer.submit([Message(b"x")], A0)
    world.clock.advance(0.6)
    with pytest.raises(RequestTimeout):
        pending.result()
    assert world.clock.monotonic() == pytest.approx(1.0, abs=0.05)


def test_asking_whether_it_is_done_takes_no_time() -> None:
    world = World(None, stored(), Command(2), Command(13))
    first, second, third, fourth = (world.producer.submit([Message(b"x")], A0) for _ in range(4))
    before = world.clock.monotonic()
    # No answer; stored; will be retried, so that result() would wait; final.
    assert [p.is_done() for p in (first, second, third, fourth)] == [False, True, False, True]
    assert world.clock.monotonic() == before
    assert len(world.sends()) == 4


def test_a_connection_that_breaks_is_opened_again() -> None:
    world = World(b"", stored())
    assert world.producer.send(Message(b"x"), A0).queue == A0
    assert world.network.connected.count(BROKER_A) == 2


def test_nobody_there_is_a_transport_error_after_retries() -> None:
    world = World(max_retries=2)
    world.brokers = ("broker-b",)
    with pytest.raises(TransportError, match="broker-a"):
        world.producer.send(Message(b"x"), A0)
    assert len(world.clock.sleeps) == 2


# ---- where to --------------------------------------------------------------------------------------------------------


def test_a_broker_that_failed_is_avoided_for_a_while() -> None:
    world = World(Command(2), *[stored()] * 100, brokers=("broker-a", "broker-b"))
    failed = world.producer.send(Message(b"x", topic="orders")).queue.broker  # after its retry elsewhere
    assert [world.producer.send(Message(b"x", topic="orders")).queue.broker for _ in range(6)] == [failed] * 6
    world.clock.advance(AVOID_S)
    brokers = [world.producer.send(Message(b"x", topic="orders")).queue.broker for _ in range(6)]
    assert sorted(brokers) == ["broker-a"] * 3 + ["broker-b"] * 3


def test_each_retry_is_at_another_broker_also_when_all_have_failed() -> None:
    world = World(*[Command(2)] * 6, stored(), brokers=("broker-a", "broker-b"), max_retries=6)
    world.producer.send(Message(b"x", topic="orders"))
    assert abs(len(world.sends(BROKER_A)) - len(world.sends(BROKER_B))) == 1
    assert len(world.sends(BROKER_A)) + len(world.sends(BROKER_B)) == 7


def test_a_given_queue_is_kept_though_its_broker_failed() -> None:
    world = World(Command(2), stored(), stored(), brokers=("broker-a", "broker-b"))
    world.producer.send(Message(b"x"), A0)
    world.producer.send(Message(b"x"), A0)
    assert len(world.sends(BROKER_A)) == 3


def test_a_moved_batch_is_addressed_anew() -> None:
    world = World(Command(2), stored(offset=9), brokers=("broker-a", "broker-b"))
    (result,) = world.producer.submit([Message(b"x")], A0).result()
    (sent,) = world.sends(BROKER_B)
    assert (sent.ext["b"], sent.ext["n"]) == ("orders", "broker-b")
    assert sent.ext["m"] == "true"
    assert result.queue.broker == "broker-b"


# ---- in flight -------------------------------------------------------------------------------------------------------


def test_the_oldest_is_awaited_when_too_many_are_in_flight() -> None:
    world = World(max_in_flight=2, request_timeout_ms=1_000, max_retries=0)
    pending = [world.producer.submit([Message(b"%d" % n)], A0) for n in range(2)]
    assert world.clock.monotonic() == 0
    pending.append(world.producer.submit([Message(b"2")], A0))
    assert world.clock.monotonic() == pytest.approx(1.0)
    assert [p.is_done() for p in pending] == [True, False, False]


def test_ordered_waits_for_its_own_queue_only() -> None:
    world = World(None, stored(), request_timeout_ms=1_000, max_retries=0)
    first = world.producer.submit([Message(b"1")], A0, ordered=True)
    other = world.producer.submit([Message(b"2")], A1, ordered=True)
    assert world.clock.monotonic() == 0
    world.producer.submit([Message(b"3")], A0)  # not ordered: does not wait
    assert world.clock.monotonic() == 0
    third = world.producer.submit([Message(b"4")], A0, ordered=True)
    assert first.is_done()
    assert len(other.result()) == 1
    # Behind the failure of the first it was not sent.
    assert len(world.sends()) == 3
    with pytest.raises(TransportError):
        third.result()


def test_what_cannot_be_sent_is_not_in_flight() -> None:
    world = World(stored())
    for bad in (
        lambda: world.producer.submit([Message(b"x", delay_level=1)], A0),
        lambda: world.producer.submit([Message(b"")], A0),
        lambda: world.producer.submit([Message(b"x", topic="others")], A0),
        lambda: world.producer.submit([Message(b"x")], A0, message_ids=["1", "2"]),
        lambda: world.producer.submit([Message(b"x")], MessageQueue("no topic", "broker-a", 0)),
        lambda: world.producer.send(Message(b"x", topic="others"), A0),
        lambda: world.producer.send(Message(b"x")),
    ):
        with pytest.raises(LocalError):
            bad()
    assert world.network.connected == []
    assert len(world.producer._in_flight) == 0


def test_an_interrupt_while_sending_leaves_nothing_behind() -> None:
    world = World(stored())
    world.producer.queues("orders")

    def interrupt(queue: MessageQueue) -> str:
        raise KeyboardInterrupt

    world.producer._choice.address = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.producer.submit([Message(b"x")], A0)
    assert len(world.producer._in_flight) == 0


def test_what_is_done_keeps_no_bodies() -> None:
    world = World(stored(), Command(13))
    for _ in range(2):
        pending = world.producer.submit([Message(b"x" * 1000)], A0)
        assert isinstance(pending, PendingRequest)
        assert pending.is_done()
        assert (pending._command.body, pending._call) == (b"", None)
