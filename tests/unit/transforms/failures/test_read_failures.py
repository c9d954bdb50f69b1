"""Messages that do not decode, and offsets that are gone, in a bounded read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler

from rmqio import MapRecords, ReadOptions, Record, StartFrom, StopAt, internal_errors
from rmqio.errors import RmqioError
from rmqio.serde import JsonDeserializer, SimpleKeyValueDeserializer, json
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import (
    append,
    bodies,
    body,
    body_of,
    clean_cluster,
    counters,
    fill,
    odd_fails,
    read,
    run_bodies,
)

# ---- what does not decode -------------------------------------------------------------------------------------------


def failure_row(failure: Any) -> tuple[Any, ...]:
    return failure.topic, failure.queue_id, failure.queue_offset, failure.error, failure.body


class Down(RmqioError):
    """As of a registry: no fault of a record."""


def test_what_is_no_fault_of_a_record_makes_no_dead_letters(cluster: InMemoryCluster) -> None:
    fill(cluster, 4)

    def ask(_: Any) -> Any:
        raise Down("the registry does not answer")

    pipeline = beam.Pipeline(runner=FnApiRunner())
    with ErrorHandler(beam.Map(failure_row)) as handler:
        _ = pipeline | read(cluster, deserializer=ask).with_error_handler(handler)
    with pytest.raises(Down, match="the registry does not answer"):
        pipeline.run()


def test_a_deserializers_failures_go_to_the_error_handler_and_the_rest_goes_on(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 4)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(failure_row)) as handler:
            good = pipeline | read(cluster, deserializer=odd_fails).with_error_handler(handler)
        assert_that(good, equal_to(bodies(queue, [0, 2])), label="good")
        expected = [("t", 0, offset, "SerdeError", body_of(queue, offset)) for offset in (1, 3)]
        assert_that(handler.output(), equal_to(expected), label="bad")
    (counter,) = pipeline.result.metrics().query(beam.metrics.MetricsFilter().with_name("decode_failures"))["counters"]
    assert counter.committed == 2


def fails_at_7(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but a body of 7 gives an error that nobody expects."""

    def call(*given: Any) -> Any:
        if any((each.body if isinstance(each, Record) else each) == b"7" for each in given):
            raise KeyError("seven")
        return function(*given)

    return call


@pytest.mark.parametrize("step", ["read", "batches", "map"])
@pytest.mark.parametrize(
    ("deserializer", "owner", "name"),
    [
        pytest.param(JsonDeserializer(), json, "parsed", id="many at once"),
        pytest.param(SimpleKeyValueDeserializer(), SimpleKeyValueDeserializer, "_key", id="one by one"),
    ],
)
def test_a_fault_of_a_deserializer_of_ours_is_a_bad_record_and_is_counted(
    deserializer: Any,
    owner: Any,
    name: str,
    step: str,
    cluster: InMemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    no_internal_errors: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster.create_topic("t", 1)
    for number in (6, 7, 8):
        cluster.append("t", b"%d" % number)
    monkeypatch.setattr(internal_errors, "_told", set())  # the stack comes once in a process
    monkeypatch.setattr(owner, name, fails_at_7(getattr(owner, name)))
    pipeline = beam.Pipeline(runner=FnApiRunner())
    with ErrorHandler(beam.Map(lambda each: (each.queue_offset, each.error))) as handler:
        if step == "map":
            batches = pipeline | read(cluster, batches=True)
            good = batches | MapRecords(deserializer).with_error_handler(handler)
        else:
            how = {"deserializer": deserializer, "batches": step == "batches"}
            good = pipeline | read(cluster, **how).with_error_handler(handler)
    if step != "read":
        good |= beam.FlatMap(list)
    assert_that(good | beam.combiners.Count.Globally(), equal_to([2]), label="good")
    assert_that(handler.output(), equal_to([(1, "SerdeError")]), label="bad")
    result = pipeline.run()
    (counter,) = result.metrics().query(beam.metrics.MetricsFilter().with_name("internal_errors"))["counters"]
    assert counter.committed == 1
    assert no_internal_errors == [1]
    no_internal_errors.clear()
    (told,) = [each for each in caplog.records if "This is a fault of rmqio" in each.message]
    assert told.exc_info is not None


@pytest.mark.parametrize(
    ("stop", "most", "good", "bad"),
    [(3, None, [0, 2], [1]), (2, None, [0], [1]), (1, None, [0], []), (None, 2, [0, 2], [1]), (None, 1, [0], [])],
    ids=["in it", "before the stop", "at the stop", "within the limit", "behind the limit"],
)
def test_a_corrupt_message_of_a_read_goes_to_the_error_handler_with_its_bytes(
    cluster: InMemoryCluster, stop: int | None, most: int | None, good: list[int], bad: list[int]
) -> None:
    (queue,) = fill(cluster, 3)
    cluster.corrupt(queue, 1)
    options = ReadOptions(poll_timeout_ms=1, max_num_records=most)
    bounds = {"stop": None if stop is None else StopAt.offsets({queue: stop}), "options": options}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(lambda f: (*failure_row(f)[:4], body_of(queue, 1) in f.body))) as handler:
            found = pipeline | read(cluster, **bounds).with_error_handler(handler) | beam.Map(body)
        assert_that(found, equal_to(bodies(queue, good)), label="good")
        expected = [("t", 0, offset, "CorruptMessage", True) for offset in bad]
        assert_that(handler.output(), equal_to(expected), label="bad")


def test_a_record_without_the_timestamp_property_goes_to_the_error_handler(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 1)
    append(cluster, queue, 1, properties={"event": "7"})
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(beam.Map(failure_row)) as handler:
            good = pipeline | read(cluster, timestamp="event").with_error_handler(handler) | beam.Map(body)
        assert_that(good, equal_to(bodies(queue, [1])), label="good")
        assert_that(handler.output(), equal_to([("t", 0, 0, "SerdeError", body_of(queue, 0))]), label="bad")


@pytest.mark.parametrize(
    ("arguments", "corrupt", "parts"),
    [
        ({"deserializer": odd_fails}, False, ["queue t/broker-a/0", "offset 1", "an odd one"]),
        ({"deserializer": JsonDeserializer()}, False, ["queue t/broker-a/0", "offset 0", "JSON"]),
        ({"timestamp": "event"}, False, ["queue t/broker-a/0", "offset 0", "no such property"]),
        ({}, True, ["topic 't', broker 'broker-a', queue 0, offset 2", "CRC"]),
    ],
    ids=["own deserializer", "JSON", "timestamp", "corrupt"],
)
def test_without_a_handler_it_fails_the_pipeline_with_the_coordinates_named_once(
    cluster: InMemoryCluster, arguments: dict[str, Any], corrupt: bool, parts: list[str]
) -> None:
    (queue,) = fill(cluster, 3)
    if corrupt:
        cluster.corrupt(queue, 2)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read(cluster, **arguments)
    with pytest.raises(Exception) as caught:
        pipeline.run()
    for part in parts:
        assert part in str(caught.value)
    assert str(caught.value).count("queue t/broker-a/0") <= 1


def test_dead_letters_are_written_with_coordinates_and_reason(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 4, tags="vip", keys=["k"])
    cluster.create_topic("dead", 1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        good = pipeline | read(cluster, deserializer=odd_fails, dead_letter_topic="dead")
        assert_that(good, equal_to(bodies(queue, [0, 2])))
    letters = sorted(cluster.records("dead"), key=lambda record: record.body)
    assert [letter.body for letter in letters] == bodies(queue, [1, 3])
    assert [letter.get_property("RMQIO_ORIGIN") for letter in letters] == ["t/broker-a/0/1", "t/broker-a/0/3"]
    assert {letter.get_property("RMQIO_ERROR") for letter in letters} == {"SerdeError: an odd one"}
    assert {(letter.tags, letter.keys) for letter in letters} == {("vip", ("k",))}


# ---- offsets that are gone ------------------------------------------------------------------------------------------


class DropsTheHead:
    """A deserializer that makes retention delete the next messages after the first; once."""

    def __init__(self, name: str, before: int) -> None:
        self.name, self.before = name, before

    def __call__(self, record: Record) -> int:
        from rmqio.testing.cluster import find_cluster

        if record.queue_offset == 0:
            find_cluster(self.name).delete_before(record.queue, self.before)
        return record.queue_offset


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [0, 6, 7, 8, 9]), ("latest", [0])])
def test_messages_deleted_while_reading_are_skipped_and_counted_by_policy(policy: Any, expected: list[int]) -> None:
    with clean_cluster(poll_records=1) as cluster:
        fill(cluster, 10)
        options = ReadOptions(on_offset_out_of_range=policy, max_records_per_bundle=1, poll_timeout_ms=1)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            found = pipeline | read(cluster, deserializer=DropsTheHead(cluster.name, 6), options=options)
            assert_that(found, equal_to(expected))
        assert counters(pipeline.result)["offsets_skipped"] == 10 - len(expected)


def test_messages_deleted_while_reading_fail_the_pipeline_by_default() -> None:
    with clean_cluster(poll_records=1) as cluster:
        fill(cluster, 10)
        pipeline = beam.Pipeline(runner=FnApiRunner())
        options = ReadOptions(max_records_per_bundle=1, poll_timeout_ms=1)
        _ = pipeline | read(cluster, deserializer=DropsTheHead(cluster.name, 6), options=options)
        with pytest.raises(Exception, match=r"queue t/broker-a/0: offset 1 is not available.*\[6, 10\)"):
            pipeline.run()


@pytest.mark.parametrize(("policy", "expected"), [("earliest", range(4, 6)), ("latest", range(0)), ("fail", None)])
def test_a_start_that_is_gone_follows_the_policy(cluster: InMemoryCluster, policy: Any, expected: range | None) -> None:
    (queue,) = fill(cluster, 6)
    cluster.delete_before(queue, 4)
    options = ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1)
    transform = read(cluster, start=StartFrom.specific_offsets({queue: 1}), options=options)
    if expected is not None:
        run_bodies(transform, bodies(queue, expected))
        return
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | transform
    with pytest.raises(Exception, match=r"offset 1 is not available; the broker holds \[4, 6\)"):
        pipeline.run()


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_hole_in_the_middle_is_jumped_over_and_counted_if_that_is_permitted(
    cluster: InMemoryCluster, policy: Literal["earliest", "latest"]
) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    options = ReadOptions(on_offset_out_of_range=policy, poll_timeout_ms=1)
    result = run_bodies(read(cluster, options=options), bodies(queue, [0, 1, 2, 5, 6, 7, 8]))
    assert counters(result)["offsets_skipped"] == 2


def test_a_hole_in_the_middle_fails_the_pipeline_by_default(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read(cluster)
    with pytest.raises(Exception, match=r"2 offsets after \d+ are missing"):
        pipeline.run()
