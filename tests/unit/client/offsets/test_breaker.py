"""A broker that was silent is not waited for again, but probed. Without sockets and real time."""

from __future__ import annotations

from rmqio.errors import BrokerSilent, RequestTimeout
from rmqio.wire.command import RequestCode
from tests.helpers.client.looking import ALL, B_SILENT, B_TIMED_OUT, B, UnpluggedSetup
from tests.helpers.fakes import faults


def test_the_error_says_who_is_silent_since_when_and_what_to_do(unplugged: UnpluggedSetup) -> None:
    unplugged.broker.pause_broker(B)
    unplugged.ends()
    unplugged.clock.advance(0.5)
    error = unplugged.ends()[2]
    assert isinstance(error, BrokerSilent)
    told = str(error)
    address = unplugged.broker.address(B)
    assert f"broker 'broker-b' at {address} is silent for 0.5 s, since 2023-" in told
    assert "has not answered" in told
    assert "restart it" in told
    assert error.retriable


def test_a_late_answer_has_the_broker_probed_at_once(unplugged: UnpluggedSetup) -> None:
    unplugged.broker.pause_broker(B)
    assert unplugged.kinds() == B_TIMED_OUT
    unplugged.broker.resume_broker(B)
    asked = unplugged.broker.count(RequestCode.GET_MAX_OFFSET, B)
    assert unplugged.kinds() == B_SILENT
    assert unplugged.kinds() == ALL, "without a second of the client's clock"
    assert unplugged.broker.count(RequestCode.GET_MAX_OFFSET, B) == asked + 3, "one probe, and one look at two queues"


def test_a_broker_that_always_answers_late_is_not_waited_for_again(unplugged: UnpluggedSetup) -> None:
    unplugged.kinds()
    late_ms = 1.5 * unplugged.options.request_timeout_ms
    unplugged.broker.on(RequestCode.GET_MAX_OFFSET, faults.delay(late_ms), times=None, broker=B)
    assert unplugged.kinds() == B_TIMED_OUT
    unplugged.clock.advance(late_ms / 1000)  # the late answer comes before the next look: it must not close the breaker
    for _ in range(20):
        assert unplugged.kinds() == B_SILENT
        unplugged.clock.advance(late_ms / 10_000)


def test_a_probe_each_second_is_sent_for_which_nobody_waits(unplugged: UnpluggedSetup) -> None:
    def asked() -> int:
        return unplugged.broker.count(RequestCode.GET_MAX_OFFSET, B)

    unplugged.kinds()
    unplugged.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=None, broker=B)
    assert unplugged.kinds() == B_TIMED_OUT
    before = asked()
    for _ in range(10):
        assert unplugged.kinds() == B_SILENT
    assert asked() == before, "within the first second"
    for probes in (1, 2):
        unplugged.clock.advance(1)
        for _ in range(5):
            assert unplugged.kinds() == B_SILENT
        assert asked() == before + probes
    unplugged.broker.heal()
    assert unplugged.until_answered(list(ALL)) <= 3


def test_a_probe_replaces_a_dead_connection(unplugged: UnpluggedSetup) -> None:
    unplugged.kinds()
    unplugged.broker.pause_broker(B)
    assert unplugged.kinds() == B_TIMED_OUT
    unplugged.broker.drop_connections(B)
    unplugged.broker.resume_broker(B)
    assert unplugged.until_answered(list(ALL)) <= 3


def test_a_broker_that_is_down_is_refused_after_a_few_tries_and_asked_again_when_it_is_back(
    unplugged: UnpluggedSetup,
) -> None:
    unplugged.kinds()
    unplugged.broker.stop_broker(B)
    first = unplugged.kinds()
    assert first[:2] == [1, 2]
    assert unplugged.kinds() == B_SILENT
    unplugged.broker.start_broker(B)
    assert unplugged.until_answered(list(ALL)) <= 3


def test_a_broker_that_answers_some_is_not_silent(unplugged: UnpluggedSetup) -> None:
    unplugged.kinds()
    unplugged.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), broker=B)
    assert unplugged.kinds() == [1, 2, RequestTimeout, 11]
    assert unplugged.kinds() == ALL


def test_single_questions_keep_their_tries_and_their_answers_close_the_breaker(unplugged: UnpluggedSetup) -> None:
    unplugged.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=2, broker=B)
    assert unplugged.kinds() == B_TIMED_OUT
    assert unplugged.kinds() == B_SILENT
    assert unplugged.client.max_offset(unplugged.queues[3]) == 11
    assert unplugged.kinds() == ALL


def test_looks_and_commits_share_what_they_learn_and_no_commit_is_a_probe(unplugged: UnpluggedSetup) -> None:
    offsets = dict.fromkeys(unplugged.queues, 1)
    assert unplugged.client.commit_offsets("g", offsets) == {}
    unplugged.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, faults.drop(), times=None, broker=B)
    failed = unplugged.client.commit_offsets("g", offsets)
    assert {queue.broker: type(error) for queue, error in failed.items()} == {B: RequestTimeout}
    assert unplugged.kinds() == B_SILENT
    commits = unplugged.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert unplugged.until_answered(list(ALL)) <= 3
    assert unplugged.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == commits
