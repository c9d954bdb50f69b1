"""The effects of a bounded read: committed offsets, and metrics."""

from __future__ import annotations

import logging
import re
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import ReadOptions, StopAt
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import bodies, counters, fill, odd_fails, read, run_bodies


def test_a_bounded_read_commits_its_end_for_the_group(cluster: InMemoryCluster) -> None:
    q0, q1 = fill(cluster, 6, 3)
    run_bodies(read(cluster, consumer_group="g"), bodies(q0, range(6)) + bodies(q1, range(3)))
    assert sorted(cluster.commits) == [("g", q0, 6), ("g", q1, 3)]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"consumer_group": "g", "options": ReadOptions(commit_offsets=False, poll_timeout_ms=1)}],
    ids=["no group", "switched off"],
)
def test_nothing_is_committed_without_a_group_or_when_told(cluster: InMemoryCluster, arguments: dict[str, Any]) -> None:
    (queue,) = fill(cluster, 3)
    run_bodies(read(cluster, **arguments), bodies(queue, range(3)))
    assert cluster.commits == []


def test_a_second_look_at_old_messages_does_not_take_the_group_back(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 9)
    cluster.commit("g", queue, 7)
    cluster.commits.clear()
    run_bodies(read(cluster, consumer_group="g", stop=StopAt.offsets({queue: 5})), bodies(queue, range(5)))
    assert cluster.commits == []
    assert cluster.committed("g", queue) == 7


def test_a_failed_pipeline_commits_nothing_of_the_bundle(cluster: InMemoryCluster) -> None:
    (queue,) = fill(cluster, 3)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | read(cluster, consumer_group="g", deserializer=odd_fails)
    with pytest.raises(Exception, match="an odd one"):
        pipeline.run()
    assert cluster.committed("g", queue) is None


def test_a_failed_commit_does_not_fail_the_pipeline(cluster: InMemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    from rmqio.errors import BrokerError

    (queue,) = fill(cluster, 3)
    cluster.fail_next("commit_offset", BrokerError(16, "no permission", "update the offset"))
    with caplog.at_level(logging.WARNING, "rmqio"):
        run_bodies(read(cluster, consumer_group="g"), bodies(queue, range(3)))
    assert re.search("was not committed for group g: .*no permission", caplog.text)


def test_metrics_count_records_bytes_and_lag(cluster: InMemoryCluster) -> None:
    q0, q1 = fill(cluster, 6, 3)
    result = run_bodies(read(cluster, stop=StopAt.offsets({q0: 4, q1: 3})), bodies(q0, range(4)) + bodies(q1, range(3)))
    found = counters(result)
    assert found["records_read"] == 7
    read_bytes = sum(r.stored_size for r in cluster.records("t") if r.queue == q1 or r.queue_offset < 4)
    assert found["bytes_read"] == read_bytes
    assert found.get("offsets_skipped", 0) == found.get("decode_failures", 0) == 0
    gauges = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("rmqio"))["gauges"]
    lag = {gauge.key.metric.name: gauge.committed.value for gauge in gauges}
    assert lag.pop("lag_seconds.t.broker-a.0") > 1_000_000, "the cluster's clock stands in the past"
    for number in (0, 1):
        assert lag.pop(f"watermark_lag_seconds.t.broker-a.{number}") > 1_000_000
        assert lag.pop(f"source_idle_seconds.t.broker-a.{number}") == 0
    assert lag == {
        "lag_messages.t.broker-a.0": 2,
        "lag_messages.t.broker-a.1": 0,
        "lag_bytes.t.broker-a.0": 2 * read_bytes // 7,
        "lag_bytes.t.broker-a.1": 0,
        "lag_seconds.t.broker-a.1": 0,
    }
