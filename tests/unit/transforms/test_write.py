"""`WriteToRocketMQ` in pipelines on the in-process FnApiRunner: element types, windows, outputs and failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.transforms.error_handling import CollectingErrorHandler, ErrorHandler

from rmqio.errors import LocalError, MessageIllegal, RmqioError, TransportError
from rmqio.model import Message, SendResult
from rmqio.options import WriteOptions
from rmqio.sending.batches import FailedMessage
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.testing.cluster import find_cluster
from rmqio.transforms.write import WriteToRocketMQ, WriteToRocketMQResult
from rmqio.transforms.writing.elements import ConstantTopic, TopicFromFields
from tests.helpers.transforms.written_orders import Order, serialize_order


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 4)
        made.create_topic("u", 2)
        yield made


def writer(cluster: InMemoryCluster, topic: str | None = "t", **arguments: Any) -> WriteToRocketMQ:
    return WriteToRocketMQ(topic, client_factory=InMemoryClientFactory(cluster.name), **arguments)


def bodies(cluster: InMemoryCluster, topic: str = "t") -> list[bytes]:
    return sorted(record.body for record in cluster.records(topic))


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ([Message(b"a"), Message(b"b", tags="x")], [b"a", b"b"]),
        ([b"a", b"b"], [b"a", b"b"]),
        (["ä"], ["ä".encode()]),
        ([], []),
    ],
)
def test_element_types(cluster: InMemoryCluster, elements: list[Any], expected: list[bytes]) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | beam.Create(elements) | writer(cluster)
    assert bodies(cluster) == expected


def test_records_are_sent_again_with_stable_ids(cluster: InMemoryCluster) -> None:
    records = [cluster.append("u", b"%d" % i, properties={"UNIQ_KEY": "old", "mine": str(i)}) for i in range(3)]
    for _ in range(2):  # as when a runner retries
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            pipeline | beam.Create(records) | writer(cluster)
    copies = sorted(cluster.records("t"), key=lambda record: record.body)
    assert [copy.body for copy in copies] == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert [copy.get_property("mine") for copy in copies] == ["0", "0", "1", "1", "2", "2"]
    assert len({copy.message_id for copy in copies}) == 3
    assert "old" not in {copy.message_id for copy in copies}


def test_serializer_and_selector_by_field(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create([Order(1, "t"), Order(2, "u"), Order(-3, "t"), Order(4, "")])
            | writer(cluster, serializer=serialize_order, selector=TopicFromFields("kind", default_topic="u"))
        )
        assert_that(
            result.failed | beam.Map(lambda f: (f.element, f.error, f.reason)),
            equal_to([(repr(Order(-3, "t")), "ValueError", "a negative number")]),
        )
    assert bodies(cluster, "t") == [b"1"]
    assert bodies(cluster, "u") == [b"2", b"4"]
    assert cluster.records("t")[0].keys == ("order-1",)


def test_selector_as_a_callable_gives_topic_and_tag(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | beam.Create([b"a"]) | writer(cluster, None, selector=lambda body: ("u", body.decode()))
    (record,) = cluster.records("u")
    assert record.tags == "a"


def test_precedence_of_topics(cluster: InMemoryCluster) -> None:
    cluster.create_topic("v", 1)
    elements = [Message(b"own", topic="v"), Message(b"selected")]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | beam.Create(elements) | writer(cluster, "t", selector=ConstantTopic("u"))
    assert (bodies(cluster, "v"), bodies(cluster, "u"), bodies(cluster, "t")) == ([b"own"], [b"selected"], [])


def test_id_function(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        sent = pipeline | beam.Create([b"a", b"b"]) | writer(cluster, id_fn=lambda body: "id-" + body.decode())
        assert_that(sent.sent | beam.Map(lambda result: result.message_id), equal_to(["id-a", "id-b"]))
    assert {record.message_id for record in cluster.records("t")} == {"id-a", "id-b"}


@pytest.mark.parametrize(
    "options",
    [
        WriteOptions(),
        WriteOptions(batch_flush=False),
        WriteOptions(asynchronous=True, max_in_flight=2, max_batch_messages=3),
        WriteOptions(batch_flush=False, asynchronous=True),
        WriteOptions(max_batch_bytes=200),
    ],
)
@pytest.mark.parametrize("with_sent", [True, False])
def test_every_way_of_sending_sends_each_element_once(
    cluster: InMemoryCluster, options: WriteOptions, with_sent: bool
) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create([b"%02d" % i for i in range(30)])
            | beam.Reshuffle()
            | writer(cluster, options=options, with_sent=with_sent)
        )
        assert_that(result.sent | beam.combiners.Count.Globally(), equal_to([30 if with_sent else 0]))
    assert bodies(cluster) == [b"%02d" % i for i in range(30)]


def test_result_is_a_fixed_class_with_typed_outputs(cluster: InMemoryCluster) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    result = pipeline | beam.Create([b"a"]) | writer(cluster)
    assert isinstance(result, WriteToRocketMQResult)
    assert result._fields == ("sent", "failed")
    assert result.sent.element_type is SendResult
    assert result.failed.element_type is FailedMessage


def test_results_point_at_what_was_stored(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        sent = (pipeline | beam.Create([b"a", b"b", b"c"]) | writer(cluster)).sent
        where = sent | beam.Map(lambda r: (r.queue, r.queue_offset, r.message_id, r.offset_message_id))

        name = cluster.name

        def check(actual: list[Any]) -> None:
            records = find_cluster(name).records("t")  # by name: what a function holds is copied with it
            stored = [(r.queue, r.queue_offset, r.message_id, r.offset_message_id) for r in records]
            assert sorted(actual) == sorted(stored)

        assert_that(where, check)


class Window(beam.DoFn):
    def process(self, element: Any, at: Any = beam.DoFn.TimestampParam, w: Any = beam.DoFn.WindowParam) -> Any:
        yield int(at), (int(w.start), int(w.end))


@pytest.mark.parametrize("options", [WriteOptions(), WriteOptions(max_batch_messages=1)])
def test_fixed_windows_and_timestamps_are_kept(cluster: InMemoryCluster, options: WriteOptions) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create([(b"a", 1), (b"b", 12), (b"", 13), (b"c", 25)])
            | beam.Map(lambda pair: window.TimestampedValue(*pair)).with_output_types(bytes)
            | beam.WindowInto(window.FixedWindows(10))
            | writer(cluster, options=options)
        )
        assert_that(result.sent | "S" >> beam.ParDo(Window()), equal_to([(1, (0, 10)), (12, (10, 20)), (25, (20, 30))]))
        assert_that(result.failed | "F" >> beam.ParDo(Window()), equal_to([(13, (10, 20))]), label="failed")
    assert bodies(cluster) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("options", [WriteOptions(), WriteOptions(max_batch_messages=1)])
def test_an_element_of_several_windows_is_sent_once_and_its_output_is_in_all(
    cluster: InMemoryCluster, options: WriteOptions
) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create([(b"a", 12), (b"", 13), (b"b", 17)])
            | beam.Map(lambda pair: window.TimestampedValue(*pair)).with_output_types(bytes)
            | beam.WindowInto(window.SlidingWindows(10, 5))
            | writer(cluster, options=options)
        )
        in_two = [(12, (5, 15)), (12, (10, 20)), (17, (10, 20)), (17, (15, 25))]
        assert_that(result.sent | "S" >> beam.ParDo(Window()), equal_to(in_two))
        assert_that(
            result.failed | "F" >> beam.ParDo(Window()), equal_to([(13, (5, 15)), (13, (10, 20))]), label="failed"
        )
    assert bodies(cluster) == [b"a", b"b"]


def test_sent_can_be_grouped_in_its_windows(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        counts = (
            (
                pipeline
                | beam.Create([(b"a", 1), (b"b", 2), (b"c", 12)])
                | beam.Map(lambda pair: window.TimestampedValue(*pair)).with_output_types(bytes)
                | beam.WindowInto(window.FixedWindows(10))
                | writer(cluster)
            ).sent
            | beam.Map(lambda result: (result.queue.topic, 1))
            | beam.CombinePerKey(sum)
        )
        assert_that(counts, equal_to([("t", 2), ("t", 1)]))


class Collect(beam.PTransform):
    def expand(self, failed: Any) -> Any:
        return failed | beam.Map(lambda failure: (failure.element, failure.error))


def test_error_handler_gets_the_failures(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with ErrorHandler(Collect()) as handler:
            result = pipeline | beam.Create([b"a", b""]) | writer(cluster).with_error_handler(handler)
        assert_that(handler.output(), equal_to([("b''", "LocalError")]))
        assert_that(result.sent | beam.combiners.Count.Globally(), equal_to([1]), label="sent")


@pytest.mark.parametrize(("element", "batches"), [(b"", False), ([b"a", b""], True)])
def test_what_cannot_be_sent_fails_the_pipeline_if_asked(cluster: InMemoryCluster, element: Any, batches: bool) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | beam.Create([element]) | writer(cluster, fail_on_error=True, batches=batches)
    with pytest.raises(RmqioError, match="cannot write to topic 't': LocalError: "):
        pipeline.run()
    with pytest.raises(LocalError, match="fail_on_error is given, so an error handler would get nothing"):
        writer(cluster, fail_on_error=True).with_error_handler(ErrorHandler(Collect()))


def test_collecting_error_handler(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        with CollectingErrorHandler() as handler:
            pipeline | beam.Create([b"a", b""]) | writer(cluster).with_error_handler(handler)
        assert_that(handler.output() | beam.Map(lambda f: f.element), equal_to(["b''"]))


def test_no_error_handler_is_the_default(cluster: InMemoryCluster) -> None:
    transform = writer(cluster)
    assert transform.with_error_handler(None) is transform
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = pipeline | beam.Create([b"a", b""]) | transform
        assert_that(result.failed | beam.Map(lambda f: f.element), equal_to(["b''"]))


def test_failures_nobody_consumes_are_counted_and_logged(
    cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    pipeline | beam.Create([b"a", b"", b"c", b""]) | writer(cluster)
    with caplog.at_level(logging.WARNING, "rmqio.transforms"):
        result = pipeline.run()
    assert bodies(cluster) == [b"a", b"c"]
    assert _counters(result)["send_failures"] == 2
    assert "2 messages cannot be sent" in caplog.text


def test_failed_messages_can_be_written_to_another_topic(cluster: InMemoryCluster) -> None:
    """The dead-letter pattern; what travels between the stages is encoded by our coder."""
    cluster.fail_next("send", MessageIllegal(13, "too large for this topic", "send"), 2)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        failed = (pipeline | beam.Create([b"a", b"b"]) | writer(cluster)).failed
        (
            failed
            | beam.Reshuffle()
            | beam.Map(lambda f: f.message.replace(properties={"why": f.error})).with_output_types(Message)
            | "Dead letters" >> writer(cluster, "u")
        )
    (dead,) = cluster.records("u")
    assert dead.body in (b"a", b"b")
    assert dead.get_property("why") == "MessageIllegal"
    assert len(cluster.records("t")) == 1


def test_an_error_that_may_pass_fails_the_pipeline_rather_than_the_message(cluster: InMemoryCluster) -> None:
    cluster.fail_next("send", TransportError("broker gone"), 100)
    with pytest.raises(Exception, match="broker gone"):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            pipeline | beam.Create([b"a"]) | writer(cluster)
    assert bodies(cluster) == []


def _counters(result: Any) -> dict[str, int]:
    queried = result.metrics().query(MetricsFilter().with_namespace("rmqio"))
    return {counter.key.metric.name: counter.committed for counter in queried["counters"]}


@pytest.mark.parametrize("in_batches", [False, True])
def test_metrics(cluster: InMemoryCluster, in_batches: bool) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    elements = [b"abc"] * 5 + [b""]
    made: Any = pipeline | beam.Create([elements] if in_batches else elements) | beam.Reshuffle()
    _ = made | writer(cluster, options=WriteOptions(max_batch_messages=2), batches=in_batches)
    result = pipeline.run()
    counters = _counters(result)
    assert (counters["messages_sent"], counters["bytes_sent"], counters["send_failures"]) == (5, 15, 1)
    assert counters["batches_sent"] >= 3
    (latency,) = result.metrics().query(MetricsFilter().with_name("send_latency_ms"))["distributions"]
    assert latency.key.metric.namespace == "rmqio"
    assert latency.committed.count == counters["batches_sent"]


def test_a_producer_is_shared_and_closed(cluster: InMemoryCluster) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        made = pipeline | beam.Create([b"a"])
        made | "One" >> writer(cluster)
        made | "Two" >> writer(cluster, "u")
    assert bodies(cluster, "t") == bodies(cluster, "u") == [b"a"]
    assert cluster.open_clients == 0
