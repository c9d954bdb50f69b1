"""The interface of a table to look up in, and the one that is a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from rmqio.sql.types import APPROXIMATE, SqlType

Row = tuple[Any, ...]


class LookupTable(Protocol):
    """Rows by key. Threads of one process share it."""

    def get(self, key: Any) -> Sequence[Row]:
        """Returns the rows of a key: its value, or a tuple if it has several columns. No column of it is NULL."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yields all rows as they are at this moment, also those whose key has a NULL."""
        ...


class Lease(Protocol):
    """A table that somebody uses. It is given back when nothing refers to the lease any more."""

    def getter(self) -> Callable[[Any], Sequence[Row]]:
        """Returns `LookupTable.get` of the table as it is now. The first one loads it. Raises `SqlError`."""
        ...


class DictTable:
    """See `LookupTable`. It is filled once, and does not change while it is used.

    A key with one row has that row, and one with several a list of them: most keys of most tables have one.
    """

    def __init__(self) -> None:
        self._rows: dict[Any, Any] = {}
        self._without_key: list[Row] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: Any, row: Row) -> None:
        """Adds a row. None as the key: a column of it is NULL."""
        self._count += 1
        if key is None:
            self._without_key.append(row)
            return
        found = self._rows.get(key)
        if found is None:
            self._rows[key] = row
        elif type(found) is list:
            found.append(row)
        else:
            self._rows[key] = [found, row]

    def close(self) -> None:
        """Brings the rows of each key into an order that does not depend on how they were read."""
        for found in self._rows.values():
            if type(found) is list:
                found.sort(key=repr)

    def get(self, key: Any) -> Sequence[Row]:
        """See `LookupTable.get`."""
        found = self._rows.get(key)
        if found is None:
            return ()
        return found if type(found) is list else (found,)

    def rows(self) -> Iterator[Row]:
        """See `LookupTable.rows`."""
        for found in self._rows.values():
            if type(found) is list:
                yield from found
            else:
                yield found
        yield from self._without_key


def key_maker(kinds: Sequence[SqlType], positions: Sequence[int]) -> Any:
    """Returns the function from a row to its key; None if a column of it is NULL. The key's types are `kinds`."""
    has_nan = [each.kind in APPROXIMATE for each in kinds]
    if len(positions) == 1 and not has_nan[0]:
        (place,) = positions
        return lambda row: row[place]

    def of(row: Row) -> Any:
        found = [row[each] for each in positions]
        if None in found:
            return None
        found = [number(each) if may else each for each, may in zip(found, has_nan, strict=True)]
        return tuple(found) if len(found) > 1 else found[0]

    return of


def number(value: float) -> Any:
    """Returns a number as part of a key: NaN is equal to NaN there."""
    return value if value == value else "NaN"
