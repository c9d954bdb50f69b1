"""The pipelines of this project give the same results on all runners from the same input, by what is in the sink."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from pipelines.orders_avro import CustomerTotal
from pipelines.word_count import words
from rmqio.model import Message, MessageQueue, Record
from rmqio.runners.capabilities import Mode
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.telemetry import METRICS
from tests.helpers.addresses import addresses
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.programs import SCHEMAS, main_of
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

QUEUES = 4
COUNT = 400
BEGIN_MS = 1_700_000_000_000
FLAGS = {
    Mode.DIRECT: "DirectRunner",
    Mode.SPARK: "SparkRunner",
    Mode.SPARK_STREAMING: "SparkRunner --streaming",
    Mode.FLINK: "FlinkRunner",
    Mode.FLINK_STREAMING: "FlinkRunner --streaming",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]


class Case(NamedTuple):
    """A pipeline, its input, and the part of a message in the sink that is its result."""

    name: str
    bodies: list[bytes]
    read: Callable[[Record], tuple[Any, Any]]
    """Returns what a result belongs to, and the result. If there are several results, the last one counts."""
    wanted: dict[Any, Any]


def as_json(values: Iterable[Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in values]


def of_json(read: Callable[[dict[str, Any]], tuple[Any, Any]]) -> Callable[[Record], tuple[Any, Any]]:
    return lambda record: read(json.loads(record.body))


def province_case() -> Case:
    from pipelines.province import province_of

    found = list(addresses(COUNT))
    wanted = {each["id"]: province_of(each["address"]) for each in found}
    return Case("province", as_json(found), of_json(lambda body: (body["id"], body["province"])), wanted)


def orders_case() -> Case:
    orders: list[dict[str, Any]] = [
        {"key": f"k{n % 7}", "amount": n, "time_ms": BEGIN_MS + 150 * n} for n in range(COUNT)
    ]
    wanted: dict[Any, Any] = {}
    for order in orders:
        at = order["key"], order["time_ms"] // 10_000 * 10_000
        count, total = wanted.get(at, (0, 0))
        wanted[at] = count + 1, total + order["amount"]
    return Case(
        "windowed_orders",
        as_json(orders),
        of_json(lambda body: ((body["key"], body["start_ms"]), (body["count"], body["sum"]))),
        wanted,
    )


def words_case() -> Case:
    sentences = [f"The number {n} isn't {n % 7}, the remainder is 余{n % 23}" for n in range(COUNT)]
    wanted: dict[Any, Any] = {}
    for sentence in sentences:
        for word in words(sentence):
            wanted[word] = wanted.get(word, 0) + 1
    bodies = [each.encode() for each in sentences]
    return Case("word_count", bodies, of_json(lambda body: (body["word"], body["count"])), wanted)


def avro_case() -> Case:
    """Returns the case of orders with both versions of their schema."""
    writers = [
        AvroSerializer(SCHEMAS.by_version("order", version).schema, framing="single_object") for version in (1, 2)
    ]
    bodies = []
    wanted: dict[Any, Any] = {}
    for n in range(COUNT):
        customer, amount = f"c{n % 7}", Decimal(n) / 100
        created = dt.datetime.fromtimestamp(BEGIN_MS // 1000 + n, dt.UTC)
        order = {"order_id": f"o{n}", "amount": amount, "created": created, "status": "NEW", "lines": []}
        named = {"customer_id": customer, "note": None} if n % 2 else {"customer": customer}
        bodies.append(writers[n % 2](order | named).body)
        at = customer, dt.datetime.fromtimestamp(int(created.timestamp()) // 60 * 60, dt.UTC)
        count, total = wanted.get(at, (0, Decimal(0)))
        wanted[at] = count + 1, total + amount
    totals = AvroDeserializer(SCHEMAS.by_version("customer_total").schema, framing="single_object", to=CustomerTotal)

    def read(record: Record) -> tuple[Any, Any]:
        found = totals(record)
        return (found.customer_id, found.start), (found.orders, found.amount)

    return Case("orders_avro", bodies, read, wanted)


CASES = {"province": province_case, "windowed_orders": orders_case, "word_count": words_case, "orders_avro": avro_case}


class Filled(NamedTuple):
    case: Case
    source: str


@pytest.fixture(scope="module", params=CASES)
def filled(request: pytest.FixtureRequest, lab: Lab) -> Filled:
    """A pipeline, and a topic with its input, which is the same for all runners."""
    case = CASES[request.param]()
    source = f"everywhere-{uuid.uuid4().hex[:12]}"
    lab.broker.create_topic(source, queues=QUEUES)
    for number in range(QUEUES):
        queue = MessageQueue(source, lab.broker.name, number)
        send_all(lab.broker.broker, queue, [Message(body) for body in case.bodies[number::QUEUES]])
    return Filled(case, source)


def metrics(result: Any) -> dict[str, Any]:
    """Returns our metrics by name: sums of counters, gauges, and each distribution's count, sum and maximum."""
    found: dict[str, Any] = {}
    of_all = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))
    for counter in of_all["counters"]:
        name = counter.key.metric.name
        found[name] = found.get(name, 0) + (counter.result or 0)
    for each in [*of_all["gauges"], *of_all["distributions"]]:
        found[each.key.metric.name] = each.result
    return found


def assert_metrics(found: dict[str, Any], filled: Filled, lab: Lab) -> None:
    """Asserts that the names are the same on all runners, and that the values agree with what the broker knows."""
    assert {name.partition(".")[0] for name in found} <= set(METRICS)
    ends = {f"{q.topic}.{q.broker}.{q.queue_id}": lab.client.max_offset(q) for q in lab.client.queues(filled.source)}
    assert found["records_read"] == sum(ends.values()) == COUNT
    assert found["bytes_read"] > sum(map(len, filled.case.bodies))
    for name in ("lag_messages", "lag_bytes", "lag_seconds"):
        gauges = {key.partition(".")[2]: gauge.value for key, gauge in found.items() if key.startswith(f"{name}.")}
        assert gauges == dict.fromkeys(ends, 0), f"{name}: all is read"
    assert {key.partition(".")[2] for key in found if key.startswith("watermark_lag_seconds.")} == set(ends)
    assert found["messages_sent"] == COUNT
    assert found["bytes_sent"] >= COUNT
    assert 1 <= found["batches_sent"] == found["send_latency_ms"].count <= COUNT
    assert found["pull_latency_ms"].count > 0
    assert 0 <= found["pull_latency_ms"].max < 60_000
    troubles = ("offsets_skipped", "decode_failures", "send_failures", "weak_acknowledgements", "dead_letters")
    assert not any(found.get(name) for name in troubles)


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_sink_holds_the_same(
    filled: Filled,
    runner: str,
    lab: Lab,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[Any] = []
    run = beam.Pipeline.run

    def noted(*given: Any, **named: Any) -> Any:
        ran.append(run(*given, **named))
        return ran[-1]

    monkeypatch.setattr(beam.Pipeline, "run", noted)
    sink = f"everywhere-{uuid.uuid4().hex[:12]}"
    lab.broker.create_topic(sink, queues=2)
    flags = [f"--name_server={lab.broker.name_server}", f"--source_topic={filled.source}", f"--sink_topic={sink}"]
    flags += ["--start=earliest", "--stop=latest", *f"--runner={runner}".split()]
    if runner == "SparkRunner --streaming":
        flags.append(f"--checkpoint_dir={tmp_path}")
    assert main_of(filled.case.name)(flags) == 0, capsys.readouterr().err
    if filled.case.name == "province":
        assert_metrics(metrics(ran[-1]), filled, lab)

    def found() -> list[tuple[Any, Any]]:
        return [filled.case.read(record) for record in read_topic(lab.client, sink)]

    # A broker shows messages some time after their acknowledgement. Totals that are not the last ones do not count.
    until(lambda: dict(found()) == filled.case.wanted, "all results")
    results = found()
    if filled.case.name != "word_count" or "--streaming" not in runner:  # it also writes intermediate totals
        assert len(results) == len(filled.case.wanted)
