"""The DoFn that runs a fragment on elements: some hundred of a bundle at a time, which keep their times and windows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.errors import SerdeError
from rmqio.internal_errors import internal_error
from rmqio.sql.catalog.tables import Column
from rmqio.sql.compile.description import Fragment, ToGroups, ToRows, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.runtime.rows.outputs import outputs
from rmqio.sql.transform.bad_rows import bad_row
from rmqio.sql.transform.elements import ToElements, column_reader
from rmqio.sql.values import ValueFailure

ERRORS: Final = "errors"
_ROWS: Final = 500
_MOST_GROUPS: Final = 100_000
_LOGGER: Final = logging.getLogger(__name__)

Place = tuple[int, Any]
"""The time of an element in microseconds, and its window."""


class ElementsFn(beam.DoFn):
    """Runs a fragment on elements.

    Args:
      fragment: from elements.
      table: the name of the input.
      on_error: `fail` raises, `skip` counts and logs, `output` emits a `BadRow` to `ERRORS`.
      side: for rows with keys, which input of the join they are.
      time: the column that is the time of the rows; None: it is that of the elements.
    """

    def __init__(
        self, fragment: Fragment, table: str, on_error: str, side: int = 0, time: Column | None = None
    ) -> None:
        self._fragment, self._table, self._on_error, self._side = fragment, table, on_error, side
        self._time = time
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def setup(self) -> None:
        self._run = compiled(self._fragment)
        self._time_of = None if self._time is None else _time_of(self._time)

    def start_bundle(self) -> None:
        self._elements: list[tuple[Any, int]] = []
        self._windows: list[Any] = []
        self._groups: dict[Any, Any] = {}
        self._earliest_us: int | None = None

    def process(
        self, element: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        micros = timestamp.micros
        if self._time_of is not None:
            try:
                micros = self._time_of(element)
            except Exception as error:  # noqa: BLE001 - a property of the user's, for example
                known = isinstance(error, ValueFailure)
                failure = error if known else ValueFailure(internal_error(error, "the time of a row of SQL"))
                yield from self._failed(element, failure, (micros, window))
                return
        self._elements.append((element, micros))
        self._windows.append(window)
        if len(self._elements) >= _ROWS:
            yield from self._flushed(_MOST_GROUPS)

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._flushed(0)

    def _flushed(self, most_groups: int) -> Iterator[Any]:
        elements, windows = self._elements, self._windows
        self._elements, self._windows = [], []
        target = self._fragment.target
        if elements:
            if isinstance(target, ToGroups):
                mapped = self._run(elements, self._groups)
                earliest_us = min(micros for _, micros in elements)
                self._earliest_us = earliest_us if self._earliest_us is None else min(self._earliest_us, earliest_us)
                self._window = windows[0]
            else:
                mapped = self._run(elements)
            for position, error in mapped.failed.items():
                yield from self._failed(elements[position][0], error, (elements[position][1], windows[position]))
            if mapped.values and not isinstance(target, ToGroups):
                yield from self._emitted(mapped.values, [(elements[i][1], windows[i]) for i in mapped.positions])
        if isinstance(target, ToGroups) and len(self._groups) > most_groups:
            yield from self._emitted_groups(target)

    def _emitted(self, values: list[Any], places: list[Place]) -> Iterator[WindowedValue]:
        target = self._fragment.target
        if isinstance(target, ToElements):
            for value, place in zip(values, places, strict=True):
                yield _placed(value, place)
        elif isinstance(target, (ToTable, ToRows)):  # one batch: its time does not matter
            yield _placed(Batch(values), places[0])
        else:  # keys and ranks: what comes out of them can have the times of its rows
            found: dict[Place, list[Any]] = {}
            for value, place in zip(values, places, strict=True):
                found.setdefault(place, []).append(value)
            for place, members in found.items():
                for each in outputs(target, members, self._side, place[0]):
                    yield _placed(each, place)

    def _emitted_groups(self, target: ToGroups) -> Iterator[WindowedValue]:
        assert self._earliest_us is not None
        for each in outputs(target, list(self._groups.items()), self._side, self._earliest_us):
            yield _placed(each, (self._earliest_us, self._window))
        self._groups.clear()
        self._earliest_us = None

    def _failed(self, element: Any, error: Exception, place: Place) -> Iterator[Any]:
        self._bad.inc()
        if self._on_error == "output":
            yield beam.pvalue.TaggedOutput(ERRORS, _placed(bad_row(self._table, element, error), place))
        elif self._on_error == "fail":
            row = bad_row(self._table, element, error)
            raise SerdeError(f"{self._table}: {error}; the row is {row.row:.200}") from error
        else:
            _LOGGER.warning("a row of %s was left out: %s", self._table, error)


def _placed(value: Any, place: Place) -> WindowedValue:
    """Returns an element at a place, or at its own time if it has one."""
    micros, window = place
    if isinstance(value, TimestampedValue):
        return WindowedValue(value.value, value.timestamp, (window,))
    return WindowedValue(value, Timestamp(micros=micros), (window,))


def _time_of(column: Column) -> Callable[[Any], int]:
    read = column_reader(column)

    def of(element: Any) -> int:
        try:
            value = getattr(element, column.name)
        except AttributeError:
            raise ValueFailure(f"the element has no field {column.name}") from None
        if value is None:
            raise ValueFailure(f"column {column.name}: it is None, so the row has no time")
        return int(read(value))

    return of
