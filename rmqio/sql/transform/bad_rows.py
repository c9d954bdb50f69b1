"""Rows that a query could not compute."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import apache_beam as beam

from rmqio.sql.values import shown_value
from rmqio.transforms import ReadFailure

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
        except Exception:  # noqa: BLE001 - a property, a `__str__` or an `__iter__` of the user's that raises
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
