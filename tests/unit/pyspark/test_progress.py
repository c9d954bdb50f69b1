"""The lag of a stream, from the progress that Spark reports."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from rmqio import telemetry
from rmqio.model import MessageQueue
from rmqio.pyspark import LagListener, lags

END = {"t": {"a": {"0": 10, "1": 7}, "b": {"0": 5}}, "(began)": 1_700_000_000_000}
LATEST = {"t": {"a": {"0": 12, "1": 7}}}
"""Broker b did not answer."""


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 4,
        "inputRowsPerSecond": 2.0,
        "processedRowsPerSecond": 8.0,
    }


def test_lag_is_least_most_and_mean_over_the_queues_that_answered() -> None:
    (lag,) = lags({"sources": [source(END, LATEST)]})
    assert lag.by_queue == {MessageQueue("t", "a", 0): 2, MessageQueue("t", "a", 1): 0}
    assert (lag.min, lag.max, lag.avg, lag.total) == (0, 2, 1.0, 2)
    assert (lag.rows, lag.input_rows_per_s, lag.processed_rows_per_s) == (4, 2.0, 8.0)


def test_sources_of_other_formats_and_without_offsets_are_left_out() -> None:
    kafka = source({"t": {"0": 5}}, {"t": {"0": 9}})
    files, no_answer = source("{'logOffset': 3}", None), source(END, None)
    assert lags({"sources": [kafka, files, no_answer, source({"logOffset": 3}, {"logOffset": 4})]}) == []
    (lag,) = lags({"sources": [source(END, {"t": {"b": {"0": 3}}})]})
    assert lag.total == 0, "a replica that is behind"


def test_a_query_that_has_no_progress_yet_has_no_lag() -> None:
    """Its `lastProgress` is None until the first micro-batch is done."""
    assert lags(None) == []


def test_a_listener_keeps_logs_and_exports_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []

    class Recorder:
        def record(self, metric: telemetry.Metric, labels: tuple[str, ...], value: float) -> None:
            heard.append((metric.name, labels, value))

    monkeypatch.setattr(telemetry, "recorder", Recorder())
    listener = LagListener()
    listener.onQueryStarted(SimpleNamespace(id="q"))
    assert listener.latest == {"q": []}
    given = SimpleNamespace(**source(json.dumps(END), json.dumps(LATEST)))
    progress = SimpleNamespace(id="q", name="orders", sources=[given])
    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert [lag.total for lag in listener.latest["q"]] == [2]
    assert heard == [("lag_messages", ("t", "a", "0"), 2), ("lag_messages", ("t", "a", "1"), 0)]
    assert "query orders: 2 messages behind in 2 queues (min 0, max 2, avg 1.0)" in caplog.text
    listener.onQueryTerminated(SimpleNamespace(id="q"))
    assert listener.latest == {}
