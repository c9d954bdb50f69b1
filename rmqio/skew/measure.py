"""Counts the heaviest keys before a shuffle, in each worker, as metrics that `SkewReport` reads."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics

from rmqio.errors import LocalError
from rmqio.interfaces import SKEW_NAMESPACE
from rmqio.skew.beam import ReshufflePerKey, replace_transforms
from rmqio.skew.salted import SaltedCombinePerKey
from rmqio.skew.sketch import HeavyKeys
from rmqio.transforms.parts import Share, observe_process

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
