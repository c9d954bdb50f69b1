"""Records with the same unique id come out once; without one, the place in the commit log tells them apart."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import DropDuplicates, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteOptions
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.shared import close_shared_clients
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import WriteFn
from rmqio.wire.stored import decode_records
from tests.helpers.wire.stored_bytes import Stored


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("t", "u", "dead"):
            made.create_topic(topic, 2)
        yield made
        close_shared_clients()


def send(cluster: InMemoryCluster, *bodies_and_ids: tuple[bytes, str], topic: str = "t") -> None:
    producer = InMemoryClientFactory(cluster.name).producer("p")
    for body, message_id in bodies_and_ids:
        producer.send(Message(body, topic=topic), message_id=message_id)
    producer.close()


def reading(cluster: InMemoryCluster, topic: Any = "t", **arguments: Any) -> ReadFromRocketMQ:
    factory = InMemoryClientFactory(cluster.name)
    return ReadFromRocketMQ(
        topic, client_factory=factory, start=StartFrom.earliest(), stop=StopAt.latest(), **arguments
    )


def found(cluster: InMemoryCluster, topic: Any = "t", **arguments: Any) -> Counter[Any]:
    """Counts the records that a read gives."""
    _SEEN.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | reading(cluster, topic, **arguments) | beam.Map(see)
    return Counter(_SEEN)


_SEEN: list[Any] = []


def see(element: Any) -> None:
    _SEEN.append(element.body if isinstance(element, Record) else element)


SENT_TWICE = ((b"a", "1"), (b"b", "2"), (b"a", "1"), (b"c", "3"), (b"b", "2"))


def test_a_message_that_was_stored_twice_is_read_once(cluster: InMemoryCluster) -> None:
    send(cluster, *SENT_TWICE)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | reading(cluster) | DropDuplicates()
        assert records.element_type is Record
        assert_that(records | beam.Map(lambda record: record.body), equal_to([b"a", b"b", b"c"]))
    (counter,) = pipeline.result.metrics().query(MetricsFilter().with_name("duplicates_dropped"))["counters"]
    assert counter.committed == 2


# ---- as an argument of the read -------------------------------------------------------------------------------------


def test_a_bundle_that_is_run_again_is_there_twice_and_read_once(cluster: InMemoryCluster) -> None:
    """The writing DoFn itself, given the same elements again, as by a runner when what follows it has failed."""
    fn = WriteFn(MessageMaker("t", id_fn=str), InMemoryClientFactory(cluster.name), "g", WriteOptions())
    fn.setup()
    for _ in range(2):
        fn.start_bundle()
        for element in ("a", "b", "c"):
            assert not fn.process(element, WindowedValue(element, 0, (GlobalWindow(),)))
        assert len(list(fn.finish_bundle())) == 3
    fn.teardown()
    assert found(cluster) == {b"a": 2, b"b": 2, b"c": 2}
    assert found(cluster, deduplicate=DropDuplicates()) == {b"a": 1, b"b": 1, b"c": 1}


def test_what_is_dropped_is_not_decoded_and_makes_no_dead_letter(cluster: InMemoryCluster) -> None:
    send(cluster, (b"1", "1"), (b"no json", "2"), (b"1", "1"), (b"no json", "2"))
    broken = cluster.append("t", b"3")
    cluster.corrupt(broken.queue, broken.queue_offset)
    arguments = {"deserializer": JsonDeserializer(output_type=int), "dead_letter_topic": "dead"}
    assert found(cluster, **arguments) == {1: 2}
    assert len(cluster.records("dead")) == 3
    assert found(cluster, deduplicate=DropDuplicates(), **arguments) == {1: 1}
    assert len(cluster.records("dead")) == 3 + 2


def test_without_a_handler_what_does_not_decode_fails_the_pipeline(cluster: InMemoryCluster) -> None:
    send(cluster, (b"no json", "1"))
    with pytest.raises(Exception, match=r"queue t/broker-a/\d, offset 0: .*JSON"):
        found(cluster, deduplicate=DropDuplicates(), deserializer=JsonDeserializer())


def test_the_type_is_what_the_deserializer_makes(cluster: InMemoryCluster) -> None:
    decode = JsonDeserializer(output_type=int)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    assert (pipeline | reading(cluster, deduplicate=DropDuplicates())).element_type is Record
    read = reading(cluster, deduplicate=DropDuplicates(), deserializer=decode)
    assert (pipeline | "Decoded" >> read).element_type is int


# ---- which is the same ----------------------------------------------------------------------------------------------


def test_the_same_id_in_another_topic_is_another_message(cluster: InMemoryCluster) -> None:
    """One record that is copied to two topics has one id."""
    send(cluster, (b"a", "1"))
    send(cluster, (b"a", "1"), topic="u")
    assert found(cluster, ["t", "u"], deduplicate=DropDuplicates()) == {b"a": 2}


def test_without_an_id_and_with_one_that_is_no_text(cluster: InMemoryCluster) -> None:
    for raw in (b"", b"", b"UNIQ_KEY\x01\xff\xfe", b"UNIQ_KEY\x01\xff\xfe", b"UNIQ_KEY\x01\xff"):
        cluster.store(MessageQueue("t", "broker-a", 0), b"x", raw)
    assert found(cluster, deduplicate=DropDuplicates()) == {b"x": 4}


def test_members_of_one_batch_have_no_ids_and_are_different_messages() -> None:
    """A broker stores such a batch as one message, so that its members have one `message_id` where they have no own."""
    bodies = (b"one", b"two", b"one")
    members = [struct.pack(">5i", 22 + len(body), 0, 0, 0, len(body)) + body + bytes(2) for body in bodies]
    wrapping = b"UNIQ_KEY\x01wrap\x02INNER_NUM\x013\x02INNER_BASE\x010\x02"
    stored = Stored(body=b"".join(members), topic=b"t", properties=wrapping, sys_flag=0xC0)
    records = decode_records(stored.encode(), broker="b", topic="t").records
    assert len({record.message_id for record in records}) == 1
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = pipeline | beam.Create([*records, *records]).with_output_types(Record) | DropDuplicates()
        assert_that(found | beam.Map(lambda record: (record.queue_offset, record.body)), equal_to([*enumerate(bodies)]))


def test_an_id_of_ones_own(cluster: InMemoryCluster) -> None:
    for body, key in ((b"1", "k"), (b"2", "k"), (b"3", "l")):
        cluster.append("t", body, keys=(key,))
    first_key = DropDuplicates(id_of=lambda record: record.keys[0])
    assert found(cluster, deduplicate=first_key).total() == 2
    cluster.append("t", b"4", properties={})
    with pytest.raises(Exception, match=r"queue t/broker-a/0, offset 3: id_of returned ''"):
        found(cluster, deduplicate=DropDuplicates(id_of=lambda record: " ".join(record.keys)))


# ---- for how long ---------------------------------------------------------------------------------------------------


def test_an_id_is_forgotten_when_the_watermark_has_passed() -> None:
    """In micro-batches, each with a watermark; nothing of the id is kept behind it."""
    pytest.importorskip("pyspark", reason="the levels of the Spark runner need the extra 'spark'")
    from tests.helpers.spark.spark_stream import Stream

    def record(keyed: tuple[str, Any]) -> Record:
        raw = f"UNIQ_KEY\x01{keyed[0]}".encode()
        return Record("t", "b", 0, 0, keyed[1].encode(), 0, 0, raw, 0, 0, 0, 0, 0, bytes(8), bytes(8), 0, 0)

    def body(record: Record) -> str:
        return record.body.decode()

    records = beam.Map(record).with_output_types(Record)
    stream = Stream(records | DropDuplicates(within_ms=10_000) | beam.Map(body))
    assert stream.values([("1", "first", 100), ("1", "same bundle", 105), ("2", "other", 100)], 90) == [
        "first",
        "other",
    ]
    assert stream.values([("1", "later", 110), ("2", "earlier", 95)], 109) == []
    assert stream.kept() > 0
    stream.run([], 111)
    assert stream.kept() == 0
    assert stream.values([("1", "much later", 112)], 111) == ["much later"]


# ---- misuse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within_ms", [0, -1, 1.5, True, "1"])
def test_a_wrong_time_is_refused(within_ms: object) -> None:
    with pytest.raises(LocalError, match="within_ms"):
        DropDuplicates(within_ms=within_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deduplicate": 60_000}, "deduplicate is 60000; it must be a DropDuplicates"),
        ({"deduplicate": DropDuplicates(), "batches": True}, "deduplicate cannot be combined with batches"),
    ],
)
def test_a_read_refuses_what_does_not_fit(cluster: InMemoryCluster, arguments: Any, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        reading(cluster, **arguments)


def test_an_id_is_made_by_a_callable() -> None:
    with pytest.raises(LocalError, match="id_of is 'key'"):
        DropDuplicates(id_of="key")  # type: ignore[arg-type]


@pytest.mark.parametrize("stop", [None, StopAt.latest()])
def test_on_the_direct_runner_it_needs_a_read_that_ends(stop: StopAt | None) -> None:
    """Its timers fire at once there: an id would be forgotten as soon as it was seen."""
    cluster = InMemoryCluster()
    cluster.create_topic("t", 1)
    factory = InMemoryClientFactory(cluster.name)
    pipeline = beam.Pipeline(runner="DirectRunner")
    read = ReadFromRocketMQ("t", stop=stop, deduplicate=DropDuplicates(), client_factory=factory)
    if stop is None:
        with pytest.raises(LocalError, match="timers immediately"):
            pipeline | read
    else:
        assert pipeline | read
