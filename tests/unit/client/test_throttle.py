"""Sends slow down while a broker says that it is busy, and none is lost or stored twice."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.client.pending import GRACE_MS
from rmqio.client.queue_choice import FIRST_GAP_S, MOST_GAP_S, Throttle
from rmqio.errors import BrokerError, FlowControl, RequestTimeout, SystemBusy, TransportError
from rmqio.interfaces import SendStatistics
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.testing import ManualClock
from rmqio.wire.command import RequestCode
from tests.helpers.client.scripted_wire import NAME_SERVER, ScriptedWire
from tests.helpers.fakes import faults

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def made() -> tuple[Throttle, SendStatistics, ManualClock]:
    clock, statistics = ManualClock(), SendStatistics()
    return Throttle(statistics, clock.monotonic, clock.sleep), statistics, clock


def test_a_broker_that_is_not_busy_costs_no_time() -> None:
    throttle, statistics, clock = made()
    throttle.busy("other")
    for _ in range(100):
        throttle.before("a")
        throttle.passed("a")
    assert (clock.sleeps, statistics.throttled_ms) == ([], 0)


def test_the_gap_grows_while_it_is_busy_and_shrinks_until_it_is_gone() -> None:
    throttle, statistics, clock = made()
    gaps = []
    for _ in range(12):
        throttle.before("a")
        throttle.busy("a")
        gaps.append(throttle.gap_s("a"))
    assert gaps[0] == FIRST_GAP_S
    assert gaps == sorted(gaps)
    assert gaps[-1] == MOST_GAP_S
    assert statistics.throttled_ms == pytest.approx(clock.monotonic() * 1000, abs=12)
    for _ in range(30):
        throttle.before("a")
        throttle.passed("a")
    assert throttle.gap_s("a") == 0.0


def test_answers_to_requests_that_were_sent_together_count_once() -> None:
    throttle, _, _ = made()
    for _ in range(8):
        throttle.busy("a")
    assert throttle.gap_s("a") == FIRST_GAP_S


@given(st.lists(st.tuples(st.sampled_from(["busy", "passed", "before"]), st.floats(0, 3)), max_size=60))
def test_sends_are_at_least_a_gap_apart_and_no_wait_is_endless(steps: list[tuple[str, float]]) -> None:
    throttle, _, clock = made()
    last = None
    for what, pause_s in steps:
        clock.sleep(pause_s)
        gap_s = throttle.gap_s("a")
        begun = clock.monotonic()
        getattr(throttle, what)("a")
        if what == "before":
            assert clock.monotonic() - begun <= 5.0
            if gap_s and last is not None and last[1] == gap_s:
                assert clock.monotonic() - last[0] >= gap_s - 1e-9
            last = (clock.monotonic(), gap_s)
        else:
            last = None  # the gap has changed
        assert 0.0 <= throttle.gap_s("a") <= MOST_GAP_S


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # other tests leave threads; the child runs none
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    throttle, _, _ = made()
    throttle.busy("a")
    with throttle._lock:  # as another thread may at the fork
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, 5)  # ends the child if it hangs
            throttle.before("a")
            throttle.passed("a")
            throttle.busy("a")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("error", [SystemBusy, FlowControl])
def test_a_send_outlasts_a_busy_broker_without_using_up_its_retries(error: type[BrokerError]) -> None:
    wire = ScriptedWire(ClientOptions(NAME_SERVER, max_retries=1))
    wire.on(RequestCode.SEND_BATCH_MESSAGE, faults.answer(error.number, "busy"), times=8)
    queue = wire.topic()
    with wire.producer() as producer:
        producer.send_batch([Message(b"a"), Message(b"b")], queue)
        assert [record.body for record in wire.cluster.records("t")] == [b"a", b"b"]
        assert len(wire.got(*SENDS)) == 8 + 1
        statistics = producer.statistics
        assert (statistics.busy_answers, statistics.retries, statistics.unknown_outcomes) == (8, 8, 0)
        assert statistics.throttled_ms > 1_000
        before = wire.clock.monotonic()
        producer.send(Message(b"c"), queue)
        assert wire.clock.monotonic() - before > FIRST_GAP_S, "the next send is slower, too"


@pytest.mark.parametrize(("given_ms", "least_s", "most_s"), [(5_000, 4.9, 12), (0, 0, 1)])
def test_its_patience_ends(given_ms: int, least_s: float, most_s: float) -> None:
    wire = ScriptedWire(ClientOptions(NAME_SERVER, max_retries=2, busy_timeout_ms=given_ms), busy=SENDS)
    queue = wire.topic()
    with wire.producer() as producer, pytest.raises(SystemBusy):
        producer.send(Message(b"a"), queue)
    assert least_s <= wire.clock.monotonic() <= most_s
    if not given_ms:
        assert len(wire.got(*SENDS)) == 3


def test_other_errors_still_count_after_busy_answers() -> None:
    options = ClientOptions(NAME_SERVER, max_retries=1, request_timeout_ms=100)
    wire = ScriptedWire(options, busy=SENDS, busy_times=3, silent=SENDS)
    queue = wire.topic()
    with wire.producer() as producer, pytest.raises((RequestTimeout, TransportError)):
        producer.send(Message(b"a"), queue)
    assert len(wire.got(*SENDS)) == 3 + 2, "after busy answers, the first try that gets no answer, and its retry"


def test_closing_does_not_wait_longer_than_it_may_for_a_busy_broker() -> None:
    wire = ScriptedWire(ClientOptions(NAME_SERVER, request_timeout_ms=300), busy=SENDS, busy_times=1_000)
    queue = wire.topic()
    producer = wire.producer()
    for _ in range(10):
        producer._sending.throttle.busy(queue.broker)
        wire.clock.sleep(5)
    producer.submit([Message(b"a")], queue)
    begun = wire.clock.monotonic()
    producer.close()
    assert wire.clock.monotonic() - begun <= 0.3 + GRACE_MS / 1000
