"""Compares the sketches of hops, from one to the next: finds where messages were lost, doubled or held up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from rmqio.audit.reading import Sketches
from rmqio.audit.sketch import BLOCK, BLOCK_BITS, MASK, NO_QUEUE, Hop, Numbers, Sketch, Total, Unit, mixed, mixed_one
from rmqio.dead_letters.letters import read_ranges
from rmqio.interfaces import QueueClient
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
    """At least so many, as of the other kinds; exactly if the messages are known."""
    letters: int
    """Became dead letters."""
    unclear: int
    """Were lost or became dead letters: it is not known which of both."""
    doubled: int
    lost_messages: tuple[Candidate, ...] = ()
    """Empty: it is not known which."""
    letter_messages: tuple[Candidate, ...] = ()
    doubled_messages: tuple[Candidate, ...] = ()


class _Causes(NamedTuple):
    """What can explain the differences of a unit."""

    lost: Sequence[Candidate]
    letters: Sequence[Candidate]
    doubled: Sequence[Candidate]

    @property
    def surplus(self) -> int:
        """How many more messages there are behind an edge where all of them happen."""
        return len(self.doubled) - len(self.lost) - len(self.letters)

    @property
    def hash_sum(self) -> int:
        gone, more = ((each.hash for each in some) for some in ((*self.lost, *self.letters), self.doubled))
        return (sum(more) - sum(gone)) & MASK

    def without(self, others: _Causes) -> _Causes:
        some = {*others.lost, *others.letters}, {*others.lost, *others.letters}, {*others.doubled}
        return _Causes(*([each for each in own if each not in gone] for own, gone in zip(self, some, strict=True)))


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
      lost, doubled: by unit: the messages that are too few or too many in the end.
      letters: by unit: the messages that became dead letters, which leave the pipeline somewhere, too.
    """

    totals: Mapping[str, Totals]
    edges: Sequence[Edge]
    lost: Mapping[Unit, Sequence[Candidate]]
    doubled: Mapping[Unit, Sequence[Candidate]]
    letters: Mapping[Unit, Sequence[Candidate]]

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
        wrong = {
            edge: difference
            for edge in self.edges
            if not self._is_split(edge, unit) and any(difference := self._difference(edge, unit))
        }
        left = _Causes(*(each.get(unit, ()) for each in (self.lost, self.letters, self.doubled)))
        known: dict[Edge, _Causes] = {}
        while len(known) < len(wrong):
            found = _explained({edge: wrong[edge] for edge in wrong if edge not in known}, left)
            if found is None:
                break
            known[found[0]] = found[1]
            left = left.without(found[1])
        for edge, (count, _) in wrong.items():
            yield _named(edge, unit, known[edge]) if edge in known else _unnamed(edge, unit, count, left)

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


def _explained(wrong: Mapping[Edge, tuple[int, int]], left: _Causes) -> tuple[Edge, _Causes] | None:
    """An edge whose difference is explained, and by what; None: there is none."""
    if len(wrong) == 1:
        ((edge, (count, _)),) = wrong.items()
        if left.surplus == count and any(left):
            return edge, left
    smallest_first = sorted(wrong.items(), key=lambda item: abs(item[1][0]))
    for explain in (_wholly, _solve):  # what is lost together is often lost at one edge, as are dead letters
        for edge, (count, hash_sum) in smallest_first:
            found = explain(count, hash_sum, left)
            if found is not None:
                return edge, found
    return None


def _wholly(count: int, hash_sum: int, left: _Causes) -> _Causes | None:
    """The kinds of causes that explain a difference as a whole; None: none do."""
    for some in itertools.product(*({(), tuple(each)} for each in left)):
        causes = _Causes(*some)
        if any(some) and causes.surplus == count and causes.hash_sum == hash_sum:
            return causes
    return None


def _solve(count: int, hash_sum: int, left: _Causes) -> _Causes | None:
    """The fewest messages that explain a difference; None: none do, or there are too many to try."""
    candidates, doubled = [*left.lost, *left.letters], left.doubled
    tries = 0
    for gone in range(max(0, -count), len(candidates) + 1):
        more = gone + count
        if more > len(doubled):
            break
        tries += math.comb(len(candidates), gone) * math.comb(len(doubled), more)
        if tries > _MOST_TRIES:
            return None
        for some in itertools.combinations(candidates, gone):
            wanted = (hash_sum + sum(each.hash for each in some)) & MASK
            for others in itertools.combinations(doubled, more):
                if sum(each.hash for each in others) & MASK == wanted:
                    letters = {*left.letters}
                    lost = [each for each in some if each not in letters]
                    return _Causes(lost, [each for each in some if each in letters], others)
    return None


def _named(edge: Edge, unit: Unit, causes: _Causes) -> Fault:
    lost, letters, doubled = map(tuple, causes)
    return Fault(edge, unit, len(lost), len(letters), 0, len(doubled), lost, letters, doubled)


def _unnamed(edge: Edge, unit: Unit, count: int, left: _Causes) -> Fault:
    """A fault of which the counts alone are known: what is missing can be any of the messages that are left."""
    missing = max(0, -count) or int(not count)
    letters = min(len(left.letters), max(0, missing - len(left.lost)))
    lost = max(0, missing - len(left.letters))
    return Fault(edge, unit, lost, letters, missing - lost - letters, max(0, count) or int(not count))


# Looks up the sketches of the block of offsets that a message is in.

Outcome = Literal["passed", "missing", "doubled"]
_PAIR: Final = 2


def hops_of_block(
    client: QueueClient, topic: str, queue: MessageQueue, offset: int
) -> tuple[list[tuple[str, int, int, bool, Outcome | None]], list[str]]:
    """Return by hop, and the known steps: name, messages in the block, how many went by, whether they are the same, and
    the outcome of the one message.
    """
    sketches = Sketches()
    sketches.read(client, topic)
    hops = passed_of(sketches, queue.topic)
    begin = offset >> BLOCK_BITS << BLOCK_BITS
    block = range(max(begin, client.min_offset(queue)), min(begin + BLOCK, client.max_offset(queue)))
    # Messages that retention has deleted were still there when they went by.
    there = [*range(begin, block.start)] + [
        record.queue_offset
        for part in read_ranges(client, {queue: block})
        for record in part.records
    ]  # fmt: skip
    hashes = mixed(np.array(there, np.int64))
    sent = Total(len(there), int(hashes.sum(dtype=np.uint64)))
    unit = Unit(queue, offset >> BLOCK_BITS)
    found = []
    for name, passed in hops.items():
        if not passed.by_id:
            total = passed.units.get(unit, Total())
            is_same = (total.elements, total.hash_sum) == (sent.elements, sent.hash_sum)
            outcome = outcome_of(hashes, mixed_one(offset), total)
            found.append((name, sent.elements, total.elements, is_same, outcome))
    return found, sorted({step for passed in hops.values() for step in passed.steps if step})


def outcome_of(hashes: Numbers, own: int, total: Total) -> Outcome | None:
    """Return what a hop did with the message with the hash `own`; None if its sketch does not tell.

    Args:
      hashes: those of the messages of the block, by offset.
      total: the sketch.
    """
    more = total.elements - len(hashes)
    rest = (total.hash_sum - int(hashes.sum(dtype=np.uint64))) & MASK
    if not more and not rest:
        return "passed"
    if not total.elements:
        return "missing"
    if not more:  # one is missing, and another is there twice
        missing = hashes[np.isin(hashes + np.uint64(rest), hashes)].tolist()
        if len(missing) != 1:
            return None
        return "missing" if own == missing[0] else "doubled" if own == (missing[0] + rest) & MASK else "passed"
    wrong = _with_sum(hashes, abs(more), rest if more > 0 else -rest & MASK)
    if wrong is None:
        return None
    return "passed" if own not in wrong else "missing" if more < 0 else "doubled"


def _with_sum(hashes: Numbers, count: int, wanted: int) -> list[int] | None:
    """The only messages with this sum, of one or two messages, or of neighbours, as a lost bundle has; None: none."""
    if count <= len(hashes):
        before = np.concatenate((np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)))
        begins = np.flatnonzero(before[count:] - before[:-count] == np.uint64(wanted))
        if len(begins) == 1:
            return [int(each) for each in hashes[begins[0] : begins[0] + count]]
    if count == _PAIR:
        others = np.uint64(wanted) - hashes
        pair = hashes[np.isin(others, hashes) & (others != hashes)]
        if len(pair) == _PAIR:
            return [int(each) for each in pair]
    return None
