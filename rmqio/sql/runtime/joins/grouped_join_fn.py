"""Joins of all rows of a key at one time: those of a window, or of inputs that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from rmqio.sql.runtime.joins.matching import Matcher, MatchSpec


class GroupedJoinFn(beam.DoFn):
    """Joins what GroupByKey has brought together: (key, [(side, rows)])."""

    def __init__(self, spec: MatchSpec) -> None:
        self._spec = spec

    def setup(self) -> None:
        self._matcher = Matcher(self._spec)

    def process(self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]]) -> Iterator[Any]:
        sides: tuple[list[bytes], list[bytes]] = [], []
        for side, rows in element[1]:
            sides[side].extend(rows)
        left, right = self._matcher.rows(0, sides[0]), self._matcher.rows(1, sides[1])
        for found in self._matcher.joined(left, right):
            if found:
                yield from self._matcher.outputs(found)
        yield from self._matcher.letters()
