"""Ids without `id_fn`: the same when a bundle is run again where that is safe, and said to be random elsewhere."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_type_hints

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows, IntervalWindow, TimestampedValue
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio import Batch, LookBack, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.errors import LocalError
from rmqio.runners.capabilities import Mode
from rmqio.runners.submission import compare
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.writing.elements import DefaultIds, default_ids, ids_by

PAIRS = [("a", 1), ("b", 2), ("a", 3)]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        made.create_topic("t", 2)
        yield made


def same(pair: Any) -> Message:
    """Says nothing of the key."""
    return Message(b"same")


def pairs(pipeline: beam.Pipeline) -> Any:
    return pipeline | beam.Create(PAIRS).with_output_types(tuple[str, int])


STREAM = ["--streaming"]
SAFE: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "GroupByKey": (lambda found: found | beam.GroupByKey(), []),
    "CombinePerKey": (lambda found: found | beam.CombinePerKey(sum), []),
    "Count.PerElement": (lambda found: found | beam.combiners.Count.PerElement(), []),
    "windows of a stream": (lambda found: found | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey(), STREAM),
}
UNSAFE: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "a Map hides the key": (lambda found: found | beam.GroupByKey() | beam.Map(lambda pair: pair), []),
    "a Filter": (lambda found: found | beam.GroupByKey() | beam.Filter(lambda pair: True), []),
    "a Reshuffle": (lambda found: found | beam.Reshuffle(), []),
    "CoGroupByKey ends with a Map": (lambda found: {"x": found} | beam.CoGroupByKey(), []),
    "a Flatten": (lambda found: (found | beam.GroupByKey(), found | "again" >> beam.GroupByKey()) | beam.Flatten(), []),
    "the global window of a stream": (lambda found: found | beam.GroupByKey(), STREAM),
    "no shuffle": (lambda found: found, []),
}  # fmt: skip


@pytest.mark.parametrize("case", SAFE)
def test_what_comes_out_of_a_shuffle_has_ids_of_its_own(case: str, cluster: InMemoryCluster) -> None:
    """Equal messages, too, have ids of their own: they are of different keys."""
    shape, flags = SAFE[case]
    with beam.Pipeline(FnApiRunner(), PipelineOptions(flags)) as pipeline:
        found = shape(pairs(pipeline))
        write = WriteToRocketMQ("t", serializer=same, client_factory=InMemoryClientFactory(cluster.name))
        _ = found | write
        ids = default_ids(found, "label", is_stream=bool(flags))
    stored = [record.message_id for record in cluster.records("t")]
    assert len(stored) == len(set(stored)) == (3 if case == "Count.PerElement" else 2)
    assert ids is not None
    assert DisplayData.create_from(write).items
    assert shown(write) == "key, window and pane"


@pytest.mark.parametrize("case", UNSAFE)
def test_where_an_id_could_be_that_of_another_message_there_is_none_and_it_says_so(
    case: str, cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    shape, flags = UNSAFE[case]
    pipeline = beam.Pipeline(FnApiRunner(), PipelineOptions(flags))
    write = WriteToRocketMQ("t", serializer=same, client_factory=InMemoryClientFactory(cluster.name))
    with caplog.at_level(logging.WARNING, "rmqio.transforms"):
        _ = shape(pairs(pipeline)) | "Write totals" >> write
    assert caplog.messages == [
        "Write totals: ids: random; when a bundle is run again, its copies cannot be dropped. Give id_fn="
    ]
    assert shown(write) == "random; copies cannot be dropped"
    report = compare(pipeline.to_runner_api(), Mode.SPARK)
    assert "warned: ids: random; copies cannot be dropped (Write totals)" in report.table()


def shown(write: WriteToRocketMQ) -> Any:
    return next(item.value for item in DisplayData.create_from(write).items if item.key == "ids")


def test_ids_of_the_user_and_of_records_are_not_random(cluster: InMemoryCluster) -> None:
    pipeline = beam.Pipeline(FnApiRunner())
    factory = InMemoryClientFactory(cluster.name)
    of_user = WriteToRocketMQ("t", id_fn=str, client_factory=factory)
    _ = pipeline | beam.Create(["x"]) | of_user
    of_records = WriteToRocketMQ("t", client_factory=factory)
    _ = pipeline | "None" >> beam.Create([]).with_output_types(Record) | "Records" >> of_records
    assert (shown(of_user), shown(of_records)) == ("id_fn", "coordinates of records")
    assert "random" not in compare(pipeline.to_runner_api(), Mode.SPARK).table()


def large(batch: Batch) -> Batch:  # type: ignore[type-arg]  # as on docs/batches.md
    return batch.with_values([batch[0]], [0])


def of_records(batch: Batch[Record]) -> Batch[Message]:
    return Batch([Message(batch[0].body)], batch.queue, batch.offsets[:1])


class Large(beam.DoFn):
    def process(self, batch: Batch[Record]) -> Iterable[Batch[Record]]:
        yield large(batch)


def to_messages(batch: list[Record]) -> list[Message]:
    return [Message(record.body) for record in batch]


for function in (large, of_records, Large.process, to_messages):
    function.__annotations__ = get_type_hints(function)  # Beam does not read those of `from __future__`
PLACES, UNTYPED = "places of the batch", "; copies cannot be dropped"
STEPS: dict[str, tuple[Callable[[], Any], bool, str]] = {
    "the page's": (lambda: beam.Map(large), True, PLACES),
    "with the type of its values": (lambda: beam.Map(of_records), True, PLACES),
    "a DoFn": (lambda: beam.ParDo(Large()), True, PLACES),
    "two": (lambda: beam.Map(large) | "2" >> beam.Map(of_records), True, PLACES),
    "a Filter": (lambda: beam.Filter(lambda one: len(one) > 0), True, PLACES),
    "a list of Batches": (lambda: beam.FlatMap(lambda one: [one]).with_output_types(Batch[bytes]), True, PLACES),
    "lists": (lambda: beam.Map(large) | "2" >> beam.Map(to_messages), True, "random" + UNTYPED),
    "without hints": (
        lambda: beam.Map(lambda one: large(one)),
        True,
        "random, unless each element is a Batch, or a list of Records" + UNTYPED,
    ),
    "elements without hints": (
        lambda: beam.FlatMap(list) | "2" >> beam.Map(lambda record: max(record, record)),
        False,
        "random, unless each element is a Record" + UNTYPED,
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_on_batches_is_taken_and_what_is_said_of_ids_is_true(
    case: str, cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    step, batches, said = STEPS[case]
    for body in (b"a", b"b"):
        cluster.append("t", body, queue_id=0)
    cluster.create_topic("copies", 1)
    factory = InMemoryClientFactory(cluster.name)
    write = WriteToRocketMQ("copies", client_factory=factory, batches=batches)
    for _ in range(2):
        with beam.Pipeline(FnApiRunner()) as pipeline, caplog.at_level(logging.WARNING, "rmqio.transforms"):
            read = ReadFromRocketMQ(
                "t", start=StartFrom.earliest(), stop=StopAt.latest(), batches=True, client_factory=factory
            )
            _ = pipeline | read | step() | write
    assert shown(write) == said
    stored = [record.message_id for record in cluster.records("copies")]
    assert (2 * len(set(stored)) == len(stored)) is not said.startswith("random;")
    assert len(caplog.messages) == 2 * said.startswith("random")


IDS = DefaultIds("write", "run", beam.coders.StrUtf8Coder(), FixedWindows(10).get_window_coder())
FIRST = PaneInfo(True, False, PaneInfoTiming.EARLY, 0, 0)
SECOND = PaneInfo(False, False, PaneInfoTiming.EARLY, 1, 0)


def id_of(
    key: str = "a",
    window: int = 0,
    pane: PaneInfo = FIRST,
    topic: str = "t",
    message: Message = Message(b"m"),  # noqa: B008
    ids: DefaultIds = IDS,
) -> str:
    origin = WindowedValue(None, 0, (IntervalWindow(window, window + 10),), pane)
    return ids.id_of((key, [1]), origin, message, topic)


def test_an_id_is_the_same_again_and_another_one_for_whatever_differs() -> None:
    assert id_of() == id_of()
    others = [
        id_of(key="b"),
        id_of(window=10),
        id_of(pane=SECOND),
        id_of(topic="u"),
        id_of(message=Message(b"n")),
        id_of(message=Message(b"m", tags="x")),
        id_of(message=Message(b"m", properties={"p": "1"})),
        id_of(ids=DefaultIds("other", "run", IDS.key_coder, IDS.window_coder)),
        id_of(ids=DefaultIds("write", "later", IDS.key_coder, IDS.window_coder)),
    ]
    assert len({id_of(), *others}) == len(others) + 1


def test_parts_do_not_run_into_each_other() -> None:
    left = DefaultIds("ab", "c", IDS.key_coder, IDS.window_coder)
    right = DefaultIds("a", "bc", IDS.key_coder, IDS.window_coder)
    assert id_of(ids=left) != id_of(ids=right)


def test_each_pane_of_a_window_is_another_message(cluster: InMemoryCluster) -> None:
    """Two panes with the same content are two events."""
    stream = test_stream.TestStream().advance_watermark_to(0)
    for _ in range(3):
        stream.add_elements([TimestampedValue(("a", 0), 1)])
    stream.advance_watermark_to_infinity()
    with beam.Pipeline("BundleBasedDirectRunner", PipelineOptions(STREAM)) as pipeline:
        windows = beam.WindowInto(
            FixedWindows(10), trigger=Repeatedly(AfterCount(1)), accumulation_mode=AccumulationMode.ACCUMULATING
        )
        sums = pipeline | stream.with_output_types(tuple[str, int]) | windows | beam.CombinePerKey(sum)
        _ = sums | WriteToRocketMQ("t", serializer=same, client_factory=InMemoryClientFactory(cluster.name))
    stored = [record.message_id for record in cluster.records("t")]
    assert len(stored) >= 3
    assert len(set(stored)) == len(stored)


def test_a_stream_that_runs_again_sends_the_same_ids(cluster: InMemoryCluster) -> None:
    """So a reader can drop the copies of a bundle that was run again."""
    for _ in range(2):
        with beam.Pipeline(FnApiRunner(), PipelineOptions(STREAM)) as pipeline:
            sums = pairs(pipeline) | beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(sum)
            _ = sums | WriteToRocketMQ("t", serializer=same, client_factory=InMemoryClientFactory(cluster.name))
    assert [*Counter(record.message_id for record in cluster.records("t")).values()] == [2, 2]


def test_a_bounded_pipeline_has_other_ids_when_it_is_made_anew() -> None:
    pipeline = beam.Pipeline(FnApiRunner())
    grouped = pairs(pipeline) | beam.GroupByKey()
    first, second = (default_ids(grouped, "label", is_stream=False) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.run != second.run


def test_ids_by_a_key_are_the_same_when_a_stream_resumes_and_those_of_one_run_else() -> None:
    for flags, same in (STREAM, True), ([], False):
        one, other = (ids_by(beam.Pipeline(options=PipelineOptions(flags)), lambda it: it[:1]) for _ in range(2))
        assert (one(("\ud800", 1)) == other(("\ud800", 2))) is same
        assert one(("a", 1)) == one(("a", 2)) != one(("b", 1))


def test_exactly_once_is_refused_where_ids_are_random(cluster: InMemoryCluster) -> None:
    factory = InMemoryClientFactory(cluster.name)
    pipeline = beam.Pipeline(FnApiRunner())
    look: dict[str, Any] = {"exactly_once": LookBack("position"), "client_factory": factory}
    _ = pairs(pipeline) | beam.GroupByKey() | "grouped" >> WriteToRocketMQ("t", serializer=same, **look)
    with pytest.raises(LocalError, match="are random: give id_fn="):
        _ = pipeline | "other" >> beam.Create([Message(b"m")]) | WriteToRocketMQ("t", **look)


def test_windows_are_told_apart_by_their_coder() -> None:
    origin = WindowedValue(None, 0, (GlobalWindow(),), FIRST)
    ids = DefaultIds("write", "run", beam.coders.StrUtf8Coder(), GlobalWindows().get_window_coder())
    assert ids.id_of(("a", 1), origin, Message(b"m"), "t") == ids.id_of(("a", 1), origin, Message(b"m"), "t")
