"""`SkewReport`: the heaviest keys of each shuffle, the load of the queues that were read, and what to do about it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricsFilter

from rmqio.errors import LocalError
from rmqio.interfaces import SKEW_NAMESPACE
from rmqio.skew.beam import ReshufflePerKey, replace_transforms
from rmqio.skew.salted import HeavyKeys, SaltedCombinePerKey
from rmqio.transforms.parts import Share, observe_process

# Counts the heaviest keys before a shuffle, in each worker, as metrics that `SkewReport` reads.

_CAPACITY: Final = 256
_MOST_KEYS: Final = 10
_MOST_NAMES: Final = 40
"""Keys that one worker reports of a shuffle, whatever comes: each is a metric."""
_LEAST_SHARE: Final = 0.005
_MOST_TEXT: Final = 80


class MeasureKeys(beam.PTransform):
    """Passes pairs of key and value on, and counts the heaviest keys for `SkewReport`.

    `measure_shuffles` puts one before each shuffle of a pipeline; put your own before a stateful DoFn.

    Args:
      shuffle: the name in the report, unique in the pipeline.
      kind: "combine", "group", "salted" or "state": what the report suggests depends on it.
    """

    def __init__(self, shuffle: str, *, kind: str = "state") -> None:
        super().__init__(f"Measure {shuffle}")
        if not isinstance(shuffle, str) or not shuffle:
            raise LocalError(f"shuffle is {shuffle!r}; it must be text that names the shuffle in the report")
        if kind not in ("combine", "group", "salted", "state"):
            raise LocalError(f"kind is {kind!r}; it must be 'combine', 'group', 'salted' or 'state'")
        self._shuffle, self._kind = shuffle, kind

    def expand(self, pairs: Any) -> Any:
        passed = pairs | "Count keys" >> beam.ParDo(_MeasureFn(self._shuffle, self._kind))
        passed.element_type = pairs.element_type
        return passed


class _MeasureFn(beam.DoFn):
    def __init__(self, shuffle: str, kind: str) -> None:
        self._shuffle, self._kind = shuffle, kind
        self._begin()

    def setup(self) -> None:
        observe_process()
        self._begin()

    def _begin(self) -> None:
        self._sketch = HeavyKeys(_CAPACITY)
        self._told = 0
        self._told_of: dict[Hashable, int] = {}
        self._share = Share(self._shuffle)

    def process(self, element: tuple[Any, Any]) -> Sequence[Any]:
        try:
            self._sketch.add(element[0])
        except TypeError:  # a key that cannot be in a dict
            self._sketch.add(_text(element[0]))
        return (element,)

    def finish_bundle(self) -> None:
        sketch = self._sketch
        self._count("total", "", sketch.total - self._told)
        self._told = sketch.total
        heaviest = sketch.heaviest(_MOST_KEYS)
        for key, at_least, _ in heaviest:
            told = self._told_of.get(key, 0)
            is_known = key in self._told_of
            if at_least > told and (is_known or self._is_worth_a_name(at_least)):
                self._told_of[key] = at_least
                self._count("key", _text(key), at_least - told)
        if heaviest:
            self._share.set(100 * heaviest[0].at_least / sketch.total)

    def _is_worth_a_name(self, count: int) -> bool:
        return len(self._told_of) < _MOST_NAMES and count >= self._sketch.total * _LEAST_SHARE

    def _count(self, what: str, key: str, count: int) -> None:
        name = json.dumps([what, self._shuffle, self._kind, key], ensure_ascii=False)
        Metrics.counter(SKEW_NAMESPACE, name).inc(count)


def _text(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."


class _Measured(beam.PTransform):
    """A shuffle, and what measures its keys before it."""

    def __init__(self, shuffle: Any, name: str, output_type: Any) -> None:
        super().__init__()
        self._shuffle, self._name, self._output_type = shuffle, name, output_type

    def infer_output_type(self, _: Any) -> Any:
        return self._output_type

    def expand(self, pairs: Any) -> Any:
        measured = pairs | MeasureKeys(self._name, kind=_kind_of(self._shuffle))
        return measured | "Shuffle" >> self._shuffle


def _kind_of(shuffle: Any) -> str:
    if isinstance(shuffle, SaltedCombinePerKey):
        return "salted"
    return "combine" if isinstance(shuffle, beam.CombinePerKey) else "group"


_SHUFFLES: Final = (beam.GroupByKey, beam.CombinePerKey, SaltedCombinePerKey)
_OWN: Final = (*_SHUFFLES, _Measured, beam.CombineGlobally, beam.Reshuffle, ReshufflePerKey)
"""Transforms that use shuffles for themselves."""


def _is_shuffle(applied: Any) -> bool:
    """Whether it is a shuffle that no other transform uses for itself."""
    return isinstance(applied.transform, _SHUFFLES) and not any(
        isinstance(each.transform, _OWN) for each in _ancestors(applied)
    )


def _measured(applied: Any) -> _Measured:
    (output,) = applied.outputs.values()
    return _Measured(applied.transform, applied.full_label, output.element_type)


def _ancestors(applied: Any) -> Iterator[Any]:
    applied = applied.parent
    while applied is not None:
        yield applied
        applied = applied.parent


def measure_shuffles(pipeline: beam.Pipeline) -> None:
    """Measure the keys before each GroupByKey, CombinePerKey and SaltedCombinePerKey of a pipeline that is built.

    It changes the pipeline: a stream that goes on from a checkpoint must be started with or without it each time.
    """
    replace_transforms(pipeline, _is_shuffle, _measured)


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
