"""All runners do what docs/read.md and docs/write.md say: one pipeline, on a broker with access control and TLS.

It has filters on the broker, dead letters of reads and writes, error handlers, and batches with bad members. If a
runner supports unbounded reads, a queue is added during the read. Other tests, with Beam's in-process runner, show
each of these in detail.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from apache_beam.transforms.error_handling import ErrorHandler
from pyspark import TaskContext

from rmqio import (
    MapRecords,
    Message,
    MessageQueue,
    ReadFromRocketMQ,
    ReadOptions,
    Record,
    StartFrom,
    StopAt,
    WriteDeadLetters,
    WriteToRocketMQ,
)
from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.dead_letters.letters import ERROR_CLASS, ORIGIN, SINK_TOPIC
from rmqio.errors import RmqioError
from rmqio.runners import options
from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.jobserver import SERVERS
from rmqio.serde import JsonDeserializer
from tests.helpers.check import read_topic
from tests.helpers.pipelines.unended import goes_on
from tests.helpers.servers.guarded import Guarded
from tests.helpers.waiting import at_most, until, until_found

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

COUNT = 30
TAGS = ("a", "b", "c")
NOT_A_TOPIC = "no topic/of that name"
UNSENT = (("tags", 0), ("sql", 20), ("batches", 1))
END = "the end"
TASK = "task"
QUICK = ReadOptions(poll_timeout_ms=200)


class Run(NamedTuple):
    flags: str
    endless: bool


def run(mode: Mode, flags: str, *, endless: bool = False) -> Any:
    name = f"{flags.partition('Runner')[0]}{' endless' * endless}"
    return pytest.param(Run(f"--runner={flags}", endless), id=name, marks=pytest.mark.shows(mode))


RUNS = [
    run(Mode.DIRECT, "DirectRunner"),
    run(Mode.DIRECT, "DirectRunner", endless=True),
    run(Mode.SPARK, "SparkRunner"),
    run(Mode.SPARK_STREAMING, "SparkRunner --streaming", endless=True),
    run(Mode.FLINK, "FlinkRunner --parallelism=1"),
    run(Mode.FLINK_STREAMING, "FlinkRunner --parallelism=1 --checkpointing_interval=500", endless=True),
]


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


class Topics:
    """The topics of one run on the guarded broker."""

    def __init__(self, guarded: Guarded) -> None:
        name = uuid.uuid4().hex[:10]
        self._guarded = guarded

        def made(what: str) -> str:
            return guarded.create_topic(f"{what}-{name}", queues=1)

        self.mixed, self.broken, self.growing, self.sink = map(made, ("mixed", "broken", "growing", "sink"))
        self.letters, self.handled, self.mapped = map(made, ("letters", "handled", "mapped"))
        self.unsent, self.refused, self.left_out = map(made, ("unsent", "refused", "left-out"))
        self.at: dict[str, Any] = {"name_server": guarded.broker.name_server, "security": guarded.security}
        self.client = RemotingQueueClient(guarded.options())
        self.producer = RemotingProducer(guarded.options(), "everywhere")

    def send(self, topic: str, *messages: Message, queue_id: int = 0) -> None:
        self.producer.send_batch(list(messages), MessageQueue(topic, self._guarded.broker.name, queue_id))

    def add_queue(self, topic: str) -> None:
        self._guarded.create_topic(topic, queues=2)

    def records(self, topic: str) -> list[Record]:
        return list(read_topic(self.client, topic))

    def offsets(self, topic: str) -> list[int]:
        return [record.queue_offset for record in self.records(topic)]

    def bodies(self, topic: str) -> Counter[str]:
        return Counter(record.body.decode() for record in self.records(topic))

    def close(self) -> None:
        self.producer.close()
        self.client.close()


@pytest.fixture
def topics(guarded: Guarded) -> Iterator[Topics]:
    with closing(Topics(guarded)) as made:
        yield made


def numbered(element: Any, branch: str) -> Message:
    number = element["number"] if isinstance(element, dict) else json.loads(element.body)["number"]
    if number == END:
        raise RmqioError(END)
    # A message that can never be sent becomes a dead letter of the write, or goes to its error handler.
    topic = NOT_A_TOPIC if (branch, number) in UNSENT else None
    return Message(f"{branch} {number}".encode(), topic=topic, properties={TASK: task()})


def task() -> str:
    """Tells Spark's tasks apart."""
    context = TaskContext.get()
    return f"{os.getpid()}/{None if context is None else context.partitionId()}"


def of_record(record: Record) -> Message:
    return numbered(JsonDeserializer()(record), "batches")


class WriteHandled(beam.PTransform[Any, None]):
    """A write with an error handler. Beam gives the parts of each handler the same labels: it needs its own scope."""

    def __init__(self, sink: str, refused: str, at: dict[str, Any]) -> None:
        super().__init__()
        self._sink, self._refused, self._at = sink, refused, at

    def expand(self, messages: Any) -> None:
        with ErrorHandler(WriteDeadLetters(self._refused, **self._at)) as unsent:
            _ = messages | "Write" >> WriteToRocketMQ(self._sink, **self._at).with_error_handler(unsent)


def build(pipeline: Any, topics: Topics, *, endless: bool) -> None:
    differing: dict[str, Any] = {"discovery_interval_ms": 500} if endless else {"splits_per_queue": 3}
    options = dataclasses.replace(QUICK, **differing)
    stop = None if endless else StopAt.latest()
    given: dict[str, Any] = {**topics.at, "start": StartFrom.earliest(), "stop": stop, "options": options}

    def to_sink(found: Any, branch: str) -> Any:
        messages = found | f"Number {branch}" >> beam.Map(numbered, branch).with_output_types(Message)
        return messages | f"Write {branch}" >> WriteToRocketMQ(
            topics.sink, **topics.at, dead_letter_topic=topics.unsent, with_sent=False
        )

    to_sink(pipeline | "Tags" >> ReadFromRocketMQ(topics.mixed, tags="a || b", **given), "tags")
    sql = pipeline | "Sql" >> ReadFromRocketMQ(topics.mixed, sql_filter="price >= 20", **given)
    messages = sql | "Number sql" >> beam.Map(numbered, "sql").with_output_types(Message)
    _ = messages | "Write sql" >> WriteHandled(topics.sink, topics.refused, topics.at)
    to_sink(pipeline | "Growing" >> ReadFromRocketMQ(topics.growing, **given), "growing")
    decoded = {**given, "deserializer": JsonDeserializer()}
    to_sink(
        pipeline | "Letters" >> ReadFromRocketMQ(topics.broken, dead_letter_topic=topics.letters, **decoded), "letters"
    )
    batches = pipeline | "Batches" >> ReadFromRocketMQ(topics.broken, batches=True, **given)
    mapped = batches | "Map" >> MapRecords(of_record, dead_letter_topic=topics.mapped, **topics.at)
    _ = mapped | "Write batches" >> WriteToRocketMQ(
        topics.sink, **topics.at, dead_letter_topic=topics.left_out, batches=True, with_sent=False
    )
    with ErrorHandler(WriteDeadLetters(topics.handled, **topics.at)) as errors:
        to_sink(
            pipeline | "Handled" >> ReadFromRocketMQ(topics.broken, **decoded).with_error_handler(errors), "handled"
        )


def wanted(endless: bool) -> Counter[str]:
    found = Counter(f"tags {n}" for n in range(1, COUNT) if n % 3 < 2)
    found.update(f"sql {n}" for n in range(21, COUNT))
    found.update(f"{branch} {n}" for branch in ("letters", "handled") for n in range(COUNT) if n % 5)
    found.update(f"batches {n}" for n in range(2, COUNT) if n % 5)
    return found + Counter(f"growing {n}" for n in range(3 if endless else 1))


@contextmanager
def started(pipeline: Any, topics: Topics, flags: str) -> Iterator[Callable[[], bool]]:
    """Runs an unbounded pipeline; yields a part of `alive`. The in-process runner can only end it with a failure."""
    if "DirectRunner" not in flags:
        result = pipeline.run()
        try:
            yield goes_on(result)
        finally:
            result.cancel()
        return
    ends: list[str] = []

    def run() -> None:
        try:
            pipeline.run()
        except Exception as error:  # noqa: BLE001  checked below
            ends.append(str(error))

    def is_up() -> bool:
        assert thread.is_alive(), f"the pipeline has ended: {ends}"
        return True

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield is_up
    finally:
        topics.send(topics.growing, Message(json.dumps({"number": END}).encode()))
        thread.join(at_most(60))
    assert END in ends[0]


@pytest.mark.parametrize("given", RUNS)
def test_filters_letters_and_new_queues_with_credentials_and_tls(given: Run, topics: Topics, tmp_path: Path) -> None:
    def message(number: int, *, broken: bool = False) -> Message:
        body = b"not JSON" if broken else json.dumps({"number": number}).encode()
        return Message(body, tags=TAGS[number % 3], properties={"price": str(number)})

    topics.send(topics.mixed, *map(message, range(COUNT)))
    topics.send(topics.broken, *(message(n, broken=n % 5 == 0) for n in range(COUNT)))
    topics.send(topics.growing, message(0))
    sent = (topics.mixed, COUNT), (topics.broken, COUNT), (topics.growing, 1)
    for topic, count in sent:
        until_found(partial(topics.offsets, topic), range(count))
    flags = given.flags.split()
    if given.endless and "DirectRunner" not in given.flags:
        flags.append(f"--checkpoint_dir={tmp_path / 'checkpoint'}")
    pipeline = beam.Pipeline(options=options(flags))
    build(pipeline, topics, endless=given.endless)
    broken = COUNT // 5

    def left() -> list[Counter[str] | tuple[str, list[int]]]:
        """Returns the results that are missing, and the offsets of letters where there are too few."""
        letters = dict.fromkeys((topics.letters, topics.handled, topics.mapped), broken)
        letters |= dict.fromkeys((topics.unsent, topics.refused, topics.left_out), 1)
        few = [(each, now) for each, count in letters.items() if len(now := topics.offsets(each)) < count]
        results = wanted(given.endless) - topics.bodies(topics.sink)
        return [*([results] if results else []), *few]

    if given.endless:
        with started(pipeline, topics, given.flags) as is_up:
            more: Any = {"alive": [is_up], "details": left, "still_s": 120}
            until(lambda: topics.bodies(topics.sink)["growing 0"] == 1, "the first queue", **more)
            topics.add_queue(topics.growing)
            topics.send(topics.growing, message(1), message(2), queue_id=1)
            until(lambda: not left(), "all results and letters, and what is in the new queue", **more)
    else:
        pipeline.run().wait_until_finish()
        until(lambda: not left(), "all results and letters", details=left)
    assert topics.bodies(topics.sink) == wanted(given.endless), "and each once"
    origins = [f"{topics.broken}/guarded/0/{n}" for n in range(COUNT) if n % 5 == 0]
    for topic in (topics.letters, topics.handled, topics.mapped):
        letters = topics.records(topic)
        assert sorted(str(each.get_property(ORIGIN)) for each in letters) == sorted(origins)
        assert {each.body for each in letters} == {b"not JSON"}
        assert {each.get_property(ERROR_CLASS) for each in letters} == {"SerdeError"}
    for topic, body in ((topics.unsent, b"tags 0"), (topics.refused, b"sql 20"), (topics.left_out, b"batches 1")):
        (letter,) = topics.records(topic)
        assert (letter.body, letter.get_property(SINK_TOPIC)) == (body, NOT_A_TOPIC)
    if given.flags == "--runner=SparkRunner":
        tasks = {each.get_property(TASK) for each in topics.records(topics.sink) if each.body.startswith(b"tags")}
        assert len(tasks) > 1, "one queue, with splits_per_queue: the runner gives the parts to several tasks"
    assert letter.get_property(ORIGIN) == f"{topics.broken}/guarded/0/1", "a batch knows where its values come from"
