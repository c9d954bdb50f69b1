"""Compares the sketches of hops, from one to the next: finds where messages were lost, doubled or held up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqio.audit.sketch import MASK, Hop, Sketch, Total
from rmqio.audit.units import NO_QUEUE, Unit
from rmqio.model import MessageQueue

SOURCE: Final = ""
"""Stands for the first topic among the names of hops."""
SINK: Final = "\0"
"""Stands for the second topic."""
_MOST_TRIES: Final = 50_000


class Candidate(NamedTuple):
    """A message that was lost or doubled somewhere, and the hash by which sketches count it."""

    queue: MessageQueue
    offset: int
    hash: int


class Edge(NamedTuple):
    """From some hops to the next one."""

    before: tuple[str, ...]
    hop: str


class Fault(NamedTuple):
    """Messages that are too few or too many behind an edge, in one unit."""

    edge: Edge
    unit: Unit
    lost: int
    doubled: int
    """At least so many; exactly if the messages are known."""
    lost_messages: tuple[Candidate, ...]
    """Empty: it is not known which."""
    doubled_messages: tuple[Candidate, ...]


@dataclass
class Passed:
    """The totals of a hop, over all runs."""

    hop: Hop
    by_id: bool
    units: dict[Unit, Total] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)
    """How many elements went by, by window of event time."""
    runs: set[str] = field(default_factory=set)
    steps: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        return sum(total.elements for total in self.units.values())


def passed_of(sketches: Iterable[Sketch], topic: str) -> dict[str, Passed]:
    """Return what each hop has of a topic, or without places, in the order of the pipeline."""
    found: dict[str, Passed] = {}
    for key, hop, total in sketches:
        if key.topic not in ("", topic):
            continue
        passed = found.setdefault(hop.name, Passed(hop, not key.topic))
        if hop.depth > passed.hop.depth:  # an audit topic can have runs of an older form of the pipeline
            passed.hop = hop
        queue = MessageQueue(key.topic, key.broker, key.queue_id) if key.topic else NO_QUEUE
        unit = Unit(queue, key.block)
        passed.units[unit] = passed.units.get(unit, Total()).plus(total)
        passed.windows[key.window_ms] = passed.windows.get(key.window_ms, 0) + total.elements
        passed.runs.add(key.run)
        passed.steps.add(key.steps)
    return dict(sorted(found.items(), key=lambda item: (item[1].hop.depth, item[0])))


def edges_of(hops: Mapping[str, Passed]) -> list[Edge]:
    """Return the edges between hops that count alike, and those from the first topic and to the second."""
    found = []
    for by_id in (False, True):
        kind = {name for name, passed in hops.items() if passed.by_id == by_id}
        if not kind:
            continue
        edges = [Edge(tuple(sorted(_before(name, hops, kind))) or (SOURCE,), name) for name in hops if name in kind]
        behind = {name for edge in edges for name in edge.before}
        found += [*edges, Edge(tuple(sorted(kind - behind)), SINK)]
    return found


def _before(name: str, hops: Mapping[str, Passed], kind: Collection[str]) -> set[str]:
    """The nearest hops of a kind before a hop."""
    found: set[str] = set()
    for each in hops[name].hop.after:
        if each in kind:
            found.add(each)
        elif each in hops:
            found |= _before(each, hops, kind)
    return found


Totals = Mapping[Unit, Total]


@dataclass(frozen=True)
class Comparison:
    """Compares hops.

    Args:
      totals: by hop, `SOURCE` and `SINK`: the total of each unit.
      edges: as `edges_of` returns them.
      lost, doubled: by unit: the messages that are too few or too many in the end. Messages that became dead letters
        are among those that were lost: they leave the pipeline somewhere, too.
    """

    totals: Mapping[str, Totals]
    edges: Sequence[Edge]
    lost: Mapping[Unit, Sequence[Candidate]]
    doubled: Mapping[Unit, Sequence[Candidate]]

    def faults(self, units: Collection[Unit]) -> list[Fault]:
        """Return what is wrong in these units."""
        return [fault for unit in sorted(units) for fault in self._of_unit(unit)]

    def delays(self, units: Collection[Unit]) -> dict[Edge, list[tuple[Unit, float]]]:
        """Return by edge how long it took in each unit: the difference of the mean times, in milliseconds."""
        found: dict[Edge, list[tuple[Unit, float]]] = {edge: [] for edge in self.edges}
        for unit, edge in itertools.product(sorted(units), self.edges):
            before, behind = self._sum(edge.before, unit), self._of(edge.hop, unit)
            if before.elements and behind.elements:
                found[edge].append((unit, behind.mean_ms - before.mean_ms))
        return found

    def _of_unit(self, unit: Unit) -> Iterator[Fault]:
        wrong = [
            (edge, count, sum_)
            for edge in self.edges
            if not self._is_split(edge, unit)
            for count, sum_ in [self._difference(edge, unit)]
            if count or sum_
        ]
        lost, doubled = list(self.lost.get(unit, ())), list(self.doubled.get(unit, ()))
        for edge, count, sum_ in wrong:
            if len(wrong) == 1 and len(doubled) - len(lost) == count:
                found: tuple[Sequence[Candidate], Sequence[Candidate]] | None = lost, doubled
            else:
                found = _solve(count, sum_, lost, doubled)
            if found is None:
                yield Fault(edge, unit, max(0, -count) or int(not count), max(0, count) or int(not count), (), ())
                continue
            gone, more = found
            are_gone, are_more = set(gone), set(more)
            lost = [each for each in lost if each not in are_gone]
            doubled = [each for each in doubled if each not in are_more]
            yield Fault(edge, unit, len(gone), len(more), tuple(gone), tuple(more))

    def _difference(self, edge: Edge, unit: Unit) -> tuple[int, int]:
        before, behind = self._sum(edge.before, unit), self._of(edge.hop, unit)
        if any(_same(self._of(each, unit), behind) for each in edge.before):
            return 0, 0  # the others are branches that end elsewhere
        return behind.elements - before.elements, (behind.hash_sum - before.hash_sum) & MASK

    def _is_split(self, edge: Edge, unit: Unit) -> bool:
        """Whether several hops share what came out of the ones before them, so that none of them has all of it."""
        beside = [each for each in self.edges if each.before == edge.before]
        if len(beside) < 2:
            return False
        before = self._sum(edge.before, unit)
        together = self._sum([each.hop for each in beside], unit)
        return _same(together, before)

    def _of(self, hop: str, unit: Unit) -> Total:
        return self.totals[hop].get(unit, Total())

    def _sum(self, hops: Collection[str], unit: Unit) -> Total:
        total = Total()
        for hop in hops:
            total = total.plus(self._of(hop, unit))
        return total


def _same(one: Total, other: Total) -> bool:
    return (one.elements, one.hash_sum) == (other.elements, other.hash_sum)


def _solve(
    count: int, hash_sum: int, lost: Sequence[Candidate], doubled: Sequence[Candidate]
) -> tuple[Sequence[Candidate], Sequence[Candidate]] | None:
    """The fewest of the lost and doubled that explain a difference; None: none do, or there are too many to try."""
    tries = 0
    for gone in range(max(0, -count), len(lost) + 1):
        more = gone + count
        if more > len(doubled):
            break
        tries += math.comb(len(lost), gone) * math.comb(len(doubled), more)
        if tries > _MOST_TRIES:
            return None
        for some in itertools.combinations(lost, gone):
            wanted = (hash_sum + sum(each.hash for each in some)) & MASK
            for others in itertools.combinations(doubled, more):
                if sum(each.hash for each in others) & MASK == wanted:
                    return some, others
    return None
