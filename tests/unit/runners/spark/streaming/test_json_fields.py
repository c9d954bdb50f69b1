"""Values that a stream keeps as JSON: what is decoded is what was encoded, and anything else is named."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.streaming.micro_batch import BatchHeader, MalformedJson, MicroBatch, Position, SourcePlan
from rmqio.runners.spark.streaming.model import Learned
from rmqio.runners.spark.streaming.worker import BucketWatermarks

PLAN = SourcePlan("Read", {"a": None, "b": 5}, {"a": (1, 2)}, has_ended=False, is_done=True, rows=7, lag={"t": 2})
BATCH = MicroBatch(3, 1, "run", {"0": Position({"at": 1})}, is_drained=False, sources={"0": PLAN})
VALUES = {
    "micro-batch": BATCH,
    "header": BatchHeader("r", 1, {"0": {"a": 3}}),
    "learned": Learned({"a": 1}, {"b": 2}),
    "watermarks": BucketWatermarks({"1": 2}, {"0": {"a": 1}}, {}),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_is_decoded_as_it_was(value: Any) -> None:
    assert type(value).decode(value.encode()) == value


def of_source(**change: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["sources"]["0"].update(change)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda found: found.pop("clock"), "MicroBatch.clock is missing"),
        (lambda found: found.update(number=True), "MicroBatch.number"),
        (lambda found: found.update(x=1), "x"),
        (lambda found: found.update(sources=[]), "MicroBatch.sources"),
        (lambda found: found["sources"].update({"0": 3}), "MicroBatch.sources.0"),
        (lambda found: found["sources"]["0"].pop("rows"), "MicroBatch.sources.0.rows is missing"),
        (of_source(parts={"a": "x"}), r"MicroBatch.sources.0.parts.a must be an integer or null, not 'x'"),
        (of_source(silent={"a": [1]}), "MicroBatch.sources.0.silent.a"),
        (of_source(name=None), "MicroBatch.sources.0.name"),
        (of_source(y=3), "y"),
    ],
)
def test_a_wrong_field_is_named(change: Callable[[dict[str, Any]], object], named: str) -> None:
    found = json.loads(BATCH.encode())
    change(found)
    with pytest.raises(MalformedJson, match=named):
        MicroBatch.decode(json.dumps(found).encode())


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (MicroBatch, b"{"),
        (MicroBatch, b"[]"),
        (BatchHeader, b'["r", 1]'),
        (BatchHeader, b'["r", 1, {"0": {"a": null}}]'),
        (Learned, b'[{"a": 1.5}, {}]'),
        (Learned, b"[{}]"),
        (BucketWatermarks, b'{"watermarks": {"3": "x"}}'),
        (BucketWatermarks, b'{"heard": {"3": []}}'),
    ],
)
def test_other_json_is_refused(kind: Any, data: bytes) -> None:
    with pytest.raises(MalformedJson) as caught:
        kind.decode(data)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_bucket_without_an_entry_has_no_watermarks() -> None:
    assert BucketWatermarks.decode(None) == BucketWatermarks.decode(b"{}") == BucketWatermarks()
