"""`MapRecords`: a function applied inside of batches, its failures, and writing its results in batches."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.error_handling import ErrorHandler
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp

from rmqio import Batch, MapRecords, Message, MessageQueue, Record, WriteToRocketMQ
from rmqio.batches import place_ids, record_id
from rmqio.dead_letters.letters import BODY, ELEMENT, ORIGIN, read_letter
from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.coders import BatchConstraint
from tests.helpers.transforms.reading import T0, clean_cluster, fill, read

COUNT = 6


@pytest.fixture
def cluster() -> Any:
    with clean_cluster() as made:
        yield made


def offset_of(record: Record) -> int:
    return record.queue_offset


def third_fails(record: Record) -> int:
    if record.queue_offset == 2:
        raise ValueError("two")
    return record.queue_offset


def of_number(number: int) -> Message:
    if number == 4:
        raise SerdeError("four")
    return Message(b"%d" % number)


def batches_of(cluster: InMemoryCluster, pipeline: beam.Pipeline) -> Any:
    return pipeline | read(cluster, batches=True)


def test_values_are_mapped_and_keep_their_places(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, COUNT)

    def check(found: Any) -> None:
        assert sorted(value for batch in found for value in batch) == list(range(COUNT))
        assert all((type(batch), batch.queue, [*batch.offsets]) == (Batch, queue, [*batch]) for batch in found)
        assert all(batch.steps == "/MapRecords" for batch in found)

    with beam.Pipeline(FnApiRunner()) as pipeline:
        mapped = batches_of(cluster, pipeline) | MapRecords(offset_of)
        assert mapped.element_type == BatchConstraint(int)
        assert_that(mapped, check)


def test_a_record_that_fails_goes_to_the_error_handler_and_the_others_go_on(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, COUNT)
    with beam.Pipeline(FnApiRunner()) as pipeline:
        batches = batches_of(cluster, pipeline)
        with ErrorHandler(beam.Map(lambda one: (one.topic, one.queue_id, one.queue_offset, one.error))) as handler:
            mapped = batches | MapRecords(third_fails).with_error_handler(handler)
        wanted = [(queue.topic, queue.queue_id, 2, "ValueError")]
        assert_that(handler.output(), equal_to(wanted), label="failures")
        assert_that(mapped | beam.FlatMap(list), equal_to([0, 1, 3, 4, 5]), label="the others")


def test_letters_name_the_place_and_hold_the_body_as_long_as_it_is_known(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, COUNT)
    cluster.create_topic("letters", 1)
    to: dict[str, Any] = {"dead_letter_topic": "letters", "client_factory": InMemoryClientFactory(cluster.name)}
    with beam.Pipeline(FnApiRunner()) as pipeline:
        numbers = batches_of(cluster, pipeline) | "Numbers" >> MapRecords(third_fails, **to)
        messages = numbers | "Messages" >> MapRecords(of_number, **to)
        assert_that(messages | beam.FlatMap(list) | beam.Map(lambda m: m.body), equal_to([b"0", b"1", b"3", b"5"]))
    letters = {record.properties[ORIGIN]: record for record in cluster.records("letters")}
    place = f"{queue.topic}/{queue.broker}/{queue.queue_id}"
    assert letters.keys() == {f"{place}/2", f"{place}/4"}
    record = cluster.records("t")[2]
    message = read_letter(letters[f"{place}/2"]).message
    assert message is not None
    assert message.body == record.body
    value = letters[f"{place}/4"]
    assert (value.body, value.properties[BODY]) == (b"4", ELEMENT)
    assert read_letter(value).message is None, "what it was made of is not known, so it cannot be sent back"


def test_a_deserializer_decodes_whole_batches_and_only_the_broken_body_fails(cluster: InMemoryCluster) -> None:
    pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
    from rmqio.serde.avro import AvroDeserializer

    cluster.create_topic("numbers", 1)
    for body in (b"\x02", b"\x04", b"\x80", b"\x06", b"\x08\x00"):  # 1, 2, cut off, 3, and one with a byte too much
        cluster.append("numbers", body)
    deserializer = AvroDeserializer({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]})
    asked: list[int] = []
    many = type(deserializer).many

    def counted(self: Any, records: Any) -> Any:
        asked.append(len(records))
        return many(self, records)

    with pytest.MonkeyPatch.context() as patched, beam.Pipeline(FnApiRunner()) as pipeline:
        patched.setattr(type(deserializer), "many", counted)
        with ErrorHandler(beam.Map(lambda one: one.queue_offset)) as handler:
            batches = pipeline | read(cluster, "numbers", batches=True)
            mapped = batches | MapRecords(deserializer).with_error_handler(handler)
        assert_that(handler.output(), equal_to([2, 4]), label="failures")
        assert_that(mapped | beam.FlatMap(list), equal_to([{"n": 1}, {"n": 2}, {"n": 3}]), label="the others")
        places = mapped | beam.FlatMap(lambda batch: batch.offsets)
        assert_that(places, equal_to([0, 1, 3]), label="places")
    assert 5 in asked


def test_of_a_batch_that_becomes_arrow_the_broken_body_is_a_letter_and_the_rest_stands(
    cluster: InMemoryCluster,
) -> None:
    pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")
    pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")
    from rmqio.serde.avro import AvroDeserializer
    from rmqio.serde.avro.arrow import AvroToArrow

    (queue,) = cluster.create_topic("numbers", 1)
    cluster.create_topic("letters", 1)
    for body in (b"\x02", b"\x04", b"\x80", b"\x06"):  # 1, 2, cut off, 3
        cluster.append("numbers", body)
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    to_arrow = AvroToArrow(schema, on_error="null")

    def rows(batch: Batch[Record]) -> Any:
        """The rows; and the records without one as a batch of their own, which knows their places."""
        decoded = to_arrow.decode(batch)
        broken = [position for position in range(len(batch)) if not decoded[position].is_valid]
        if broken:
            yield beam.pvalue.TaggedOutput("broken", batch.with_values([batch[at] for at in broken], broken))
        yield decoded.filter(decoded.is_valid()).field("n").to_pylist()

    given: Any = {"dead_letter_topic": "letters", "client_factory": InMemoryClientFactory(cluster.name)}
    with beam.Pipeline(FnApiRunner()) as pipeline:
        batches = pipeline | read(cluster, "numbers", batches=True)
        found = batches | beam.FlatMap(rows).with_outputs("broken", main="rows")
        assert_that(found.rows | beam.FlatMap(list), equal_to([1, 2, 3]), label="the rest")
        assert_that(found.broken | "Why" >> MapRecords(AvroDeserializer(schema), **given), equal_to([]), label="none")
    (letter,) = cluster.records("letters")
    assert letter.properties[ORIGIN] == f"{queue.topic}/{queue.broker}/{queue.queue_id}/2"
    message = read_letter(letter).message
    assert message is not None
    assert message.body == b"\x80"


def test_results_and_failures_keep_the_window_of_their_batch(cluster: InMemoryCluster) -> None:
    fill(cluster, COUNT)

    def seen(_: Any, at: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam) -> tuple[Any, Any]:
        return window, at

    with beam.Pipeline(FnApiRunner()) as pipeline:
        batches = batches_of(cluster, pipeline) | beam.WindowInto(FixedWindows(10))
        window = IntervalWindow(T0 / 1000, T0 / 1000 + 10)
        with ErrorHandler(beam.Map(seen)) as handler:
            mapped = batches | MapRecords(third_fails).with_error_handler(handler)
        failed_at = Timestamp(micros=(T0 + 2_500) * 1000)
        assert_that(handler.output(), equal_to([(window, failed_at)]), label="of the failure")
        assert_that(mapped | "See" >> beam.Map(seen), equal_to([(window, Timestamp(T0 / 1000))]), label="of the batch")


@pytest.mark.parametrize(
    ("fns", "text"), [((third_fails,), "t/.*, offset 2: ValueError: two"), ((offset_of, of_number), "offset 4: four")]
)
def test_without_a_place_for_failures_the_pipeline_fails_with_the_coordinates(
    cluster: InMemoryCluster, fns: tuple[Any, ...], text: str
) -> None:
    fill(cluster, COUNT)
    pipeline = beam.Pipeline(FnApiRunner())
    batches = batches_of(cluster, pipeline)
    for number, fn in enumerate(fns):
        batches |= f"Map {number}" >> MapRecords(fn)
    with pytest.raises(SerdeError, match=text):
        pipeline.run()


class Down(RmqioError):
    """As of a registry: no fault of a record."""


def is_down(_: Record) -> int:
    raise Down("the registry does not answer")


def test_what_is_no_fault_of_a_record_makes_no_dead_letters(cluster: InMemoryCluster) -> None:
    fill(cluster, COUNT)
    pipeline = beam.Pipeline(FnApiRunner())
    batches = batches_of(cluster, pipeline)
    with ErrorHandler(beam.Map(str)) as handler:
        _ = batches | MapRecords(is_down).with_error_handler(handler)
    with pytest.raises(Down):
        pipeline.run()


def test_lists_have_no_places_and_other_elements_are_refused() -> None:
    with beam.Pipeline(FnApiRunner()) as pipeline:
        lists = pipeline | beam.Create([[1, 2], (3,)], reshuffle=False)
        doubled = lists | MapRecords(lambda n: 2 * n)
        assert_that(doubled | beam.Map(lambda b: ([*b], b.queue)), equal_to([([2, 4], None), ([6], None)]))
    pipeline = beam.Pipeline(FnApiRunner())
    _ = pipeline | beam.Create(["text"], reshuffle=False) | MapRecords(str)
    with pytest.raises(LocalError, match="MapRecords takes batches, not str: read with batches=True"):
        pipeline.run()
    with pytest.raises(LocalError, match="fn is 5; it must be callable with a record"):
        MapRecords(5)  # type: ignore[arg-type]


def same(record: Record) -> Record:
    return record


def body_of(record: Record) -> bytes:
    return b"the same"


def test_what_is_read_and_written_in_batches_has_ids_of_its_places(cluster: InMemoryCluster) -> None:
    """Two functions of the same record give two messages, even if these are equal."""
    (queue,) = fill(cluster, COUNT)
    cluster.create_topic("sink", 2)
    write = WriteToRocketMQ("sink", client_factory=InMemoryClientFactory(cluster.name), batches=True)
    for _ in range(2):
        with beam.Pipeline(FnApiRunner()) as pipeline:
            batches = batches_of(cluster, pipeline)
            parts = (batches, batches | "A" >> MapRecords(body_of), batches | "B" >> MapRecords(body_of))
            _ = parts | beam.Flatten() | write
    assert DisplayData.create_from(write).items
    assert write.display_data()["ids"].value == "places of the batch"
    stored = cluster.records("sink")
    assert len(stored) == 2 * 3 * COUNT
    wanted = [id_ for steps in ("", "/A", "/B") for id_ in place_ids(queue, range(COUNT), steps)]
    assert sorted(record.message_id for record in stored) == sorted(2 * wanted)
    assert record_id(cluster.records("t")[0]) in wanted


def test_the_function_is_displayed() -> None:
    shown = DisplayData.create_from(
        MapRecords(offset_of, dead_letter_topic="d", client_factory=InMemoryClientFactory("x"))
    )
    assert {item.key: item.value for item in shown.items} == {"fn": "offset_of", "dead_letter_topic": "d"}


def test_queues_are_part_of_the_id() -> None:
    assert len({place_ids(MessageQueue("t", broker, 0), [1])[0] for broker in "ab"}) == 2
