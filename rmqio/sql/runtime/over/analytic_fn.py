"""OVER of inputs that end, in any order: all rows of a partition, sorted, each with the results of functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.over.partitions import Peers, results
from rmqio.sql.planning.plan import Field, SortKey
from rmqio.sql.planning.relations import AnalyticCall
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.ranks.ranking import Ranking, sort_key
from rmqio.sql.runtime.rows.row_outputs import RowsFn


@dataclass(frozen=True, slots=True)
class AnalyticSpec:
    """Describes functions over partitions.

    Attributes:
      calls: the functions.
      order: the columns of ORDER BY; empty: all rows are peers.
      fields: the columns of the input.
      fragment: what happens to a row with the results.
      side: if the rows go into a join, which input of it they are.
    """

    calls: tuple[AnalyticCall, ...]
    order: tuple[SortKey, ...]
    fields: tuple[Field, ...]
    fragment: Fragment
    side: int = 0


class AnalyticFn(RowsFn):
    """Takes all rows of a partition."""

    def __init__(self, spec: AnalyticSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        spec = self._spec
        self._unpack = unpacker(spec.fields)
        self._sorted = Ranking(spec.fields, spec.order, 0, False).compiled()
        self._keys = [sort_key(each, spec.fields[each.column]) for each in spec.order]

    def process(
        self, element: tuple[bytes, Iterable[tuple[int, list[bytes]]]], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        packed = self._sorted([row for _, some in element[1] for row in some])
        rows = list(map(self._unpack, packed))
        peers = Peers([tuple(key((row, b"")) for key in self._keys) for row in rows])
        columns = [results(each, self._spec.fields, rows, peers) for each in self._spec.calls]
        yield from self.emitted_with(rows, list(zip(*columns, strict=True)), timestamp.micros)
