"""Runs the levels of a pipeline over many micro-batches in one process, without Spark: its own stages and state."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms import window

from rmqio.runners.spark.streaming.levels import ElementCoder, Levels
from rmqio.runners.spark.streaming.micro_batch import (
    BATCH,
    FIRST_SOURCE,
    PARTS,
    REPORT,
    TICK,
    BatchHeader,
    MicroBatch,
    SourcePlan,
)
from rmqio.runners.spark.streaming.model import MAX, Learned, LevelReport
from rmqio.runners.spark.streaming.worker import Row, run_bucket, run_first
from tests.helpers.spark import spark_plan

SECOND = 1_000_000
BUCKETS = (3, 11)
_RUNS = itertools.count()
Element = tuple[str, Any, float]  # key, value, seconds


class Entries(dict[bytes, bytes]):
    """Entries in memory, as they stay between micro-batches."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.pop(key, None)


class Stream:
    """The micro-batches of a pipeline whose only source emits keys, values and seconds."""

    def __init__(self, transform: Any, pipeline: beam.Pipeline | None = None) -> None:
        pipeline = pipeline or beam.Pipeline()
        _ = (
            pipeline
            | beam.Impulse()
            | beam.Map(json.loads)
            | beam.Map(lambda e: window.TimestampedValue((e[0], e[1]), e[2])).with_output_types(tuple[str, Any])
            | transform
            | beam.ParDo(spark_plan._Collect())
        )
        plan = spark_plan.plan_of(pipeline)
        self.levels = Levels(plan, f"test-{next(_RUNS)}", BUCKETS, {}, None).make().levels
        self.entries = {(level.number, bucket): Entries() for level in self.levels for bucket in BUCKETS}
        self.reports: list[LevelReport] = []
        self.rows: list[Row] = []

    def run(
        self,
        elements: Sequence[Element],
        watermark: float | None,
        clock: int = 0,
        silent: tuple[int, int] | None = None,
        learned: int | None = None,
        run: str | None = None,
    ) -> list[Any]:
        """Returns the output as (value, microseconds, window), sorted. All times are in seconds.

        The source has one part that counts. `watermark`: how far the clock has moved it. `silent`: what holds while
        nothing comes from it. `learned`: what the read has learned about it. `run`: the run that planned the
        micro-batch, if it is another one.
        """
        spark_plan._FOUND.clear()
        parts = {"a": None if watermark is None else round(watermark * SECOND), "b": MAX}
        ends = {} if silent is None else {"a": (silent[0] * SECOND, silent[1] * SECOND)}
        source = SourcePlan("Read", parts, ends, has_ended=False, is_done=False, rows=len(elements), lag={})
        planned_by = run or self.levels[0].run
        batch = MicroBatch(1, clock, planned_by, {}, is_drained=False, sources={"0": source})
        rows: list[Row] = [(BATCH, 0, None, BatchHeader(planned_by, 1, {}).encode())]
        rows += [(FIRST_SOURCE, 0, None, self.encoded(element)) for element in elements]
        rows.append((TICK, 0, None, batch.encode()))
        found = run_first(self.levels[0], spark_plan.batches(rows), lambda _: None)
        rows = [row for batch in found for row in zip(*batch.to_pydict().values(), strict=True)]
        if learned is not None:
            rows += [
                (PARTS, bucket, b"0", json.dumps(Learned({"a": learned * SECOND}, {})).encode()) for bucket in BUCKETS
            ]
        for level in self.levels[1:]:
            dealt = {bucket: [row for row in rows if row[1] == bucket] for bucket in BUCKETS}
            assert sum(map(len, dealt.values())) == len(rows)
            rows = []
            for bucket in BUCKETS:
                rows += run_bucket(level, bucket, dealt[bucket], self.entries[level.number, bucket])
        self.rows = rows
        self.reports = [pickle.loads(value) for channel, _, _, value in rows if channel == REPORT]
        return sorted(spark_plan._FOUND, key=repr)

    def values(self, elements: Sequence[Element], watermark: float | None, clock: int = 0, **more: Any) -> list[Any]:
        return [value for value, _, _ in self.run(elements, watermark, clock, **more)]

    @staticmethod
    def encoded(element: Element) -> bytes:
        return ElementCoder(WindowedValueCoder(BytesCoder(), GlobalWindowCoder())).encode(json.dumps(element).encode())

    @property
    def late(self) -> int:
        return sum(report.late for report in self.reports)

    @property
    def is_pending(self) -> bool:
        return any(report.pending for report in self.reports)

    def kept(self) -> int:
        """Returns the number of entries, without each bucket's watermarks and its count of keys."""
        return sum(name != b"root" and name[:1] != b"k" for each in self.entries.values() for name in each)
