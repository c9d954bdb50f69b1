"""The request of an audit, and its result."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rmqio.audit.compare.findings import Findings, Place
from rmqio.audit.hops import Edge, Fault, Passed
from rmqio.audit.identity import Identity
from rmqio.audit.reading import Side
from rmqio.audit.sketch import BLOCK_BITS, BUCKET_BITS
from rmqio.audit.units import NO_QUEUE, Unit
from rmqio.model import MessageQueue
from rmqio.start import StartFrom, StopAt

CLOCKS_MS: Final = 60_000
"""How far the clocks of two brokers may be apart."""
_Known = tuple[Fault, set[tuple[MessageQueue, int]], set[tuple[MessageQueue, int]]]
"""A fault, and the places of its lost and of its doubled messages."""


@dataclass(frozen=True)
class Request:
    """Describes an audit.

    Args:
      steps: labels of transforms that can be a part of ids. With those that the sketches name, they are all there are;
        empty: there can be others.
      by: as `--by`.
      grace_ms: messages that were stored less long ago are on their way, and not lost.
      most_rows: of a topic in memory; more go to files.
    """

    from_topic: str
    to_topic: str
    dead_letter_topic: str | None = None
    audit_topic: str | None = None
    steps: tuple[str, ...] = ()
    by: str = "auto"
    start: StartFrom = field(default_factory=StartFrom.earliest)
    stop: StopAt = field(default_factory=StopAt.latest)
    window_ms: int = 60_000
    late_ms: int = 60_000
    grace_ms: int = 0
    most_rows: int = 8_000_000
    folder: Path | None = None


@dataclass(kw_only=True)
class Result:
    """The result of an audit."""

    request: Request
    identity: Identity
    findings: Findings
    source: Side
    sink: Side
    letters: Side | None
    hops: dict[str, Passed]
    faults: list[Fault]
    edges: list[Edge]
    delays: dict[Edge, list[tuple[Unit, float]]]
    units_judged: int
    units_left_out: int
    notes: list[str]
    checked_ms: int
    unexplained: int = 0
    """Messages of the second topic that may be some that look lost, by a label that is not known."""
    doubt: str = ""
    """Why messages that look lost may have arrived; empty: they are lost."""

    @property
    def foreign_is_wrong(self) -> bool:
        """Whether the source was read as a whole, so that each message of the sink must be of it."""
        return self.source.is_to_end and not self.source.skipped and not any(self.source.begins.values())

    @property
    def wrong(self) -> dict[str, int]:
        """The kinds of faults with their counts; empty: all arrived, once."""
        total = self.findings.total
        found = {
            "lost": total.lost,
            "doubled": total.doubled,
            "foreign": total.foreign if self.foreign_is_wrong else 0,
            "unidentified": self.source.unidentified + self.sink.unidentified,
        }
        return {name: count for name, count in found.items() if count}

    def edge_of(self, place: Place) -> list[Edge]:
        """Return between which hops it happened; several: it is one of them; empty: it is not known."""
        kind = "doubled" if place.kind == "doubled" else "lost"
        exact, possible = [], []
        for fault, lost, doubled in self._faults_of(place):
            messages = lost if kind == "lost" else doubled
            if (place.queue, place.offset) in messages:
                exact.append(fault.edge)
            elif not messages and (fault.doubled if kind == "doubled" else fault.lost + fault.unclear):
                possible.append(fault.edge)
        return exact or possible

    def _faults_of(self, place: Place) -> Iterator[_Known]:
        for unit in (Unit(place.queue, place.offset >> BLOCK_BITS), Unit(NO_QUEUE, place.id >> (64 - BUCKET_BITS))):
            yield from self._by_unit.get(unit, ())

    @functools.cached_property
    def _by_unit(self) -> dict[Unit, list[_Known]]:
        """The faults with their messages, for look-ups: there can be hundred thousands."""
        found: dict[Unit, list[_Known]] = {}
        for fault in self.faults:
            lost, doubled = (
                {(each.queue, each.offset) for each in some} for some in (fault.lost_messages, fault.doubled_messages)
            )
            found.setdefault(fault.unit, []).append((fault, lost, doubled))
        return found

    def slowest_edge(self, place: Place) -> Edge | None:
        """Return the edge on which the messages around a place took the longest; None: it is not known."""
        unit = Unit(place.queue, place.offset >> BLOCK_BITS)
        there = [(delay, edge) for edge, found in self.delays.items() for each, delay in found if each == unit]
        return max(there, key=lambda item: item[0])[1] if there else None
