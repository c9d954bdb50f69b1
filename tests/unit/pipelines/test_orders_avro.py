"""orders_avro.py, on a cluster in memory."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import apache_beam as beam
import pytest

from pipelines.orders_avro import CustomerTotal, build, program
from rmqio import runners
from rmqio.model import Message
from rmqio.serde.avro import AvroDeserializer, AvroSerializer
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.programs import SCHEMAS, main_of

BEGIN = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
TOTALS = AvroDeserializer(SCHEMAS.by_version("customer_total").schema, framing="single_object", to=CustomerTotal)


def order(number: int, version: int) -> dict[str, Any]:
    """Makes an order of one of the versions of the schema."""
    price = Decimal("1.25")
    found: dict[str, Any] = {
        "order_id": f"o{number}",
        "customer" if version == 1 else "customer_id": f"c{number % 3}",
        "amount": Decimal(number) / 100,
        "created": BEGIN + dt.timedelta(seconds=number),
        "status": "NEW",
        "lines": [{"sku": "a", "quantity": number, "price": price}],
    }
    return found if version == 1 else found | {"note": None}


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as cluster:
        for topic in ("src", "dst", "dead"):
            cluster.create_topic(topic)
        yield cluster


def run(cluster: InMemoryCluster, *bodies: bytes, flags: tuple[str, ...] = ()) -> None:
    producer = InMemoryClientFactory(cluster.name).producer("test")
    for body in bodies:
        producer.send(Message(body, topic="src"))
    producer.close()
    pipeline = beam.Pipeline(options=runners.options([]))
    topics = ["--name_server=h:1", "--source_topic=src", "--sink_topic=dst"]
    options = program.options([*topics, "--stop=latest", *flags], client_factory=InMemoryClientFactory(cluster.name))
    build(pipeline, options)
    pipeline.run().wait_until_finish()


def encoded(number: int, version: int) -> bytes:
    return AvroSerializer(SCHEMAS.by_version("order", version).schema, framing="single_object")(
        order(number, version)
    ).body


def test_orders_of_both_versions_are_in_one_total(cluster: InMemoryCluster) -> None:
    run(cluster, *(encoded(number, 1 + number % 2) for number in range(200)))
    wanted: dict[Any, Any] = defaultdict(lambda: (0, Decimal(0)))
    for number in range(200):
        at = f"c{number % 3}", BEGIN + dt.timedelta(seconds=number // 60 * 60)
        count, amount = wanted[at]
        wanted[at] = count + 1, amount + Decimal(number) / 100
    records = cluster.records("dst")
    found = {(total.customer_id, total.start): (total.orders, total.amount) for total in map(TOTALS, records)}
    assert found == wanted
    assert len(records) == len(wanted)
    assert all(record.keys == (TOTALS(record).customer_id,) for record in records)


def test_what_is_no_order_goes_to_the_dead_letters(cluster: InMemoryCluster) -> None:
    run(cluster, b"{}", encoded(1, 2), encoded(2, 1)[:-1], flags=("--dead_letter_topic=dead",))
    assert sorted(record.body for record in cluster.records("dead")) == sorted([b"{}", encoded(2, 1)[:-1]])
    assert [TOTALS(record).orders for record in cluster.records("dst")] == [1]


def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.program.set_up_logging", lambda verbose: None)
    assert main_of("orders_avro")(["--source_topic=a", "--sink_topic=a"]) == 2
    said = "'a' is both read and written, so the job would never end"
    assert capsys.readouterr().err == f"orders_avro.py: {said} (see orders_avro.py --help)\n"
