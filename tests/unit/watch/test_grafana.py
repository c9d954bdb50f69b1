"""The dashboard names metrics and labels that our exporter has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqio.prometheus.values import exported_name
from rmqio.telemetry import METRICS, Kind

BOARD: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs" / "operate" / "grafana.json").read_text())
EXPORTED = {
    f"{exported_name(metric)}{suffix}": metric
    for metric in METRICS.values()
    for suffix in (("_bucket", "_sum", "_count") if metric.kind is Kind.DISTRIBUTION else ("",))
}

LEFT_OUT = {
    "batches_sent": "the messages and bytes per second show the load",
    "row_batches_written": "the rows per second show the load",
    "commits": "the group's own lag is in `rmqio watch`; failures are in the dashboard",
    "claims_written": "few pipelines have big bodies; read and sent messages include them",
    "claims_read": "as claims_written",
    "traces_dropped": "the message trace is for debugging",
    "table_refreshes": "failures are in the dashboard",
}
"""Metrics that have no panel, and why."""


def expressions() -> Iterator[str]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_metrics_are_exported_with_their_labels_and_each_has_a_panel() -> None:
    found = set()
    for expression in expressions():
        names = re.findall(r"\brmqio_\w+", expression)
        assert names, expression
        for name, selected in re.findall(r"\b(rmqio_\w+)(?:\{([^}]*)\})?", expression):
            found.add(name)
            assert name in EXPORTED, f"{name} is not exported"
            labels = set(re.findall(r"(\w+)\s*=~", selected or ""))
            assert labels <= set(EXPORTED[name].labels), expression
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            asked = {label.strip() for label in grouped.split(",")} - {"le"}
            assert all(asked <= set(EXPORTED[name].labels) for name in names), expression
        is_counter = any(EXPORTED[name].kind is Kind.COUNTER for name in names)
        assert not is_counter or "rate(" in expression or "increase(" in expression, (
            f"{expression}: a counter only grows"
        )
    shown = {EXPORTED[name].name for name in found}
    assert shown.isdisjoint(LEFT_OUT)
    assert {*METRICS} == shown | {*LEFT_OUT}, "a new metric gets a panel, or a reason"


def test_the_sum_of_failures_has_each_kind_of_message_and_row() -> None:
    (panel,) = (each for each in BOARD["panels"] if each["title"] == "Failures in the last hour")
    (target,) = panel["targets"]
    failures = {name for name, metric in EXPORTED.items()
                if metric.name.endswith("_failures") and metric.unit in ("messages", "rows", "elements")}  # fmt: skip
    assert {*re.findall(r"rmqio_\w+", target["expr"])} == failures


def test_the_choice_of_topics_is_of_metrics_that_there_are() -> None:
    (query,) = [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    pattern = re.search(r'__name__=~"([^"]+)"', query)
    assert pattern is not None
    chosen = [name for name in EXPORTED if re.fullmatch(pattern[1], name)]
    assert sorted(chosen) == ["rmqio_messages_sent_total", "rmqio_records_read_total"]


def test_panels_do_not_overlap_and_name_their_data_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
