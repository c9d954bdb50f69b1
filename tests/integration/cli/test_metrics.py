"""The metrics say of a real broker's queues what the command line and the broker say."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest

from rmqio import StopAt
from rmqio.cli.main import main
from rmqio.watch.frames import Target
from rmqio.watch.page import serving
from rmqio.watch.watcher import Watcher
from tests.helpers.client.raw_send import read_to, records_of
from tests.helpers.ledgers.ledger import Lab, Run, finished, new_group
from tests.helpers.waiting import at_most, until

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


def test_watch_says_what_describe_says(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """One frame as JSON and as text, and the endpoint of the page, beside the offsets of a real group."""
    q0, q1 = lab.topic(60, 5)
    group = new_group()
    lab.client.commit_offset(group, q0, 20)
    lab.client.commit_offset(group, q1, 5)
    told = ["--topic", q0.topic, "--group", group, "--name_server", lab.broker.name_server, "--every", "0.5"]
    assert main(["watch", *told, "--once", "--json"]) == 0
    frame: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["describe", q0.topic, *told[2:-2], "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    names = ("queue_id", "min_offset", "max_offset", "committed_offset", "lag_messages", "lost_messages")
    assert [{name: queue[name] for name in names} for queue in frame["queues"]] == [
        {name: queue[name] for name in names} for queue in described["queues"]
    ]
    assert (frame["total"]["lag_messages"], frame["total"]["in_per_s"], frame["total"]["out_per_s"]) == (40, 0, 0)
    assert [(each["is_up"], each["error"]) for each in frame["brokers"]] == [(True, None)]
    assert main(["watch", *told, "--once"]) == 0
    assert "lag 40 " in capsys.readouterr().out
    watcher = Watcher(lab.client, Target((q0.topic,), group), every_s=0.2, timeout_ms=3_000)
    try:
        watcher.start()
        with serving(watcher, 0) as url:
            page = until_scraped(url, lambda total: total["lag_ms"] is not None, "a lag in time")
            stored_ms = records_of(read_to(lab.client, q0, 20, 21))[0].store_timestamp_ms
            assert page["queues"][0]["lag_ms"] == page["time_ms"] - stored_ms
            lab.client.commit_offset(group, q0, 60)
            page = until_scraped(url, lambda total: not total["lag_messages"], "no lag")
        assert page["total"]["lag_messages"] == page["total"]["lag_ms"] == 0
        assert page["total"]["out_per_s"] > 0
        assert page["brokers"][0]["committed_ms"] == page["queues"][0]["committed_ms"] is not None
        assert page["queues"][1]["committed_ms"] is None, "its offset has not moved while we look"
    finally:
        watcher.close()


def until_scraped(url: str, is_met: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """Returns the first page whose total meets the condition."""
    page: dict[str, Any] = {}

    def is_so() -> bool:
        nonlocal page
        with urllib.request.urlopen(f"{url}frame.json", timeout=at_most(10)) as answer:
            page = json.load(answer)
        return is_met(page["total"])

    until(is_so, what, details=lambda: page)
    return page


def test_messages_that_wait_grow_old(lab: Lab) -> None:
    (queue,) = lab.topic(20)
    stored = lab.store_time(queue, 9) / 1000
    until(lambda: time.time() >= stored + 2, "an age that cannot be the time of a read")
    found = gauges(finished(lab.read(queue.topic, stop=StopAt.offsets({queue: 10}))))
    assert 2 <= found[f"lag_seconds.{queue.topic}.{queue.broker}.0"] <= time.time() - stored + 1
