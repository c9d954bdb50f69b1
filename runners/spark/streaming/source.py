"""The data source of a streaming query: plans micro-batches, and makes the elements of what was planned.

An offset in Spark's checkpoint holds all that a micro-batch reads: where it begins, where it ends, and the clock. So a
micro-batch that is run again reads the same, whoever runs it.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from rmqio.pyspark.chatter import quiet
from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.model import ROW_DDL
from rmqio.runners.spark.streaming.channels import BATCH, FIRST_SOURCE, TICK
from rmqio.runners.spark.worker import rows

NAME: Final = "rmqio-planned"
_TICK_S: Final = 1.0  # without data, how often the clock alone is worth a micro-batch
_PENDING_TICK_S: Final = 0.1  # the same while timers or splittable DoFns wait for the clock
_BEHIND_THE_END_S: Final = 86_400.0  # how far the clock moves at a time when a TestStream has ended
_LONGEST_LOOK_S: Final = 0.2  # while there is nothing, so that brokers of many queues are not asked all the time
_LOOK_S: Final = 0.05  # how often it is looked whether there is anything new


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch may read of one source."""

    max_records: int | None = None
    max_bytes: int | None = None
    may_cut: bool = False
    """Whether reading may stop before what was planned. Not where Spark may run a stage again after its rows were read:
    on a cluster that loses a machine, the second run could read more, or less, than the first.
    """


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
    drain: str
    """Another. When it is there, all sources end where they have been read to."""
    pending: str
    """Another. While it is there, something waits for the clock alone."""
    cuts: str
    """Another: what a micro-batch did not read of what was planned for it (`Cuts`)."""


class Cuts(NamedTuple):
    """What one micro-batch did not read of what was planned for it: a broker gave nothing, and others wait."""

    number: int
    """Of the micro-batch, as the planning counts them."""
    parts: Mapping[str, Mapping[str, int]]
    """By source number and part: how far it was read."""

    @classmethod
    def read(cls, path: str) -> Cuts | None:
        """From a file of the driver."""
        try:
            with open(path) as file:
                return cls(*json.load(file))
        except FileNotFoundError:
            return None

    def write(self, path: str) -> None:
        """To a file of the driver, whole or not at all."""
        with open(f"{path}.part", "w") as file:
            json.dump(self, file)
        os.replace(f"{path}.part", path)


def shortened(sources: Sequence[StreamSource], to: Mapping[str, Any], cuts: Cuts) -> dict[str, Any]:
    """Positions by source number, moved back to where reading was cut short."""
    planners = {str(source.number): source.planner for source in sources}
    return {n: planners[n].shortened(each, cuts.parts[n]) if n in cuts.parts else each for n, each in to.items()}


def data_source(planning: Planning) -> type[DataSource]:
    """A class for `spark.dataSource.register`, which travels by value with its planning.

    That is pickled apart: only the process that plans needs Beam, which takes seconds to import.
    """
    pickled = cloudpickle.dumps(planning)

    class PlannedStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            quiet()
            return ROW_DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            quiet()
            return PlannedReader(pickled)

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

    def __init__(self, planning: bytes) -> None:
        """Args: a pickled `Planning`."""
        self._pickled = planning
        self._looked = 0.0
        self._look_s = _LOOK_S
        self._planned_at = float("-inf")

    @functools.cached_property
    def _planning(self) -> Planning:
        logging.disable(logging.WARNING)  # Beam warns of modules that it would use if they were there
        try:
            found: Planning = pickle.loads(self._pickled)
        finally:
            logging.disable(logging.NOTSET)
        return found

    def initialOffset(self) -> dict[str, Any]:
        return {"number": 0, "to": {}}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        planning = self._planning
        # Spark asks again at once where there is nothing new
        time.sleep(max(0.0, self._looked + self._look_s - time.monotonic()))
        self._looked = time.monotonic()
        begin = self._read_to(start)
        # A stream that has not begun has nothing to drain
        if os.path.exists(planning.control) or (not begin and os.path.exists(planning.drain)):
            open(seen(planning.control), "w").close()
            return start
        is_drained = start.get("drained", False) or os.path.exists(planning.drain)
        end = begin if is_drained else self._advanced(begin)
        tick_s = _PENDING_TICK_S if os.path.exists(planning.pending) else _TICK_S
        if end == begin and time.monotonic() - self._planned_at < tick_s:
            self._look_s = min(self._look_s * 2, _LONGEST_LOOK_S)
            return start
        self._look_s, self._planned_at = _LOOK_S, time.monotonic()
        found = {"number": start["number"] + 1, "clock": self._clock(start, end), "run": planning.run}
        return {**found, "from": begin, "to": end, "drained": is_drained}

    def _read_to(self, start: dict[str, Any]) -> dict[str, Any]:
        """How far the micro-batch has read that an offset ends: as planned, unless it was cut short."""
        to: dict[str, Any] = start["to"]
        cuts = Cuts.read(self._planning.cuts)
        if cuts is None or cuts.number != start["number"]:
            return to
        return shortened(self._planning.sources, to, cuts)

    def _had(self, number: int) -> Cuts:
        """What a micro-batch did not read when it was run before: what was sent then came of what it had read."""
        cuts = Cuts.read(self._planning.cuts)
        return cuts if cuts is not None and cuts.number == number else Cuts(number, {})

    def _advanced(self, begin: dict[str, Any]) -> dict[str, Any]:
        limits, until_now = self._planning.limits, self._planning.until_now
        found = {}
        for source in self._planning.sources:
            name = str(source.number)
            try:
                found[name] = source.planner.advance(begin.get(name), limits, until_now)
            except Exception as error:  # noqa: BLE001  told in the form that the driver reads
                raise TaskFailure(error, source.name) from None
        return found

    def _clock(self, start: dict[str, Any], end: dict[str, Any]) -> float:
        """Processing time in seconds: a TestStream's as long as there is one, else the real one."""
        given = [each for each in self._planning.sources if hasattr(each.planner, "clock")]
        if not given:
            return time.time()
        if all(each.planner.has_ended(start["to"].get(str(each.number))) for each in given):
            return float(start["clock"] + _BEHIND_THE_END_S)
        return max(float(each.planner.clock(end[str(each.number)])) for each in given)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if "from" not in end:
            return [Part([])]
        weighed: list[tuple[float, int, bytes]] = []
        in_order: list[tuple[int, bytes]] = []
        planned: dict[str, Any] = {}
        had = self._had(end["number"])
        to = shortened(self._planning.sources, end["to"], had)
        is_again = end["run"] != self._planning.run
        for source in self._planning.sources:
            number = str(source.number)
            before, after = end["from"].get(number), end["to"].get(number)
            elements = source.planner.elements(before, to.get(number), is_again)
            if hasattr(source.planner, "clock"):  # what tests give in an order, though Beam promises none, stays in it
                in_order += [(source.channel, source.encoded(element)) for element, _ in elements]
            else:
                weighed += [(weight, source.channel, source.encoded(element)) for element, weight in elements]
            planned[number] = {
                "name": source.name,
                "parts": dict(source.planner.partitions(after)),
                "silent": dict(source.planner.silent(after)),
                "ended": end["drained"] or source.planner.has_ended(after),
                "done": end["drained"] or source.planner.is_done(after),
                "rows": sum(int(weight) for _, weight in elements),
                "lag": dict(source.planner.lag(after)),
            }
        tick = {name: end[name] for name in ("number", "clock", "run", "to", "drained")} | {"sources": planned}
        parts: list[list[tuple[int, bytes]]] = [
            [] for _ in range(max(1, min(self._planning.parallelism, len(weighed))))
        ]
        loads = [0.0] * len(parts)
        for weight, channel, element in sorted(weighed, key=lambda each: (-each[0], each[1:])):
            lightest = loads.index(min(loads))
            parts[lightest].append((channel, element))
            loads[lightest] += weight
        parts[0] += [*in_order, (TICK, json.dumps(tick).encode())]
        batch = (BATCH, json.dumps([end["run"], *had]).encode())
        return [Part([batch, *found]) for found in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        found = getattr(partition, "rows", None)
        if not found:
            return
        channels, values = zip(*found, strict=True)
        columns = [channels, [0] * len(channels), [None] * len(channels), values]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, rows.ROW_SCHEMA, strict=True)],
            schema=rows.ROW_SCHEMA,
        )
