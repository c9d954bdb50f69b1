"""A planned micro-batch: the values that Spark's checkpoint stores and that the levels receive, as JSON.

The processes that plan, run and monitor a query share these values, so the module imports neither Beam nor Spark.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import NamedTuple, NewType, Self

from rmqio.runners.spark.streaming.json_fields import Fields

Position = NewType("Position", object)
"""A planner's position, a JSON value that says how far a source is read. Only the planner looks into it."""
Positions = Mapping[str, Position | None]
"""By source number; None: nothing is planned yet."""
Parts = Mapping[str, Mapping[str, int]]
"""By source number and part: how far the part was read."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """An offset in Spark's checkpoint. It says everything that the micro-batch which ends there reads."""

    number: int = 0
    """The number of the micro-batch; 0 for the offset before the first one."""
    to: Positions = dataclasses.field(default_factory=dict)
    begin: Positions | None = None
    """The positions where the micro-batch begins; None for the offset before the first one."""
    clock: float = 0.0
    """Processing time in seconds."""
    run: str = ""
    """The run of the query that planned the micro-batch."""
    is_drained: bool = False
    """Whether all sources end at the position to which they have been read."""

    @classmethod
    def from_json(cls, found: object) -> Self:
        fields = Fields("PlannedOffset", found)
        return cls(
            number=fields.value("number", int),
            to=_positions(fields, "to"),
            begin=None if fields.value("from", dict, NoneType, default=None) is None else _positions(fields, "from"),
            clock=fields.value("clock", int, float, default=0.0),
            run=fields.value("run", str, default=""),
            is_drained=fields.value("drained", bool, default=False),
        )

    def to_json(self) -> dict[str, object]:
        """Returns the offset as JSON.

        The offset before the first micro-batch has only the keys that offsets had in the first version of checkpoints.
        """
        if self.begin is None:
            return {"number": self.number, "to": self.to}
        found = {"number": self.number, "clock": self.clock, "run": self.run}
        return {**found, "from": self.begin, "to": self.to, "drained": self.is_drained}


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The part of one source in a micro-batch."""

    name: str
    parts: Mapping[str, int | None]
    """The parts whose watermarks count, as `Planner.partitions` returns them."""
    silent: Mapping[str, tuple[int, int]]
    """The parts that are read to their end, as `Planner.silent` returns them."""
    has_ended: bool
    """Whether nothing comes from the source after the micro-batch, ever."""
    is_done: bool
    """Whether nothing comes from the source after the micro-batch in this run."""
    rows: int
    """The number of planned records."""
    lag: Mapping[str, int]
    """The number of records that are left after the micro-batch, by topic."""

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(
            name=fields.value("name", str),
            parts=fields.nested("parts").values(int, NoneType),
            silent=fields.nested("silent").pairs(),
            has_ended=fields.value("has_ended", bool),
            is_done=fields.value("is_done", bool),
            rows=fields.value("rows", int),
            lag=fields.nested("lag").values(int),
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The description of a micro-batch that the planning process sends to the levels and the driver."""

    number: int
    clock: float
    run: str
    to: Positions
    is_drained: bool
    sources: Mapping[str, SourcePlan]
    """By source number."""

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        fields = Fields.decode("MicroBatch", encoded, _names(cls))
        sources = fields.nested("sources").all_nested(_names(SourcePlan))
        return cls(
            number=fields.value("number", int),
            clock=fields.value("clock", int, float),
            run=fields.value("run", str),
            to=_positions(fields, "to"),
            is_drained=fields.value("is_drained", bool),
            sources={number: SourcePlan.from_fields(each) for number, each in sources},
        )

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @property
    def rows(self) -> int:
        """The number of planned records, of all sources."""
        return sum(each.rows for each in self.sources.values())

    @property
    def lag(self) -> dict[str, int]:
        """The number of records that are left after the micro-batch, by topic."""
        found: dict[str, int] = {}
        for each in self.sources.values():
            for topic, left in each.lag.items():
                found[topic] = found.get(topic, 0) + left
        return found

    @property
    def is_done(self) -> bool:
        """Whether all sources have been read to the point where this run ends."""
        return all(each.is_done for each in self.sources.values())

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes from any source after the micro-batch, ever."""
        return all(each.has_ended for each in self.sources.values())


class BatchHeader(NamedTuple):
    """The first row of each task of level 0: the micro-batch, and the parts that an earlier run of it cut short."""

    run: str
    number: int
    cuts: Parts

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        fields = Fields.decode_array("BatchHeader", encoded, cls._fields)
        return cls(fields.value("run", str), fields.value("number", int), fields.integers_of_objects("cuts"))

    def encode(self) -> bytes:
        return json.dumps(self).encode()


class Cuts(NamedTuple):
    """The parts that one micro-batch did not read to their planned end: a broker returned nothing, and others wait."""

    number: int
    """The number of the micro-batch, as the planning counts."""
    parts: Parts

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Returns the cuts from the checkpoint, where they are an object."""
        return cls._from_fields(Fields("Cuts", found))

    def to_json(self) -> dict[str, object]:
        return self._asdict()

    @classmethod
    def read(cls, path: str) -> Cuts | None:
        """Reads the cuts from a file of the driver. Returns None if there is no file."""
        try:
            with open(path) as file:
                return cls._from_fields(Fields.decode_array("Cuts", file.read(), cls._fields))
        except FileNotFoundError:
            return None

    def write(self, path: str) -> None:
        """Writes the cuts to a file of the driver, atomically."""
        with open(f"{path}.part", "w") as file:
            json.dump(self, file)
        os.replace(f"{path}.part", path)

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        return cls(fields.value("number", int), fields.integers_of_objects("parts"))


def _positions(fields: Fields, name: str) -> Positions:
    """Decodes positions. They are encoded as they are."""
    found: Positions = fields.value(name, dict)
    return found


def _names(kind: type[MicroBatch | SourcePlan]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]
