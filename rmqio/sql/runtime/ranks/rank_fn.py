"""The first rows of partitions, of inputs that end and of windows: merged after the shuffle, given once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder

from rmqio.sql.compile.description import Fragment
from rmqio.sql.planning.plan import Rank
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.groups.aggregate_fn import GroupRowsFn
from rmqio.sql.runtime.ranks.ranking import Ranking, payload, rows_of


@dataclass(frozen=True, slots=True)
class RankSpec:
    """A rank, and the fragment for its rows.

    Attributes:
      rank: the plan.
      ranking: the order of its rows.
      fragment: what happens to the rows.
      side: if they go into a join, which input of it they are.
      delay_us: by how much the times of the rows can be behind the watermark.
    """

    rank: Rank
    ranking: Ranking
    fragment: Fragment
    side: int = 0
    delay_us: int = 0

    def numbered(self) -> Callable[[list[bytes]], list[tuple[Any, ...]]]:
        """Returns the function from packed rows in their order to rows, with numbers if they have some."""
        unpack = unpacker(self.ranking.fields)
        if not self.rank.is_numbered:
            return lambda rows: list(map(unpack, rows))
        return lambda rows: [(*unpack(row), number) for number, row in enumerate(rows, 1)]


class FirstRowsFn(beam.CombineFn):
    """Merges payloads: lists of packed rows. The accumulator is a payload, too; empty: there was none."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def setup(self, *_: object, **__: object) -> None:
        self._first = self._ranking.compiled()

    def create_accumulator(self) -> bytes:
        return b""

    def add_input(self, accumulator: bytes, element: bytes) -> bytes:
        return self.merge_accumulators((accumulator, element))

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        found = [each for each in accumulators if each]
        if len(found) < 2:
            return found[0] if found else b""
        return payload(self._first([row for each in found for row in rows_of(each)]))

    def extract_output(self, accumulator: bytes) -> bytes:
        return accumulator

    def get_accumulator_coder(self) -> Coder:
        return BytesCoder()


class RankedFn(GroupRowsFn):
    """Runs the fragment on the first rows of partitions, which are complete."""

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec.fragment, spec.side)
        self._spec = spec

    def setup(self) -> None:
        super().setup()
        self._numbered = self._spec.numbered()
        self._first = self._spec.ranking.compiled()

    def process(
        self,
        element: tuple[bytes, bytes],
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        yield from self.add(self._numbered(self._first(rows_of(element[1]))), window, timestamp)
