"""The statements of a batch. Rows of one key keep their order, whatever the database takes as one key.

A collation can take 'a' and 'A' as one key, 'a' and 'a ', or 'ß' and 'ss', and a column can round times and decimals,
fill bytes up with zeros, or take '1 day' and '24 hours' as one key: such columns are loose (`keys`). The database
applies the rows of a statement in order, and the statements, too. So the order of rows changes only between keys that
differ in every database.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

Row = dict[str, Any]
Statement = tuple[tuple[str, ...], list[Row]]
"""The names of the columns, and the rows."""

_IGNORED: Final = re.compile(r"[^0-9a-z]")
"""Characters of ASCII that collations can pass over: spaces, punctuation, control characters."""
_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")
"""Before a number, for collations that compare numbers."""
_SAME: Final = str.maketrans("jyuw", "iivv")
"""Letters that are one in some language: I and J, U and V in Latin, I and Y in Lithuanian, V and W in Swedish."""


def statements_of(
    rows: Sequence[Row], key: tuple[str, ...], *, keep_first: bool, loose: Collection[str] = ()
) -> list[Statement]:
    """Returns the statements, in order. Without a key, all orders are good.

    A row is left out if a later one of its key has all of its columns.

    Args:
      keep_first: the first row of a key counts: later ones are left out.
      loose: columns of the key in which different values can be equal.
    """
    if not key:
        return _by_names(rows)
    keys = [tuple(_exact(row[each]) if each in loose else row[each] for each in key) for row in rows]
    needed = _first_of_each(rows, keys) if keep_first else _not_replaced(rows, keys)
    if len({tuple(row) for row in needed}) == 1:  # the usual case: there is nothing to compare
        return _by_names(needed)
    statements: list[Statement] = []
    newest: dict[tuple[str, ...], int] = {}
    """The last statement with these columns."""
    last: dict[tuple[Any, ...], int] = {}
    """The last statement with a key that can be this one."""
    firm = tuple(each for each in key if each not in loose)
    for row, comparable in zip(needed, _comparable(needed, firm), strict=True):
        names = tuple(sorted(row))
        place = newest.get(names, -1)
        if place < last.get(comparable, 0):
            place = newest[names] = len(statements)
            statements.append((names, []))
        statements[place][1].append(row)
        last[comparable] = place
    return statements


def _exact(value: Any) -> Hashable:
    """Returns what is equal only for values that are one key in every database."""
    if isinstance(value, (str, int, float, bytes, Decimal, dt.date, dt.timedelta)):
        return value
    return type(value), repr(value)  # arrays have no hash, and a time of day in two zones can be two keys


def _first_of_each(rows: Sequence[Row], keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    found: dict[tuple[Any, ...], Row] = {}
    for row, values in zip(rows, keys, strict=True):
        found.setdefault(values, row)
    return list(found.values())


def _not_replaced(rows: Sequence[Row], keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    kept: list[Row] = []
    later: dict[tuple[Any, ...], Row] = {}
    for row, values in zip(reversed(rows), reversed(keys), strict=True):
        if values not in later or not row.keys() <= later[values].keys():
            kept.append(row)
            later[values] = row
    kept.reverse()
    return kept


def _comparable(rows: Sequence[Row], key: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Yields tuples that differ only if the keys differ in every database.

    A column with a value of which this is not known does not count: that value can be equal to any other one. Nor does
    a column with values of several types: 1 and '1' are one key of a column of integers.
    """
    columns = []
    for name in key:
        values = [_surely(row[name]) for row in rows]
        if None not in values and len({type(each) for each in values}) == 1:
            columns.append(values)
    return zip(*columns, strict=True) if columns else [()] * len(rows)


def _surely(value: Any) -> Any:
    """Returns a value that differs from others only if the database's do. None: not known, as for letters like ß."""
    if isinstance(value, str):
        if not value.isascii():
            return None
        return _ZEROS.sub("", _IGNORED.sub("", value.lower())).translate(_SAME)
    if isinstance(value, (int, bytes)) or type(value) is dt.date:
        return value
    return None  # a column can round decimals, floats and times


def _by_names(rows: Iterable[Row]) -> list[Statement]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(sorted(row)), []).append(row)
    return list(groups.items())
