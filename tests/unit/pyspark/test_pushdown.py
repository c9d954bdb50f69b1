"""Filters that a batch read takes: what is read with them, and that Spark's own filters then leave the same rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rmqio.model import MessageFilter
from rmqio.pyspark.options.read import read_settings
from rmqio.pyspark.reading.pushdown import push
from rmqio.pyspark.source import FilteredRocketMQReader, RocketMQDataSource, RocketMQReader
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock

NAMES = ("topic", "brokerName", "queueId", "queueOffset", "tags", "storeTimestamp")
COMPARISONS: dict[type[Any], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    In: lambda value, values: value in [each for each in values if each is not None],
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
TAGS = ("red", "green", None)
STEP_S = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[InMemoryCluster]:
    """Two topics of two queues with 12 messages each, one every five seconds."""
    clock = ManualClock()
    with InMemoryCluster(clock=clock) as cluster:
        for topic in ("t", "u"):
            cluster.create_topic(topic, 2)
        for number in range(12):
            for topic in ("t", "u"):
                for queue in range(2):
                    cluster.append(topic, b"x", queue_id=queue, tags=TAGS[number % 3])
            clock.advance(STEP_S)
        yield cluster


def reader(cluster: InMemoryCluster, kind: type[RocketMQReader], **options: Any) -> RocketMQReader:
    found = read_settings({"nameserver": "127.0.0.1:1", "subscribe": "t,u"} | options, streaming=False)
    return kind(dataclasses.replace(found, factory=InMemoryClientFactory(cluster.name)), NAMES)


def rows(reader: RocketMQReader) -> list[dict[str, Any]]:
    reader = pickle.loads(pickle.dumps(reader))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def passes(each: Filter, row: dict[str, Any]) -> bool:
    """As Spark evaluates it."""
    if isinstance(each, IsNotNull):
        return row[each.attribute[0]] is not None
    if isinstance(each, Not):
        return row[each.child.attribute[0]] is not None and not passes(each.child, row)  # type: ignore[attr-defined]
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    return value is not None and COMPARISONS[type(each)](value, each.value)  # type: ignore[attr-defined]


def of(column: str, values: st.SearchStrategy[Any], *kinds: type[Any]) -> st.SearchStrategy[Filter]:
    def made(kind: type[Any]) -> st.SearchStrategy[Filter]:
        what = st.lists(values | st.none(), min_size=1, max_size=3).map(tuple) if kind is In else values
        return st.builds(kind, st.just((column,)), what)

    return st.sampled_from(kinds or tuple(COMPARISONS)).flatmap(made)


def moments(cluster_time: float = ManualClock().time()) -> st.SearchStrategy[dt.datetime]:
    begin = dt.datetime.fromtimestamp(cluster_time, dt.UTC)
    return st.integers(-10_000_000, 80_000_000).map(lambda micros: begin + dt.timedelta(microseconds=micros))


FILTERS = st.one_of(
    of("topic", st.sampled_from(["t", "u", "v"]), EqualTo, In, EqualNullSafe),
    of("brokerName", st.sampled_from(["broker-a", "nobody"]), EqualTo, In),
    of("queueId", st.integers(-1, 3)),
    of("queueOffset", st.integers(-2, 14)),
    of("tags", st.sampled_from(["red", "green", "blue", "*", "", "red || green"]), EqualTo, In, EqualNullSafe),
    of("storeTimestamp", moments()),
    st.just(IsNotNull(("tags",))) | st.just(IsNotNull(("queueOffset",))),
    st.just(Not(EqualTo(("queueId",), 1))),
)


@given(st.lists(FILTERS, max_size=4), st.sampled_from([{}, {"tags": "red"}, {"tags": "green || red"}]))
def test_pushed_filters_and_those_left_to_spark_give_what_all_filters_give(
    cluster: InMemoryCluster, filters: list[Filter], options: dict[str, str]
) -> None:
    whole = rows(reader(cluster, RocketMQReader, **options))
    filtering = reader(cluster, FilteredRocketMQReader, **options)
    left = list(filtering.pushFilters(filters))
    assert all(any(each is one for one in filters) for each in left)
    found = [row for row in rows(filtering) if all(passes(each, row) for each in left)]
    assert found == [row for row in whole if all(passes(each, row) for each in filters)]


def moment(cluster: InMemoryCluster, number: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ManualClock().time() + number * STEP_S, dt.UTC)


@pytest.mark.parametrize(
    ("filters", "read", "left"),
    [
        ([], 48, 0),
        ([EqualTo(("topic",), "t")], 24, 0),
        ([In(("queueId",), (1, 5))], 24, 0),
        ([EqualTo(("topic",), "t"), EqualTo(("queueId",), 0)], 12, 0),
        ([EqualTo(("topic",), "v")], 0, 0),
        ([GreaterThan(("queueOffset",), 9)], 8, 0),
        ([GreaterThanOrEqual(("queueOffset",), 3), LessThan(("queueOffset",), 5)], 8, 0),
        ([LessThanOrEqual(("queueOffset",), 0)], 4, 0),
        ([EqualTo(("queueOffset",), 7)], 4, 0),
        ([In(("queueOffset",), (7, 9))], 12, 1),
        ([EqualTo(("tags",), "red")], 16, 0),
        ([In(("tags",), ("red", "green"))], 32, 0),
        ([EqualTo(("tags",), "red"), EqualTo(("tags",), "green")], 0, 0),
        ([EqualTo(("tags",), "red || green")], 48, 1),
        ([IsNotNull(("queueId",)), IsNotNull(("tags",))], 48, 1),
        ([StringStartsWith(("topic",), "t"), Not(EqualTo(("topic",), "t"))], 48, 2),
        ([GreaterThan(("queueId",), 0)], 48, 1),
        ([EqualNullSafe(("queueOffset",), None), EqualNullSafe(("tags",), None)], 48, 2),
        ([EqualTo(("queueOffset",), "7"), GreaterThan(("storeTimestamp",), dt.datetime(2050, 1, 1))], 48, 2),
    ],
)
def test_what_is_read_and_what_is_left_to_spark(
    cluster: InMemoryCluster, filters: list[Filter], read: int, left: int
) -> None:
    filtering = reader(cluster, FilteredRocketMQReader)
    assert len(list(filtering.pushFilters(filters))) == left
    assert len(rows(filtering)) == read


def test_times_bound_what_is_read_and_are_left_to_spark(cluster: InMemoryCluster) -> None:
    filters = [
        GreaterThanOrEqual(("storeTimestamp",), moment(cluster, 3)),
        LessThan(("storeTimestamp",), moment(cluster, 6)),
    ]
    filtering = reader(cluster, FilteredRocketMQReader)
    assert filtering.pushFilters(filters) == filters
    assert {row["queueOffset"] for row in rows(filtering)} == {3, 4, 5, 6}, "and a margin behind"


def test_tags_are_not_pushed_beside_sql() -> None:
    narrowing, left = push([EqualTo(("tags",), "red")], MessageFilter("a > 1", sql=True))
    assert len(left) == 1
    assert narrowing.of(MessageFilter("a > 1", sql=True)) == MessageFilter("a > 1", sql=True)


def test_only_who_asks_for_it_gets_a_reader_that_takes_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    from rmqio.pyspark.reading.columns import SOURCE_SCHEMA

    given_options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    plain = RocketMQDataSource(given_options).reader(SOURCE_SCHEMA)
    assert type(plain).pushFilters is DataSourceReader.pushFilters
    assert isinstance(
        RocketMQDataSource(given_options | {"pushfilters": "true"}).reader(SOURCE_SCHEMA), FilteredRocketMQReader
    )
