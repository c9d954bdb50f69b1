"""Metrics are counted and arrive where they belong, and the documents say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadFromRocketMQ, ReadOptions, StartFrom, StopAt, WriteToRocketMQ, telemetry
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import FlowControl, SystemBusy, TransportError
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from rmqio.sending.producers import ProducerLease
from rmqio.telemetry import METRICS, Kind, Metric
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms import metrics
from rmqio.transforms.metrics import QueueGauges, ReadMetrics
from rmqio.transforms.reading.restriction import QueueWatermarks
from rmqio.transforms.shared import close_shared_clients
from rmqio.wire.command import RequestCode
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.transforms.reading import QueueBundles, clean_cluster, counters, fill, read

ROOT = Path(__file__).parents[3]
QUEUE = MessageQueue("t", "broker-a", 0)


class Heard:
    """A recorder that keeps what it hears."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, ...], float] = {}
        """Sums of counters; of gauges the last value; of distributions how many values."""

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        assert METRICS[metric.name] == metric
        assert len(labels) == len(metric.labels)
        assert all(type(label) is str for label in labels)
        key = (metric.name, *labels)
        if metric.kind is Kind.GAUGE:
            self.sums[key] = value
        else:
            self.sums[key] = self.sums.get(key, 0) + (value if metric.kind is Kind.COUNTER else 1)

    def total(self, name: str) -> float:
        return sum(value for key, value in self.sums.items() if key[0] == name)


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    telemetry.install(made)
    yield made
    telemetry.install(None)


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


# ---- names ----------------------------------------------------------------------------------------------------------


def test_the_page_lists_every_metric_and_nothing_else() -> None:
    """Name, kind, unit, labels and meaning, in the table that the site makes of the data."""
    assert "\n::: rmqio.telemetry.METRICS\n" in (ROOT / "docs" / "metrics.md").read_text()
    griffe = pytest.importorskip("griffe", reason="the site needs the extra 'docs'")
    from docs.tools.docstrings import ShownDocstrings

    module = griffe.load("rmqio.telemetry", extensions=griffe.Extensions(ShownDocstrings()))
    text = module["METRICS"].docstring.value
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w/]+) \| ([\w, -]+) \| (.+) \|$", text, re.MULTILINE)
    labels = {name: ", ".join(metric.labels) or "-" for name, metric in METRICS.items()}
    wanted = [(m.name, m.kind.value, m.unit, labels[m.name], m.meaning) for m in METRICS.values()]
    assert rows == wanted


def test_what_the_transforms_count_is_in_the_table_and_the_other_way_round() -> None:
    sources = [
        path
        for name in ("transforms", "sending", "enrich", "connect")
        for path in (ROOT / "rmqio" / name).rglob("*.py")
    ]
    text = "\n".join(path.read_text() for path in sources)
    assert "Metrics.counter(" not in text.replace((ROOT / "rmqio/transforms/metrics.py").read_text(), "")
    assert {name for name in METRICS if f'"{name}"' in text} == set(METRICS)


def test_a_worker_that_only_runs_a_function_which_counts_exports_it() -> None:
    """After a shuffle, nothing else in the process need be ours."""
    counts = re.compile(r"\b(?:Count|Latency|Share)\(")
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "rmqio").rglob("*.py")}
    found = {name for name, text in texts.items() if counts.search(text) and "(beam.DoFn):" in text}
    assert len(found) > 7
    assert [name for name in sorted(found) if "observe_process()" not in texts[name]] == []


# ---- reading --------------------------------------------------------------------------------------------------------


def test_a_read_tells_the_recorder_what_it_tells_beam(cluster: InMemoryCluster, heard: Heard) -> None:
    q0, q1 = fill(cluster, 6, 3)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | read(cluster, stop=StopAt.offsets({q0: 4, q1: 3}), consumer_group="g")
    found = counters(pipeline.result)
    assert heard.sums["records_read", "t", "broker-a", "0"] == 4
    assert heard.sums["records_read", "t", "broker-a", "1"] == 3
    assert heard.total("bytes_read") == found["bytes_read"]
    assert heard.sums["lag_messages", "t", "broker-a", "0"] == 2
    assert heard.sums["lag_messages", "t", "broker-a", "1"] == 0
    assert heard.total("commits") == 2, "also of the last bundles, which Beam does not hear of"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def gauges(heard: Heard) -> list[float]:
    return [heard.sums[name, "t", "broker-a", "0"] for name in ("lag_messages", "lag_bytes", "lag_seconds")]


def test_how_far_reading_is_behind(heard: Heard) -> None:
    clock = Clock()
    lag = QueueGauges(QUEUE, clock)
    clock.now += 5
    lag.no_answer()
    assert heard.sums["lag_seconds", "t", "broker-a", "0"] == 5, "its broker was down from the first"
    lag.read(10, 100.5, 990_000)
    assert gauges(heard) == [10, 1005, 15]
    clock.now += 7
    lag.no_answer()
    assert gauges(heard) == [10, 1005, 22], "a message that is not read gets older"
    lag.read(4, 100.0, None)
    assert gauges(heard) == [4, 400, 22], "a filter let nothing through: it is as far behind as before"
    lag.read(0, 100.0, 1_011_000)
    assert gauges(heard) == [0, 0, 0], "at the end nothing is behind, however old the last message is"
    clock.now += 60
    lag.at_end()
    assert gauges(heard) == [0, 0, 0]
    clock.now += 30
    lag.no_answer()
    assert gauges(heard) == [0, 0, 30], "nothing is known of the queue since then"
    lag.read(1, 100.0, 2_000_000)
    assert gauges(heard) == [1, 100, 0], "the broker's clock is ahead of ours"


def test_how_long_a_source_has_read_nothing(heard: Heard) -> None:
    clock = Clock()
    lag = QueueGauges(QUEUE, clock)
    name = ("source_idle_seconds", "t", "broker-a", "0")
    clock.now += 5
    lag.at_end()
    assert heard.sums[name] == 5, "since it began"
    lag.read(10, 100.0, 1_000)
    assert heard.sums[name] == 0
    clock.now += 7
    lag.read(4, 100.0, None)
    assert heard.sums[name] == 0, "a filter let nothing through; the end of the bundle says how long"
    lag.no_answer()
    assert heard.sums[name] == 7


def test_the_last_answer_of_a_broker_is_that_of_any_of_its_queues(heard: Heard) -> None:
    metrics = ReadMetrics()
    name = ("last_answer_timestamp_seconds", "t", "broker-a")
    metrics.answered(QUEUE, None)
    assert name not in heard.sums, "readers without sockets do not know"
    metrics.answered(QUEUE, 1_000.5)
    metrics.answered(QUEUE._replace(queue_id=1), 990.0)
    assert heard.sums[name] == 1_000.5


def test_how_far_the_watermark_is_behind(heard: Heard) -> None:
    clock = Clock()
    lag = QueueGauges(QUEUE, clock)
    name = ("watermark_lag_seconds", "t", "broker-a", "0")
    lag.watermark(QueueWatermarks().new().get_estimator_state())
    assert name not in heard.sums, "it has not moved yet"
    lag.watermark(997_500_000)
    assert heard.sums[name] == 2.5
    clock.now += 60
    lag.watermark(997_500_000)
    assert heard.sums[name] == 62.5, "a broker that is down, or an idle queue, holds windows open"
    lag.watermark(2_000_000_000)
    assert heard.sums[name] == 0, "timestamps are ahead of the clock"


def test_the_lag_of_a_queue_whose_broker_goes_away_grows_until_it_is_back(
    cluster: InMemoryCluster, heard: Heard
) -> None:
    (queue,) = fill(cluster, 2)
    clock = Clock()
    bundles = QueueBundles(cluster, [queue])
    bundles.fn._metrics._gauges[queue] = QueueGauges(queue, clock)
    for expected in (2, 0):
        assert len(bundles.bundle()) == expected
        assert gauges(heard) == [0, 0, 0]
    assert bundles.fn._readers is not None
    bundles.fn._readers.release(queue)
    cluster.fail_next("open_reader", TransportError("down"))
    clock.now += 30
    bundles.bundle()
    assert gauges(heard) == [0, 0, 30]
    bundles.bundle()
    assert gauges(heard) == [0, 0, 0]


def test_retries_of_pulls_are_counted_once(cluster: InMemoryCluster, heard: Heard) -> None:
    (queue,) = fill(cluster, 2)
    bundles = QueueBundles(cluster, [queue])
    bundles.bundle()
    assert bundles.fn._readers is not None
    reader: Any = bundles.fn._readers._slots[queue].reader
    reader.retries = 3  # as a reader with a socket counts them
    bundles.bundle()
    bundles.bundle()
    assert heard.sums["pull_retries", "t", "broker-a", "0"] == 3


def test_retries_of_pulls_from_a_broker_are_counted(broker: FakeBroker, heard: Heard) -> None:
    (queue,) = broker.cluster.create_topic("u", 1)
    broker.cluster.append("u", b"x", queue_id=0)
    broker.on(RequestCode.PULL_MESSAGE, faults.close(), 2)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | ReadFromRocketMQ(
            "u", name_server=broker.name_server, start=StartFrom.earliest(), stop=StopAt.offsets({queue: 1})
        )
    close_shared_clients()
    found = counters(pipeline.result)
    assert found["records_read"] == 1
    assert found["pull_retries"] == heard.sums["pull_retries", "u", "broker-a", "0"] == 2


def test_gaps_are_counted_and_said(cluster: InMemoryCluster, heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    options = ReadOptions(on_offset_out_of_range="earliest", poll_timeout_ms=1)
    bundles = QueueBundles(cluster, [queue], options=options)
    while len(heard.sums) == 0 or heard.total("records_read") < 7:
        bundles.bundle()
    assert heard.sums["offsets_skipped", "t", "broker-a", "0"] == 2
    (said,) = [record for record in caplog.records if "are lost on the broker" in record.getMessage()]
    assert vars(said)["rmqio"] == {"topic": "t", "broker": "broker-a", "queue_id": 0, "offset": 9, "count": 2}


# ---- writing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        made.cluster.create_topic("t", 1)
        made.cluster.create_topic("dead", 1)
        yield made


def write(broker: FakeBroker, elements: list[Any], **arguments: Any) -> dict[str, int]:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | beam.Create(elements) | WriteToRocketMQ("t", name_server=broker.name_server, **arguments)
    return counters(pipeline.result)


def test_busy_answers_and_what_was_waited_for_them_are_counted(broker: FakeBroker, heard: Heard) -> None:
    busy = [faults.answer(SystemBusy.number, "busy"), faults.answer(FlowControl.number, "slow down")]
    for fault in busy * 2:
        broker.on(RequestCode.SEND_BATCH_MESSAGE, fault)
    found = write(broker, [b"a", b"b"])
    assert (found["busy_answers"], found["send_retries"], found["messages_sent"]) == (4, 4, 2)
    assert found["throttled_ms"] >= 100
    assert (heard.sums["busy_answers",], heard.sums["throttled_ms",]) == (4, found["throttled_ms"])
    assert len(broker.cluster.records("t")) == 2


FLUSH_DISK_TIMEOUT = 10


def test_weak_acknowledgements_are_counted(broker: FakeBroker, heard: Heard) -> None:
    for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        broker.on(code, faults.answer(FLUSH_DISK_TIMEOUT, executed=True))
    found = write(broker, [b"a", b"b", b"c"])
    assert found["weak_acknowledgements"] == found["messages_sent"] == 3
    assert heard.sums["weak_acknowledgements", "t", "broker-a", "0"] == 3
    assert "weak_acknowledgements" not in write(broker, [b"a"])


def test_retries_and_unknown_outcomes_are_counted(broker: FakeBroker, heard: Heard) -> None:
    broker.on(RequestCode.SEND_BATCH_MESSAGE, faults.close(executed=True), 2)
    found = write(broker, [b"a", b"b"])
    assert found["send_retries"] == found["unknown_outcomes"] == 2
    assert heard.sums["send_retries",] == heard.sums["unknown_outcomes",] == 2
    assert found["messages_sent"] == 2, "what is sent again counts once"


def test_of_several_writers_of_a_producer_one_counts_its_retries(broker: FakeBroker, heard: Heard) -> None:
    factory = RemotingClientFactory(ClientOptions(name_servers=(broker.name_server,), retry_backoff_ms=1))
    one, two = ProducerLease(factory, "g"), ProducerLease(factory, "g")
    broker.on(RequestCode.SEND_MESSAGE_V2, faults.close(), 2)
    one.producer.send(Message(b"a", topic="t"))
    two.note_statistics()
    assert heard.sums["send_retries",] == 2
    assert [one.take_statistics(), two.take_statistics()] == [(2, 2, 0, 0), (0, 0, 0, 0)]
    broker.on(RequestCode.SEND_MESSAGE_V2, faults.close())
    one.producer.send(Message(b"a", topic="t"))
    for lease in (one, two):
        lease.release()
    later = ProducerLease(factory, "g")  # of the bundle that comes again
    assert later.take_statistics() == (1, 1, 0, 0)
    assert heard.sums["send_retries",] == 3
    later.release()


def test_dead_letters_are_counted_when_they_are_acknowledged(broker: FakeBroker, heard: Heard) -> None:
    found = write(broker, [b"good", b"", b"also good"], dead_letter_topic="dead")
    assert (found["send_failures"], found["dead_letters"], heard.total("messages_sent")) == (1, 1, 3)
    assert heard.sums["dead_letters", "dead"] == heard.sums["send_failures",] == 1


def test_dead_letters_begin_at_zero(broker: FakeBroker, heard: Heard) -> None:
    """Prometheus does not count the first value of a series."""
    assert "dead_letters" not in write(broker, [b"good"], dead_letter_topic="dead")
    assert heard.sums["dead_letters", "dead"] == 0


def test_a_producer_that_keeps_no_statistics_will_do(cluster: InMemoryCluster) -> None:
    lease = ProducerLease(InMemoryClientFactory(cluster.name), "g")
    assert lease.take_statistics() == (0, 0, 0, 0)
    lease.release()


# ---- the environment ------------------------------------------------------------------------------------------------


def test_a_process_looks_at_its_environment_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RMQIO_PROMETHEUS", "nowhere")
    monkeypatch.setattr(metrics, "_observed_pid", 0)
    metrics.observe_process()
    metrics.observe_process()
    (said,) = caplog.messages
    assert said.startswith("metrics are not exported: 'nowhere' is not an address")
