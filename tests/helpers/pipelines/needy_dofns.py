"""DoFns with one need each, which note in a file what happens to them: other processes do not see this one's memory."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, OrderedListStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

Pairs = tuple[str, int]


def note(path: Path, *what: object) -> None:
    """Writes a line to a file."""
    with path.open("a") as file:
        file.write(" ".join(map(str, what)) + "\n")


def noted(path: Path) -> list[str]:
    """Returns the whole lines: another process may be writing the next one."""
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


def waits(path: Path) -> list[float]:
    """Returns the seconds between the setting and the firing of each timer that has fired."""
    found = [line.split() for line in noted(path)]
    begun = {key: float(at) for what, key, at in found if what == "set"}
    return [float(at) - begun[key] for what, key, at in found if what == "fired"]


class Counting(RestrictionProvider):
    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


class CountUp(beam.DoFn):
    """Emits the numbers below its element, and defers its residual after each number."""

    def process(self, element: int, numbers: Any = beam.DoFn.RestrictionParam(Counting())) -> Iterator[int]:  # noqa: B008
        number = numbers.current_restriction().start
        if numbers.try_claim(number):
            yield number
            numbers.defer_remainder()


class Finalize(beam.DoFn):
    """Notes that its bundle is final."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Any, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[Any]:
        finalizer.register(functools.partial(note, self._path, element))
        yield element


class RunningTotal(beam.DoFn):
    TOTAL = CombiningValueStateSpec("total", sum)

    def process(self, element: Pairs, total: Any = beam.DoFn.StateParam(TOTAL)) -> Iterator[int]:
        total.add(element[1])
        yield total.read()


class InOrder(beam.DoFn):
    SEEN = OrderedListStateSpec("seen", VarIntCoder())

    def process(self, element: Pairs, seen: Any = beam.DoFn.StateParam(SEEN)) -> Iterator[list[int]]:
        seen.add((Timestamp(element[1]), element[1]))
        yield [number for _, number in seen.read()]


class Alarm(beam.DoFn):
    """Sets a timer for `later_s` seconds later. Notes the clock when it sets the timer and when the timer fires."""

    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def __init__(self, path: Path, later_s: float) -> None:
        self._path, self._later_s = path, later_s

    def _set(self, element: Pairs, timer: Any, at: Any) -> None:
        note(self._path, "set", element[0], time.time())
        timer.set(at + self._later_s)

    def _fired(self, key: str) -> Iterator[Any]:
        note(self._path, "fired", key, time.time())
        return iter([key])


class EventAlarm(Alarm):
    def process(
        self, element: Pairs, at: Any = beam.DoFn.TimestampParam, timer: Any = beam.DoFn.TimerParam(Alarm.EVENT)
    ) -> None:
        self._set(element, timer, at)

    @on_timer(Alarm.EVENT)
    def ring(self, key: Any = beam.DoFn.KeyParam, at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        self._fired(key)
        yield key, float(at)


class ClockAlarm(Alarm):
    def process(self, element: Pairs, timer: Any = beam.DoFn.TimerParam(Alarm.CLOCK)) -> None:
        self._set(element, timer, Timestamp.of(time.time()))

    @on_timer(Alarm.CLOCK)
    def ring(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield from self._fired(key)
