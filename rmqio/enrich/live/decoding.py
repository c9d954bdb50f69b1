"""From messages of a topic to rows with the types of a table, and deletions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from rmqio.enrich.loading import Wanted
from rmqio.enrich.sources.base import arrow_type
from rmqio.enrich.sources.topic import Topic
from rmqio.enrich.table.kinds import cut_at, require_key, shown_fraction, stored
from rmqio.errors import LocalError, SerdeError
from rmqio.model import KEYS, Record
from rmqio.serde.base import error_of_record
from rmqio.serde.json_numbers import json_value


class Change(NamedTuple):
    """A row that replaces another one, or None if it is deleted."""

    key: Any
    row: tuple[Any, ...] | None
    queue: str
    offset: int


class BadRow(SerdeError):
    """A message that is not a row."""


class _CutError(ValueError):
    """A float for a column of integers, which Arrow would cut."""


class Decoding:
    """Makes changes of records. `schema`: the columns of the key and those of the table."""

    def __init__(self, wanted: Wanted) -> None:
        source = wanted.table.source
        assert isinstance(source, Topic)
        types = dict(source.types)
        self.keys = wanted.spec.keys
        columns = wanted.spec.columns
        if columns is None:
            columns = tuple(name for name in types if name not in self.keys)
        if not columns:
            raise LocalError(f"the columns of {source.shown} are unknown: name them with columns or types")
        self.columns = columns
        names = dict.fromkeys((*self.keys, *columns))
        self.kinds = {name: arrow_type(types.get(name, "string"), name) for name in names}
        for name in self.keys:
            require_key(name, stored(pa.array([], self.kinds[name])).type)
        self.schema = pa.schema(list(self.kinds.items()))
        self._deserializer = source.deserializer

    def changes(self, records: Sequence[Record]) -> Iterator[Change | BadRow]:
        """Yields a change for each record in order, or what is wrong with it."""
        values: list[Any] = [self._value(record) for record in records]
        rows = [each for each in values if isinstance(each, dict)]
        try:
            typed: list[Any] = self._typed(rows)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
            typed = [self._one(each) for each in rows]
        made = iter(typed)
        for record, value in zip(records, values, strict=True):
            found = next(made) if isinstance(value, dict) else value
            yield self._change(record, found)

    def _value(self, record: Record) -> Any:
        """A dict, None for a deletion, or what is wrong."""
        if not record.body:
            return None
        try:
            found = json_value(record.body) if self._deserializer is None else self._deserializer(record)
        except Exception as error:  # noqa: BLE001  # a user's function can raise anything
            return BadRow(str(error_of_record(error, self._deserializer)))
        if not isinstance(found, dict):
            found = found._asdict() if hasattr(found, "_asdict") else found
        return found if isinstance(found, dict) else BadRow(f"it is {type(found).__name__}, and no object")

    def _typed(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        columns = [stored(_array([row.get(name) for row in rows], kind)) for name, kind in self.kinds.items()]
        return [
            dict(zip(self.kinds, each, strict=True)) for each in zip(*(c.to_pylist() for c in columns), strict=True)
        ]

    def _one(self, row: dict[str, Any]) -> Any:
        for name, kind in self.kinds.items():
            try:
                _array([row.get(name)], kind)
            except _CutError as error:
                return BadRow(f"its field {name} is {error}: send an integer, or declare another type")
            except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
                return BadRow(f"its field {name} is {type(row.get(name)).__name__}, and no {kind}")
        return self._typed([row])[0]

    def _change(self, record: Record, found: Any) -> Change | BadRow:
        queue = f"{record.broker}/{record.queue_id}"
        if isinstance(found, BadRow):
            return found
        if found is None:
            try:
                return Change(self._key_of_text(record), None, queue, record.queue_offset)
            except BadRow as error:
                return error
        parts = [found[name] for name in self.keys]
        if None in parts:
            return BadRow(f"its {self.keys[parts.index(None)]}, a part of the key, is null")
        key = parts[0] if len(parts) == 1 else tuple(parts)
        return Change(key, tuple(found[name] for name in self.columns), queue, record.queue_offset)

    def _key_of_text(self, record: Record) -> Any:
        text, *_ = (record.get_property(KEYS) or "").split(" ")
        if not text:
            raise BadRow("it has no body, so it deletes a row, but it has no key: send it with the row's key")
        parts = [text] if len(self.keys) == 1 else text.split("_")
        if len(parts) != len(self.keys):
            raise BadRow(f"it deletes a row, and its key {text!r} does not have {len(self.keys)} parts")
        try:
            found = [
                _array([each], self.kinds[name], is_text=True)[0].as_py()
                for each, name in zip(parts, self.keys, strict=True)
            ]
        except (pa.ArrowException, ValueError) as error:
            raise BadRow(f"it deletes a row, and its key {text!r} is of another type: {error}") from error
        return found[0] if len(found) == 1 else tuple(found)


def _array(values: list[Any], kind: pa.DataType, *, is_text: bool = False) -> pa.Array:
    """The values as an array. JSON has no dates and times: text stands for them, as for decimals. `is_text`: always."""
    if pa.types.is_decimal(kind):
        values = [Decimal(repr(each)) if isinstance(each, float) else each for each in values]  # with all digits
    if (place := cut_at(values, kind)) is not None:
        raise _CutError(f"{shown_fraction(values[place])}, which {kind} would cut")
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError):
        is_simple = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
        if (is_simple and not is_text) or not all(each is None or isinstance(each, str) for each in values):
            raise
        return pa.array(values, pa.string()).cast(kind)


def unescaped(key: Any) -> Iterator[Any]:
    """Yields what a key can stand for: first as `INSERT INTO` of SQL encodes it, then as it is.

    SQL percent-encodes white space, `%` and, in a key of several columns, `_`; `%00` is empty text. Other writers do
    not, so a text that looks encoded can also mean itself.
    """
    if isinstance(key, tuple):
        yield from itertools.product(*map(_readings, key))
    else:
        yield from _readings(key)


def _readings(part: Any) -> Iterable[Any]:
    if not isinstance(part, str) or "%" not in part:
        return (part,)
    return ("" if part == "%00" else unquote(part), part)
