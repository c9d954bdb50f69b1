"""Many questions for offsets, and commits, at once, with fake brokers."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.errors import LocalError, NoPermission, QueueGone, QueueNotReadable, TopicNotExist
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageFilter
from rmqio.wire.command import Command, RequestCode
from tests.helpers.client.looking import ALL, B_SILENT, B_TIMED_OUT, A, B, Setup, UnpluggedSetup
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import NAME_SERVER, FakeBroker
from tests.helpers.fakes.faults import Exchange
from tests.helpers.own_process import in_own_process
from tests.helpers.waiting import until


def test_answers_come_in_the_order_of_the_queries_whatever_they_ask_for(setup: Setup) -> None:
    a, b = setup.queues[1], setup.queues[2]
    setup.broker.cluster.delete_before(b, 4)
    setup.client.commit_offset("g", b, 7)
    queries = [
        OffsetQuery(b, "committed", group="g"),
        OffsetQuery(a, "max"),
        OffsetQuery(b, "min"),
        OffsetQuery(a, "committed", group="g"),
        OffsetQuery(b, "time", timestamp_ms=0),
        OffsetQuery(a, "time", timestamp_ms=2**42),
        OffsetQuery(b, "max"),
    ]
    assert list(setup.client.look_up(queries)) == [7, 2, 4, None, 4, 2, 10]
    assert list(setup.client.look_up([])) == []


def test_each_broker_is_written_to_once_and_the_route_is_asked_for_once(setup: Setup) -> None:
    setup.ends()
    sessions = [setup.client._pool.connection(setup.broker.address(name)).session for name in (A, B)]
    writes: Counter[str] = Counter()
    for session in sessions:
        assert session is not None

        def write(*given: Any, address: str = session.address, original: Any = session._write) -> None:
            writes[address] += 1
            original(*given)

        session._write = write  # type: ignore[method-assign, assignment]
    queries = [OffsetQuery(queue, kind) for queue in setup.queues for kind in ("min", "max")]
    setup.client.look_up(queries)
    assert writes == {setup.broker.address(A): 1, setup.broker.address(B): 1}
    assert setup.broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1


def test_all_are_on_their_way_before_any_is_answered(setup: Setup) -> None:
    kept: list[Exchange] = []

    def answer_when_all_are_here(exchange: Exchange) -> None:
        kept.append(exchange)
        if len(kept) == 8:
            for each in kept:
                each.send(each.handle())

    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        setup.broker.on(code, answer_when_all_are_here, times=None)
    queries = [OffsetQuery(queue, kind) for queue in setup.queues for kind in ("min", "max")]
    assert all(isinstance(answer, int) for answer in setup.client.look_up(queries, timeout_ms=10_000))


@pytest.mark.parametrize("code", [1, 2, 14, 215])
def test_a_busy_broker_is_asked_again_for_what_failed_only(setup: Setup, code: int) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.answer(code, "busy"), times=1, broker=B)
    before = setup.broker.count(RequestCode.GET_MAX_OFFSET)
    assert setup.kinds() == ALL
    assert setup.broker.count(RequestCode.GET_MAX_OFFSET) == before + 5


def test_a_refusal_is_in_the_place_of_its_query_and_not_tried_again(setup: Setup) -> None:
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.answer(16, "no"), times=1, broker=B)
    kinds = setup.kinds()
    assert sorted(map(str, kinds[2:]))[1] == str(NoPermission)
    assert kinds[:2] == [1, 2]


def test_a_connection_that_broke_is_made_again_within_the_deadline(setup: Setup) -> None:
    setup.kinds()
    setup.broker.on(RequestCode.GET_MAX_OFFSET, faults.close(), times=1, broker=B)
    assert setup.kinds() == ALL


def test_what_does_not_exist_is_reported_for_each_query(setup: Setup) -> None:
    queue = setup.queues[0]
    answers = setup.client.look_up(
        [
            OffsetQuery(queue._replace(queue_id=2), "max"),
            OffsetQuery(queue, "max"),
            OffsetQuery(queue._replace(topic="nothing"), "min"),
            OffsetQuery(queue._replace(broker="nobody"), "min"),
        ]
    )
    assert isinstance(answers[0], QueueGone)
    assert answers[1] == 1
    assert isinstance(answers[2], TopicNotExist)
    assert "no name server knows broker 'nobody'" in str(answers[3])
    setup.broker.cluster.create_topic("t", 3, (A,))
    assert list(setup.client.look_up([OffsetQuery(queue._replace(queue_id=2), "max")])) == [0]


def test_a_topic_whose_broker_restarts_between_the_two_questions_is_there(setup: Setup) -> None:
    """Name servers forget a topic with its broker: they know neither at the first question, both at the second."""
    unknown = faults.answer(TopicNotExist.number, "no route")
    setup.broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown, times=1, broker=NAME_SERVER)
    assert setup.kinds() == ALL
    queue = setup.queues[0]
    setup.client._routes.invalidate(queue.topic)
    setup.broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown, times=1, broker=NAME_SERVER)
    assert setup.client.open_reader(queue, 0, message_filter=MessageFilter()).queue == queue


@pytest.mark.parametrize("many", [True, False], ids=["look", "one"])
def test_a_topic_that_is_forgotten_after_its_check_is_there_when_its_broker_is(setup: Setup, many: bool) -> None:
    """The topic leaves the routes between two tries, and is back at the second question for its route."""
    setup.kinds()
    unknown = faults.answer(TopicNotExist.number, "no route")
    setup.broker.on(RequestCode.GET_MAX_OFFSET, unknown, times=1, broker=A)
    setup.broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown, times=1, broker=NAME_SERVER)
    assert setup.kinds() == ALL if many else setup.client.max_offset(setup.queues[0]) == ALL[0]


def test_a_topic_that_was_deleted_behind_our_back_is_not_empty(setup: Setup) -> None:
    setup.kinds()
    setup.broker.cluster.delete_topic("t")
    asked = setup.broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert setup.kinds() == [TopicNotExist] * 4
    assert setup.broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) <= asked + 2, "once more for all queues, not for each"
    assert setup.kinds() == [TopicNotExist] * 4
    assert setup.broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) <= asked + 4


def test_a_second_name_server_answers_for_a_silent_one(unplugged: UnpluggedSetup) -> None:
    asked: list[Command] = []
    port = unplugged.broker.server.listen("silent", lambda _, command: asked.append(command))
    both = replace(unplugged.options, name_servers=(f"127.0.0.1:{port}", unplugged.broker.name_server))
    client = RemotingQueueClient(both, unplugged.environment)
    queries = [OffsetQuery(queue, "max") for queue in unplugged.queues]
    assert list(client.look_up(queries)) == ALL
    assert asked
    before = len(asked)
    client._routes.invalidate("t")
    assert list(client.look_up(queries)) == ALL
    assert len(asked) == before
    client.close()


# ---- commits --------------------------------------------------------------------------------------------------------


def test_a_queue_that_may_not_be_read_now_is_not_gone(setup: Setup) -> None:
    setup.broker.cluster.create_topic("t", 2, (A,), permission=2)
    first = setup.queues[0]
    removed = first._replace(queue_id=2)
    failed = setup.client.commit_offsets("g", {first: 1, removed: 1})
    assert {queue: type(error) for queue, error in failed.items()} == {first: QueueNotReadable, removed: QueueGone}
    for queue, error in ((first, QueueNotReadable), (removed, QueueGone)):
        with pytest.raises(error) as caught:
            setup.client.max_offset(queue)
        assert type(caught.value) is error


def test_commits_go_together_and_the_group_is_made_known_once(setup: Setup) -> None:
    offsets = {queue: queue.queue_id + 1 for queue in setup.queues}
    assert setup.client.commit_offsets("new", offsets) == {}
    queries = [OffsetQuery(queue, "committed", group="new") for queue in setup.queues]
    assert list(setup.client.look_up(queries)) == [1, 2, 1, 2]
    assert setup.broker.count(RequestCode.PULL_MESSAGE) <= 2, "one for each broker"


def test_what_fails_to_be_committed_is_reported_by_queue(setup: Setup) -> None:
    first, second, third, _ = setup.queues
    setup.client.commit_offset("g", first, 1)
    setup.broker.cluster.reset_group("g", first, 0)
    failed = setup.client.commit_offsets("g", {first: 1, second: -1, third: 5, first._replace(queue_id=9): 1})
    assert {queue: type(error).__name__ for queue, error in failed.items()} == {
        first: "CommitIgnored",
        second: "LocalError",
        first._replace(queue_id=9): "QueueGone",
    }
    assert setup.client.committed_offset("g", third) == 5


def test_the_first_commits_of_a_group_to_a_broker_do_not_meet(unplugged: UnpluggedSetup) -> None:
    """A broker that processes two first commits at the same time keeps one of them, and acknowledges both."""
    unanswered: Counter[str] = Counter()
    met: list[str] = []

    def commit(exchange: Exchange) -> None:
        group = exchange.request.ext["consumerGroup"]
        unanswered[group] += 1
        if unanswered[group] > 2:  # there are two brokers
            met.append(group)

        def answer() -> None:
            unanswered[group] -= 1
            exchange.send(exchange.handle())

        exchange.later(50, answer)

    unplugged.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, commit, times=None)
    assert unplugged.client.commit_offsets("new", dict.fromkeys(unplugged.queues, 1)) == {}
    assert met == []
    assert unplugged.client.commit_offsets("new", dict.fromkeys(unplugged.queues, 2)) == {}
    assert len(met) == 2, "later commits go together"


def test_a_first_commit_that_another_process_has_displaced_is_made_again(setup: Setup) -> None:
    lost = setup.queues[1]
    state = setup.broker.cluster

    def displace(exchange: Exchange) -> None:
        answer = exchange.handle()
        with state.changed:  # as a broker does with one of two first commits that it processes at the same time
            state._groups.pop(("new", lost), None)
        exchange.send(answer)

    setup.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, displace, times=2, broker=A)
    assert setup.client.commit_offsets("new", dict.fromkeys(setup.queues, 1)) == {}
    assert [setup.client.committed_offset("new", queue) for queue in setup.queues] == [1] * 4
    queries = setup.broker.count(RequestCode.QUERY_CONSUMER_OFFSET)
    assert setup.client.commit_offsets("new", dict.fromkeys(setup.queues, 2)) == {}
    assert setup.broker.count(RequestCode.QUERY_CONSUMER_OFFSET) == queries, "they are looked up once"


def test_a_first_commit_that_fails_does_not_stop_the_others(setup: Setup) -> None:
    first, second, *_ = setup.queues
    missing = first._replace(queue_id=9)
    failed = setup.client.commit_offsets("new", {missing: 1, first: -1, second: 1})
    assert set(failed) == {missing, first}
    assert setup.client.committed_offset("new", second) == 1


# ---- threads, forks, the end ----------------------------------------------------------------------------------------


@in_own_process
def test_many_threads_look_at_once() -> None:
    with FakeBroker(brokers=(A, B)) as broker, ThreadPoolExecutor(8) as pool:
        setup = Setup(broker, deadline_ms=10_000)
        with closing(setup.client):
            assert list(pool.map(lambda _: setup.kinds(), range(200))) == [ALL] * 200
            setup.broker.pause_broker(B)
            assert all(kinds in (B_TIMED_OUT, B_SILENT) for kinds in pool.map(lambda _: setup.kinds(), range(16)))
            setup.broker.resume_broker(B)
            until(lambda: setup.kinds() == ALL, "a probe that is answered", details=setup.kinds)
            assert list(pool.map(lambda _: setup.kinds(), range(50))) == [ALL] * 50
    assert threading.active_count() == 1


def test_a_forked_child_looks_for_itself(setup: Setup) -> None:
    setup.kinds()
    setup.broker.stop_broker(B)
    assert setup.kinds()[:2] == [1, 2]
    assert setup.kinds() == B_SILENT
    setup.broker.start_broker(B)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if setup.kinds() == ALL else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    until(lambda: setup.kinds() == ALL, "a probe that is answered", details=setup.kinds)


def test_a_closed_client_answers_with_errors_and_forgets_who_was_silent(unplugged: UnpluggedSetup) -> None:
    unplugged.broker.pause_broker(B)
    unplugged.kinds()
    unplugged.client.close()
    assert unplugged.kinds() == [LocalError] * 4
    assert repr(unplugged.client._breaker) == "<Breaker open for []>"
    (error,) = unplugged.client.commit_offsets("g", {unplugged.queues[0]: 1}).values()
    assert str(error) == "the client is closed"


def test_a_deadline_of_nothing_is_refused(setup: Setup) -> None:
    with pytest.raises(LocalError, match="timeout_ms"):
        setup.client.look_up([], timeout_ms=0)
