"""Rows that fail after a join or an aggregate: they have no place in a topic any more, but columns.

The option `on-error` of the tables that they come from says what becomes of them, see `compile.statement`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.dead_letters.letters import ELEMENT
from rmqio.errors import counted
from rmqio.sql.compile.description import Fragment, FromRows
from rmqio.sql.compile.expressions.casts import text_of
from rmqio.sql.compile.expressions.places import names_of
from rmqio.sql.planning.plan import Field
from rmqio.sql.runtime.rows.nulls import Nulls
from rmqio.sql.types import BITS, SqlType
from rmqio.sql.values import DAY_US, LAST_US, ValueFailure, text_of_timestamp
from rmqio.transforms import ReadFailure

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
