"""Options of the format `rocketmq`: what is wrong is said before anything runs. And how ranges are cut."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from hypothesis import given
from hypothesis import strategies as st

from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError
from rmqio.model import MessageFilter, MessageQueue
from rmqio.pyspark.columns import to_batch
from rmqio.pyspark.ranges import limited, partitions
from rmqio.pyspark.read_options import EARLIEST, LATEST, ReadSettings, read_settings
from rmqio.pyspark.source import RocketMQDataSource
from rmqio.start import StartFrom

QUEUES = [MessageQueue("t", "b", number) for number in range(4)]
MINIMAL = {"nameserver": "127.0.0.1:9876", "subscribe": "t"}


def settings(streaming: bool = False, **options: Any) -> ReadSettings:
    return read_settings(MINIMAL | {name.lower(): str(value) for name, value in options.items()}, streaming=streaming)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscrib": "t"}, "there is no option 'subscrib' of the format rocketmq; did you mean subscribe?"),
        ({"kafka": "t"}, "there is no option 'kafka' of the format rocketmq; the options are nameServer, subscribe"),
        ({"subscribePattern": "t"}, "subscribe and subscribePattern are given"),
        ({"subscribe": " , "}, "subscribe is empty; it must be a topic"),
        ({"nameServer": "nowhere"}, "nameServer: address 'nowhere' is not host:port"),
        ({"minPartitions": "0"}, "minPartitions is '0'; it must be a whole number of at least 1"),
        ({"maxRecordsPerPartition": "-3"}, "maxRecordsPerPartition is '-3'"),
        ({"requestTimeoutMs": "soon"}, "requestTimeoutMs is 'soon'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is 'perhaps'; it must be true or false"),
        ({"startingOffsets": "begin"}, "startingOffsets is 'begin', which is not JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets is '[1]'; it must look like"),
        ({"startingOffsets": '{"t": 1}'}, "it must be earliest, latest, group or"),
        ({"startingOffsets": '{"t": {"b": {"0": -3}}}'}, "it must be earliest, latest, group or"),
        ({"startingOffsets": '{"t": {"b": {"x": 3}}}'}, "it must be earliest, latest, group or"),
        ({"startingOffsets": '{"t": {"b": {"0": true}}}'}, "it must be earliest, latest, group or"),
        ({"startingOffsets": '{"t": {"b": {"0": 3, "00": 5}}}'}, 'the queue id "00" of t must be written "0"'),
        (
            {"startingOffsets": '{"t": {"b": {"0": 3, "0": 5}}}'},
            'startingOffsets has "0" twice in one object; give each',
        ),
        ({"startingOffsets": '{"t": {"b": {"0": 3}}, "t": {}}'}, 'startingOffsets has "t" twice in one object'),
        ({"endingOffsets": '{"t": {"b": {"0": 3}, "b": {"1": 3}}}'}, 'endingOffsets has "b" twice in one object'),
        ({"startingOffsetsByTimestamp": '{"t": {"b": {"01": 3}}}'}, 'the queue id "01" of t must be written "1"'),
        ({"startingOffsets": "group"}, "needs the option consumerGroup"),
        ({"startingTimestamp": "now"}, "startingTimestamp is 'now'"),
        (
            {"groupOffsetsReset": "none", "startingOffsets": "group", "consumerGroup": "g"},
            "groupOffsetsReset is 'none'; it must be one of latest, earliest, error",
        ),
        ({"startingTimestamp": 1, "startingOffsetsByTimestampStrategy": "x"}, "must be one of error, latest"),
        ({"consumerGroup": "g"}, "consumerGroup has no effect without startingOffsets"),
        ({"startingOffsets": "group", "consumerGroup": "a g"}, "consumerGroup: group name 'a g' is illegal"),
        ({"subscribe": "t,a b"}, "subscribe: topic name 'a b' is illegal"),
        ({"groupOffsetsReset": "earliest"}, "groupOffsetsReset has no effect without consumerGroup"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "has no effect without startingTimestamp"),
        ({"endingOffsets": "earliest"}, "it must look like latest or {"),
        ({"endingOffsets": "latest", "endingTimestamp": 1}, "endingTimestamp and endingOffsets are both given"),
        ({"tags": "a", "sqlFilter": "b = 1"}, "tags and sqlFilter are both given"),
        ({"maxOffsetsPerTrigger": 5}, "maxOffsetsPerTrigger is an option of a stream read"),
        ({"endingOffsets": '{"t": {"b": 1}}'}, "endingOffsets is"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError) as error:
        settings(**options)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("subscribee", "subscribe"), ("topik", "topic"), ("maxoffsetsperTriger", "maxOffsetsPerTrigger")],
)
def test_a_misspelt_option_is_named_when_the_source_is_made(wrong: str, near: str) -> None:
    """Of a stream with a schema of the user's, Spark asks for nothing else before it plans the query."""
    with pytest.raises(
        LocalError, match=f"^there is no option '{wrong}' of the format rocketmq; did you mean {near}\\?$"
    ):
        RocketMQDataSource({"nameServer": "127.0.0.1:9876", wrong: "t"})
    assert RocketMQDataSource({"topic": "t", "checkpointLocation": "/c", "queryName": "q"}).name() == "rocketmq"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tls": "true", "tlsCaFile": "/none"}, "TLS: cannot read the certificate authorities in /none: No such file"),
        ({"tls": "true", "tlscertificatefile": "/none"}, "TLS: cannot use the certificate in /none: No such file"),
        ({"credentials": "file:/none"}, "credentials: cannot read /none: No such file"),
        ({"tls": "maybe"}, "tls is 'maybe'; it must be true, false or insecure"),
    ],
)
def test_security_that_does_not_serve_is_told_when_the_source_is_made(given: dict[str, str], told: str) -> None:
    with pytest.raises(LocalError, match=f"^{told}"):
        RocketMQDataSource({"nameServer": "127.0.0.1:9876", **given})


@pytest.mark.parametrize("assign", ["{}", '{"t": 1}', '{"t": {"b": 1}}', '{"t": {"b": ["0"]}}', '{"t": {"b": [-1]}}'])
def test_a_bad_assignment_is_named(assign: str) -> None:
    with pytest.raises(LocalError, match="assign is"):
        read_settings({"nameserver": "127.0.0.1:9876", "assign": assign}, streaming=False)


@pytest.mark.parametrize(
    ("assign", "message"),
    [
        ('{"a t": {"b": [0]}}', "assign: topic name 'a t' is illegal"),
        ('{"t": {"": [0]}}', "assign: broker name '' (of topic 't') is illegal"),
    ],
)
def test_an_assignment_to_what_cannot_be_is_refused(assign: str, message: str) -> None:
    with pytest.raises(LocalError, match=re.escape(message)):
        read_settings({"nameserver": "127.0.0.1:9876", "assign": assign}, streaming=False)


def test_a_name_server_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(LocalError, match="nameServer to host:port, or the environment variable NAMESRV_ADDR"):
        read_settings({"subscribe": "t"}, streaming=False)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    factory = read_settings({"subscribe": "t"}, streaming=False).factory
    assert isinstance(factory, RemotingClientFactory)
    assert factory.options.name_servers == ("127.0.0.1:1",)


def test_what_a_stream_and_a_batch_begin_with() -> None:
    assert settings().start.strategy == StartFrom.earliest()
    assert settings(streaming=True).start.strategy == StartFrom.latest()
    named = settings(startingOffsets=json.dumps({"t": {"b": {"0": 3, "1": -1, "2": -2}}})).start
    assert named.named == ((QUEUES[0], 3), (QUEUES[1], LATEST), (QUEUES[2], EARLIEST))
    group = settings(startingOffsets='{"t": {"b": {"0": 3}}}', consumerGroup="g", groupOffsetsReset="error").start
    assert group.strategy == StartFrom.group_offsets("error")


def test_all_options_reach_their_place() -> None:
    found = settings(
        streaming=True, maxOffsetsPerTrigger=7, minPartitions=3, maxRecordsPerPartition=9, failOnDataLoss="FALSE",
        requestTimeoutMs=11, outageTimeoutMs=12, pullBatchSize=13, namespace="n", tags="a || b",
    )  # fmt: skip
    assert (found.max_per_trigger, found.min_partitions, found.max_records_per_partition) == (7, 3, 9)
    assert not found.fail_on_data_loss
    assert not found.start.fail_on_data_loss
    assert isinstance(found.factory, RemotingClientFactory)
    options = found.factory.options
    assert (options.request_timeout_ms, options.outage_timeout_ms) == (11, 12)
    assert (options.pull_batch, options.namespace) == (13, "n")
    assert found.message_filter == MessageFilter("a || b")
    assert pickle.loads(pickle.dumps(found)) == found


SIZES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10_000)), max_size=4)


@given(SIZES, st.integers(1, 20), st.none() | st.integers(1, 3_000))
def test_ranges_are_cut_without_gaps_and_overlaps(sizes: list[tuple[int, int]], least: int, most: int | None) -> None:
    ranges = {queue: (begin, begin + size) for queue, (begin, size) in zip(QUEUES, sizes, strict=False)}
    found = partitions(ranges, least, most)
    for queue, (begin, end) in ranges.items():
        parts = [part for part in found if part.queue == queue]
        assert all(part.begin < part.end for part in parts)
        assert [begin, *(part.end for part in parts)] == [*(part.begin for part in parts), end]
        if most is not None:
            assert all(part.end - part.begin <= most for part in parts)


@given(SIZES, st.integers(1, 5_000))
def test_a_limit_is_kept_and_used_up(sizes: list[tuple[int, int]], limit: int) -> None:
    ranges = {queue: (begin, begin + size) for queue, (begin, size) in zip(QUEUES, sizes, strict=False)}
    taken = {queue: end - ranges[queue][0] for queue, end in limited(ranges, limit).items()}
    assert sum(taken.values()) == min(limit, sum(end - begin for begin, end in ranges.values()))
    assert all(0 <= count <= ranges[queue][1] - ranges[queue][0] for queue, count in taken.items())


def test_a_small_queue_gets_its_turn_under_a_limit() -> None:
    begin, end = dict.fromkeys(QUEUES[:2], 0), {QUEUES[0]: 1_000_000, QUEUES[1]: 1}
    for _ in range(1_000_001):
        begin = limited({queue: (begin[queue], end[queue]) for queue in begin}, 10)
        if begin[QUEUES[1]]:
            break
        end[QUEUES[0]] += 10  # as much comes as is taken
    assert begin[QUEUES[1]] == 1


def test_no_columns_are_still_rows() -> None:
    assert to_batch([None] * 3, []).num_rows == 3  # type: ignore[list-item]
