"""Several reads and writes in one query on Spark, live side inputs, the size of a micro-batch, and a second Ctrl-C."""

from __future__ import annotations

import datetime
import itertools
import json
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.transforms.window import FixedWindows, SlidingWindows

from rmqio import Message, ReadFromRocketMQ, ReadOptions, Record, StartFrom, WriteToRocketMQ
from rmqio.client.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from rmqio.runners.capabilities import Mode
from rmqio.runners.spark import PipelineFailed, SparkRunner
from rmqio.start import StopAt
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.pipelines.finalizing import Committed
from tests.helpers.pipelines.unended import goes_on
from tests.helpers.waiting import at_most, runs, until, until_found

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ORDERS, RETURNS = 600, 300
INTERVAL_MS = 1_500
TOLD_LATE_S = 0.2


class Topics:
    """The topics of a test, and their contents."""

    def __init__(self, broker: LocalRocketMQ) -> None:
        self.broker = broker
        self.client = RemotingQueueClient(ClientOptions(broker.name_server))

    def made(self, bodies: Sequence[bytes] = (), queues: int = 2) -> str:
        name = f"several-{uuid.uuid4().hex[:12]}"
        self.broker.create_topic(name, queues=queues)
        self.send(name, bodies, queues)
        until_found(lambda: self.bodies(name), [body.decode() for body in bodies])
        return name

    def send(self, topic: str, bodies: Sequence[bytes], queues: int = 2) -> None:
        """Sends the bodies to the topic's queues by turns."""
        for number in range(queues):
            some = [Message(body) for body in bodies[number::queues]]
            if some:
                send_all(self.broker.broker, MessageQueue(topic, self.broker.name, number), some)

    def bodies(self, topic: str) -> list[str]:
        return [record.body.decode() for record in read_topic(self.client, topic)]

    def read(self, topic: str, **arguments: Any) -> ReadFromRocketMQ:
        address = self.broker.name_server
        return ReadFromRocketMQ(topic, name_server=address, start=StartFrom.earliest(), **arguments)

    def write(self, topic: str) -> WriteToRocketMQ:
        return WriteToRocketMQ(topic, name_server=self.broker.name_server, with_sent=False)


@pytest.fixture
def topics(rocketmq: LocalRocketMQ) -> Iterator[Topics]:
    made = Topics(rocketmq)
    yield made
    made.client.close()


def second_of(record: Record) -> int:
    """Returns the event time. Bodies are numbers, which are seconds of event time."""
    return int(record.body) * 1000


def told(total: tuple[str, int], window: Any = beam.DoFn.WindowParam) -> Message:
    return Message(f"{total[0]} {float(window.start):.0f} {total[1]}".encode())


def progress_of(result: Any) -> list[dict[str, Any]]:
    """Returns Spark's own progress of each micro-batch that has read something."""
    found: list[dict[str, Any]] = [each for each in result.query.recentProgress if each["observedMetrics"]]
    return [each for each in found if each["observedMetrics"]["rmqio"]["rows"]]


def test_two_reads_meet_in_sliding_windows_and_go_to_two_sinks(topics: Topics) -> None:
    orders, returns = topics.made([b"%d" % n for n in range(ORDERS)]), topics.made([b"%d" % n for n in range(RETURNS)])
    totals, copies = topics.made(), topics.made()
    limits = ["--max_records_per_trigger=200", f"--trigger_interval_ms={INTERVAL_MS}"]
    pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(["--streaming", *limits]))
    until_now = {"stop": StopAt.latest(), "timestamp": second_of}
    ordered = pipeline | "Orders" >> topics.read(orders, **until_now)
    returned = pipeline | "Returns" >> topics.read(returns, **until_now)
    _ = (
        (
            ordered | "Ordered" >> beam.Map(lambda _: ("all", 1)).with_output_types(tuple[str, int]),
            returned | "Returned" >> beam.Map(lambda _: ("all", -1)).with_output_types(tuple[str, int]),
        )
        | beam.Flatten()
        | beam.WindowInto(SlidingWindows(60, 30))
        | beam.CombinePerKey(sum)
        | beam.Map(told).with_output_types(Message)
        | "Totals" >> topics.write(totals)
    )
    copied = returned | "Copy" >> beam.Map(lambda record: Message(record.body)).with_output_types(Message)
    _ = copied | "Copies" >> topics.write(copies)
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"

    assert Counter(topics.bodies(copies)) == Counter(str(n) for n in range(RETURNS))
    wanted: Counter[int] = Counter()
    for sign, count in (1, ORDERS), (-1, RETURNS):
        for second in range(count):
            start = second // 30 * 30
            wanted.update({start: sign, start - 30: sign})
    assert sorted(topics.bodies(totals)) == sorted(f"all {start} {total}" for start, total in wanted.items())

    done = progress_of(result)
    rows = [each["observedMetrics"]["rmqio"]["rows"] for each in done]
    assert sum(rows) == ORDERS + RETURNS
    assert max(rows) <= 2 * 200, "of each source no more than it may take"
    began = [datetime.datetime.fromisoformat(each["timestamp"]) for each in done]
    assert len(began) >= 3
    for before, after in itertools.pairwise(began):
        assert after >= next_trigger(before), "not before its turn, however long the micro-batch before it took"


class Joined(beam.DoFn):
    """Writes each number beside the total of its window, and registers a finalizer for its bundle."""

    def __init__(self, finalizer: Committed) -> None:
        self._finalizer = finalizer

    def process(self, record: Record, total: int, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[Message]:
        finalizer.register(self._finalizer)
        yield Message(b"%s %d" % (record.body, total))


@pytest.mark.shows(Mode.SPARK_STREAMING)
def test_a_side_input_of_a_live_topic_and_finalizers_of_a_stream_that_goes_on(topics: Topics, tmp_path: Path) -> None:
    """A window's total is known once both queues of its topic have passed the window."""
    checkpoint, notes = tmp_path / "checkpoint", tmp_path / "notes"
    notes.mkdir()
    orders, rates, sink = topics.made(), topics.made(), topics.made()
    flags = ["--streaming", f"--checkpoint_dir={checkpoint}"]
    pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(flags))
    live = {"timestamp": second_of, "options": ReadOptions(poll_timeout_ms=500, idle_timeout_ms=600_000)}
    total = (
        pipeline
        | "Rates" >> topics.read(rates, **live)
        | "Amount" >> beam.Map(lambda record: int(record.body)).with_output_types(int)
        | "Windows of rates" >> beam.WindowInto(FixedWindows(10))
        | beam.CombineGlobally(sum).without_defaults()
    )
    windows = "Windows of orders" >> beam.WindowInto(FixedWindows(10))
    ordered = pipeline | "Orders" >> topics.read(orders, **live) | windows
    join = beam.ParDo(Joined(Committed(checkpoint, notes)), beam.pvalue.AsSingleton(total)).with_output_types(Message)
    _ = ordered | join | topics.write(sink)
    result = pipeline.run()
    try:
        for begin in (0, 50):  # the second round comes to a stream that has already joined
            numbers, complete = range(begin, begin + 50), begin + 40
            for topic in (orders, rates):
                topics.send(topic, [b"%d" % number for number in numbers])
            # Both queues have passed all windows but the last
            until(
                lambda wanted=complete: len(topics.bodies(sink)) >= wanted,  # type: ignore[misc]
                f"orders up to {complete}",
                progress=lambda: len(topics.bodies(sink)),
                alive=[goes_on(result)],
                details=lambda: sorted(topics.bodies(sink)),
                still_s=120,
            )
        done = len(list(notes.iterdir()))
        assert done >= 2
    finally:
        result.cancel()
    sums = {begin: sum(range(begin, begin + 10)) for begin in range(0, 100, 10)}
    assert Counter(topics.bodies(sink)) == Counter(f"{n} {sums[n // 10 * 10]}" for n in range(90))
    commits = [set(json.loads(file.read_text())) for file in notes.iterdir()]
    assert all(commits), "a finalizer ran before any micro-batch was committed"


def next_trigger(began: datetime.datetime) -> datetime.datetime:
    """Returns when Spark may begin the next micro-batch.

    This is the next whole multiple of the interval since 1970, not an interval after this micro-batch (Spark's
    ProcessingTimeExecutor). The time that Spark reports for a micro-batch is a little later than its trigger.
    """
    trigger_ms = (began.timestamp() - TOLD_LATE_S) * 1000
    return datetime.datetime.fromtimestamp((trigger_ms // INTERVAL_MS + 1) * INTERVAL_MS / 1000, datetime.UTC)


def test_the_bytes_of_a_micro_batch_are_bounded(topics: Topics) -> None:
    source, sink = topics.made([b"%01000d" % n for n in range(100)]), topics.made()
    flags = ["--streaming", "--max_bytes_per_trigger=30000"]
    pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(flags))
    records = pipeline | topics.read(source, stop=StopAt.latest())
    _ = records | beam.Map(lambda record: Message(record.body)).with_output_types(Message) | topics.write(sink)
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"
    assert Counter(map(int, topics.bodies(sink))) == Counter(range(100))
    rows = [each["observedMetrics"]["rmqio"]["rows"] for each in progress_of(result)]
    assert sum(rows) == 100
    assert max(rows) <= 30, rows


class RunningTotals(beam.DoFn):
    """Emits the sum of a key's numbers after each of them."""

    TOTAL = CombiningValueStateSpec("total", sum)

    def process(self, element: tuple[int, int], total: Any = beam.DoFn.StateParam(TOTAL)) -> Iterator[Message]:
        total.add(element[1])
        yield Message(b"%d %d" % (element[0], total.read()))


def test_keys_find_their_state_again_in_a_session_with_another_number_of_partitions(
    topics: Topics, tmp_path: Path
) -> None:
    """The first run has as many buckets as it says, which no session has by default, and the second one goes on."""
    source, sink = topics.made(), topics.made()
    wanted: Counter[str] = Counter()
    for number, flags in (1, ["--spark_buckets=5"]), (10, []):
        topics.send(source, [b"%d %d" % (key, number) for key in range(40)])
        given = ["--streaming", "--available_now", f"--checkpoint_dir={tmp_path / 'checkpoint'}", *flags]
        pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(given))
        keyed = (
            pipeline
            | topics.read(source)
            | beam.Map(lambda record: tuple(map(int, record.body.split()))).with_output_types(tuple[int, int])
        )
        _ = keyed | beam.ParDo(RunningTotals()).with_output_types(Message) | topics.write(sink)
        pipeline.run().wait_until_finish()
        wanted.update(f"{key} {1 if number == 1 else 11}" for key in range(40))
        assert Counter(topics.bodies(sink)) == wanted


def counted(record: Record) -> Message:
    Metrics.counter("test", "counted").inc()
    return Message(record.body)


def test_a_query_that_waits_for_its_next_micro_batch_stops_without_waiting_for_it(topics: Topics) -> None:
    source, sink = topics.made([b"1", b"2"]), topics.made()
    flags = ["--streaming", "--trigger_interval_ms=3600000"]
    pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(flags))
    records = pipeline | topics.read(source)
    _ = records | beam.Map(counted).with_output_types(Message) | topics.write(sink)
    result = pipeline.run()
    until_found(lambda: topics.bodies(sink), ["1", "2"], alive=[goes_on(result)], still_s=120)
    of_ours = MetricsFilter().with_name("counted")
    until(
        lambda: bool(result.metrics().query(of_ours)["counters"]),
        "metrics of a query that runs",
        alive=[goes_on(result)],
    )
    assert [each.committed for each in result.metrics().query(of_ours)["counters"]] == [2]
    assert result.state == PipelineState.RUNNING
    assert result.cancel() == "CANCELLED"


def test_a_checkpoint_of_a_start_that_came_to_nothing_binds_nobody(topics: Topics, tmp_path: Path) -> None:
    """Nothing was planned, so there is no state that another pipeline could mistake for its own."""
    flags = ["--streaming", f"--checkpoint_dir={tmp_path}"]
    pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(flags))
    topic = topics.made()
    nowhere = StopAt.offsets({MessageQueue(topic, "none-such", 0): 1})
    _ = pipeline | topics.read(topic, stop=nowhere) | beam.Map(str)
    with pytest.raises(PipelineFailed, match=r"^ReadFromRocketMQ.*: .*none-such"):
        pipeline.run().wait_until_finish()
    assert (tmp_path / "rmqio.json").exists()
    pipeline = beam.Pipeline(runner=SparkRunner(), options=PipelineOptions(flags))
    _ = pipeline | topics.read(topics.made([b"1"]), stop=StopAt.latest()) | "Another" >> beam.Map(str)
    assert pipeline.run().wait_until_finish() == "DONE"


def test_a_second_ctrl_c_stops_at_once(topics: Topics, tmp_path: Path) -> None:
    source, began = topics.made([b"1"]), tmp_path / "began"
    program = tmp_path / "stuck.py"
    program.write_text(
        "import logging, pathlib, time\n"
        "import apache_beam as beam\n"
        "from rmqio import ReadFromRocketMQ, StartFrom\n"
        "from rmqio.runners import options\n"
        "def stuck(record):\n"
        "    logging.getLogger('of the user').warning('stuck at %s', record.body)\n"
        f"    pathlib.Path({str(began)!r}).touch()\n"
        "    time.sleep(300)\n"
        f"given = options(['--runner=SparkRunner', '--streaming', '--checkpoint_dir={tmp_path / 'checkpoint'}'])\n"
        "with beam.Pipeline(options=given) as p:\n"
        f"    read = ReadFromRocketMQ({source!r}, name_server={topics.broker.name_server!r},\n"
        "        start=StartFrom.earliest())\n"
        "    _ = p | read | beam.Map(stuck)\n"
    )
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, str(program)], stdout=log, stderr=log, start_new_session=True)
    try:
        until(began.exists, "the micro-batch to run", alive=[runs(process, (tmp_path / "log").read_text)], still_s=120)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(at_most(4))
        process.send_signal(signal.SIGINT)
        assert process.wait(at_most(30)) != 0
    finally:
        process.kill()
        process.wait()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-1] == "KeyboardInterrupt", "\n".join(lines)
    assert sum("stuck at b'1'" in line for line in lines) == 1, "\n".join(lines)
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")), "its micro-batch was not done"
