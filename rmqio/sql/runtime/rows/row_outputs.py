"""A DoFn that makes rows: it runs a fragment on some hundred of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.compile.description import Fragment, ToGroups, ToKeys
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.runtime.rows.failed_rows import FailedRows, at_end
from rmqio.sql.runtime.rows.outputs import outputs
from rmqio.sql.values import ValueFailure

_ROWS: Final = 500
"""Rows of a batch for the write."""


class RowsFn(beam.DoFn):
    """Rows that become messages wait for others of the bundle: a batch of one costs as much as one of many."""

    def __init__(self, fragment: Fragment, side: int = 0) -> None:
        self._fragment = fragment
        self._side = side
        self._failed_rows = FailedRows(fragment)
        self._waits = not isinstance(fragment.target, (ToKeys, ToGroups))

    def setup(self) -> None:
        self._run = compiled(self._fragment)

    def start_bundle(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._time_us = 0

    def emitted(self, rows: Sequence[tuple[Any, ...]], time_us: int) -> Iterator[Any]:
        """Yields what becomes of rows, now or later. They have the time of the element that they come from."""
        self._rows += rows
        self._time_us = time_us
        if not self._waits or len(self._rows) >= _ROWS:
            yield from self._flushed()

    def emitted_with(
        self, rows: Sequence[tuple[Any, ...]], results: Sequence[tuple[Any, ...]], time_us: int
    ) -> Iterator[Any]:
        """Yields what becomes of rows with their results. A result can be a `ValueFailure`."""
        found: list[tuple[Any, ...]] = []
        for row, more in zip(rows, results, strict=True):
            failed = {i: each for i, each in enumerate(more, len(row)) if isinstance(each, ValueFailure)}
            if not failed:
                found.append(row + more)
                continue
            whole = row + tuple(None if isinstance(each, ValueFailure) else each for each in more)
            kept, letters = self._failed_rows.of_results(whole, failed)
            found += kept
            yield from letters
        yield from self.emitted(found, time_us)

    def finish_bundle(self) -> Iterator[Any]:
        if self._rows:
            at = Timestamp(micros=self._time_us)
            for each in self._flushed():
                yield at_end(each, at, GlobalWindow())

    def _flushed(self) -> list[Any]:
        found: list[Any] = []
        for start in range(0, len(self._rows), _ROWS):
            mapped = self._run(self._rows[start : start + _ROWS])
            if mapped.failed or mapped.nulls:
                found += self._failed_rows.outputs(self._rows[start : start + _ROWS], mapped.failed, mapped.nulls)
            if mapped.values:
                found += outputs(self._fragment.target, mapped.values, self._side, self._time_us)
        self._rows = []
        return found


class RepeatFn(RowsFn):
    """Repeats each row of a batch as often as its last column says."""

    def process(self, element: Sequence[tuple[Any, ...]], timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        for *row, times in element:
            for start in range(0, times, _ROWS):
                yield from self.emitted([tuple(row)] * min(_ROWS, times - start), timestamp.micros)
