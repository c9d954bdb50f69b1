"""The metrics say of a real broker's queues what the command line and the broker say."""

from __future__ import annotations

import json
import time
from typing import Any

import apache_beam as beam
import pytest

from rmqio import StopAt
from rmqio.cli.main import main
from tests.helpers.ledgers.ledger import Lab, Run, finished, new_group

pytestmark = pytest.mark.broker


def gauges(run: Run) -> dict[str, int]:
    found = run.result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["gauges"]
    return {gauge.key.metric.name: gauge.committed.value for gauge in found}


def test_the_lag_is_what_describe_says(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The lag of a queue that is read in part, of one that is read to its end, and of one that is empty."""
    q0, q1, q2 = lab.topic(700, 40, 0)
    group = new_group()
    run = finished(lab.read(q0.topic, consumer_group=group, stop=StopAt.offsets({q0: 300, q1: 40, q2: 0})))
    found = gauges(run)
    said = main(["describe", q0.topic, "--group", group, "--name_server", lab.broker.name_server, "--json"])
    assert said == 0
    queues: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["queues"]
    lag = {queue["queue_id"]: queue["lag_messages"] for queue in queues}
    names = {queue.queue_id: f"{queue.topic}.{queue.broker}.{queue.queue_id}" for queue in (q0, q1)}
    assert {number: found[f"lag_messages.{name}"] for number, name in names.items()} == {0: 400, 1: 0}
    assert lag == {0: 400, 1: 0, 2: 0}
    stored = [record.stored_size for record in run.records if record.queue == q0]
    assert 400 * min(stored) <= found[f"lag_bytes.{names[0]}"] <= 400 * max(stored)
    last_ms = max(record.store_timestamp_ms for record in run.records if record.queue == q0)
    assert 0 <= found[f"lag_seconds.{names[0]}"] <= time.time() - last_ms / 1000 + 1
    assert found[f"lag_bytes.{names[1]}"] == found[f"lag_seconds.{names[1]}"] == 0
    assert run.counters["bytes_read"] == sum(record.stored_size for record in run.records)


def test_messages_that_wait_grow_old(lab: Lab) -> None:
    (queue,) = lab.topic(20)
    time.sleep(2)
    found = gauges(finished(lab.read(queue.topic, stop=StopAt.offsets({queue: 10}))))
    assert 2 <= found[f"lag_seconds.{queue.topic}.{queue.broker}.0"] < 60
