"""The data source of a streaming query: plans micro-batches, and emits the elements that were planned.

It runs in the Python process that Spark starts beside the driver. It does not import Beam, which would take seconds.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from rmqio.pyspark.chatter import quiet
from rmqio.runners.spark.errors import TaskFailure
from rmqio.runners.spark.model import ROW_DDL
from rmqio.runners.spark.streaming.micro_batch import (
    BATCH,
    FIRST_SOURCE,
    TICK,
    BatchHeader,
    Cuts,
    MicroBatch,
    PlannedOffset,
    Position,
    Positions,
    SourcePlan,
)
from rmqio.runners.spark.worker import rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# The protocol between the source of a streaming query and the planners that transforms provide. Imports no Beam.

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much a micro-batch may read of one source."""

    max_records: int | None = None
    max_bytes: int | None = None
    may_cut: bool = False
    """Whether a read may stop before its planned end. False if Spark may run a stage again after its rows were read: on
    a cluster that loses a machine, the second run could read more, or less, than the first.
    """


class PlannerOf(Protocol[P]):
    """Plans the reads of one source, in a process of Spark's driver. Picklable.

    A position is a JSON value, and is all that Spark's checkpoint keeps. It is None for a new stream. The result of a
    method depends on its arguments only, with two exceptions: `advance`, and `is_done`, which also depends on the
    arguments of the last `advance`.
    """

    is_bounded: bool
    """Whether the source ends by itself."""
    identity: str
    """Identifies what the positions belong to. The checkpoint of a source with another identity is refused."""

    @property
    def element_type(self) -> object:
        """The type of the elements. Their coder is the one that is registered for it in Beam."""
        ...

    def advance(self, position: P | None, limits: TriggerLimits, until_now: bool) -> P | None:
        """Returns the position to which the next micro-batch reads; the same position if there is nothing new.

        With `until_now`, the source ends where it ends at the time of the first call.
        """
        ...

    def elements(self, begin: P | None, end: P | None, again: bool = False) -> Sequence[tuple[object, float]]:
        """Returns the elements that the micro-batch between two positions reads, each with its weight.

        `again`: the micro-batch may have run before, and must read the same: no part may be cut short now.
        """
        ...

    def partitions(self, position: P | None) -> Mapping[str, int | None]:
        """Returns the parts whose watermarks count, each with a watermark in microseconds or None.

        The watermark is set if the clock has advanced it.
        """
        ...

    def silent(self, position: P | None) -> Mapping[str, tuple[int, int]]:
        """Returns the parts that are read to their end but may have returned nothing yet: (watermark, patience).

        If nothing has come from a part for `patience` microseconds of the clock, its watermark advances to `watermark`,
        also in microseconds.
        """
        ...

    def has_ended(self, position: P | None) -> bool:
        """Returns whether nothing comes after the position, ever."""
        ...

    def is_done(self, position: P | None) -> bool:
        """Returns whether nothing comes after the position in this run, which may be limited by `until_now`."""
        ...

    def shortened(self, position: P | None, cuts: Mapping[str, int]) -> P | None:
        """Returns the position with parts moved back to where their read was cut short. Called only if some were."""
        ...

    def committed(self, position: P | None, last: bool = False) -> None:
        """Called in the driver after Spark has committed the micro-batch that ends at the position.

        Called once more when the query ends, with `last`.
        """
        ...

    def clock(self, position: P | None) -> float | None:
        """Returns processing time in seconds, if the source determines it as a TestStream does; None: real time."""
        ...

    def lag(self, position: P | None) -> Mapping[str, int]:
        """Returns how many records are left, by topic, as far as this was known when the position was planned."""
        ...


Planner = PlannerOf[Position]
"""A planner whose positions the runner stores and returns without looking at them."""


def opaque(planner: PlannerOf[P]) -> Planner:
    """Returns a planner as the runner sees it."""
    return cast(Planner, planner)


class Encoder(Protocol):
    """Encodes planned elements."""

    def encode(self, element: object) -> bytes: ...


# The source of bounded pipelines' elements. It does not import Beam, which would take the planning process seconds.


class ImpulsePlanner:
    """One empty element in the first micro-batch, and the end of time in the next one. A `Planner`.

    A position counts the micro-batches that are done: 0, 1 or 2.
    """

    element_type = bytes
    is_bounded = True
    identity = ""

    def __init__(self, element: bytes) -> None:
        """Args: `element`: the element in Beam's encoding."""
        self._element = element

    def advance(self, position: int | None, limits: TriggerLimits, until_now: bool) -> int:
        return min(2, (position or 0) + 1)

    def elements(self, begin: int | None, end: int | None, again: bool = False) -> Sequence[tuple[bytes, float]]:
        return [(self._element, 1.0)] if not begin and end else []

    def partitions(self, position: int | None) -> Mapping[str, int | None]:
        return {}

    def silent(self, position: int | None) -> Mapping[str, tuple[int, int]]:
        return {}

    def has_ended(self, position: int | None) -> bool:
        return position == 2

    def is_done(self, position: int | None) -> bool:
        return self.has_ended(position)

    def shortened(self, position: int | None, cuts: Mapping[str, int]) -> int | None:
        return position

    def committed(self, position: int | None, last: bool = False) -> None:
        """Does nothing: there is nobody to inform."""

    def clock(self, position: int | None) -> None:
        """Time is real."""

    def lag(self, position: int | None) -> Mapping[str, int]:
        return {}


# Signals between the driver and the planning process, which Spark starts beside it. They are files.


@dataclass(frozen=True, slots=True)
class QuerySignals:
    """Files in a folder of the driver. Each is a signal by its existence. Picklable."""

    folder: str

    @property
    def cuts(self) -> str:
        """The path of the file that says which parts a micro-batch did not read to their planned end (`Cuts`)."""
        return os.path.join(self.folder, "cuts")

    def stop(self) -> None:
        """Stops the planning: no more micro-batches are planned."""
        self._set("stop")

    def is_stopped(self) -> bool:
        return self._is_set("stop")

    def drain(self) -> None:
        """Makes all sources end where they have been read to."""
        self._set("drain")

    def is_drained(self) -> bool:
        return self._is_set("drain")

    def note_end(self) -> None:
        """Notes that the planning is at its end. Spark asks it only after all that was planned is committed."""
        self._set("stop-seen")

    def is_at_end(self) -> bool:
        return self._is_set("stop-seen")

    def note_pending(self, is_pending: bool) -> None:
        """Notes whether anything waits for the clock alone."""
        if is_pending:
            self._set("pending")
            return
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path("pending"))

    def is_pending(self) -> bool:
        return self._is_set("pending")

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _is_set(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def _set(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the folder is removed when the query has ended
            open(self._path(name), "w").close()


NAME: Final = "rmqio-planned"
_TICK_S: Final = 1.0  # without data, how often the clock alone justifies a micro-batch
_PENDING_TICK_S: Final = 0.1  # the same while timers or splittable DoFns wait for the clock
_BEHIND_THE_END_S: Final = 86_400.0  # how far the clock advances with each micro-batch after a TestStream has ended
_LONGEST_LOOK_S: Final = 0.2  # while there is nothing new, so that brokers with many queues are not queried constantly
_LOOK_S: Final = 0.05  # the interval between checks for anything new


@dataclass(slots=True)
class StreamSource:
    """A source of the pipeline, with its planner and the coder of its elements."""

    number: int
    name: str
    planner: Planner
    coder: Encoder | None
    """None: the planner returns encoded elements."""

    @property
    def channel(self) -> int:
        """The channel of the source's elements."""
        return FIRST_SOURCE - self.number

    def plan(self, position: Position | None, rows: int, *, is_drained: bool) -> SourcePlan:
        """Returns the part of the source in a micro-batch that ends at a position."""
        planner = self.planner
        return SourcePlan(
            name=self.name,
            parts=dict(planner.partitions(position)),
            silent=dict(planner.silent(position)),
            has_ended=is_drained or planner.has_ended(position),
            is_done=is_drained or planner.is_done(position),
            rows=rows,
            lag=dict(planner.lag(position)),
        )

    def encoded(self, element: Any) -> bytes:
        return bytes(element) if self.coder is None else self.coder.encode(element)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Everything that the planning needs to know about a query."""

    sources: tuple[StreamSource, ...]
    parallelism: int
    limits: TriggerLimits
    until_now: bool
    run: str
    """The run of the query. An offset says which run has planned it."""
    signals: QuerySignals


def shortened(sources: Sequence[StreamSource], to: Positions, cuts: Cuts) -> Positions:
    """Returns positions by source number, moved back to where the read was cut short."""
    planners = {str(source.number): source.planner for source in sources}
    return {n: planners[n].shortened(each, cuts.parts[n]) if n in cuts.parts else each for n, each in to.items()}


def data_source(planning: Planning) -> type[DataSource]:
    """Returns a class for `spark.dataSource.register`, which is pickled by value together with its planning.

    The planning is pickled separately: only the planning process needs Beam, whose import takes seconds.
    """
    pickled = cloudpickle.dumps(planning)

    class PlannedStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            quiet()
            return ROW_DDL

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            quiet()
            return PlannedReader(pickled)

    return PlannedStream


class Part(InputPartition):
    """The rows of one task of level 0."""

    def __init__(self, found: list[tuple[int, bytes]]) -> None:
        super().__init__(None)
        self.rows = found


class PlannedReader(DataSourceStreamReader):
    """Plans micro-batches in a process beside the driver. Spark calls it for each micro-batch."""

    def __init__(self, planning: bytes) -> None:
        """Args: `planning`: a pickled `Planning`."""
        self._pickled = planning
        self._looked = 0.0
        self._look_s = _LOOK_S
        self._planned_at = float("-inf")

    @functools.cached_property
    def _planning(self) -> Planning:
        logging.disable(logging.WARNING)  # Beam warns about optional modules that are not installed
        try:
            found: Planning = pickle.loads(self._pickled)
        finally:
            logging.disable(logging.NOTSET)
        return found

    def initialOffset(self) -> dict[str, object]:
        return PlannedOffset().to_json()

    def latestOffset(self, start: dict[str, object], limit: object) -> dict[str, object]:
        planning, last = self._planning, PlannedOffset.from_json(start)
        signals = planning.signals
        # Spark calls again immediately if there is nothing new
        time.sleep(max(0.0, self._looked + self._look_s - time.monotonic()))
        self._looked = time.monotonic()
        begin = self._read_to(last)
        # There is nothing to drain in a stream that has not begun
        if signals.is_stopped() or (not begin and signals.is_drained()):
            signals.note_end()
            return start
        is_drained = last.is_drained or signals.is_drained()
        end = begin if is_drained else self._advanced(begin)
        tick_s = _PENDING_TICK_S if signals.is_pending() else _TICK_S
        if end == begin and time.monotonic() - self._planned_at < tick_s:
            self._look_s = min(self._look_s * 2, _LONGEST_LOOK_S)
            return start
        self._look_s, self._planned_at = _LOOK_S, time.monotonic()
        planned = PlannedOffset(last.number + 1, end, begin, self._clock(last, end), planning.run, is_drained)
        return planned.to_json()

    def _read_to(self, last: PlannedOffset) -> Positions:
        """Returns how far the micro-batch before an offset has read: as planned, unless it was cut short."""
        cuts = Cuts.read(self._planning.signals.cuts)
        if cuts is None or cuts.number != last.number:
            return last.to
        return shortened(self._planning.sources, last.to, cuts)

    def _had(self, number: int) -> Cuts:
        """Returns what a micro-batch did not read in its earlier run: its output came from what it did read then."""
        cuts = Cuts.read(self._planning.signals.cuts)
        return cuts if cuts is not None and cuts.number == number else Cuts(number, {})

    def _advanced(self, begin: Positions) -> Positions:
        limits, until_now = self._planning.limits, self._planning.until_now
        found: dict[str, Position | None] = {}
        for source in self._planning.sources:
            name = str(source.number)
            try:
                found[name] = source.planner.advance(begin.get(name), limits, until_now)
            except Exception as error:  # noqa: BLE001  raised in the form that the driver reads
                raise TaskFailure(error, source.name) from None
        return found

    def _clock(self, last: PlannedOffset, end: Positions) -> float:
        """Returns processing time in seconds: the time of a TestStream if there is one, else real time."""
        clocks = [(each, each.planner.clock(end.get(str(each.number)))) for each in self._planning.sources]
        given = {each.number: clock for each, clock in clocks if clock is not None}
        if not given:
            return time.time()
        timed = [each for each in self._planning.sources if each.number in given]
        if all(each.planner.has_ended(last.to.get(str(each.number))) for each in timed):
            return last.clock + _BEHIND_THE_END_S
        return max(given.values())

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        offset = PlannedOffset.from_json(end)
        if offset.begin is None:
            return [Part([])]
        weighed: list[tuple[float, int, bytes]] = []
        in_order: list[tuple[int, bytes]] = []
        plans: dict[str, SourcePlan] = {}
        had = self._had(offset.number)
        to = shortened(self._planning.sources, offset.to, had)
        is_again = offset.run != self._planning.run
        for source in self._planning.sources:
            number = str(source.number)
            elements = source.planner.elements(offset.begin.get(number), to.get(number), is_again)
            # The elements of a TestStream stay in order, because tests give them in one. Beam does not promise that
            if source.planner.clock(to.get(number)) is not None:
                in_order += [(source.channel, source.encoded(element)) for element, _ in elements]
            else:
                weighed += [(weight, source.channel, source.encoded(element)) for element, weight in elements]
            rows = sum(int(weight) for _, weight in elements)
            plans[number] = source.plan(offset.to.get(number), rows, is_drained=offset.is_drained)
        batch = MicroBatch(offset.number, offset.clock, offset.run, offset.to, offset.is_drained, plans)
        parts: list[list[tuple[int, bytes]]] = [
            [] for _ in range(max(1, min(self._planning.parallelism, len(weighed))))
        ]
        loads = [0.0] * len(parts)
        for weight, channel, element in sorted(weighed, key=lambda each: (-each[0], each[1:])):
            lightest = loads.index(min(loads))
            parts[lightest].append((channel, element))
            loads[lightest] += weight
        parts[0] += [*in_order, (TICK, batch.encode())]
        header = (BATCH, BatchHeader(offset.run, *had).encode())
        return [Part([header, *found]) for found in parts]

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
