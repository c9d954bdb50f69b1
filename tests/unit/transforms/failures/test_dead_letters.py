"""A message that fails to be read, decoded or written becomes a dead letter; a letter that cannot be kept stops all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler

from rmqio import Message, MessageQueue, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.dead_letters.letters import letter_id
from rmqio.errors import LocalError, SerdeError, TransportError
from rmqio.sending.batches import FailedMessage
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.failures import ReadFailure, dead_letter
from rmqio.transforms.map_records import DecodeRecords
from rmqio.transforms.shared import close_shared_clients
from rmqio.transforms.write import WriteDeadLetters
from rmqio.wire.batch import MAX_MESSAGE_BYTES


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 1)
        made.create_topic("dead", 1)
        yield made
        close_shared_clients()


def reading(cluster: InMemoryCluster, **arguments: Any) -> ReadFromRocketMQ:
    defaults: dict[str, Any] = {
        "client_factory": InMemoryClientFactory(cluster.name),
        "start": StartFrom.earliest(),
        "stop": StopAt.latest(),
        "deserializer": JsonDeserializer(),
    }
    return ReadFromRocketMQ("t", **(defaults | arguments))


def run(cluster: InMemoryCluster, **arguments: Any) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | reading(cluster, **({"consumer_group": "g", "dead_letter_topic": "dead"} | arguments))


def test_a_body_that_does_not_decode_is_kept_with_its_coordinates(cluster: InMemoryCluster) -> None:
    for body in (b'{"a": 1}', b"no json"):
        cluster.append("t", body, queue_id=0)
    run(cluster)
    (letter,) = cluster.records("dead")
    assert letter.body == b"no json"
    assert letter.properties["RMQIO_ORIGIN"] == "t/broker-a/0/1"


def test_a_letter_keeps_tags_keys_and_the_senders_properties(cluster: InMemoryCluster) -> None:
    properties = {"tenant": "7", "naïve": "né"}
    cluster.append("t", b"no json", queue_id=0, tags="red", keys=("a", "b"), properties=properties)
    run(cluster)
    (letter,) = cluster.records("dead")
    assert (letter.tags, letter.keys) == ("red", ("a", "b"))
    assert {name: letter.properties[name] for name in properties} == properties
    assert letter.properties["RMQIO_ERROR"].startswith("SerdeError: ")


def test_each_coordinate_is_a_property_of_its_own(cluster: InMemoryCluster) -> None:
    record = cluster.append(
        "t",
        b"no json",
        queue_id=0,
        tags="red",
        properties={"UNIQ_KEY": "ID1", "__SHARDINGKEY": "s"},
        born_ms=5,
        store_ms=7,
    )
    run(cluster)
    (letter,) = cluster.records("dead")
    ours = {name: value for name, value in letter.properties.items() if name.startswith("RMQIO_")}
    reason = ours["RMQIO_ERROR_REASON"]
    assert ours == {
        "RMQIO_TOPIC": "t",
        "RMQIO_BROKER": "broker-a",
        "RMQIO_QUEUE_ID": "0",
        "RMQIO_QUEUE_OFFSET": "0",
        "RMQIO_MESSAGE_ID": "ID1",
        "RMQIO_BORN_TIMESTAMP_MS": "5",
        "RMQIO_STORE_TIMESTAMP_MS": "7",
        "RMQIO_ORIGIN": "t/broker-a/0/0",
        "RMQIO_ERROR": f"SerdeError: {reason}",
        "RMQIO_ERROR_CLASS": "SerdeError",
        "RMQIO_ERROR_REASON": reason,
    }
    assert "JSON" in reason
    assert (letter.tags, letter.sharding_key, record.message_id) == ("red", "s", "ID1")


def test_a_bundle_that_is_run_again_makes_letters_with_the_same_ids(cluster: InMemoryCluster) -> None:
    for body in (b"no json", b"neither"):
        cluster.append("t", body, queue_id=0)
    for _ in range(2):
        run(cluster, start=StartFrom.earliest(), consumer_group=None)
    letters = cluster.records("dead")
    assert Counter(letter.body for letter in letters) == {b"no json": 2, b"neither": 2}
    assert len({letter.message_id for letter in letters}) == 2
    assert len({(letter.message_id, letter.body) for letter in letters}) == 2


def failure(**fields: Any) -> ReadFailure:
    return ReadFailure("t", "b", 0, 1, "", "", "", 0, 0, "E", "r", b"x")._replace(**fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"body": b""}, {"RMQIO_BODY": "empty"}),
        ({"error": "CorruptMessage"}, {"RMQIO_BODY": "stored"}),
        ({"properties": (("big", "x" * 31_700), ("small", "y"))}, {"RMQIO_DROPPED_PROPERTIES": "1", "small": "y"}),
        ({"properties": (("smile", "\U0001f600" * 7_930),)}, {"RMQIO_DROPPED_PROPERTIES": "1"}),  # in bytes, not text
        ({"properties": (("no text", "\udcff"), ("a", "b"))}, {"RMQIO_DROPPED_PROPERTIES": "1", "a": "b"}),
        ({"properties": (("RMQIO_TOPIC", "another"), ("a", "b"))}, {"RMQIO_USER_TOPIC": "another", "a": "b"}),
        ({"keys": "k" * 31_900}, {"RMQIO_DROPPED_KEYS": "1"}),
        ({"keys": "a \udcff"}, {"RMQIO_DROPPED_KEYS": "2"}),
        ({"tags": "\udcff"}, {"RMQIO_DROPPED_TAGS": "1"}),
        ({"sharding_key": "\udcff"}, {"RMQIO_DROPPED_SHARDING_KEY": "1"}),
        ({"message_id": "\udcff\x01"}, {"RMQIO_MESSAGE_ID": "\\udcff "}),
    ],
)  # fmt: skip
def test_a_letter_can_be_sent_whatever_was_wrong_with_the_message(
    cluster: InMemoryCluster, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    letter = dead_letter(failure(**fields))
    always = {
        "RMQIO_TOPIC": "t", "RMQIO_BROKER": "b", "RMQIO_QUEUE_ID": "0", "RMQIO_QUEUE_OFFSET": "1",
        "RMQIO_ORIGIN": "t/b/0/1", "RMQIO_ERROR": "E: r", "RMQIO_ERROR_CLASS": "E", "RMQIO_ERROR_REASON": "r",
    }  # fmt: skip
    if "error" in fields:
        always |= {"RMQIO_ERROR": "CorruptMessage: r", "RMQIO_ERROR_CLASS": "CorruptMessage"}
    assert dict(letter.properties) == always | expected
    InMemoryClientFactory(cluster.name).producer("g").send(letter.replace(topic="dead"), message_id="A" * 32)


def test_all_that_is_large_at_once_leaves_a_letter_that_can_be_sent(cluster: InMemoryCluster) -> None:
    every = failure(
        topic="t" * 127, broker="b" * 100, message_id="m" * 20_000, reason="\U0001f600" * 5_000, tags="x" * 8_000,
        keys=" ".join(["k" * 100] * 80), sharding_key="s" * 8_000, properties=(("p", "q" * 8_000), ("r", "s")),
    )  # fmt: skip
    letter = dead_letter(every)
    InMemoryClientFactory(cluster.name).producer("g").send(letter.replace(topic="dead"), message_id="A" * 32)
    assert letter.properties["RMQIO_ORIGIN"].startswith("t" * 127)
    assert letter.properties["r"] == "s"


def test_a_broken_message_of_more_than_the_brokers_limit_is_cut(cluster: InMemoryCluster) -> None:
    letter = dead_letter(failure(error="CorruptMessage", body=b"x" * (MAX_MESSAGE_BYTES + 100)))
    assert len(letter.body) == MAX_MESSAGE_BYTES


def test_the_dead_letter_topic_is_not_one_that_is_read(cluster: InMemoryCluster) -> None:
    for topic in ("dead", ["t", "dead"], re.compile("d.*"), MessageQueue("dead", "broker-a", 0)):
        with pytest.raises(LocalError, match="among the topics that are read"):
            ReadFromRocketMQ(topic, client_factory=InMemoryClientFactory(cluster.name), dead_letter_topic="dead")
    with pytest.raises(LocalError, match="topic name 'no good' is illegal"):
        ReadFromRocketMQ("t", client_factory=InMemoryClientFactory(cluster.name), dead_letter_topic="no good")


def test_beams_error_handler_may_be_given_the_topic(cluster: InMemoryCluster) -> None:
    cluster.append("t", b"no json", queue_id=0)
    factory = InMemoryClientFactory(cluster.name)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(WriteDeadLetters("dead", client_factory=factory)) as errors:
            _ = pipeline | reading(cluster).with_error_handler(errors)
            written = (
                pipeline | beam.Create([b"unwritable"]) | WriteToRocketMQ("none", client_factory=factory, id_fn=bad)
            )
            errors.add_error_pcollection(written.failed)
    letters = cluster.records("dead")
    assert sorted(letter.body for letter in letters) == [b"b'unwritable'", b"no json"]
    assert len({letter.message_id for letter in letters}) == 2


def test_letters_without_coordinates_have_the_ids_of_what_failed(cluster: InMemoryCluster) -> None:
    """By Beam's error handler, which knows neither element nor `id_fn`; run twice, as a bundle that is run again."""
    factory = InMemoryClientFactory(cluster.name)
    message = Message(b"a", topic="none")
    changes: list[dict[str, Any]] = [
        {}, {"body": b"b"}, {"topic": "other"}, {"tags": "x"}, {"keys": ("x",)}, {"sharding_key": "x"},
        {"properties": {"p": "x"}}, {"properties": {"p": "y"}}, {"delay_level": 1}, {"deliver_at_ms": 1}, {"body": b""},
    ]  # fmt: skip
    elements = [message.replace(**change) for change in changes]
    for _ in range(2):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            with ErrorHandler(WriteDeadLetters("dead", client_factory=factory)) as errors:
                written = pipeline | beam.Create(elements) | WriteToRocketMQ(client_factory=factory)
                errors.add_error_pcollection(written.failed)
                refusing = WriteToRocketMQ("t", client_factory=factory, serializer=bad)
                refused = pipeline | "Others" >> beam.Create([1, 2]) | "Refusing" >> refusing
                errors.add_error_pcollection(refused.failed)
    ids = Counter(letter.message_id for letter in cluster.records("dead"))
    assert set(ids.values()) == {2}
    assert len(ids) == len(elements) + 2


def test_the_id_of_what_failed_does_not_depend_on_the_text_of_the_error() -> None:
    def made(error: str, reason: str) -> str:
        return letter_id(dead_letter(FailedMessage(Message(b"x"), "e", "t", error, reason)))

    assert made("E", "broker 1 says no") == made("E", "broker 2 says no") != made("F", "broker 1 says no")


def bad(_: object) -> NoReturn:
    raise SerdeError("no id")


# ---- decode ---------------------------------------------------------------------------------------------------------


def test_records_may_be_decoded_later(cluster: InMemoryCluster) -> None:
    for body in (b'{"a": 1}', b"no json"):
        cluster.append("t", body, queue_id=0)
    factory = InMemoryClientFactory(cluster.name)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | reading(cluster, deserializer=None)
        decode = DecodeRecords(JsonDeserializer(output_type=dict), dead_letter_topic="dead", client_factory=factory)
        decoded = records | decode
        assert decoded.element_type is dict
        assert_that(decoded, equal_to([{"a": 1}]))
    (letter,) = cluster.records("dead")
    assert (letter.body, letter.properties["RMQIO_ORIGIN"]) == (b"no json", "t/broker-a/0/1")
    (counter,) = pipeline.result.metrics().query(beam.metrics.MetricsFilter().with_name("decode_failures"))["counters"]
    assert counter.committed == 1


def test_decoding_fails_the_pipeline_with_the_coordinates_unless_errors_are_handled(cluster: InMemoryCluster) -> None:
    cluster.append("t", b"no json", queue_id=0)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | reading(cluster, deserializer=None) | DecodeRecords(JsonDeserializer())
    with pytest.raises(Exception, match=r"queue t/broker-a/0, offset 0: .*JSON"):
        pipeline.run()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(lambda failure: failure.queue_offset)) as errors:
            decode = DecodeRecords(JsonDeserializer()).with_error_handler(errors)
            assert_that(pipeline | reading(cluster, deserializer=None) | decode, equal_to([]), label="decoded")
        assert_that(errors.output(), equal_to([0]))


def test_decoding_raises_what_is_no_fault_of_the_record(cluster: InMemoryCluster) -> None:
    cluster.append("t", b"{}", queue_id=0)
    factory = InMemoryClientFactory(cluster.name)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = (
        pipeline
        | reading(cluster, deserializer=None)
        | DecodeRecords(unreachable, dead_letter_topic="dead", client_factory=factory)
    )
    with pytest.raises(Exception, match="the registry is down"):
        pipeline.run()
    assert cluster.records("dead") == []


def unreachable(_: object) -> None:
    raise TransportError("the registry is down")


# ---- write ----------------------------------------------------------------------------------------------------------


def write(cluster: InMemoryCluster, elements: list[Any], topic: str | None = "t", **arguments: Any) -> None:
    factory = InMemoryClientFactory(cluster.name)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = (
            pipeline
            | beam.Create(elements)
            | WriteToRocketMQ(topic, client_factory=factory, dead_letter_topic="dead", **arguments)
        )


def ours(letter: Record) -> dict[str, str]:
    return {name.removeprefix("RMQIO_"): value for name, value in letter.properties.items() if name[:6] == "RMQIO_"}


def test_what_cannot_be_written_goes_to_the_dead_letters_with_its_reason(cluster: InMemoryCluster) -> None:
    lost = Message(b"lost", topic="none", tags="a", keys=["k"], properties={"p": "q"}, sharding_key="s", delay_level=3)
    illegal = Message(b"illegal", keys=["two words"], properties={"INNER_NUM": "1", "p": "q"})
    write(cluster, [b"good", lost, illegal, Message(b"")])
    assert [record.body for record in cluster.records("t")] == [b"good"]
    letters = {letter.body: letter for letter in cluster.records("dead")}
    assert letters.keys() == {b"lost", b"illegal", b"\x00"}
    found = ours(letters[b"lost"])
    assert (found["SINK_TOPIC"], found["ERROR_CLASS"], found["DELAY_LEVEL"]) == ("none", "TopicNotExist", "3")
    assert (letters[b"lost"].tags, letters[b"lost"].keys, letters[b"lost"].sharding_key) == ("a", ("k",), "s")
    assert letters[b"lost"].properties["p"] == "q"
    found = ours(letters[b"illegal"])
    assert (found["SINK_TOPIC"], found["DROPPED_KEYS"], found["DROPPED_PROPERTIES"]) == ("t", "1", "1")
    assert ours(letters[b"\x00"])["BODY"] == "empty"


def test_a_record_that_does_not_serialize_is_kept_as_it_was_read(cluster: InMemoryCluster) -> None:
    record = cluster.append("t", b"raw", queue_id=0, tags="a", properties={"UNIQ_KEY": "ID1"})
    write(cluster, [record], serializer=bad)
    (letter,) = cluster.records("dead")
    found = ours(letter)
    assert (letter.body, letter.tags, found["ORIGIN"], found["MESSAGE_ID"]) == (b"raw", "a", "t/broker-a/0/0", "ID1")
    assert (found["ERROR"], found.get("SINK_TOPIC"), found.get("BODY")) == ("SerdeError: no id", None, None)


@pytest.mark.parametrize(
    ("element", "arguments", "body", "kind", "topic"),
    [
        ({"not": "writable"}, {"serializer": bad}, b"{'not': 'writable'}", "element", None),
        (b"\xff", {"serializer": bad}, b"\xff", "element", None),
        (b"\xff", {"id_fn": bad}, b"\xff", None, "t"),
        (b"\xff", {"selector": bad}, b"\xff", None, None),
        (Message(b"a", topic="u"), {"id_fn": bad}, b"a", None, "u"),
        (Message("text"), {}, b"Message(body='text'", "element", "t"),  # type: ignore[arg-type]
    ],
    ids=["dict", "bytes", "no id", "no topic", "message", "illegal"],
)
def test_as_much_as_is_known_of_an_element_is_kept(
    cluster: InMemoryCluster, element: Any, arguments: Any, body: bytes, kind: str | None, topic: str | None
) -> None:
    factory = InMemoryClientFactory(cluster.name)
    transform = WriteToRocketMQ("t", client_factory=factory, dead_letter_topic="dead", **arguments)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:  # an illegal message goes through no coder
        _ = pipeline | beam.Create([0]) | beam.Map(lambda _: element).with_output_types(Any) | transform
    (letter,) = cluster.records("dead")
    assert letter.body.startswith(body)
    assert (ours(letter).get("BODY"), ours(letter).get("SINK_TOPIC")) == (kind, topic)


def test_letters_of_a_write_have_the_ids_of_their_elements(cluster: InMemoryCluster) -> None:
    record = cluster.append("t", b"raw", queue_id=0)
    for _ in range(2):  # as a bundle that is run again
        write(cluster, [record, Message(b"a", topic="none")], topic=None, selector=lambda _: "other", id_fn=id_of)
    letters = cluster.records("dead")
    assert Counter(letter.body for letter in letters) == {b"raw": 2, b"a": 2}
    assert len({(letter.body, letter.message_id) for letter in letters}) == 2
    assert {ours(letter)["SINK_MESSAGE_ID"] for letter in letters} == {"id-raw", "id-a"}


def id_of(element: Any) -> str:
    return f"id-{element.body.decode()}"


def test_a_letter_of_a_write_that_cannot_be_written_fails_the_bundle(cluster: InMemoryCluster) -> None:
    with pytest.raises(
        Exception, match="a dead letter cannot be written to topic 'dead': LocalError: message body has"
    ):
        write(cluster, [Message(b"x" * (MAX_MESSAGE_BYTES + 1))])
    cluster.delete_topic("dead")
    with pytest.raises(Exception, match="dead"):
        write(cluster, [Message(b"a", topic="none")])


def test_the_dead_letter_topic_of_a_write_is_another_one(cluster: InMemoryCluster) -> None:
    with pytest.raises(LocalError, match="dead_letter_topic is 'dead', the topic that is written"):
        write(cluster, [], topic="dead")


# ---- what cannot be kept --------------------------------------------------------------------------------------------


def test_a_letter_that_cannot_be_written_stops_the_read_and_nothing_is_committed(cluster: InMemoryCluster) -> None:
    record = cluster.append("t", b"x" * (5 << 20), queue_id=0)  # no broker takes more than 4 MiB from us
    with pytest.raises(Exception, match="a dead letter cannot be written to topic 'dead'"):
        run(cluster)
    assert cluster.records("dead") == []
    assert cluster.committed("g", record.queue) is None
