"""`ReadFromRocketMQ` and `ReadAllFromRocketMQ` before they run: what is refused, and what Beam is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom, StopAt
from rmqio.errors import LocalError
from rmqio.testing import InMemoryCluster
from tests.helpers.reading import clean_cluster, read, read_all


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "earliest"}, "start is 'earliest'; it must be made by StartFrom"),
        ({"stop": 5}, "stop is 5; it must be made by StopAt"),
        ({"start": StartFrom.group_offsets()}, "needs consumer_group"),
        ({"tags": "a", "sql_filter": "b > 1"}, "tags and sql_filter exclude each other"),
        ({"sql_filter": " "}, "sql_filter is empty"),
        ({"deserializer": "json"}, "deserializer is 'json'; it must be callable"),
        ({"timestamp": ""}, "timestamp is ''"),
    ],
)
@pytest.mark.parametrize("make", [read, read_all])
def test_misuse_fails_when_it_is_built(make: Any, arguments: dict[str, Any], message: str) -> None:
    with InMemoryCluster() as cluster, pytest.raises(LocalError, match=re.escape(message)):
        make(cluster, **arguments)


@pytest.mark.parametrize("topic", [None, "", [], 5])
def test_a_bad_topic_fails_when_it_is_built(cluster: InMemoryCluster, topic: Any) -> None:
    with pytest.raises(LocalError, match="topic is"):
        read(cluster, topic)


def test_without_any_name_server_the_error_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(LocalError, match="no name server given"):
        ReadFromRocketMQ("t")


def test_read_all_takes_no_record_limit(cluster: InMemoryCluster) -> None:
    with pytest.raises(LocalError, match="max_num_records has no meaning for ReadAllFromRocketMQ"):
        read_all(cluster, options=ReadOptions(max_num_records=5))


def test_display_data_shows_what_is_read(cluster: InMemoryCluster) -> None:
    transform = read(cluster, consumer_group="g", tags="a", dead_letter_topic="dead")
    items = {item.key: item.value for item in DisplayData.create_from(transform).items}
    assert items["topic"] == "t"
    assert (items["start"], items["stop"], items["consumer_group"]) == ("earliest", "latest", "g")
    assert (items["filter"], items["dead_letter_topic"]) == ("a", "dead")
    assert "stop" not in {item.key for item in DisplayData.create_from(read(cluster, stop=None)).items}


@pytest.mark.parametrize(("stop", "bounded"), [(StopAt.latest(), True), (None, False)])
def test_beam_knows_whether_the_read_ends(cluster: InMemoryCluster, stop: StopAt | None, bounded: bool) -> None:
    output = beam.Pipeline(runner=FnApiRunner()) | read(cluster, stop=stop)
    assert output.is_bounded is bounded
