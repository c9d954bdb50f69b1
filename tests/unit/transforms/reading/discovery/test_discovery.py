"""From what the user named to queues, and their shares of a limit of records."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.errors import LocalError, TopicNotExist
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StartOffsetError, StopAt
from rmqio.testing import InMemoryCluster
from rmqio.topics import Subscription
from rmqio.transforms.reading.discovery import describe, share_limit
from rmqio.transforms.reading.restriction import QueueDescriptor
from tests.helpers.client.discovering import client_of, config, filled

Q0, Q1, Q2 = (MessageQueue("t", "b", number) for number in range(3))

# ---- subscriptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("t", Subscription(topics=("t",))),
        (["b", "a", "b"], Subscription(topics=("a", "b"))),
        (("a",), Subscription(topics=("a",))),
        ({"a"}, Subscription(topics=("a",))),
        (re.compile("t.*"), Subscription(pattern="t.*", flags=re.UNICODE)),
        (re.compile("T.*", re.I), Subscription(pattern="T.*", flags=re.UNICODE | re.IGNORECASE)),
        (Q0, Subscription(queues=(Q0,))),
        ([Q1, Q0, Q1], Subscription(queues=(Q0, Q1))),
    ],
)
def test_what_can_be_subscribed_to(what: Any, expected: Subscription) -> None:
    assert Subscription.of(what) == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    "what", [None, "", [], [""], 5, b"t", ["t", 5], ["t", Q0], [("t", "b", 0)], re.compile(b"t"), re.compile("")]
)
def test_what_cannot_is_refused_and_the_error_shows_it(what: Any) -> None:
    shown = [what] if isinstance(what, str) else what
    with pytest.raises(LocalError, match=re.escape(f"topic is {shown!r:.40}")):
        Subscription.of(what)


@pytest.mark.parametrize(
    ("subscription", "text"),
    [
        (Subscription(topics=("a", "b")), "a, b"),
        (Subscription(pattern="t.*"), "topics that match 't.*'"),
        (Subscription(queues=(Q0,)), "queue t/b/0"),
    ],
)
def test_a_subscription_reads_as_text(subscription: Subscription, text: str) -> None:
    assert str(subscription) == text


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("t", ["t/0", "t/1"]),
        (["t", "other"], ["other/0", "t/0", "t/1"]),
        (re.compile("t.*"), ["t/0", "t/1", "t2/0"]),
        (re.compile("t"), ["t/0", "t/1"]),
        (re.compile("OTHER", re.I), ["other/0"]),
        (re.compile("none.*"), []),
        (re.compile(".*RETRY.*"), []),
        (MessageQueue("t", "broker-a", 1), ["t/1"]),
        ([MessageQueue("t2", "broker-a", 0), MessageQueue("t", "broker-a", 1)], ["t/1", "t2/0"]),
    ],
)
def test_queues_are_found(cluster: InMemoryCluster, what: Any, found: list[str]) -> None:
    for topic, count in (("t", 2), ("t2", 1), ("other", 1), ("%RETRY%g", 1)):
        cluster.create_topic(topic, count)
    queues = Subscription.of(what).find_queues(client_of(cluster))
    assert [f"{queue.topic}/{queue.queue_id}" for queue in queues] == found


@pytest.mark.parametrize("what", ["gone", ["t", "gone"], MessageQueue("gone", "broker-a", 0)])
def test_a_missing_topic_is_an_error_where_it_was_named(cluster: InMemoryCluster, what: Any) -> None:
    cluster.create_topic("t", 1)
    with pytest.raises(TopicNotExist, match="gone"):
        Subscription.of(what).find_queues(client_of(cluster))


def test_a_missing_topic_may_be_tolerated(cluster: InMemoryCluster) -> None:
    (queue,) = cluster.create_topic("t", 1)
    assert Subscription.of(["t", "gone"]).find_queues(client_of(cluster), missing_ok=True) == [queue]


def test_a_missing_queue_is_an_error_that_names_it_unless_tolerated(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t", 1)
    subscription = Subscription.of(MessageQueue("t", "broker-a", 7))
    with pytest.raises(LocalError, match="queue t/broker-a/7 does not exist or cannot be read"):
        subscription.find_queues(client_of(cluster))
    assert subscription.find_queues(client_of(cluster), missing_ok=True) == []


def test_a_topic_that_vanishes_between_list_and_lookup_is_passed_over(cluster: InMemoryCluster) -> None:
    cluster.create_topic("t1", 1)
    (left,) = cluster.create_topic("t2", 1)
    cluster.fail_next("queues", TopicNotExist(17, "gone", "route"))
    assert Subscription.of(re.compile("t.")).find_queues(client_of(cluster)) == [left]


# ---- shares of a limit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "available", "shares"),
    [
        (10, [None, None], [5, 5]),
        (10, [100, 100, 100], [4, 3, 3]),
        (10, [1, 100], [1, 9]),
        (10, [0, 3, None], [0, 3, 7]),
        (10, [2, 3], [2, 3]),
        (1, [None, None, None], [1, 0, 0]),
        (10, [], []),
        (10, [0, 0], [0, 0]),
    ],
)
def test_shares_of_a_limit(limit: int, available: list[int | None], shares: list[int]) -> None:
    assert share_limit(limit, available) == shares


@given(st.integers(1, 10_000), st.lists(st.none() | st.integers(0, 2_000), max_size=12))
def test_shares_add_up_fit_and_are_as_even_as_can_be(limit: int, available: list[int | None]) -> None:
    shares = share_limit(limit, available)
    there = limit if None in available else min(limit, sum(most or 0 for most in available))
    assert sum(shares) == there
    assert all(share >= 0 and (most is None or share <= most) for share, most in zip(shares, available, strict=True))
    open_ones = [share for share, most in zip(shares, available, strict=True) if most is None or share < most]
    if open_ones:
        assert max(shares) <= min(open_ones) + 1, "who could take more has no less than the others"


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"max_num_records": None}, [None, None, None]),
        ({"max_num_records": 9}, [2, 7]),
        ({"max_num_records": 15}, [3, 11, 1]),
        ({"max_num_records": 9, "stop": StopAt.latest()}, [2, 7]),
        ({"max_num_records": 99, "stop": StopAt.latest()}, [2, 10]),
        ({"max_num_records": 9, "stop": StopAt.latest(), "start": StartFrom.latest()}, []),
    ],
)
def test_descriptors_share_the_limit_and_queues_without_a_share_are_left_out(
    cluster: InMemoryCluster, changes: dict[str, Any], limits: list[int | None]
) -> None:
    queues = filled(cluster, 2, 10, 0)
    described = list(describe(queues, client_of(cluster), config(cluster, **changes)))
    assert [one.limit for one in described] == limits


def test_a_limit_is_shared_under_the_same_policies_as_the_read_has(cluster: InMemoryCluster) -> None:
    (queue,) = filled(cluster, 10)
    cluster.delete_before(queue, 4)
    found = config(
        cluster,
        max_num_records=9,
        stop=StopAt.latest(),
        start=StartFrom.specific_offsets({queue: 1}),
        on_out_of_range="earliest",
    )
    assert [one.limit for one in describe([queue], client_of(cluster), found)] == [6]


def test_a_limit_asks_no_start_of_a_queue_that_has_no_stop(cluster: InMemoryCluster) -> None:
    first, second = filled(cluster, 5, 5)
    start = StartFrom.specific_offsets({first: 1}, reset="error")
    with pytest.raises(StartOffsetError):
        start.resolve(second, client_of(cluster), group="g")
    found = config(cluster, max_num_records=9, stop=StopAt.offsets({first: 3}), start=start, group="g")
    described = list(describe([first, second], client_of(cluster), found))
    assert described == [QueueDescriptor(first, StartFrom.resolved(first, 1), StopAt.offsets({first: 3}), limit=2)]
