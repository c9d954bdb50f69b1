"""The order of a rank's rows: the same for equal rows, in whatever order they come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.sql.compile.description import ToRanks
from rmqio.sql.planning.plan import Field, Rank, SortKey
from rmqio.sql.rows import pack, unpacker
from rmqio.sql.types import APPROXIMATE

rows_of: Final[Callable[[bytes], list[bytes]]] = msgspec.msgpack.Decoder(list[bytes]).decode
"""The packed rows of a payload."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first rows of a partition.

    Attributes:
      fields: the columns of a row, without its number.
      order: the columns of ORDER BY.
      limit: how many rows there are; 0: all.
      by_arrival: of equal rows, the one that came later is the later one. Else their other columns tell, so that the
        order of arrival does not matter.
    """

    fields: tuple[Field, ...]
    order: tuple[SortKey, ...]
    limit: int
    by_arrival: bool

    @classmethod
    def of(cls, rank: Rank, *, by_arrival: bool) -> Ranking:
        """Returns the order of a rank."""
        return cls(rank.input.fields, rank.order, rank.limit, by_arrival)

    def compiled(self) -> Callable[[Sequence[bytes]], list[bytes]]:
        """Returns the function from packed rows, in the order in which they came, to the first ones."""
        unpack = unpacker(self.fields)
        keys = [(sort_key(each, self.fields[each.column]), each.is_descending) for each in reversed(self.order)]
        limit, by_arrival = self.limit or None, self.by_arrival

        def first(rows: Sequence[bytes]) -> list[bytes]:
            if len(rows) < 2:
                return list(rows)
            found = [(unpack(each), each) for each in rows]
            if not by_arrival:
                found.sort(key=_bytes)
            elif keys and keys[0][1]:
                found.reverse()  # the latest comes first
            for key, is_descending in keys:  # sorts are stable, also if they are reversed
                found.sort(key=key, reverse=is_descending)
            return [row for _, row in found[:limit]]

        return first


def _bytes(pair: tuple[Any, bytes]) -> bytes:
    return pair[1]


def sort_key(sort: SortKey, field: Field) -> Callable[[tuple[tuple[Any, ...], bytes]], Any]:
    """Returns the value that a column is sorted by, of a row and its bytes. A NaN is larger than all other numbers."""
    at = sort.column
    null = (0,) if sort.nulls_first != sort.is_descending else (2,)
    if field.type.kind in APPROXIMATE:
        return lambda pair: (
            null if (value := pair[0][at]) is None else (1, value != value, 0 if value != value else value)
        )
    return lambda pair: null if (value := pair[0][at]) is None else (1, value)


def payload(rows: Sequence[bytes]) -> bytes:
    """Returns packed rows as one value."""
    return pack(rows)


# Rows for ranks, as elements: the first ones of each key of a batch.

_LAST_US: Final = 1
"""By how much the last time of a window is before its end."""


def ranks(values: list[tuple[bytes, bytes, int | None]], target: ToRanks, earliest_us: int) -> Iterator[Any]:
    """Yields (bytes of the key, payload of packed rows) for each key of a batch; rows of windows, at their ends."""
    rows: dict[bytes, list[bytes]] = {}
    ends: dict[bytes, int | None] = {}
    for key, row, end in values:
        rows.setdefault(key, []).append(row)
        ends[key] = end
    first = None if target.ranking is None else _compiled(target.ranking)
    for key, found in rows.items():
        element = key, payload(found if first is None else first(found))
        end = ends[key]
        if end is None:
            yield element
        else:
            yield TimestampedValue(element, Timestamp(micros=max(end + target.delay_us - _LAST_US, earliest_us)))


@functools.lru_cache(maxsize=64)
def _compiled(ranking: Ranking) -> Callable[[Sequence[bytes]], list[bytes]]:
    return ranking.compiled()
