"""A broker that was silent is not waited for again, but probed; over sockets."""

from __future__ import annotations

import time

from rmqio.errors import BrokerSilent, RequestTimeout
from rmqio.testing import FakeBroker, faults
from rmqio.wire.codes import RequestCode
from tests.helpers.client.looking import ALL, B_SILENT, B_TIMED_OUT, DEADLINE_S, A, B, Setup
from tests.helpers.waiting import until


def test_the_error_says_who_is_silent_since_when_and_what_to_do(impatient: Setup) -> None:
    impatient.broker.pause_broker(B)
    impatient.ends()
    impatient.skipped_s += 0.5
    error = impatient.ends()[2]
    assert isinstance(error, BrokerSilent)
    told = str(error)
    address = impatient.broker.address(B)
    assert f"broker 'broker-b' at {address} is silent for 0." in told
    assert "since 20" in told
    assert "has not accepted" in told or "has not answered" in told
    assert "restart it" in told
    assert error.retriable


def test_a_late_answer_has_the_broker_probed_at_once(impatient: Setup) -> None:
    impatient.broker.pause_broker(B)
    assert impatient.kinds() == B_TIMED_OUT
    impatient.broker.resume_broker(B)
    impatient.stop_clock()
    time.sleep(0.5)  # the late answer comes
    asked = impatient.broker.count(RequestCode.GET_MAX_OFFSET, B)
    assert impatient.kinds() == B_SILENT
    assert impatient.soon(list(ALL)), "without a second of the client's clock"
    assert impatient.broker.count(RequestCode.GET_MAX_OFFSET, B) == asked + 3, "one probe, and one look at two queues"


def test_a_broker_that_always_answers_late_is_not_waited_for_again(impatient: Setup) -> None:
    impatient.kinds()
    impatient.broker.on(RequestCode.GET_MAX_OFFSET, faults.delay(1_500 * DEADLINE_S), times=None, broker=B)
    assert impatient.kinds() == B_TIMED_OUT
    for _ in range(20):
        assert impatient.kinds() == B_SILENT
        time.sleep(DEADLINE_S / 10)


def test_a_probe_each_second_is_sent_for_which_nobody_waits() -> None:
    with FakeBroker(brokers=(A, B)) as broker:
        setup = Setup(broker, 0.9)  # a probe ends before the next
        _probes(setup)
        setup.client.close()


def _probes(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=None, broker=B)
    assert setup.kinds() == B_TIMED_OUT
    setup.stop_clock()

    def count() -> int:
        return setup.broker.count(RequestCode.GET_MAX_OFFSET, B)

    def asked(at_least: int = 0) -> int:
        time.sleep(0.02)
        until(lambda: count() >= at_least, f"{at_least} requests", details=count)
        return count()

    before = asked()
    for _ in range(10):
        assert setup.kinds() == B_SILENT
    assert asked() == before, "within the first second"
    for probes in (1, 2):
        setup.skipped_s += 1.0
        for _ in range(5):
            assert setup.kinds() == B_SILENT
        assert asked(before + probes) == before + probes
    setup.broker.heal()
    assert setup.until_answered(list(ALL)) <= 3


def test_a_probe_replaces_a_dead_connection(impatient: Setup) -> None:
    impatient.kinds()
    impatient.broker.pause_broker(B)
    assert impatient.kinds() == B_TIMED_OUT
    impatient.broker.drop_connections(B)
    impatient.broker.resume_broker(B)
    assert impatient.until_answered(list(ALL)) <= 3


def test_a_broker_that_is_down_is_refused_after_a_few_tries_and_asked_again_when_it_is_back(impatient: Setup) -> None:
    impatient.kinds()
    impatient.broker.stop_broker(B)
    first = impatient.kinds()
    assert first[:2] == [1, 2]
    assert impatient.kinds() == B_SILENT
    impatient.broker.start_broker(B)
    assert impatient.until_answered(list(ALL)) <= 3


def test_a_broker_that_answers_some_is_not_silent(impatient: Setup) -> None:
    impatient.kinds()
    impatient.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), broker=B)
    assert impatient.kinds() == [1, 2, RequestTimeout, 11]
    assert impatient.kinds() == ALL


def test_single_questions_keep_their_tries_and_their_answers_close_the_breaker(impatient: Setup) -> None:
    impatient.broker.on(RequestCode.GET_MAX_OFFSET, faults.drop(), times=2, broker=B)
    assert impatient.kinds() == B_TIMED_OUT
    assert impatient.kinds() == B_SILENT
    assert impatient.client.max_offset(impatient.queues[3]) == 11
    assert impatient.kinds() == ALL


def test_looks_and_commits_share_what_they_learn_and_no_commit_is_a_probe(impatient: Setup) -> None:
    offsets = dict.fromkeys(impatient.queues, 1)
    assert impatient.client.commit_offsets("g", offsets) == {}
    impatient.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, faults.drop(), times=None, broker=B)
    failed = impatient.client.commit_offsets("g", offsets)
    assert {queue.broker: type(error) for queue, error in failed.items()} == {B: RequestTimeout}
    assert impatient.kinds() == B_SILENT
    commits = impatient.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert impatient.until_answered(list(ALL)) <= 3
    assert impatient.broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == commits
