"""Options and columns that a write with the format `rocketmq` takes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from rmqio.errors import LocalError
from rmqio.pyspark.sink import RocketMQWriter, checked_columns
from tests.helpers.spark.spark_writes import settings, struct


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "t"}, "there is no option 'topik' of the format rocketmq when writing; did you mean topic?"),
        ({"subscribe": "t"}, "there is no option 'subscribe' of the format rocketmq when writing; the options are n"),
        ({"checkpointLocation": "/c"}, "there is no option 'checkpointlocation'"),
        ({"topic": "a b"}, "topic: topic name 'a b' is illegal"),
        ({"producerGroup": "a b"}, "producerGroup: group name 'a b' is illegal"),
        ({"nameServer": "nowhere"}, "nameServer: address 'nowhere' is not host:port"),
        ({"maxBatchMessages": "0"}, "maxBatchMessages is '0'; it must be a whole number of at least 1"),
        ({"maxBatchMessages": "5000"}, "max_batch_messages is 5000; at most 4096"),
        ({"maxBatchBytes": "2000000"}, "max_batch_bytes is 2000000; at most 1048576"),
        ({"maxInFlight": "many"}, "maxInFlight is 'many'"),
        ({"maxRetries": "-1"}, "maxRetries is '-1'; it must be a whole number of at least 0"),
        ({"createTopics": "yes"}, "createTopics is 'yes'; it must be one of false, true"),
        ({"reservedProperties": "keep"}, "reservedProperties is 'keep'; it must be one of error, drop"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError) as error:
        settings(**options)
    assert text in str(error.value)


def test_all_options_reach_their_place() -> None:
    found = settings(
        streaming=True, topic="t", producerGroup="g", maxBatchMessages=2, maxBatchBytes=3, maxInFlight=4,
        maxTotalBytes=8, requestTimeoutMs=5, maxRetries=0, outageTimeoutMs=7000, namespace="n", compressOverBytes=9,
        createTopics="TRUE", reservedProperties="drop", checkpointLocation="/c", queryName="q",
    )  # fmt: skip
    assert (found.topic, found.group, found.outage_timeout_s) == ("t", "g", 7)
    assert found.drops_reserved
    assert (found.options.max_batch_messages, found.options.max_batch_bytes, found.options.max_in_flight) == (2, 3, 4)
    assert found.options.max_total_bytes == 8
    client = found.factory.options  # type: ignore[attr-defined]
    assert (client.request_timeout_ms, client.max_retries, client.namespace) == (5, 0, "n")
    assert (client.max_in_flight, client.compress_over_bytes, client.create_topics) == (4, 9, True)
    assert pickle.loads(pickle.dumps(found)) == found
    assert not settings(topic="t").drops_reserved


@pytest.mark.parametrize(
    ("schema", "topic", "text"),
    [
        (
            "body string, boddy string",
            "t",
            "the column 'boddy' cannot be written; a message takes body, topic, tags, k",
        ),
        ("tags string", "t", "there is no column body"),
        ("body string", None, "give the option topic, or a column topic"),
        ("body bigint", "t", "the column body has the type bigint; it must be string or binary"),
        ("body string, keys array<int>", "t", "the column keys has the type array<int>; it must be string or array"),
        ("body string, properties map<string,int>", "t", "it must be map<string,string>"),
        ("body string, delayTimeLevel string", "t", "it must be int or bigint"),
    ],
)
def test_a_bad_column_is_named(schema: str, topic: str | None, text: str) -> None:
    with pytest.raises(LocalError) as error:
        checked_columns(struct(schema), topic)
    assert text in str(error.value)


def test_the_case_of_columns_does_not_matter() -> None:
    assert checked_columns(struct("BODY string, shardingkey string"), "t") == ("body", "shardingKey")
    with pytest.raises(LocalError, match="there are two columns body"):
        checked_columns(struct("BODY string, body string"), "t")


def test_a_topic_cannot_be_overwritten() -> None:
    schema = struct("body string")
    with pytest.raises(LocalError, match=r"only appended to: use mode\('append'\)"):
        RocketMQWriter(settings(topic="t"), schema, overwrite=True)
