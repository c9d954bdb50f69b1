"""Filters that a batch read takes: what is read with them, and that Spark's own filters then leave the same rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import operator
import os
import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
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
from rmqio.pyspark.read_options import read_settings
from rmqio.pyspark.source import FilteredRocketMQReader, RocketMQDataSource, RocketMQReader, push
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


@pytest.fixture(autouse=True, scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("filters")))
        yield


def reader(
    cluster: InMemoryCluster, kind: Callable[..., Any] = FilteredRocketMQReader, load: str = "", **options: Any
) -> Any:
    found = read_settings({"nameserver": "127.0.0.1:1", "subscribe": "t,u"} | options, streaming=False)
    more = {"load": load or uuid.uuid4().hex} if kind is FilteredRocketMQReader else {}
    return kind(dataclasses.replace(found, factory=InMemoryClientFactory(cluster.name)), NAMES, **more)


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
    assert list(filtering.pushFilters(filters)) == filters, "Spark applies all of them"
    found = [row for row in rows(filtering) if all(passes(each, row) for each in filters)]
    assert found == [row for row in whole if all(passes(each, row) for each in filters)]


def moment(cluster: InMemoryCluster, number: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ManualClock().time() + number * STEP_S, dt.UTC)


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([], 48),
        ([EqualTo(("topic",), "t")], 24),
        ([In(("queueId",), (1, 5))], 24),
        ([EqualTo(("topic",), "t"), EqualTo(("queueId",), 0)], 12),
        ([EqualTo(("topic",), "v")], 0),
        ([GreaterThan(("queueOffset",), 9)], 8),
        ([GreaterThanOrEqual(("queueOffset",), 3), LessThan(("queueOffset",), 5)], 8),
        ([LessThanOrEqual(("queueOffset",), 0)], 4),
        ([EqualTo(("queueOffset",), 7)], 4),
        ([In(("queueOffset",), (7, 9))], 12),
        ([EqualTo(("tags",), "red")], 16),
        ([In(("tags",), ("red", "green"))], 32),
        ([EqualTo(("tags",), "red"), EqualTo(("tags",), "green")], 0),
        ([EqualTo(("tags",), "red || green")], 48),
        ([IsNotNull(("queueId",)), IsNotNull(("tags",))], 48),
        ([StringStartsWith(("topic",), "t"), Not(EqualTo(("topic",), "t"))], 48),
        ([GreaterThan(("queueId",), 0)], 48),
        ([EqualNullSafe(("queueOffset",), None), EqualNullSafe(("tags",), None)], 48),
        ([EqualTo(("queueOffset",), "7"), GreaterThan(("storeTimestamp",), dt.datetime(2050, 1, 1))], 48),
    ],
)
def test_what_is_read(cluster: InMemoryCluster, filters: list[Filter], read: int) -> None:
    filtering = reader(cluster, FilteredRocketMQReader)
    filtering.pushFilters(filters)
    assert len(rows(filtering)) == read


@given(st.lists(FILTERS, max_size=3), st.lists(FILTERS, max_size=3), st.sampled_from([{}, {"tags": "red"}]))
def test_the_last_read_of_a_load_has_what_the_filters_of_each_query_leave(
    cluster: InMemoryCluster, first: list[Filter], second: list[Filter], options: dict[str, Any]
) -> None:
    """Spark runs both sides of a union or a join with the read that it planned last."""
    whole = rows(reader(cluster, RocketMQReader, **options))
    load = uuid.uuid4().hex
    reader(cluster, load=load, **options).pushFilters(first)
    last = reader(cluster, load=load, **options)
    last.pushFilters(second)
    found = rows(last)
    for filters in (first, second):
        assert [row for row in found if all(passes(each, row) for each in filters)] == [
            row for row in whole if all(passes(each, row) for each in filters)
        ]


def test_two_queries_of_a_load_read_what_is_in_either_and_no_more(cluster: InMemoryCluster) -> None:
    load = uuid.uuid4().hex
    filters: list[list[Filter]] = [
        [EqualTo(("topic",), "t"), EqualTo(("queueId",), 0), LessThan(("queueOffset",), 2)],
        [EqualTo(("topic",), "u"), EqualTo(("queueId",), 0), EqualTo(("queueOffset",), 5)],
    ]
    found = []
    for each in filters:
        filtering = reader(cluster, load=load)
        filtering.pushFilters(each)
        found.append(len(rows(filtering)))
    assert found == [2, 12]
    other = reader(cluster)
    other.pushFilters(filters[0])
    assert len(rows(other)) == 2, "another load"


def test_a_load_that_was_read_without_filters_skips_nothing_later(cluster: InMemoryCluster) -> None:
    load = uuid.uuid4().hex
    assert len(rows(reader(cluster, load=load))) == 48
    filtering = reader(cluster, load=load)
    filtering.pushFilters([EqualTo(("topic",), "t")])
    assert len(rows(filtering)) == 48, "Spark reads this also for queries without filters"


def test_nothing_is_skipped_where_filters_cannot_be_kept(
    cluster: InMemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"rmqio-filters-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    filtering = reader(cluster)
    filtering.pushFilters([EqualTo(("topic",), "t")])
    assert len(rows(filtering)) == 48
    assert "other users can write" in caplog.text


def test_files_of_filters_are_removed_when_they_are_old(cluster: InMemoryCluster) -> None:
    reader(cluster, load="old").pushFilters([])
    (folder,) = Path(tempfile.gettempdir()).iterdir()
    os.utime(folder / "old", (0, 0))
    reader(cluster, load="new").pushFilters([])
    names = {file.name for file in folder.iterdir()}
    assert "new" in names
    assert "old" not in names


def test_times_bound_what_is_read_and_are_left_to_spark(cluster: InMemoryCluster) -> None:
    filters = [
        GreaterThanOrEqual(("storeTimestamp",), moment(cluster, 3)),
        LessThan(("storeTimestamp",), moment(cluster, 6)),
    ]
    filtering = reader(cluster, FilteredRocketMQReader)
    assert filtering.pushFilters(filters) == filters
    assert {row["queueOffset"] for row in rows(filtering)} == {3, 4, 5, 6}, "and a margin behind"


def test_tags_are_not_pushed_beside_sql() -> None:
    narrowing = push([EqualTo(("tags",), "red")], MessageFilter("a > 1", sql=True))
    assert narrowing.of(MessageFilter("a > 1", sql=True)) == MessageFilter("a > 1", sql=True)


def test_only_who_asks_for_it_gets_a_reader_that_takes_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    from rmqio.pyspark.columns import SOURCE_SCHEMA

    given_options = {"nameserver": "127.0.0.1:1", "subscribe": "t"}
    plain = RocketMQDataSource(given_options).reader(SOURCE_SCHEMA)
    assert type(plain).pushFilters is DataSourceReader.pushFilters
    assert isinstance(
        RocketMQDataSource(given_options | {"pushfilters": "true"}).reader(SOURCE_SCHEMA), FilteredRocketMQReader
    )
