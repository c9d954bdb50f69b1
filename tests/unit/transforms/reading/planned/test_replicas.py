"""Planned reads while a master is away and its replica is behind: they wait, and take nothing for lost. No sockets."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from rmqio.errors import OffsetOutOfRange, TransportError
from rmqio.interfaces import OffsetQuery
from rmqio.testing import InMemoryClientFactory
from rmqio.topics import Subscription
from rmqio.transforms.reading import planned
from rmqio.transforms.reading import planned as planned_ranges
from rmqio.transforms.reading.discovery import DiscoveryConfig
from rmqio.transforms.reading.planned import QueuePlanner, ReadRangesFn, name_of
from tests.helpers.client.planning import advance, config_of
from tests.helpers.client.replicas import QUEUE, Pair

NAME = name_of(QUEUE)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = Pair()
    for module in (planned, planned_ranges):
        monkeypatch.setattr(module, "shared_client", lambda _: made.client)
    return made


def config() -> Any:
    return config_of(SimpleNamespace(name="none"))  # type: ignore[arg-type]


def planner() -> QueuePlanner:
    given = config()
    return QueuePlanner(given, DiscoveryConfig(Subscription.of("t"), given.factory, None, given.start, given.stop))


def loses_its_master(pair: Pair, copied: int) -> None:
    pair.has_master, pair.copied = False, copied
    pair.clock.advance(60)


def test_an_end_before_what_has_been_seen_is_not_believed(pair: Pair) -> None:
    loses_its_master(pair, 900)
    assert pair.client.look_up([OffsetQuery(QUEUE, "max", at_least=900)]) == [900]
    (error,) = pair.client.look_up([OffsetQuery(QUEUE, "max", at_least=1_000)])
    assert isinstance(error, TransportError)
    assert "its replica ends at 900, before 1000, which has been seen" in str(error)


def test_a_masters_is_believed(pair: Pair) -> None:
    assert pair.client.look_up([OffsetQuery(QUEUE, "max", at_least=2_000)]) == [1_000]
    position = advance(planner(), None)
    pair.size = 10
    with pytest.raises(OffsetOutOfRange):
        advance(planner(), position)


def test_a_planned_read_stands_still_and_goes_on_behind_what_it_has_read(pair: Pair) -> None:
    made = planner()
    first = advance(made, None)
    assert first["queues"][NAME]["at"] == 1_000
    loses_its_master(pair, 900)
    assert advance(made, first)["queues"][NAME]["at"] == 1_000
    pair.copied = 1_100
    assert advance(made, first)["queues"][NAME]["at"] == 1_100


def test_a_planned_range_of_which_the_replica_lacks_the_end_is_not_lost(pair: Pair) -> None:
    fn = ReadRangesFn(config())
    loses_its_master(pair, 900)
    fn._check_end(QUEUE, 900, 1_000)
    pair.has_master, pair.size = True, 950
    pair.clock.advance(60)
    with pytest.raises(OffsetOutOfRange):
        fn._check_end(QUEUE, 900, 1_000)


def test_a_stream_in_plain_pyspark_stands_still(pair: Pair) -> None:
    pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from rmqio.pyspark.ranges import _ends_before
    from rmqio.pyspark.read_options import read_settings
    from rmqio.pyspark.stream import RocketMQStreamReader

    settings = read_settings(
        {"nameserver": "127.0.0.1:1", "subscribe": "t", "startingoffsets": "earliest"}, streaming=True
    )
    settings = dataclasses.replace(settings, factory=InMemoryClientFactory("none"))
    reader = RocketMQStreamReader(settings, ("queueOffset",))
    reader._made = pair.client
    begin = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert _ends_before(pair.client, QUEUE, 1_001)
    loses_its_master(pair, 900)
    # With no other queue to go on with, it asks again
    settings = dataclasses.replace(settings, outage_timeout_s=0.0)
    again = RocketMQStreamReader(settings, ("queueOffset",))
    again._made = pair.client
    with pytest.raises(TransportError, match="its replica ends at 900"):
        again.latestOffset(begin, ReadAllAvailable())
    assert not _ends_before(pair.client, QUEUE, 1_001)
    pair.copied = 1_000
    assert again.latestOffset(begin, ReadAllAvailable()) == begin
