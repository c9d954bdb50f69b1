"""`SkewReport`: the heaviest keys of each shuffle, the load of the queues that were read, and what to do about it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from apache_beam.metrics.metric import MetricsFilter

from rmqio.interfaces import SKEW_NAMESPACE

_HOT: Final = 0.1
"""The share from which a key holds back the others: with ten workers, one of them does nothing else."""
_FEW: Final = 1_000
"""Elements that one worker may well get."""
_UNEVEN: Final = 2.0
"""How many times the mean a queue must have to be worth a word."""
_SHOWN: Final = 5


class HeavyKey(NamedTuple):
    """A key of a shuffle."""

    key: str
    """Its `repr`, cut to 80 characters."""
    elements: int
    """Elements that it had at least."""


class Shuffle(NamedTuple):
    """The load of a shuffle."""

    name: str
    kind: str
    elements: int
    keys: tuple[HeavyKey, ...]
    """The heaviest ones, first the heaviest."""

    @property
    def largest_share(self) -> float:
        """The part of the elements that the heaviest key has, from 0 to 1."""
        return self.keys[0].elements / self.elements if self.keys and self.elements else 0.0

    @property
    def suggestion(self) -> str:
        """Advice in words; empty if there is none."""
        if self.largest_share < _HOT or self.elements < _FEW:
            return ""
        share = f"{self.largest_share:.0%} of all elements have the key {self.keys[0].key}"
        return f"{share}{_SUGGESTIONS[self.kind]}"


_SUGGESTIONS: Final = {
    "combine": ". A runner that combines before the shuffle leaves one worker little of them. If that worker is late, "
    "try rmqio.skew.SaltedCombinePerKey instead of CombinePerKey, and measure.",
    "salted": ". SaltedCombinePerKey spreads them already; if one worker is still late, give a higher fanout.",
    "group": ": one worker gets them all. Combine instead of grouping, use rmqio.skew.BoundedGroupIntoBatches, or make "
    "the key finer, e.g. with the hour; if it stands for missing values, leave them out before.",
    "state": ": one worker gets them all. Make the key finer, or leave out before the step what it does not need.",
}


class QueueLoad(NamedTuple):
    """Records that were read of a queue."""

    queue: str
    records: int


class SkewReport(NamedTuple):
    """The skew of a pipeline, from the metrics of its result: at its end, or while it runs."""

    shuffles: tuple[Shuffle, ...]
    queues: tuple[QueueLoad, ...]
    """The fullest first, with empty ones, which make the load uneven, too."""

    @classmethod
    def of(cls, result: Any) -> SkewReport:
        """Read the metrics of a pipeline whose shuffles were measured; see `measure_shuffles`."""
        totals: dict[tuple[str, str], int] = defaultdict(int)
        keys: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        queues: dict[str, int] = defaultdict(int)
        found = result.metrics().query(MetricsFilter().with_namespace(SKEW_NAMESPACE))["counters"]
        for counter in found:
            what, *where = json.loads(counter.key.metric.name)
            count = counter.result or 0
            if what == "queue":
                queues[where[0]] += count
            elif what == "total":
                totals[where[0], where[1]] += count
            else:
                keys[where[0], where[1]][where[2]] += count
        shuffles = [
            Shuffle(*shuffle, elements, tuple(_heaviest(keys[shuffle]))) for shuffle, elements in sorted(totals.items())
        ]
        ordered = sorted(queues.items(), key=lambda item: (-item[1], item[0]))
        return cls(tuple(shuffles), tuple(QueueLoad(*each) for each in ordered))

    @property
    def imbalance(self) -> float:
        """How many times the mean the fullest queue had; 1 if all had the same, 0 without queues."""
        records = sum(each.records for each in self.queues)
        return self.queues[0].records * len(self.queues) / records if records else 0.0

    @property
    def suggestions(self) -> list[str]:
        """Advice in words, one for each shuffle and for the read."""
        found = [f"{each.name}: {each.suggestion}" for each in self.shuffles if each.suggestion]
        if self.imbalance >= _UNEVEN:
            found.append(
                f"read: queue {self.queues[0].queue} has {self.imbalance:.1f} times the mean, and one worker reads it. "
                "If its producers use sharding keys, use finer ones; if not, they have chosen the queue themselves."
            )
        return found

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.shuffles and not self.queues:
            yield "skew: nothing was measured"
        for each in self.shuffles:
            yield f"shuffle {each.name}: {each.elements:,} elements"
            for key in each.keys[:_SHOWN]:
                yield f"  {key.elements / max(1, each.elements):6.1%}  {key.elements:>12,}  {key.key}"
            if not each.keys:
                yield "  no key has as much as half a percent of a worker's elements"
        if self.queues:
            records = sum(each.records for each in self.queues)
            yield f"read: {records:,} records of {len(self.queues)} queues"
            for queue in self.queues[:_SHOWN]:
                yield f"  {queue.records / max(1, records):6.1%}  {queue.records:>12,}  {queue.queue}"
        yield from (f"suggestion: {each}" for each in self.suggestions)


def _heaviest(counts: dict[str, int]) -> list[HeavyKey]:
    return [HeavyKey(*each) for each in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
