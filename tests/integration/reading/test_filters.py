"""Filters on a real broker: what arrives, and that the read moves on over what does not."""

from __future__ import annotations

from typing import Any

import pytest

from rmqio import MessageQueue, StartFrom, StopAt
from tests.helpers.ledgers.ledger import Lab, failure, finished, new_group, running

pytestmark = pytest.mark.broker

TAGS = ("Aa", "BB", "other")
"""The first two have the same hash in Java, and a broker compares hashes."""


@pytest.fixture(scope="module")
def tagged(lab: Lab) -> MessageQueue:
    """3000 messages with the three tags in turn and a price that is the offset, then one without either."""
    (queue,) = lab.topic(0)
    lab.send(queue, 3_000, make=lambda n: {"tags": TAGS[n % 3], "properties": {"price": str(n)}})
    lab.send(queue, 1)
    return queue


def every_third(begin: int, end: int = 3_000) -> list[int]:
    return list(range(begin, end, 3))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("Aa", every_third(0)),
        ("BB", every_third(1)),
        ("Aa || other", sorted(every_third(0) + every_third(2))),
        ("Aa||BB", sorted(every_third(0) + every_third(1))),
        ("*", list(range(3_001))),
        ("nobody", []),
    ],
)
def test_tags_pass_and_no_other_with_the_same_hash(
    lab: Lab, tagged: MessageQueue, tags: str, expected: list[int]
) -> None:
    run = finished(lab.read(tagged.topic, tags=tags, stop=StopAt.latest()))
    assert run.offsets.get(tagged, []) == expected
    assert run.counters.get("offsets_skipped", 0) == 0  # filtered is not lost


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("price > 2990", list(range(2_991, 3_000))),
        ("TAGS = 'Aa' AND price BETWEEN 30 AND 39", [30, 33, 36, 39]),
        ("price IS NULL", [3_000]),
        ("TAGS IN ('BB', 'other') AND price < 5", [1, 2, 4]),
    ],
)
def test_sql(lab: Lab, tagged: MessageQueue, sql: str, expected: list[int]) -> None:
    run = finished(lab.read(tagged.topic, sql_filter=sql, stop=StopAt.latest()))
    assert run.offsets == {tagged: expected}
    assert run.counters.get("offsets_skipped", 0) == 0


@pytest.mark.parametrize("stop", [StopAt.latest(), None], ids=["bounded", "endless"])
def test_sql_that_does_not_compile_is_an_error_and_not_everything(
    lab: Lab, tagged: MessageQueue, stop: StopAt | None
) -> None:
    for sql in ("price >", "price >> 5", "price BETWEEN 5"):
        text = failure(lab.read(tagged.topic, sql_filter=sql, stop=stop))
        assert "SUBSCRIPTION_PARSE_FAILED" in text, text[:300]
        assert repr(sql) in text, text[:300]


@pytest.mark.parametrize("chosen", [{"tags": "late"}, {"sql_filter": "price = 100000"}], ids=["tags", "sql"])
def test_the_group_moves_on_over_what_is_filtered_out(lab: Lab, chosen: dict[str, Any]) -> None:
    (queue,) = lab.topic(0)
    lab.send(queue, 3_000, make=lambda n: {"tags": "early", "properties": {"price": str(n)}})
    bounded, endless = new_group(), new_group()
    assert finished(lab.read(queue.topic, consumer_group=bounded, stop=StopAt.latest(), **chosen)).records == []
    assert lab.committed(bounded, queue) == [3_000]
    with running(lab.read(queue.topic, consumer_group=endless, **chosen), stop_after=2) as run:
        lab.until_committed(run, endless, {queue: 3_000})
        lab.send(queue, 1, make=lambda n: {"tags": "late", "properties": {"price": "100000"}})
        run.wait_for(1)
        lab.send(queue, 900, make=lambda n: {"tags": "early", "properties": {"price": "1"}})
        lab.send(queue, 1, make=lambda n: {"tags": "late", "properties": {"price": "100000"}})
    assert run.offsets == {queue: [3_000, 3_901]}
    # The first pipeline's group goes on behind what it did not see.
    read = lab.read(queue.topic, start=StartFrom.group_offsets("error"), consumer_group=bounded, stop=StopAt.latest())
    assert finished(read).offsets == {queue: list(range(3_000, 3_902))}


def test_a_stop_within_what_is_filtered_out_ends_the_read(lab: Lab, tagged: MessageQueue) -> None:
    read = lab.read(tagged.topic, tags="Aa", stop=StopAt.offsets({tagged: 2_000}))
    assert finished(read).offsets == {tagged: every_third(0, 2_000)}
    read = lab.read(tagged.topic, sql_filter="price < 10 OR price > 2500", stop=StopAt.offsets({tagged: 2_000}))
    assert finished(read).offsets == {tagged: list(range(10))}


def test_a_start_within_what_is_filtered_out(lab: Lab, tagged: MessageQueue) -> None:
    start = StartFrom.specific_offsets({tagged: 1_000})
    read = lab.read(tagged.topic, start=start, sql_filter="price > 2995", stop=StopAt.latest())
    assert finished(read).offsets == {tagged: [2_996, 2_997, 2_998, 2_999]}
