"""Writing with the format `rocketmq`, called as Spark calls it, on a cluster in memory: rows, and brokers that fail."""

from __future__ import annotations

import dataclasses
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from rmqio.errors import MessageIllegal, RmqioError, SystemBusy, TransportError
from rmqio.model import MessageQueue, Record
from rmqio.pyspark import sink
from rmqio.pyspark.sink import RocketMQStreamWriter, RocketMQWriter, RowIllegal, Written
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.topics import queue_for_key
from rmqio.wire import accelerator
from tests.helpers.spark.spark_writes import settings, struct
from tests.helpers.wire.implementations import BOTH

# ---- tasks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        cluster.create_topic("t", 4)
        yield cluster
        assert cluster.open_clients == 0, "each task gives its producer back"


@pytest.fixture(params=BOTH)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_usual_size", accelerator.usual_size if request.param == "c" else None)


Write = Callable[..., Written]


@pytest.fixture
def write(cluster: InMemoryCluster) -> Write:
    """Runs one task. Its rows come in batches of three."""

    def write(rows: Sequence[dict[str, Any]], schema: str = "body string", **options: Any) -> Written:
        given: dict[str, Any] = {"topic": "t", "outageTimeoutMs": 1}
        found = settings(**given | options)
        found = dataclasses.replace(found, factory=InMemoryClientFactory(cluster.name))
        writer = pickle.loads(pickle.dumps(RocketMQWriter(found, struct(schema), overwrite=False)))
        written: Written = writer.write(arrow(rows, schema))
        return written

    return write


def arrow(rows: Sequence[dict[str, Any]], schema: str) -> Iterator[pa.RecordBatch]:
    kind = to_arrow_schema(struct(schema))
    for first in range(0, len(rows), 3):
        yield pa.RecordBatch.from_pylist(list(rows[first : first + 3]), kind)
    yield pa.RecordBatch.from_pylist([], kind)


def test_every_column_is_what_the_message_gets(cluster: InMemoryCluster, write: Write, implementation: None) -> None:
    schema = (
        "body binary, tags string, keys array<string>, properties map<string,string>, shardingKey string, "
        "messageId string"
    )
    full = {
        "body": b"\x00\xff",
        "tags": "red",
        "keys": ["a", "b"],
        "properties": {"name": "wert ü"},
        "shardingKey": "s",
        "messageId": "0123",
    }
    assert write([full, {"body": b"bare"}], schema) == Written(2, 6, 2)
    found = {record.body: record for record in cluster.records("t")}
    record = found[b"\x00\xff"]
    assert (record.tags, record.keys, record.sharding_key, record.message_id) == ("red", ("a", "b"), "s", "0123")
    assert record.properties["name"] == "wert ü"
    bare = found[b"bare"]
    assert (bare.tags, bare.keys, bare.sharding_key) == (None, (), None)
    assert set(bare.properties) == {"UNIQ_KEY"}


def test_texts_are_utf_8_and_keys_in_one_text_are_several(cluster: InMemoryCluster, write: Write) -> None:
    write([{"body": "grün", "keys": " a  b "}, {"body": "x", "keys": None}], "body string, keys string")
    found = {record.body.decode(): record.keys for record in cluster.records("t")}
    assert found == {"grün": ("a", "b"), "x": ()}


@pytest.mark.parametrize("large", [False, True])
def test_arrows_large_texts_are_taken_too(cluster: InMemoryCluster, write: Write, large: bool) -> None:
    found = dataclasses.replace(settings(topic="t"), factory=InMemoryClientFactory(cluster.name))
    kind = pa.large_string() if large else pa.string()
    batch = pa.record_batch({"body": pa.array(["ä"], kind), "keys": pa.array(["k l"], kind)})
    assert sink.send_rows(found, ("body", "keys"), iter([batch])).rows == 1
    (record,) = cluster.records("t")
    assert (record.body.decode(), record.keys) == ("ä", ("k", "l"))


def test_a_delay_is_kept(cluster: InMemoryCluster, write: Write) -> None:
    schema = "body string, delayTimeLevel int, deliveryTimeMs bigint"
    clock = ManualClock()
    with InMemoryCluster(clock=clock) as delayed:
        delayed.create_topic("t", 1)
        found = dataclasses.replace(settings(topic="t"), factory=InMemoryClientFactory(delayed.name))
        rows: list[dict[str, Any]] = [
            {"body": "level", "delayTimeLevel": 1},
            {"body": "time", "deliveryTimeMs": round(clock.time() * 1000) + 9_000},
            {"body": "now"},
        ]
        names = ("body", "delayTimeLevel", "deliveryTimeMs")
        assert sink.send_rows(found, names, arrow(rows, schema)).rows == 3
        seen = []
        for _ in range(3):
            seen.append([record.body.decode() for record in delayed.records("t")])
            clock.advance(5)
        assert seen == [["now"], ["now", "level"], ["now", "level", "time"]]


def test_the_topic_is_the_options_before_the_columns(cluster: InMemoryCluster, write: Write) -> None:
    cluster.create_topic("u", 1)
    rows = [{"body": "a", "topic": "t"}, {"body": "b", "topic": "u"}, {"body": "c", "topic": "u"}]
    schema = "body string, topic string"
    found = dataclasses.replace(settings(), factory=InMemoryClientFactory(cluster.name))
    assert sink.send_rows(found, ("body", "topic"), arrow(rows, schema)).rows == 3
    assert [record.body for record in cluster.records("t")] == [b"a"]
    assert [record.body for record in cluster.records("u")] == [b"b", b"c"]
    write(rows, schema, topic="t")
    assert len(cluster.records("t")) == 4
    assert len(cluster.records("u")) == 2


def test_a_sharding_key_leads_to_javas_queue_and_keeps_its_order(cluster: InMemoryCluster, write: Write) -> None:
    rows = [{"body": f"{number:04}", "shardingKey": f"k{number % 7}"} for number in range(500)]
    write(rows, "body string, shardingKey string", maxBatchMessages=9)
    records: dict[str, list[Record]] = {}
    for record in cluster.records("t"):
        records.setdefault(record.sharding_key or "", []).append(record)
    queues = [MessageQueue("t", record.broker, queue) for queue in range(4)]
    for key, found in records.items():
        assert {record.queue for record in found} == {queue_for_key(queues, key)}
        found.sort(key=lambda record: record.queue_offset)
        assert [int(record.body) for record in found] == list(range(int(key[1:]), 500, 7))
    assert len(records) == 7


def test_batches_are_of_the_size_that_is_asked_for(write: Write, implementation: None) -> None:
    rows = [{"body": "x" * 100}] * 10
    assert write(rows, maxBatchMessages=4) == Written(10, 1_000, 3)
    assert write(rows, maxBatchBytes=400).batches == 5, "of two each, and ids"
    assert write(rows) == Written(10, 1_000, 1)


def test_a_task_without_rows_does_not_connect(cluster: InMemoryCluster, write: Write) -> None:
    cluster.fail_next("queues", TransportError("nobody is there"), 9)
    assert write([]) == Written()


@pytest.mark.parametrize(
    ("row", "schema", "text"),
    [
        (
            {"body": None},
            "body string",
            "for topic 't', cannot be sent: LocalError: its body is null, and RocketMQ has",
        ),
        ({"body": ""}, "body string", "LocalError: message body is empty"),
        ({"body": "x" * (5 << 20)}, "body string", "the maximum is 4194304"),
        ({"body": "x", "tags": ""}, "body string, tags string", "'TAGS': its value is empty"),
        ({"body": "x", "keys": ["k l"]}, "body string, keys array<string>", "key 'k l' holds white space"),
        ({"body": "x", "keys": ["k", None]}, "body string, keys array<string>", "must be a str, not NoneType"),
        ({"body": "x", "properties": {"a": None}}, "body string, properties map<string,string>", "property 'a'"),
        ({"body": "x", "properties": {"TAGS": "a"}}, "body string, properties map<string,string>", "is reserved"),
        ({"body": "x", "delayTimeLevel": 19}, "body string, delayTimeLevel int", "is not a level from 1 to 18"),
    ],
)
@pytest.mark.parametrize("row_number", [0, 7])
def test_a_row_that_cannot_be_sent_is_named(
    write: Write, implementation: None, row: dict[str, Any], schema: str, text: str, row_number: int
) -> None:
    good = [{"body": f"{number}"} for number in range(9)]
    with pytest.raises(RowIllegal) as error:
        write([*good[:row_number], row, *good[row_number:]], schema)
    assert str(error.value).startswith(f"row {row_number} (from 0), for topic 't'")
    assert text in str(error.value)


def test_a_row_whose_topic_is_wrong_is_named(cluster: InMemoryCluster) -> None:
    found = dataclasses.replace(
        settings(outageTimeoutMs=60_000), factory=InMemoryClientFactory(cluster.name)
    )  # a missing topic is not waited for
    for topic, text in (
        (None, "row 1 (from 0), without a topic, cannot be sent: LocalError: neither the option topic nor its column"),
        ("a b", "row 1 (from 0), for topic 'a b', cannot be sent: LocalError: topic name 'a b' is illegal"),
        ("missing", "row 1 (from 0), for topic 'missing', cannot be sent: TopicNotExist"),
    ):
        rows: list[dict[str, Any]] = [{"body": "a", "topic": "t"}, {"body": "b", "topic": topic}]
        with pytest.raises(RowIllegal) as error:
            sink.send_rows(found, ("body", "topic"), arrow(rows, "body string, topic string"))
        assert text in str(error.value)


def test_a_missing_topic_of_the_option_is_said_at_once(write: Write) -> None:
    with pytest.raises(TransportError, match="topic 'missing' does not exist, or all of its brokers are down"):
        write([{"body": "a"}], topic="missing", outageTimeoutMs=60_000)


def test_what_a_broker_refuses_is_found_in_its_batch(cluster: InMemoryCluster, write: Write) -> None:
    cluster.fail_next("send", MessageIllegal(13, "illegal", "send"), 4)  # of 8, 4, 2, 1
    with pytest.raises(RowIllegal, match=r"row 0 \(from 0\).*MessageIllegal"):
        write([{"body": f"{number}"} for number in range(8)])


def test_reserved_properties_are_left_out_where_that_is_asked_for(cluster: InMemoryCluster, write: Write) -> None:
    row = {"body": "x", "properties": {"TAGS": "a", "mine": "b", "empty": ""}}
    write([row], "body string, properties map<string,string>", reservedProperties="drop")
    (record,) = cluster.records("t")
    assert record.tags is None
    assert set(record.properties) == {"UNIQ_KEY", "mine"}


# ---- faults ---------------------------------------------------------------------------------------------------------


def test_an_error_fails_the_task_when_its_time_is_over(cluster: InMemoryCluster, write: Write) -> None:
    cluster.fail_next("send", SystemBusy(2, "busy", "send"), 1_000)
    with pytest.raises(SystemBusy):
        write([{"body": "x"}], outageTimeoutMs=1)


@pytest.mark.parametrize("keyed", [False, True])
def test_an_outage_is_waited_out(
    cluster: InMemoryCluster, write: Write, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("rmqio.sending.producers._PAUSE_S", 0.0)
    monkeypatch.setattr("rmqio.sending.producers._LOGGER.warning", lambda *_: pauses.append(1))
    cluster.fail_next("send", TransportError("gone"), 5)
    rows = [{"body": f"{number:02}", "shardingKey": "k" if keyed else None} for number in range(40)]
    assert write(rows, "body string, shardingKey string", maxBatchMessages=4, outageTimeoutMs=60_000).rows == 40
    assert len(pauses) == 5
    bodies = [int(record.body) for record in cluster.records("t")]
    assert sorted(bodies) == list(range(40))
    if keyed:
        assert bodies == sorted(bodies)


def test_an_unknown_outcome_keeps_the_id(
    cluster: InMemoryCluster, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqio.sending.producers._PAUSE_S", 0.0)
    cluster.fail_next("send", TransportError("no answer"), 1, after=True)
    write([{"body": "x"}], outageTimeoutMs=60_000)
    first, second = cluster.records("t")
    assert first.message_id == second.message_id


def test_an_acknowledgement_too_few_fails_the_task(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqio.testing.memory import InMemoryPendingSend

    whole = InMemoryPendingSend.result
    monkeypatch.setattr(InMemoryPendingSend, "result", lambda self: whole(self)[:-1])
    found = dataclasses.replace(settings(topic="t"), factory=InMemoryClientFactory(cluster.name))
    with pytest.raises(RmqioError, match="3 messages were sent and 2 acknowledged"):
        sink.send_rows(found, ("body",), arrow([{"body": "x"}] * 3, "body string"))


def test_the_driver_says_how_much_was_written(caplog: pytest.LogCaptureFixture) -> None:
    schema = struct("body string")
    messages: list[WriterCommitMessage | None] = [Written(3, 30, 1), None, Written(4, 40, 2)]
    with caplog.at_level(logging.INFO):
        RocketMQWriter(settings(topic="t"), schema, overwrite=False).commit(messages)
        stream = RocketMQStreamWriter(settings(True, topic="t"), schema)
        stream.commit(messages, 7)
        RocketMQWriter(settings(topic="t"), schema, overwrite=False).abort(messages)
        stream.abort(messages, 8)
    first, second, third, fourth = (record.getMessage() for record in caplog.records)
    assert first == "wrote 7 messages of 70 bytes in 3 sends"
    assert second == "micro-batch 7: wrote 7 messages of 70 bytes in 3 sends"
    assert "7 messages" in third
    assert "micro-batch 8 failed" in fourth
