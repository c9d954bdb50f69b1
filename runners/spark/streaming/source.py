"""The data source of a streaming query: plans micro-batches, and makes the elements of what was planned.

An offset in Spark's checkpoint holds all that a micro-batch reads: where it begins, where it ends, and the clock. So a
micro-batch that is run again reads the same, whoever runs it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from rmqio.runners.spark.model import SCHEMA
from rmqio.runners.spark.streaming.channels import FIRST_SOURCE, TICK
from rmqio.runners.spark.worker import rows

NAME: Final = "rmqio-planned"
_TICK_S: Final = 1.0  # without data, how often the clock alone is worth a micro-batch
_PENDING_TICK_S: Final = 0.1  # the same while timers or splittable DoFns wait for the clock
_LONGEST_LOOK_S: Final = 0.2  # while there is nothing, so that brokers of many queues are not asked all the time
_LOOK_S: Final = 0.05  # how often it is looked whether there is anything new


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch may read of one source."""

    max_records: int | None = None
    max_bytes: int | None = None


@dataclass(slots=True)
class StreamSource:
    """A source of the pipeline: what plans it, and how its elements are encoded."""

    number: int
    name: str
    planner: Any
    """A `Planner`, see planned.py."""
    coder: Any
    """None: the elements are encoded."""

    @property
    def channel(self) -> int:
        """Of its elements."""
        return FIRST_SOURCE - self.number

    def encoded(self, element: Any) -> bytes:
        return bytes(element) if self.coder is None else self.coder.encode(element)


@dataclass(frozen=True, slots=True)
class Planning:
    """What the planning needs to know."""

    sources: tuple[StreamSource, ...]
    parallelism: int
    limits: Limits
    until_now: bool
    run: str
    """Of the query; an offset says which run has planned it."""
    control: str
    """A file of the driver. When it is there, nothing more is planned."""
    pending: str
    """Another. While it is there, something waits for the clock alone."""


def data_source(planning: Planning) -> type[DataSource]:
    """A class for `spark.dataSource.register`, which travels by value with its planning."""

    class PlannedStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return PlannedReader(planning)

    return PlannedStream


def seen(control: str) -> str:
    """The file by which the planning says that it has ended: Spark asks only when all that was planned is committed."""
    return f"{control}-seen"


class Part(InputPartition):
    """Rows of one task of level 0."""

    def __init__(self, found: list[tuple[int, bytes]]) -> None:
        super().__init__(None)
        self.rows = found


class PlannedReader(DataSourceStreamReader):
    """Plans in a process beside the driver, which Spark asks for each micro-batch."""

    def __init__(self, planning: Planning) -> None:
        self._planning = planning
        self._looked = 0.0
        self._look_s = _LOOK_S

    def initialOffset(self) -> dict[str, Any]:
        return {"number": 0, "to": {}}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        planning = self._planning
        # Spark asks again at once where there is nothing new
        time.sleep(max(0.0, self._looked + self._look_s - time.monotonic()))
        self._looked = time.monotonic()
        if os.path.exists(planning.control):
            open(seen(planning.control), "w").close()
            return start
        begin = start["to"]
        end = {
            str(source.number): source.planner.advance(
                begin.get(str(source.number)), planning.limits, planning.until_now
            )
            for source in planning.sources
        }
        clock = time.time()
        tick_s = _PENDING_TICK_S if os.path.exists(planning.pending) else _TICK_S
        if end == begin and clock - start.get("clock", 0.0) < tick_s:
            self._look_s = min(self._look_s * 2, _LONGEST_LOOK_S)
            return start
        self._look_s = _LOOK_S
        return {"number": start["number"] + 1, "clock": clock, "run": planning.run, "from": begin, "to": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if "from" not in end:
            return [Part([])]
        weighed: list[tuple[float, int, bytes]] = []
        planned: dict[str, Any] = {}
        for source in self._planning.sources:
            number = str(source.number)
            before, after = end["from"].get(number), end["to"][number]
            for element, weight in source.planner.elements(before, after):
                weighed.append((weight, source.channel, source.encoded(element)))
            planned[number] = {
                "name": source.name,
                "parts": dict(source.planner.partitions(after)),
                "ended": source.planner.has_ended(after),
                "done": source.planner.is_done(after),
                "lag": dict(source.planner.lag(after)),
            }
        tick = {"number": end["number"], "clock": end["clock"], "run": end["run"], "to": end["to"], "sources": planned}
        parts: list[list[tuple[int, bytes]]] = [
            [] for _ in range(max(1, min(self._planning.parallelism, len(weighed))))
        ]
        loads = [0.0] * len(parts)
        for weight, channel, element in sorted(weighed, key=lambda each: (-each[0], each[1:])):
            lightest = loads.index(min(loads))
            parts[lightest].append((channel, element))
            loads[lightest] += weight
        parts[0].append((TICK, json.dumps(tick).encode()))
        return [Part(found) for found in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        found = getattr(partition, "rows", None)
        if not found:
            return
        channels, values = zip(*found, strict=True)
        columns = [channels, [0] * len(channels), [None] * len(channels), values]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, rows.SCHEMA, strict=True)],
            schema=rows.SCHEMA,
        )
