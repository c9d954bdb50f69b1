"""Elements with a schema: the source and the target of a fragment, its DoFn, and the rows that it could not compute."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.errors import SerdeError
from rmqio.internal_errors import internal_error
from rmqio.sql.catalog.tables import Column
from rmqio.sql.compile.description import Fragment, OtherSource, OtherTarget, ToGroups, ToRows, ToTable
from rmqio.sql.compile.emitter import Emitter
from rmqio.sql.compile.fragment import compiled, metadata_codes
from rmqio.sql.planning.plan import Field
from rmqio.sql.runtime.outputs import outputs
from rmqio.sql.transform.row_types import Convert, reader, row_type, writer
from rmqio.sql.values import RAISED, ValueFailure, failure_reason, shown_value
from rmqio.transforms import ReadFailure

# Rows that a query could not compute.

_DEEPEST: Final = 50
_MOST_VALUES: Final = 100_000
_MOST_BITS: Final = 10_000
"""Of an integer. Python writes no more than 4,300 digits."""


class BadRow(NamedTuple):
    """A row that was left out."""

    table: str
    """The name of the input; of a row that comes from several, of the first of them."""
    row: str
    """The row as JSON; of a message, its body as text."""
    reason: str


class SqlResult(NamedTuple):
    """The outputs of `SqlTransform(on_error="output")`."""

    rows: Any
    """The rows of the query."""
    errors: Any
    """One `BadRow` for each row of an input that could not be computed."""


def bad_row(table: str, element: Any, error: Exception) -> BadRow:
    """Returns the bad row of an element."""
    text = json.dumps(_Plain().of(element), ensure_ascii=False)
    return BadRow(table, text.encode("utf-8", "backslashreplace").decode(), str(error))  # half of a surrogate pair


def of_failure(table: str, failure: ReadFailure) -> BadRow:
    """Returns the bad row of a message."""
    if not failure.topic:  # of a join or an aggregate
        return BadRow(table, failure.body.decode("utf-8", "replace"), failure.reason)
    place = f"{failure.topic}/{failure.broker}/{failure.queue_id}, offset {failure.queue_offset}"
    return BadRow(table, failure.body.decode("utf-8", "replace"), f"{place}: {failure.reason}")


class _Plain:
    """Makes values of any element such that JSON has them: bad rows have values that nobody expects."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES
        self._outer: list[int] = []

    def of(self, value: Any) -> Any:
        """Returns the value, or text of it; of what contains itself, or has too many values, some."""
        if value is None or isinstance(value, (bool, float)):
            return value
        self._left -= 1
        if self._left < 0 or len(self._outer) > _DEEPEST or id(value) in self._outer:
            return "..."
        self._outer.append(id(value))
        try:
            return self._parts(value)
        except RAISED as error:  # a property, a `__str__` or an `__iter__` of the user's
            failure_reason(error)  # raises what is of the process
            return shown_value(value)
        finally:
            self._outer.pop()

    def _parts(self, value: Any) -> Any:
        if isinstance(value, beam.Row):
            return self._named(value.as_dict())
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self._named(value._asdict())
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {each.name: self.of(getattr(value, each.name)) for each in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {
                key if isinstance(key, str) else shown_value(key, str): self.of(each) for key, each in value.items()
            }
        if isinstance(value, (bytes, bytearray)):
            return base64.b64encode(value).decode()
        if isinstance(value, str) or (isinstance(value, int) and value.bit_length() <= _MOST_BITS):
            return value
        if isinstance(value, Sequence):
            return [self.of(each) for each in value]
        return str(value)

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.of(each) for name, each in values.items()}


@dataclass(frozen=True, slots=True)
class FromElements(OtherSource):
    """Rows are elements, each in a pair with its time in microseconds. Metadata is that time."""

    columns: tuple[Column, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(each.name, each.type) for each in self.columns)

    def codes(self, used: set[int], out: Emitter) -> dict[int, str]:
        """Emits what loads columns. Returns the expression of each one."""
        codes = metadata_codes(self.columns, used, out)
        loaded = [i for i in sorted(used) if not self.columns[i].metadata]
        if not loaded:
            return codes
        out.constants.update({"RAISED": RAISED, "no_field": no_field})
        for i in loaded:
            codes[i] = out.name("e")
            name = self.columns[i].name
            place = f"record[0].{name}" if name.isidentifier() else f"getattr(record[0], {name!r})"
            with out.block("try:"):
                out.line(f"{codes[i]} = {place}")
            with out.block("except RAISED as error:"):
                out.line(f"no_field({name!r}, error)")
        for i in loaded:
            column = self.columns[i]
            convert = out.constant(column_reader(column), "v")
            guard = f"if {codes[i]} is not None: " if column.type.is_nullable else ""
            out.line(f"{guard}{codes[i]} = {convert}({codes[i]})")
        return codes


def column_reader(column: Column) -> Convert:
    """Returns what makes the SQL value of a column. It raises `ValueFailure` with the column's name, also for None."""
    read = reader(column.type)

    def of(value: Any) -> Any:
        if value is None:
            raise ValueFailure(f"column {column.name}: it is None, but its type is not Optional")
        try:
            return read(value)
        except RAISED as error:  # a zone or a mapping of the user's, for example
            raise ValueFailure(f"column {column.name}: {failure_reason(error)}") from None

    return of


def no_field(name: str, error: BaseException) -> None:
    """Raises `ValueFailure`: the element lacks the field, or it is a property that fails."""
    if isinstance(error, AttributeError) and error.name == name:
        raise ValueFailure(f"the element has no field {name}")
    raise ValueFailure(f"column {name}: {failure_reason(error)}") from error


@dataclass(frozen=True, slots=True)
class ToElements(OtherTarget):
    """Rows become NamedTuples. `fields`: their columns."""

    fields: tuple[Field, ...]

    @property
    def row_type(self) -> Any:
        """The NamedTuple."""
        return row_type(tuple((each.name, each.type) for each in self.fields))

    @property
    def hint(self) -> Any:
        return self.row_type

    def emit(self, columns: Sequence[str], out: Emitter) -> None:
        """Emits what adds a row to the results."""
        made = []
        for name, field in zip(columns, self.fields, strict=True):
            write = writer(field.type)
            if write is None:
                made.append(name)
            else:
                call = f"{out.constant(write, 'w')}({name})"
                made.append(f"(None if {name} is None else {call})" if field.type.is_nullable else call)
        out.constants["row_type"] = self.row_type
        out.line(f"add(row_type({', '.join(made)}))")

    def stamped(self, values: list[Any]) -> list[Any]:
        """Returns rows with the time that the watermark follows, if one of their columns is that."""
        name = next((each.name for each in self.fields if each.is_time), None)
        if name is None:
            return values
        found = []
        for each in values:
            at: Timestamp | None = getattr(each, name)
            found.append(each if at is None else TimestampedValue(each, at))
        return found


# The DoFn that runs a fragment on elements: some hundred of a bundle at a time, which keep their times and windows.

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
        except RAISED as error:
            no_field(column.name, error)
        if value is None:
            raise ValueFailure(f"column {column.name}: it is None, so the row has no time")
        return int(read(value))

    return of
