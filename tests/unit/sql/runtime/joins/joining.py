"""Joins without a runner: rows come in some order, the watermark follows them, and windows end as Beam ends them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToRows, WindowStep
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Calc, Interval, Join, Relation, SameWindow, Scan, Windowed
from rmqio.sql.runtime.joins import JoinRows, key_targets
from rmqio.sql.runtime.outputs import Computing, outputs
from rmqio.sql.scripts.script import Script

FOREVER_US = 1 << 62


class Bag(list[Any]):
    """State or timer of one key and window."""

    add = list.append
    value: Any = None

    def read(self) -> list[Any]:
        return list(self)

    def set(self, value: Any) -> None:
        self.value = value


@dataclass
class Run:
    """A join that runs.

    Attributes:
      rows: what came out.
      late: elements that Beam drops.
      states: left and right bag and timer of each key and window, interval joins only.
      most: the most rows that were kept at one time.
      largest: the most rows that came out together.
    """

    join: Join
    steps: tuple[Step, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    late: int = 0
    states: dict[tuple[bytes, Any], tuple[Bag, Bag, Bag]] = field(default_factory=dict)
    groups: dict[tuple[bytes, Any], list[Any]] = field(default_factory=dict)
    watermark_us: int = -FOREVER_US
    most: int = 0
    largest: int = 0

    def __post_init__(self) -> None:
        self._sources = [
            source_of(side, target)
            for side, target in zip((self.join.left, self.join.right), key_targets(self.join), strict=True)
        ]
        parts = Parts()
        JoinRows(self.join, self.steps, ToRows(), 0, Computing(None)).expand(parts)
        self._fn, self._windows = parts.fn, parts.windows
        self._fn.setup()

    def bundle(self, side: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Takes rows of one side that come together, in a bundle of their own."""
        self.begin()
        self.elements(side, rows)

    def begin(self) -> None:
        """Begins a bundle."""
        if hasattr(self._fn, "start_bundle"):
            self._fn.start_bundle()

    def elements(self, side: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Takes rows of one side."""
        run, target = self._sources[side]
        mapped = run(rows)
        assert not mapped.failed
        for each in outputs(target, mapped.values, side, 0) if mapped.values else ():
            key, value = each.value if self._windows else each
            windows: list[Any] = [None]
            if self._windows:
                windows = self._windows.assign(WindowFn.AssignContext(each.timestamp, each.value))
            for window in windows:
                if window is not None and window.max_timestamp().micros < self.watermark_us:
                    self.late += 1
                elif isinstance(self.join.bound, Interval):
                    self._state(key, value, window)
                else:
                    self.groups.setdefault((key, window), []).append(value)

    def _state(self, key: bytes, value: Any, window: Any) -> None:
        left, right, timer = self.states.setdefault((key, window), (Bag(), Bag(), Bag()))
        more = () if self.join.kind == "INNER" else (timer,)
        self._emit(self._fn.process((key, value), left, right, window, *more))
        self.most = max(self.most, sum(len(one) + len(other) for one, other, _ in self.states.values()))

    def advance(self, watermark_us: int) -> None:
        """Moves the watermark: what ends before it ends now."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        for (key, window), (left, right, timer) in list(self.states.items()):
            if window.max_timestamp().micros <= self.watermark_us:
                if timer.value is not None:
                    assert timer.value == window.max_timestamp()
                    self._emit(self._fn.finish(key, left, right, window))
                    assert not left
                    assert not right
                del self.states[key, window]
        for (key, window), values in list(self.groups.items()):
            end_us = FOREVER_US if window is None else window.max_timestamp().micros
            if end_us <= self.watermark_us:
                self._emit(self._fn.process((key, values)))
                del self.groups[key, window]

    def _emit(self, batches: Any) -> None:
        for each in batches:
            self.rows += each
            self.largest = max(self.largest, len(each))


class Parts:
    """Stands for a PCollection, and remembers the DoFn and the windows that are applied to it."""

    fn: Any = None
    windows: Any = None

    def __or__(self, transform: Any) -> Parts:
        inner = getattr(transform, "transform", transform)
        while hasattr(inner, "transform"):
            inner = inner.transform
        if isinstance(inner, beam.WindowInto):
            self.windows = self.windows if self.fn else inner.windowing.windowfn
        elif isinstance(inner, beam.ParDo):
            self.fn = inner.fn
        return self


def source_of(relation: Relation, target: Target) -> tuple[Any, Target]:
    """Returns the function from rows of a table to keys."""
    steps: tuple[Step, ...] = ()
    while not isinstance(relation, Scan):
        if isinstance(relation, Windowed):
            steps = (WindowStep(None, (), relation.window, relation.input.fields), *steps)
        else:
            assert isinstance(relation, Calc)
            steps = (Step(relation.condition, relation.projections), *steps)
        relation = relation.inputs()[0]
    return compiled(Fragment(FromRows(relation.fields), steps, target)), target


def started(text: str) -> Run:
    """Returns the join of the last statement of a script."""
    return Run(*_planned(text))


@functools.cache
def _planned(text: str) -> tuple[Join, tuple[Step, ...]]:
    script = Script()
    script.run(text)
    relation: Relation = script.sinks[-1].input
    steps: tuple[Step, ...] = ()
    while isinstance(relation, Calc):
        steps = (Step(relation.condition, relation.projections), *steps)
        relation = relation.input
    assert isinstance(relation, Join)
    assert relation.bound is None or isinstance(relation.bound, (Interval, SameWindow))
    return relation, steps


def milliseconds(micros: int) -> int:
    """Returns the time as Beam has it: whole milliseconds."""
    return int(Timestamp(micros=micros // 1000 * 1000).micros)
