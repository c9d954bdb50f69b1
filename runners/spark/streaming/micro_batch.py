"""A micro-batch as planned: what Spark's checkpoint keeps of it, and what its levels are told. JSON at the edges.

The processes that plan, run and attend a query share these values, so the module imports neither Beam nor Spark.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

Positions = Mapping[str, Any]
"""By source number: what a planner says of how far its source is read."""
Parts = Mapping[str, Mapping[str, int]]
"""By source number and part: how far it was read."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """An offset of Spark's checkpoint: all that the micro-batch reads that ends there."""

    number: int = 0
    """Counts the micro-batches; 0 is the offset before the first one."""
    to: Positions = dataclasses.field(default_factory=dict)
    begin: Positions | None = None
    """Where it begins; None for the offset before the first one."""
    clock: float = 0.0
    """Processing time in seconds."""
    run: str = ""
    """The run of the query that planned it."""
    is_drained: bool = False
    """Whether all sources end where they have been read to."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        begin, drained = found.get("from"), bool(found.get("drained", False))
        return cls(found["number"], found["to"], begin, found.get("clock", 0.0), found.get("run", ""), drained)

    def to_json(self) -> dict[str, Any]:
        """The keys of the offset before the first one are those that checkpoints have had from the start."""
        if self.begin is None:
            return {"number": self.number, "to": self.to}
        found = {"number": self.number, "clock": self.clock, "run": self.run}
        return {**found, "from": self.begin, "to": self.to, "drained": self.is_drained}


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What one source does in a micro-batch."""

    name: str
    parts: Mapping[str, int | None]
    """The parts whose watermarks count; microseconds where the clock has moved one on."""
    silent: Mapping[str, tuple[int, int]]
    """Parts that are read to their end, as `Planner.silent` has them."""
    has_ended: bool
    """Whether nothing comes after it, ever."""
    is_done: bool
    """Whether nothing comes after it in this run."""
    rows: int
    """Records planned."""
    lag: Mapping[str, int]
    """Records that it leaves, by topic."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What the levels and the driver learn of a micro-batch from the process that planned it."""

    number: int
    clock: float
    run: str
    to: Positions
    is_drained: bool
    sources: Mapping[str, SourcePlan]
    """By number."""

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        found = json.loads(encoded)
        sources = {number: SourcePlan(**each) for number, each in found.pop("sources").items()}
        return cls(**found, sources=sources)

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @property
    def rows(self) -> int:
        """Records planned, of all sources."""
        return sum(each.rows for each in self.sources.values())

    @property
    def lag(self) -> dict[str, int]:
        """Records that it leaves, by topic."""
        found: dict[str, int] = {}
        for each in self.sources.values():
            for topic, left in each.lag.items():
                found[topic] = found.get(topic, 0) + left
        return found

    @property
    def is_done(self) -> bool:
        """Whether its sources have been read to where this run ends."""
        return all(each.is_done for each in self.sources.values())

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes of its sources after it, ever."""
        return all(each.has_ended for each in self.sources.values())


class BatchHeader(NamedTuple):
    """The first row of each task of level 0: which micro-batch it is, and what an earlier run of it did not read."""

    run: str
    number: int
    cuts: Parts

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        return cls(*json.loads(encoded))

    def encode(self) -> bytes:
        return json.dumps(self).encode()


class Cuts(NamedTuple):
    """What one micro-batch did not read of what was planned for it: a broker gave nothing, and others wait."""

    number: int
    """Of the micro-batch, as the planning counts them."""
    parts: Parts

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
