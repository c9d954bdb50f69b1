"""What becomes of a fragment's results: elements for each target, rows, updates of a table, and rows that fail."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampedValue
from apache_beam.typehints import Tuple
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.dead_letters.letters import ELEMENT
from rmqio.errors import counted
from rmqio.model import TOMBSTONE, Message
from rmqio.sql.casts import text_of
from rmqio.sql.compile.description import Fragment, FromRows, OtherTarget, Target, Timing, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.emitter import names_of, placed
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Field
from rmqio.sql.runtime.ranking import ranks
from rmqio.sql.runtime.windows import groups
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import DAY_US, LAST_US, ValueFailure, text_of_timestamp
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import BatchConstraint

# Values that are NULL because they could not be computed: they are counted.


class Nulls:
    """The metric `values_failed`."""

    def __init__(self) -> None:
        self._count = Metrics.counter("rmqio.sql", "values_failed")

    def made(self, errors: Sequence[Exception]) -> None:
        """Counts values. `errors`: why they are NULL."""
        if errors:
            self._count.inc(len(errors))
            values = "1 value is" if len(errors) == 1 else f"{len(errors)} values are"
            _LOGGER.warning("%s NULL, the first one: %s", values, errors[0])


# Rows that fail after a join or an aggregate: they have no place in a topic any more, but columns.
#
# The option `on-error` of the tables that they come from says what becomes of them, see `Statement`.

FAILED: Final = "failed"
"""The output of dead letters."""
_LONGEST: Final = 500
"""Characters of a row in an error, and of a text of a row that is too large."""
_LARGEST: Final = 1 << 20
"""Characters of a row whose texts are whole: a dead letter of more than 4 MiB could not be sent."""
_LOGGER: Final = logging.getLogger(__name__)


class FailedRows:
    """Makes errors, log lines or dead letters of rows that a fragment cannot compute.

    Args:
      fragment: from rows.
    """

    def __init__(self, fragment: Fragment) -> None:
        source = fragment.source
        self._fields = source.fields if isinstance(source, FromRows) else ()
        self._statement = fragment.statement
        self._nulls = Nulls()
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def outputs(
        self, rows: Sequence[tuple[Any, ...]], failed: Mapping[int, Exception], nulls: Sequence[Exception] = ()
    ) -> list[beam.pvalue.TaggedOutput]:
        """Returns dead letters of the rows that failed, by position; none if they are left out. Or raises the first."""
        self._nulls.made(nulls)
        found = []
        for position, error in failed.items():
            row = row_text(rows[position], self._fields)
            if self._statement.on_error == "fail":
                shown = f"; the row is {_bounded(row)}" if self._fields else ""  # VALUES have no columns below them
                raise ValueFailure(f"{error}{shown}") from error
            if self._statement.on_error == "dead-letter":
                letter = ReadFailure(
                    "", "", -1, -1, "", "", "", 0, 0, type(error).__name__, str(error), row.encode(), kind=ELEMENT
                )
                found.append(beam.pvalue.TaggedOutput(FAILED, letter))
        self._bad.inc(len(failed))
        if failed and self._statement.on_error != "dead-letter":
            position, error = next(iter(failed.items()))
            row = _bounded(row_text(rows[position], self._fields))
            _LOGGER.warning("%s left out, the first is %s: %s", counted(len(failed), "row"), row, error)
        return found

    def of_results(
        self, row: tuple[Any, ...], failed: Mapping[int, ValueFailure]
    ) -> tuple[list[tuple[Any, ...]], list[beam.pvalue.TaggedOutput]]:
        """Returns a row that goes on without some results, if they are NULL then, and its dead letters.

        Args:
          row: with NULL for what failed.
          failed: the errors, by the position of their column.
        """
        statement = f" ({self._statement.name})" if self._statement.name else ""
        errors = [ValueFailure(f"{self._fields[i].name}: {error}{statement}") for i, error in failed.items()]
        if self._statement.makes_nulls:
            return [row], self.outputs([], {}, errors)
        return [], self.outputs([row], {0: errors[0]})


def at_end(element: Any, timestamp: Any, window: Any) -> Any:
    """Returns an element for the end of a bundle, where it needs its window: a result, or a dead letter."""
    if isinstance(element, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(element.tag, WindowedValue(element.value, timestamp, (window,)))
    return WindowedValue(element, timestamp, (window,))


@dataclass(frozen=True, slots=True)
class Computing:
    """Adds DoFns that run fragments.

    Attributes:
      hint: the type of the results.
      write: writes dead letters; None: there are none.
    """

    hint: Any
    write: Callable[[Any, str], None] | None = None

    def add(self, rows: Any, label: str, fn: beam.DoFn) -> Any:
        """Adds a DoFn to rows. Returns its results; dead letters are written."""
        if self.write is None:
            return rows | label >> beam.ParDo(fn).with_output_types(self.hint)
        outputs = rows | label >> beam.ParDo(fn).with_outputs(FAILED, main="rows")
        found, failed = outputs["rows"], outputs[FAILED]
        found.element_type, failed.element_type = self.hint, ReadFailure
        self.write(failed | f"{label}: failed rows" >> beam.WindowInto(GlobalWindows()), label)
        return found


def row_text(row: Sequence[Any], fields: Sequence[Field]) -> str:
    """Returns a row as JSON, with what JSON has no values for as SQL's text, and beginnings of texts if it is large."""
    names = names_of(fields)
    values = {
        name: _plain(value, field.type)
        for name, field, value in zip(names, fields, row, strict=False)
        if "$" not in (name[:1], name.partition("(WHERE ")[2][:1])  # columns of ours: for ids, the sides of EXCEPT
    }
    text = json.dumps(values, ensure_ascii=False, default=str)
    if len(text) <= _LARGEST:
        return text
    short = {name: _bounded(each) if isinstance(each, str) else each for name, each in values.items()}
    return json.dumps(short, ensure_ascii=False, default=str)


def _plain(value: Any, kind: SqlType) -> Any:
    if value is None or kind.kind in BITS or kind.kind in ("BOOLEAN", "VARCHAR"):
        return value
    try:
        return text_of(kind, is_shown=True)(value)
    except (ValueFailure, ValueError, ArithmeticError):  # the row is bad
        return _far(value, kind)


_CYCLE_US: Final = 146_097 * DAY_US
"""400 years, after which dates are on the same days again."""


def _far(value: Any, kind: SqlType) -> str:
    """The text of a value that has none: the end of a window can be after the year 9999."""
    if kind.kind == "TIMESTAMP" and LAST_US < value <= LAST_US + _CYCLE_US:
        text = text_of_timestamp(value - _CYCLE_US, kind.precision)
        return f"{int(text[:4]) + 400}{text[4:]}"
    return repr(value)


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# Updates of a table: messages of rows that are new or changed, and tombstones of rows that are no longer there.

_MESSAGES: Final = 500
"""Messages of a batch for the write."""
_DELETED: Final = {TOMBSTONE: "true"}


def tombstone(message: Message) -> Message:
    """Returns what deletes a row: it goes where the row's own message went."""
    return message.replace(body=b"", properties=_DELETED, delay_level=None, deliver_at_ms=None)


def changes(before: Sequence[Message], after: Sequence[Message]) -> list[Message]:
    """Returns the messages that make the later rows of the earlier ones. The first key of a message is its row's key.

    If several rows have one key, the first one counts.
    """
    old, new = _messages_by_key(before), _messages_by_key(after)
    found = [tombstone(message) for key, message in old.items() if key not in new]
    return found + [message for key, message in new.items() if old.get(key) != message]


def _messages_by_key(messages: Sequence[Message]) -> dict[tuple[str | None, str], Message]:
    return {(each.topic, each.keys[0]): each for each in reversed(messages)}


class ChangesFn(beam.DoFn):
    """Collects messages of a bundle: a batch of one costs as much as one of many. The order of a key's is kept."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._failed_rows = FailedRows(fragment)

    def setup(self) -> None:
        self._run = compiled(self._fragment)

    def start_bundle(self) -> None:
        self._messages: list[Message] = []
        self._letters: list[Any] = []
        self._time: Any = MIN_TIMESTAMP

    def finish_bundle(self) -> Iterator[Any]:
        for each in self._letters:
            yield at_end(each, self._time, GlobalWindow())
        if self._messages:
            yield WindowedValue(Batch(self._messages), self._time, (GlobalWindow(),))

    def add(self, messages: Sequence[Message], timestamp: Any) -> list[Any]:
        """Adds messages of an element. Returns a batch if there are enough, and dead letters."""
        self._messages += messages
        self._time = timestamp
        letters, self._letters = self._letters, []
        if len(self._messages) < _MESSAGES:
            return letters
        found, self._messages = self._messages, []
        return [*letters, Batch(found)]

    def messages_of(self, rows: list[tuple[Any, ...]], *, was_there: bool = False) -> list[Message]:
        """Returns the messages of rows, without those of rows that are filtered out, or fail.

        Args:
          was_there: the rows were computed before, so that what failed was said.
        """
        if not rows:
            return []
        mapped = self._run(rows)
        if (mapped.failed or mapped.nulls) and not was_there:
            self._letters += self._failed_rows.outputs(rows, mapped.failed, mapped.nulls)
        return mapped.values


# Types of elements, for Beam.


def hint_of(target: Target) -> Any:
    """Returns the type of the elements of a target."""
    if isinstance(target, OtherTarget):
        return target.hint
    if isinstance(target, (ToGroups, ToRanks)):
        return Tuple[bytes, bytes]
    return Tuple[bytes, Tuple[int, list[bytes]]] if isinstance(target, ToKeys) else BatchConstraint(Any)


def outputs(target: Target, values: list[Any], side: int, time_us: int) -> Iterator[Any]:
    """Yields the elements of results.

    Args:
      target: of the fragment. Messages and rows stay in one `Batch`, without places. Rows with keys and groups become
        pairs.
      values: the results; at least one.
      side: for rows with keys, which input of the join they are.
      time_us: the time of the element that they come from: none of them may be older.
    """
    if isinstance(target, ToKeys) and target.timing is not None:
        yield from _by_key_and_time(values, side, target.timing)
    elif isinstance(target, ToKeys):
        yield from _by_key(values, side)
    elif isinstance(target, ToRanks):
        yield from ranks(values, target, time_us)
    elif isinstance(target, ToGroups):
        yield from groups(values, len(target.keys), target.window, time_us)
    elif isinstance(target, OtherTarget):
        yield from values
    else:
        yield Batch(values)


def _by_key(pairs: list[tuple[bytes, bytes]], side: int) -> Iterator[tuple[bytes, tuple[int, list[bytes]]]]:
    """One element per key."""
    rows: dict[bytes, list[bytes]] = {}
    for key, row in pairs:
        rows.setdefault(key, []).append(row)
    for key, found in rows.items():
        yield key, (side, found)


def _by_key_and_time(rows: list[tuple[bytes, bytes, int]], side: int, timing: Timing) -> Iterator[TimestampedValue]:
    """One element per key and window, at the window's start."""
    found: dict[tuple[bytes, int], list[bytes]] = {}
    for key, row, time_us in rows:
        for prefix, start_us in timing.places(time_us):
            found.setdefault((prefix + key, start_us), []).append(row)
    for (key, start_us), members in found.items():
        yield TimestampedValue((key, (side, members)), Timestamp(micros=start_us))


# A DoFn that makes rows: it runs a fragment on some hundred of them at a time.

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


# Rows that a statement holds: VALUES, and SELECT without FROM.


class ConstantsFn(beam.DoFn):
    """Computes rows of constants, each by a fragment of its own, whose input has no columns."""

    def __init__(self, fragments: Sequence[Fragment], side: int) -> None:
        self._fragments = fragments
        self._side = side

    def process(self, element: bytes, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        for number, fragment in enumerate(self._fragments, 1):
            mapped = compiled(fragment)([()])
            if mapped.failed or mapped.nulls:
                failed = {at: placed(error, number, len(self._fragments)) for at, error in mapped.failed.items()}
                yield from FailedRows(fragment).outputs([()], failed, mapped.nulls)
            if mapped.values:
                yield from outputs(fragment.target, mapped.values, self._side, timestamp.micros)
