"""ORDER BY and LIMIT of an input that ends: all rows come to one worker, or the first ones of each bundle."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.model import Message
from rmqio.sql.compile.description import Fragment
from rmqio.sql.planning.plan import Field, SortKey
from rmqio.sql.planning.relations import MOST_SORTED
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.rows.row_outputs import RowsFn
from rmqio.sql.values import ValueFailure


@dataclass(frozen=True, slots=True)
class SortSpec:
    """Describes a sort: by which columns, and which of the rows are wanted.

    Attributes:
      fields: the columns of the rows.
      keys: the columns that order them.
      limit: how many rows are wanted; None: all.
      offset: how many are left out before them.
      fragment: what happens to a row.
      side: if the rows go into a join, which input of it they are.
    """

    fields: tuple[Field, ...]
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    fragment: Fragment
    side: int = 0

    @property
    def wanted(self) -> int | None:
        """How many of the first rows can be in the result; None: all."""
        return None if self.limit is None else self.limit + self.offset


class _Descending:
    """A value that comes before smaller ones."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def order_of(fields: tuple[Field, ...], keys: tuple[SortKey, ...]) -> Callable[[bytes], Any]:
    """Returns what packed rows are ordered by. Equal rows are ordered by their bytes, wherever they come from."""
    unpack = unpacker(fields)

    def order(row: bytes) -> Any:
        values = unpack(row)
        return *(_ordered(values[each.column], each) for each in keys), row

    return order


def _ordered(value: Any, key: SortKey) -> tuple[Any, ...]:
    if value is None:
        return (0 if key.nulls_first else 2,)
    if isinstance(value, float):  # NaN is the greatest
        value = (value != value, value if value == value else 0.0)
    return 1, _Descending(value) if key.is_descending else value


class LimitFn(beam.DoFn):
    """Leaves out rows of a bundle that cannot be among the first ones."""

    def __init__(self, spec: SortSpec) -> None:
        self._spec = spec

    def setup(self) -> None:
        self._order = order_of(self._spec.fields, self._spec.keys)

    def start_bundle(self) -> None:
        self._rows: list[bytes] = []
        self._last: Any = None

    def process(
        self, element: tuple[bytes, tuple[int, list[bytes]]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> None:
        key, (_, rows) = element
        self._last = key, timestamp.micros
        self._rows = first_rows(self._rows, rows, self._spec.wanted or 0, self._order)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            key, time_us = self._last
            rows = heapq.nsmallest(self._spec.wanted or 0, self._rows, key=self._order)
            yield WindowedValue((key, (0, rows)), Timestamp(micros=time_us), (GlobalWindow(),))


def first_rows(rows: list[bytes], more: list[bytes], wanted: int, order: Callable[[bytes], Any]) -> list[bytes]:
    """Returns the rows of both that can be among the first ones, and not many others."""
    rows += more
    return heapq.nsmallest(wanted, rows, key=order) if len(rows) > 2 * wanted + 1000 else rows


class SortFn(RowsFn):
    """Orders all rows that there are, and takes those that are wanted."""

    def __init__(self, spec: SortSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._order = order_of(self._spec.fields, self._spec.keys)
        self._unpack = unpacker(self._spec.fields)

    def process(
        self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        wanted = self._spec.wanted
        rows: list[bytes] = []
        for _, some in element[1]:
            if wanted is not None:
                rows = first_rows(rows, some, wanted, self._order)
            else:
                rows += some
                if len(rows) > MOST_SORTED:
                    raise ValueFailure(f"ORDER BY has more than {MOST_SORTED:,} rows, which one worker cannot sort: "
                                       "add LIMIT")  # fmt: skip
        rows.sort(key=self._order)
        found = list(map(self._unpack, rows[self._spec.offset : wanted]))
        yield from self.emitted(found, timestamp.micros)


def in_one_queue(batch: list[Any]) -> list[Any]:
    """Gives the messages of rows that are in order one sharding key, unless they have one: they go to one queue."""
    found = []
    for each in batch:
        message = each if isinstance(each, Message) else Message(each)
        found.append(message if message.sharding_key else message.replace(sharding_key="ORDER BY"))
    return found
