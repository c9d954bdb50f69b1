"""`Audit` in a pipeline, and `rmqio audit` over its topics: each fault is named with the hop where it happened."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import Batch, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.audit.checking import Request, Result, audit
from rmqio.audit.report import document, lines
from rmqio.audit.sketch import Hop, Total, decode, encode
from rmqio.audit.transform import CountFn, TotalsFn, _signed, message_of
from rmqio.batches import record_id
from rmqio.errors import LocalError, WireError
from rmqio.model import MessageQueue
from rmqio.runners import options
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.coders import BatchConstraint
from rmqio.transforms.shared import close_shared_clients

COUNT = 300


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("source", "sink", "hops", "dead"):
            made.create_topic(topic, 2)
        yield made
        close_shared_clients()


@dataclasses.dataclass
class Flow:
    """Pipelines over one cluster."""

    cluster: InMemoryCluster

    @property
    def factory(self) -> InMemoryClientFactory:
        return InMemoryClientFactory(self.cluster.name)

    def fill(self, count: int = COUNT) -> None:
        for number in range(count):
            self.cluster.append("source", b"%d" % number, keys=(f"k{number}",), queue_id=number % 2)

    def read(self, **more: Any) -> ReadFromRocketMQ:
        return ReadFromRocketMQ(
            "source",
            consumer_group="g",
            start=StartFrom.earliest(),
            stop=StopAt.latest(),
            client_factory=self.factory,
            **more,
        )

    def hop(self, name: str, **more: Any) -> Audit:
        return Audit(name, topic="hops", client_factory=self.factory, **more)

    def write(self, **more: Any) -> WriteToRocketMQ:
        return WriteToRocketMQ("sink", client_factory=self.factory, **more)

    def run(self, build: Callable[[Any], Any]) -> None:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            build(pipeline)

    def audit(self, **more: Any) -> Result:
        client = self.factory.queue_client()
        try:
            return audit(client, Request("source", "sink", **{"audit_topic": "hops", **more}))
        finally:
            client.close()


@pytest.fixture
def flow(cluster: InMemoryCluster) -> Flow:
    made = Flow(cluster)
    made.fill()
    return made


def number_of(record: Record) -> int:
    return int(record.body)


def drop_some(record: Record) -> list[Record]:
    return [] if number_of(record) in (7, 8, 9, 250) else [record]


def double_some(record: Record) -> list[Record]:
    return [record] * (2 if number_of(record) in (20, 101) else 1)


def test_singly_each_fault_is_found_where_it_is(flow: Flow) -> None:
    flow.run(
        lambda pipeline: (
            pipeline
            | flow.read()
            | flow.hop("read")
            | "Drop" >> beam.FlatMap(drop_some).with_output_types(Record)
            | flow.hop("dropped")
            | "Double" >> beam.FlatMap(double_some).with_output_types(Record)
            | flow.hop("doubled")
            | flow.write()
        )
    )
    result = flow.audit()
    assert result.identity.name == "place"
    total = result.findings.total
    assert (total.sent, total.arrived, total.lost, total.doubled, total.foreign) == (COUNT, COUNT - 4, 4, 2, 0)
    assert {name: passed.count for name, passed in result.hops.items()} == {
        "read": COUNT,
        "dropped": COUNT - 4,
        "doubled": COUNT - 2,
    }
    report = document(result, 10, {})
    assert {(each["after"][0], each["before"], each["lost"], each["doubled"]) for each in report["faults"]} == {
        ("read", "dropped", 2, 0),
        ("dropped", "doubled", 0, 1),
    }
    ranges = report["ranges"]["lost"]
    assert [(each["queue"], each["first_offset"], each["last_offset"], each["where"]) for each in ranges] == [
        (report["from_queues"][0]["queue"], 4, 4, "between 'read' and 'dropped'"),
        (report["from_queues"][0]["queue"], 125, 125, "between 'read' and 'dropped'"),
        (report["from_queues"][1]["queue"], 3, 4, "between 'read' and 'dropped'"),
    ]
    assert {each["where"] for each in report["messages"]["doubled"]} == {"between 'dropped' and 'doubled'"}


class DropFn(beam.DoFn):
    """Leaves values of batches out, as a user's own code does."""

    def process(self, element: Any) -> Any:
        kept = [n for n, record in enumerate(element) if number_of(record) not in (7, 8, 9, 250)]
        yield element.with_values([element[n] for n in kept], kept)


class FaultyFn(beam.DoFn):
    """Leaves one out, and one twice, of the same queue: the count is right, the sum is not."""

    def process(self, element: Any) -> Any:
        kept = [n for n, message in enumerate(element) for _ in range({b"30": 0, b"40": 2}.get(message.body, 1))]
        yield element.with_values([element[n] for n in kept], kept)


def to_message(record: Record) -> Message:
    if number_of(record) == 77:
        raise ValueError("bad")
    return Message(record.body)


def test_in_batches_with_steps_and_dead_letters(flow: Flow) -> None:
    mapping = MapRecords(to_message, dead_letter_topic="dead", client_factory=flow.factory)
    flow.run(
        lambda pipeline: (
            pipeline
            | flow.read(batches=True)
            | flow.hop("read")
            | "Drop" >> beam.ParDo(DropFn()).with_output_types(BatchConstraint(Record))
            | flow.hop("dropped")
            | "Map" >> mapping
            | flow.hop("mapped")
            | "Fault" >> beam.ParDo(FaultyFn())
            | flow.write(batches=True)
        )
    )
    result = flow.audit(dead_letter_topic="dead")
    total = result.findings.total
    assert (total.sent, total.lost, total.doubled, total.foreign) == (COUNT, 5, 1, 0), "the copy has an id of its own"
    assert (total.arrived, total.in_dead_letters) == (COUNT - 6, 1)
    report = document(result, 10, {})
    faults = {
        (tuple(each["after"]), each["before"]): [(each["offset"], each["queue"]) for each in each["lost_messages"]]
        for each in report["faults"]
    }
    assert set(faults) == {(("read",), "dropped"), (("dropped",), "mapped"), (("mapped",), None)}
    lost = {(each["offset"], each["where"]) for each in report["messages"]["lost"]}
    assert (15, "between 'mapped' and topic sink") in lost
    assert (4, "between 'read' and 'dropped'") in lost
    (doubled,) = report["messages"]["doubled"]
    assert (doubled["offset"], doubled["where"]) == (20, "between 'mapped' and topic sink")


class EvenFn(beam.DoFn):
    """Keeps the values with an even number, or those with an odd one."""

    def __init__(self, even: bool) -> None:
        self._even = even

    def process(self, element: Any) -> Any:
        kept = [n for n, record in enumerate(element) if (number_of(record) % 2 == 0) == self._even]
        yield element.with_values([element[n] for n in kept], kept)


@pytest.mark.parametrize("form", ["branches", "renamed", "repeated"])
def test_ids_of_several_labels_are_those_of_one_topic(form: str, flow: Flow) -> None:
    """Branches that meet again in a topic, and a function that got another label between two runs."""

    def build(pipeline: Any, *, labels: dict[str, bool]) -> Any:
        read = pipeline | flow.read(batches=True) | flow.hop("read")
        return [
            read
            | f"Only {label}" >> beam.ParDo(EvenFn(even)).with_output_types(BatchConstraint(Record))
            | label >> MapRecords(lambda record: Message(record.body))
            for label, even in labels.items()
        ]

    def run(labels: dict[str, bool]) -> None:
        flow.run(
            lambda pipeline: (
                build(pipeline, labels=labels) | beam.Flatten() | flow.hop("mapped") | flow.write(batches=True)
            )
        )

    if form == "branches":
        run({"Even": True, "Odd": False})
    else:
        run({"Even": True})
        run({"Odd": False})
    if form == "repeated":
        run({"Odd": False})
    total = flow.audit().findings.total
    doubled = COUNT // 2 if form == "repeated" else 0
    assert (total.arrived, total.lost, total.doubled, total.foreign) == (COUNT, 0, doubled, 0)
    with_steps = flow.audit(audit_topic=None, steps=("/Even", "/Odd")).findings.total
    assert (with_steps.arrived, with_steps.lost, with_steps.doubled) == (COUNT, 0, doubled)
    for refused, reason in (
        ({"most_rows": 10}, r"are looked for with one label, here '/(Even|Odd)', and not with '/(Even|Odd)'"),
        ({"audit_topic": None, "by": "place"}, r"the labels of MapRecords and of SQL, which are not known here"),
    ):
        with pytest.raises(LocalError, match=reason):
            flow.audit(**refused)


def fail_tenth(record: Record) -> Message:
    if number_of(record) % 10 == 0:
        raise ValueError("bad")
    return Message(record.body, keys=record.keys)


class DropManyFn(beam.DoFn):
    """Leaves 238 values out."""

    def process(self, element: Any) -> Any:
        kept = [n for n, each in enumerate(element) if int(each.body) % 4 != 1 or int(each.body) >= 952]
        yield element.with_values([element[n] for n in kept], kept)


def test_many_losses_beside_dead_letters_are_named_with_their_hop(flow: Flow) -> None:
    for number in range(COUNT, 1_000):
        flow.cluster.append("source", b"%d" % number, keys=(f"k{number}",), queue_id=number % 2)
    mapping = MapRecords(fail_tenth, dead_letter_topic="dead", client_factory=flow.factory)
    flow.run(
        lambda pipeline: (
            pipeline
            | flow.read(batches=True)
            | flow.hop("read")
            | "Parse" >> mapping
            | flow.hop("parsed")
            | "Drop" >> beam.ParDo(DropManyFn()).with_output_types(BatchConstraint(Message))
            | flow.hop("kept")
            | flow.write(batches=True)
        )
    )
    for by in ("auto", "place", "keys"):
        report = document(flow.audit(by=by, dead_letter_topic="dead"), 10, {})
        assert (report["sent"], report["arrived"], report["in_dead_letters"]) == (1_000, 662, 100)
        assert report["wrong"] == {"lost": 238}
        assert {each["where"] for each in report["messages"]["lost"]} == {"between 'parsed' and 'kept'"}
        text = "\n".join(lines(report))
        assert "  between 'read' and 'parsed'   100 dead letters\n  between 'parsed' and 'kept'   238 lost\n" in text
    without = {"audit_topic": None, "dead_letter_topic": "dead"}
    report = document(flow.audit(by="place", steps=("/Parse",), **without), 10, {})
    assert report["wrong"] == {"lost": 238}
    for by, reason in (("place", "which are not known here"), ("auto", "use --by to say what")):
        with pytest.raises(LocalError, match=reason):
            flow.audit(by=by, **without)


def test_a_bundle_writes_a_sketch_for_each_block_label_and_window() -> None:
    """This is what an audit topic costs, as docs/operate/audit.md says."""
    counting = CountFn("hop", "run", None, 60_000, beam.window.GlobalWindows())
    counting.start_bundle()
    for at_s, (start, steps) in itertools.product((0, 59, 60), ((4_000, ""), (4_095, "/Map"), (100, ""))):
        batch: Batch[bytes] = Batch([b"x"] * 2, MessageQueue("t", "b", 0), range(start, start + 2), steps)
        counting.process(batch, timestamp=beam.utils.timestamp.Timestamp(at_s))
    sketches = [output.value.value for output in counting.finish_bundle()]
    assert len(sketches) == 2 * 3, "in two minutes: one block without a label, two with it"
    bodies = [message_of(text, Hop("hop", 0, ()), Total(*total)).body for text, total in sketches]
    assert max(map(len, bodies)) < 400


def test_elements_without_a_place_are_counted_by_their_ids(flow: Flow) -> None:
    def keep(number: str) -> bool:
        return number not in ("33", "44")

    def message(number: str) -> Message:
        return Message(number.encode(), keys=(f"k{number}",))

    flow.run(
        lambda pipeline: (
            pipeline
            | flow.read()
            | "Number" >> beam.Map(lambda record: record.body.decode()).with_output_types(str)
            | flow.hop("numbers", id_of=lambda number: f"k{number}")
            | beam.Filter(keep)
            | "Sliding" >> beam.WindowInto(beam.window.SlidingWindows(60, 20))
            | flow.hop("kept", id_of=lambda number: f"k{number}")
            | beam.WindowInto(beam.window.GlobalWindows())
            | beam.Map(message).with_output_types(Message)
            | flow.write()
        )
    )
    result = flow.audit(by="keys")
    assert {name: passed.count for name, passed in result.hops.items()} == {"numbers": COUNT, "kept": COUNT - 2}
    report = document(result, 10, {})
    assert [each["where"] for each in report["messages"]["lost"]] == ["between 'numbers' and 'kept'"] * 2


def test_without_timestamps_and_over_block_borders(flow: Flow) -> None:
    """Batches of a user's own, with a border of blocks inside, in several runs."""
    queue = flow.cluster.records("source")[0].queue
    for _ in range(8_100):
        flow.cluster.append("source", b"0", queue_id=queue.queue_id)
    ranges = [range(1), range(1, 8_250)]
    for each in ranges:
        batch = Batch([b"x"] * len(each), queue, each)
        flow.run(lambda pipeline, batch=batch: pipeline | beam.Create([batch]) | flow.hop("made"))  # type: ignore[misc]
    shuffled = Batch([b"x"] * 3, queue, [5_000, 4_095, 4_096])
    flow.run(lambda pipeline: pipeline | beam.Create([shuffled]) | flow.hop("other"))
    (made, other) = flow.audit(by="keys").hops.values()
    assert sorted((unit.block, total.elements) for unit, total in made.units.items()) == [
        (0, 4_096),
        (1, 4_096),
        (2, 58),
    ]
    assert len(made.runs) == 2
    assert [(unit.block, total.elements) for unit, total in sorted(other.units.items())] == [(0, 1), (1, 2)]


def test_what_has_gone_by_is_the_last_total_of_a_key(flow: Flow) -> None:
    """Several bundles of a run add up in the runner's state; each emits the total so far."""
    queue = flow.cluster.records("source")[0].queue
    batches = [Batch([b"x"] * 2, queue, range(at, at + 2)) for at in range(0, 100, 2)]
    flow.run(lambda pipeline: pipeline | beam.Create(batches) | beam.Reshuffle() | flow.hop("made"))
    (made,) = flow.audit(by="keys").hops.values()
    assert made.count == 100
    sketches = [decode(record.body) for record in flow.cluster.records("hops")]
    last = max(sketches, key=lambda sketch: sketch.total.elements)
    assert last.total.elements == 100
    # An attempt that failed after it had written, and then the one that succeeded.
    (queue_id,) = {record.queue_id for record in flow.cluster.records("hops")}
    failed = last._replace(total=last.total._replace(elements=102))
    for sketch in (failed, last):
        flow.cluster.append("hops", encode(sketch), queue_id=queue_id)
    (made,) = flow.audit(by="keys").hops.values()
    assert made.count == 100


def test_totals_of_very_many_elements_fit_into_the_runners_state() -> None:
    """Ids without timestamps are in 16 parts of one window: 86 million of them exceed 64 bits of summed times."""
    coder = TotalsFn.TOTAL.coder
    total = Total(6_000_000, 1 << 63, 6_000_000 * 1_790_000_000_000, 1, 2)
    assert coder.decode(coder.encode(_signed(total)))[0] == 6_000_000
    assert coder.decode(coder.encode(_signed(total)))[3:] == (1, 2)


def test_offsets_with_gaps_count_like_ranges() -> None:
    """Whatever form the offsets have, and by whatever windows, the sums are the same."""
    queue = MessageQueue("t", "b", 0)
    offsets = [offset for offset in range(4_000, 4_300) if offset % 7]
    found = []
    for parts in ([offsets], [[offset] for offset in offsets], [range(o, o + 1) for o in reversed(offsets)]):
        counting = CountFn("hop", "run", None, 60_000, beam.window.GlobalWindows())
        counting.start_bundle()
        for number, part in enumerate(parts):
            batch: Batch[bytes] = Batch([b"x"] * len(part), queue, part)
            counting.process(batch, timestamp=beam.utils.timestamp.Timestamp(number % 2))
        sketches = [output.value.value for output in counting.finish_bundle()]
        found.append(sorted((key, total[:2]) for key, total in sketches))
    assert found[0] == found[1] == found[2]
    assert [total[0] for _, total in found[0]] == [sum(o < 4_096 for o in offsets), sum(o >= 4_096 for o in offsets)]


def test_a_sketch_that_comes_after_its_messages_is_no_fault(flow: Flow) -> None:
    """The stage of totals may write after the sink: blocks with young messages are not judged."""
    flow.run(lambda pipeline: pipeline | flow.read() | flow.hop("read") | flow.write())
    source = flow.cluster.append("source", b"1", queue_id=0)
    flow.cluster.append("sink", b"1", properties={"UNIQ_KEY": record_id(source)})
    assert flow.audit().faults, "without a grace, it looks as if the hop had lost it"
    result = flow.audit(grace_ms=60_000)
    assert (result.findings.total.arrived, result.faults, result.units_left_out) == (COUNT + 1, [], 2)


def test_sketches_that_retention_has_deleted_are_noted(flow: Flow) -> None:
    flow.run(lambda pipeline: pipeline | flow.read() | flow.hop("read") | flow.write())
    assert flow.audit().notes == []
    (queue,) = {record.queue for record in flow.cluster.records("hops")[:1]}
    flow.cluster.delete_before(queue, 1)
    (note,) = flow.audit().notes
    assert "retention has deleted messages of hops" in note


IN_PROCESS = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@pytest.mark.parametrize("run", [None, "mine"])
@pytest.mark.parametrize(
    ("runner", "flags", "keeps"),
    [
        (IN_PROCESS, [], False),
        (IN_PROCESS, ["--streaming"], False),
        ("DirectRunner", ["--streaming"], False),
        ("FlinkRunner", ["--streaming"], True),
    ],
)
def test_a_run_that_begins_anew_does_not_replace_the_last_totals(
    runner: str, flags: list[str], keeps: bool, run: str | None, flow: Flow, tmp_path: Path
) -> None:
    """--checkpoint_dir has no effect on a batch job, nor on a stream in this process: totals begin at zero."""
    found = set()
    for _ in range(2):
        given = options([f"--runner={runner}", f"--checkpoint_dir={tmp_path}", *flags])
        hop = flow.hop("read", run=run)
        values = beam.Pipeline(options=given) | beam.Create([1]).with_output_types(Record)
        found.add(hop._run_of(values))
    is_named_batch = run is not None and not flags
    assert len(found) == (1 if keeps or is_named_batch else 2)
    assert all(each.startswith(run or "") for each in found)


@pytest.mark.parametrize("run", [None, "mine"])
def test_starts_of_a_stream_in_this_process_add_up(run: str | None, flow: Flow, tmp_path: Path) -> None:
    """The second start goes on from the group's offsets, in the same block of offsets."""
    queue = flow.cluster.records("source")[0].queue
    given = PipelineOptions(["--streaming", f"--checkpoint_dir={tmp_path}"])
    for offsets in (range(50), range(50, 150)):
        batch = Batch([b"x"] * len(offsets), queue, offsets)
        with beam.Pipeline(runner=FnApiRunner(), options=given) as pipeline:
            _ = pipeline | beam.Create([batch]) | flow.hop("read", run=run)
    (read,) = flow.audit(by="keys").hops.values()
    assert (read.count, len(read.runs)) == (150, 2)


def test_another_message_in_the_audit_topic_is_an_error(flow: Flow) -> None:
    flow.cluster.append("hops", b"hello")
    with pytest.raises(WireError, match="audit topic hops: queue hops/broker-a/0, offset 0: not a sketch of Audit"):
        flow.audit(by="keys")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda flow, found: flow.hop(""), "it must be text"),
        (lambda flow, found: flow.hop("a", window_s=0), "window_s is 0"),
        (lambda flow, found: flow.hop("a", id_of=3), "id_of is 3"),
        (lambda flow, found: found | flow.hop("a"), "have no place in a topic: give id_of="),
        (
            lambda flow, found: (found | flow.hop("a", id_of=str), found | "again" >> flow.hop("a", id_of=str)),
            "two Audits are named 'a'",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(build: Callable[[Flow, Any], Any], expected: str, flow: Flow) -> None:
    found = beam.Pipeline(runner=FnApiRunner()) | beam.Create([1]).with_output_types(int)
    with pytest.raises(LocalError, match=expected):
        build(flow, found)


def test_an_element_without_a_place_is_an_error_that_says_what_to_do(flow: Flow) -> None:
    with pytest.raises(Exception, match="give id_of="):
        flow.run(
            lambda pipeline: pipeline | beam.Create([1]) | beam.Map(lambda n: n).with_output_types(Any) | flow.hop("a")
        )
