"""Functions over the rows of a partition that has all its rows, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rmqio.sql.compile.over.sliders import slider
from rmqio.sql.planning.plan import Field
from rmqio.sql.planning.relations import AnalyticCall

Row = tuple[Any, ...]


class Peers:
    """The rows of a partition that are equal in its order.

    Attributes:
      first, end: by row, the position of its first peer, and the one after the last.
      number: by row, how many groups of peers stand before its own.
    """

    def __init__(self, keys: Sequence[Any]) -> None:
        self.first, self.end, self.number = [], [], []  # type: list[int], list[int], list[int]
        start = 0
        while start < len(keys):
            end = start + 1
            while end < len(keys) and keys[end] == keys[start]:
                end += 1
            number = self.number[-1] + 1 if self.number else 0
            self.first += [start] * (end - start)
            self.end += [end] * (end - start)
            self.number += [number] * (end - start)
            start = end


def results(given: AnalyticCall, fields: Sequence[Field], rows: Sequence[Row], peers: Peers) -> list[Any]:
    """Returns the result for each row: a `ValueFailure` if a sum is out of range."""
    name = given.call.name
    if name in _RANKS:
        return _RANKS[name](peers)
    if name == "NTILE":
        return _tiles(len(rows), given.number)
    if name in ("LAG", "LEAD"):
        return _shifted(given, rows)
    return _framed(given, fields, rows, peers)


def _percent(peers: Peers) -> list[float]:
    count = len(peers.first)
    return [first / (count - 1) if count > 1 else 0.0 for first in peers.first]


_RANKS: dict[str, Callable[[Peers], list[Any]]] = {
    "ROW_NUMBER": lambda peers: list(range(1, len(peers.first) + 1)),
    "RANK": lambda peers: [each + 1 for each in peers.first],
    "DENSE_RANK": lambda peers: [each + 1 for each in peers.number],
    "PERCENT_RANK": _percent,
    "CUME_DIST": lambda peers: [each / len(peers.end) for each in peers.end],
}


def _tiles(count: int, groups: int) -> list[int]:
    """The first groups have a row more than the others."""
    size, more = divmod(count, groups)
    found: list[int] = []
    for number in range(1, min(groups, count) + 1):
        found += [number] * (size + (number <= more))
    return found


def _shifted(given: AnalyticCall, rows: Sequence[Row]) -> list[Any]:
    assert given.call.argument is not None
    by = -given.number if given.call.name == "LAG" else given.number
    found = []
    for position, row in enumerate(rows):
        at = position + by
        if 0 <= at < len(rows):
            found.append(rows[at][given.call.argument])
        else:
            found.append(None if given.default is None else row[given.default])
    return found


def _framed(given: AnalyticCall, fields: Sequence[Field], rows: Sequence[Row], peers: Peers) -> list[Any]:
    call = given.call
    argument = None if call.argument is None else fields[call.argument].type
    aggregate = slider(call, argument, grows=False)
    values = [_value(given, row) for row in rows]
    found = []
    begin = end = 0
    for position in range(len(rows)):
        first, last = _bounds(given, position, len(rows), peers)
        for each in values[end:last]:
            if each is not None:
                aggregate.add(each)
        for each in values[begin:first]:
            if each is not None:
                aggregate.remove(each)
        begin, end = max(begin, first), max(end, last)
        found.append(aggregate.result_or_failure())
    return found


def _value(given: AnalyticCall, row: Row) -> Any:
    call = given.call
    if call.condition is not None and not row[call.condition]:
        return None
    found = True if call.argument is None else row[call.argument]
    return None if found is None else True if call.name == "COUNT" else found


def _bounds(given: AnalyticCall, position: int, count: int, peers: Peers) -> tuple[int, int]:
    """The position of the first row of a frame, and the one after its last."""
    if given.unit == "RANGE":
        return 0 if given.start is None else peers.first[position], count if given.end is None else peers.end[position]
    first = 0 if given.start is None else min(max(position + given.start, 0), count)
    last = count if given.end is None else min(max(position + given.end + 1, 0), count)
    return first, last
