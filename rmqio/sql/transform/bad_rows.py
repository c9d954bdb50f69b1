"""Rows that a query could not compute."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam

from rmqio.transforms import ReadFailure


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
    return BadRow(table, json.dumps(_plain(element), ensure_ascii=False, default=str), str(error))


def of_failure(table: str, failure: ReadFailure) -> BadRow:
    """Returns the bad row of a message."""
    if not failure.topic:  # of a join or an aggregate
        return BadRow(table, failure.body.decode(), failure.reason)
    place = f"{failure.topic}/{failure.broker}/{failure.queue_id}, offset {failure.queue_offset}"
    return BadRow(table, failure.body.decode("utf-8", "replace"), f"{place}: {failure.reason}")


def _plain(value: Any) -> Any:
    if isinstance(value, beam.Row):
        return {name: _plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value
