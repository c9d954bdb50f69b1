"""A broker that was silent is not waited for again, but probed; over sockets."""

from __future__ import annotations

import time

from rmqio.errors import BrokerSilent, RequestTimeout
from rmqio.testing import faults
from rmqio.wire.codes import RequestCode
from tests.helpers.client.looking import ALL, B_SILENT, B_TIMED_OUT, DEADLINE_S, B, Setup


def test_the_error_says_who_is_silent_since_when_and_what_to_do(setup: Setup) -> None:
    setup.broker.pause_broker(B)
    setup.ends()
    setup.skipped_s += 0.5
    error = setup.ends()[2]
    assert isinstance(error, BrokerSilent)
    told = str(error)
    address = setup.broker.address(B)
    assert f"broker 'broker-b' at {address} is silent for 0." in told
    assert "since 20" in told
    assert "has not accepted" in told or "has not answered" in told
    assert "restart it" in told
    assert error.retriable


def test_a_late_answer_has_the_broker_probed_at_once(setup: Setup) -> None:
    setup.broker.pause_broker(B)
    assert setup.kinds() == B_TIMED_OUT
    setup.broker.resume_broker(B)
    time.sleep(0.1)
    asked = setup.broker.count(RequestCode.GET_MAX_OFFSET, B)
    assert setup.kinds() == B_SILENT
    assert setup.broker.count(RequestCode.GET_MAX_OFFSET, B) == asked + 1
    time.sleep(0.1)
    assert setup.kinds() == ALL


def test_a_broker_that_always_answers_late_is_not_waited_for_again(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.delay(1_500 * DEADLINE_S), times=None, broker=B)
    assert setup.kinds() == B_TIMED_OUT
    for _ in range(40):
        assert setup.kinds() == B_SILENT
        time.sleep(DEADLINE_S / 10)


def test_a_probe_each_second_is_sent_for_which_nobody_waits(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=None, broker=B)
    assert setup.kinds() == B_TIMED_OUT

    def asked() -> int:
        time.sleep(0.02)
        return setup.broker.count(RequestCode.GET_MAX_OFFSET, B)

    before = asked()
    for _ in range(10):
        assert setup.kinds() == B_SILENT
    assert asked() == before, "within the first second"
    for probes in (1, 2):
        setup.skipped_s += 1.0
        for _ in range(5):
            assert setup.kinds() == B_SILENT
        assert asked() == before + probes
    setup.broker.heal()
    assert setup.until_answered(list(ALL)) <= 3


def test_a_probe_replaces_a_dead_connection(setup: Setup) -> None:
    setup.kinds()
    setup.broker.pause_broker(B)
    assert setup.kinds() == B_TIMED_OUT
    setup.broker.drop_connections(B)
    setup.broker.resume_broker(B)
    assert setup.until_answered(list(ALL)) <= 3


def test_a_broker_that_is_down_is_refused_after_a_few_tries_and_asked_again_when_it_is_back(setup: Setup) -> None:
    setup.kinds()
    setup.broker.stop_broker(B)
    first = setup.kinds()
    assert first[:2] == [1, 2]
    assert setup.kinds() == B_SILENT
    setup.broker.start_broker(B)
    assert setup.until_answered(list(ALL)) <= 3


def test_a_broker_that_answers_some_is_not_silent(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), broker=B)
    assert setup.kinds() == [1, 2, RequestTimeout, 11]
    assert setup.kinds() == ALL


def test_single_questions_keep_their_tries_and_their_answers_close_the_breaker(setup: Setup) -> None:
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=2, broker=B)
    assert setup.kinds() == B_TIMED_OUT
    assert setup.kinds() == B_SILENT
    assert setup.client.max_offset(setup.queues[3]) == 11
    assert setup.kinds() == ALL


def test_looks_and_commits_share_what_they_learn_and_no_commit_is_a_probe(setup: Setup) -> None:
    offsets = dict.fromkeys(setup.queues, 1)
    assert setup.client.commit_offsets("g", offsets) == {}
    setup.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, faults.drop(), times=None, broker=B)
    failed = setup.client.commit_offsets("g", offsets)
    assert {queue.broker: type(error) for queue, error in failed.items()} == {B: RequestTimeout}
    assert setup.kinds() == B_SILENT
    commits = setup.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert setup.until_answered(list(ALL)) <= 3
    assert setup.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == commits
