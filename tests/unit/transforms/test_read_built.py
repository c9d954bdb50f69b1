"""`ReadFromRocketMQ` and `ReadAllFromRocketMQ` before they run: what is refused, and what Beam is told."""

from __future__ import annotations

import re
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

from rmqio import MessageQueue, QueueDescriptor, ReadFromRocketMQ, ReadOptions, StartFrom, StopAt
from rmqio.errors import LocalError
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import read, read_all


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "earliest"}, "start is 'earliest'; it must be made by StartFrom"),
        ({"stop": 5}, "stop is 5; it must be made by StopAt"),
        ({"start": StartFrom.group_offsets()}, "needs consumer_group"),
        ({"tags": "a", "sql_filter": "b > 1"}, "tags and sql_filter cannot be combined"),
        ({"sql_filter": " "}, "sql_filter is empty"),
        ({"deserializer": "json"}, "deserializer is 'json'; it must be callable"),
        ({"timestamp": ""}, "timestamp is ''"),
        ({"options": {"pull_depth": 2}}, "it must be rmqio.ReadOptions"),
        ({"sql_filter": "b > 1", "options": ReadOptions(tags="a")}, "tags and sql_filter cannot be combined"),
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
    with pytest.raises(LocalError, match="max_num_records has no effect on ReadAllFromRocketMQ"):
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


# ---- names that cannot be -------------------------------------------------------------------------------------------

Q = MessageQueue("t", "broker-a", 0)
LONG = "a" * 128
BAD_NAMES: list[tuple[dict[str, Any], str]] = [
    ({"consumer_group": "a group"}, "group name 'a group' is illegal"),
    ({"consumer_group": ""}, "group name '' is illegal: it is empty"),
    ({"consumer_group": "a" * 121}, "has 121 characters, but at most 120"),
    ({"options": ReadOptions(consumer_group="a.b")}, "group name 'a.b' is illegal"),
    ({"dead_letter_topic": "dead letters"}, "topic name 'dead letters' is illegal"),
    ({"start": StartFrom.specific_offsets({Q._replace(topic="a b"): 1})}, "topic name 'a b' is illegal"),
    ({"stop": StopAt.offsets({Q._replace(broker="a b"): 1})}, "broker name 'a b' (of topic 't') is illegal"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_NAMES)
@pytest.mark.parametrize("make", [read, read_all])
def test_a_name_that_cannot_be_is_refused_when_it_is_built(
    make: Any, arguments: dict[str, Any], message: str, cluster: InMemoryCluster
) -> None:
    with pytest.raises(LocalError, match=re.escape(message)):
        make(cluster, **arguments)


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("my orders", "topic name 'my orders' is illegal"),
        (["t", "orders!"], "topic name 'orders!' is illegal"),
        (LONG, "has 128 characters, but at most 127"),
        (Q._replace(topic="a/b"), "topic name 'a/b' is illegal"),
        ([Q, Q._replace(broker="")], "broker name '' (of topic 't') is illegal"),
        (Q._replace(broker="a\tb"), "broker name 'a\\tb'"),
        (Q._replace(broker="b" * 256), "1 to 255 characters"),
        (Q._replace(broker=None), "broker name of ('t', None, 0) is None; it must be text"),  # type: ignore[arg-type]
        (Q._replace(queue_id=-1), "queue -1 of topic 't' is illegal: queues are numbered from 0"),
    ],
)
def test_a_topic_or_queue_that_cannot_be_is_refused_when_it_is_built(
    cluster: InMemoryCluster, topic: Any, message: str
) -> None:
    with pytest.raises(LocalError, match=re.escape(message)):
        read(cluster, topic)


@pytest.mark.parametrize(
    "topic",
    [
        "a" * 127,
        "%RETRY%" + "g" * 120,
        "%DLQ%a_group",
        "instance%orders",
        MessageQueue("t", "__syslo__global__", 3),
        MessageQueue("t", "rack-1.example.com:10911/a", 0),
        re.compile("a b|c"),
    ],
)
def test_a_name_that_a_broker_may_have_is_taken(cluster: InMemoryCluster, topic: Any) -> None:
    read(cluster, topic)


@pytest.mark.parametrize("element", ["a b", Q._replace(broker=" "), QueueDescriptor(Q._replace(topic=""))])
def test_an_element_that_names_what_cannot_be_fails_the_read(cluster: InMemoryCluster, element: Any) -> None:
    with pytest.raises(Exception, match=r"illegal|empty"), beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create([element]) | read_all(cluster)
