"""Further relations of a plan as transforms: sub-queries, OVER, ORDER BY and rows that are repeated."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.model import Message
from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToKeys, ToRows
from rmqio.sql.errors import Refusal
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.planning.checks import GIVES_END
from rmqio.sql.planning.plan import Calc, Field, Relation, Sink, SortKey
from rmqio.sql.planning.relations import MOST_SORTED, Analytic, Over, Repeated, Sorted, SubqueryJoin
from rmqio.sql.planning.watermarks import delay_us
from rmqio.sql.rows import unpacker
from rmqio.sql.runtime.outputs import Computing, RepeatFn, RowsFn
from rmqio.sql.runtime.over import AnalyticFn, AnalyticSpec, ExpiringOverFn, OverAllFn, OverFn, OverSpec
from rmqio.sql.runtime.subquery_joins import SemiFn, SubqueryJoinFn, SubqueryJoinSpec, copied, divided, fewest
from rmqio.sql.values import ValueFailure

# ORDER BY and LIMIT of an input that ends: all rows come to one worker, or the first ones of each bundle.


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


@dataclass(frozen=True, slots=True)
class MoreRelations:
    """Adds the relations to a pipeline.

    Attributes:
      rows: the rows of a relation, after steps, in the form of a target; the number is the side.
      label: makes a label that no other transform has.
      ends: whether all inputs of a relation end.
      computing: adds the DoFns of a relation whose rows get the form of a target.
      hint: the type of elements in the form of a target.
      runner: the name of the runner's class.
    """

    rows: Callable[[Relation, tuple[Step, ...], Target, int], Any]
    label: Callable[[str], str]
    ends: Callable[[Relation], bool]
    computing: Callable[[Relation, Target], Computing]
    hint: Callable[[Target], Any]
    runner: str = ""

    def add(self, relation: Relation, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        """Adds a relation. Raises `Refusal` if it needs inputs that end, and they do not."""
        fragment = Fragment(FromRows(named_fields(relation)), steps, target)
        computing = self.computing(relation, target)
        match relation:
            case SubqueryJoin():
                return self._lookup(relation, fragment, side, computing)
            case Over():
                return self._over(relation, fragment, side, computing)
            case Analytic():
                return self._analytic(relation, fragment, side, computing)
            case Sorted():
                return self._sorted(relation, fragment, side, computing)
            case Repeated():
                counted = self.rows(relation.input, (), ToRows(), 0)
                return computing.add(counted, self.label("Repeat"), RepeatFn(fragment, side))
        raise AssertionError(relation)

    def _lookup(self, lookup: SubqueryJoin, fragment: Fragment, side: int, computing: Computing) -> Any:
        ends = self.ends(lookup)
        left_keys, right_keys = (tuple(each[i] for each in lookup.keys) for i in (0, 1))
        left_kinds = tuple(lookup.left.fields[each].type for each in left_keys)
        right_kinds = tuple(lookup.right.fields[each].type for each in right_keys)
        nulls_of = None if lookup.kind == "SEMI" else 0
        left = self.rows(lookup.left, (), ToKeys(left_keys, nulls_of=nulls_of, kinds=left_kinds), 0)
        right = self.rows(lookup.right, (), ToKeys(right_keys, kinds=right_kinds), 1)
        kind = self.hint(ToKeys(()))
        label = self.label("Look up")
        if lookup.residual is None:
            right = right | f"{label}: fewest" >> beam.Map(fewest).with_output_types(kind)
        if not lookup.keys:
            left = left | f"{label}: divide" >> beam.FlatMap(divided).with_output_types(kind)
            right = right | f"{label}: copy" >> beam.FlatMap(copied).with_output_types(kind)
        both = (left, right) | f"{label}: both sides" >> beam.Flatten()
        spec = SubqueryJoinSpec(
            lookup.kind,
            lookup.left.fields,
            lookup.right.fields,
            lookup.residual,
            lookup.values,
            fragment,
            side,
            lookup.place,
        )
        if ends:
            return computing.add(both | f"{label}: by key" >> beam.GroupByKey(), label, SubqueryJoinFn(spec))
        fn = SemiFn(spec, lookup.ttl_ms, (self.ends(lookup.left), self.ends(lookup.right)))
        return computing.add(both, label, fn)

    def _over(self, over: Over, fragment: Fragment, side: int, computing: Computing) -> Any:
        rows = self.rows(over.input, (), ToKeys(over.keys, with_nulls=True), 0)
        label = self.label("Over")
        spec = OverSpec(over.calls, over.time, over.input.fields, fragment, side, delay_us(over.input))
        if not self.ends(over):
            if self.runner.endswith("DirectRunner"):
                raise Refusal(
                    "OVER of rows without end waits for the watermark, and the DirectRunner's timers do not: take "
                    f"SparkRunner --streaming or FlinkRunner. {GIVES_END}",
                    over.span,
                )
            fn = ExpiringOverFn(spec, over.ttl_ms) if over.ttl_ms else OverFn(spec)
            return computing.add(rows, label, fn)
        return computing.add(rows | f"{label}: by key" >> beam.GroupByKey(), label, OverAllFn(spec))

    def _analytic(self, analytic: Analytic, fragment: Fragment, side: int, computing: Computing) -> Any:
        rows = self.rows(analytic.input, (), ToKeys(analytic.keys, with_nulls=True), 0)
        label = self.label("Over")
        spec = AnalyticSpec(analytic.calls, analytic.order, analytic.input.fields, fragment, side)
        return computing.add(rows | f"{label}: by key" >> beam.GroupByKey(), label, AnalyticFn(spec))

    def _sorted(self, relation: Sorted, fragment: Fragment, side: int, computing: Computing) -> Any:
        rows = self.rows(relation.input, (), ToKeys(()), 0)
        label = self.label("Sort")
        spec = SortSpec(relation.input.fields, relation.keys, relation.limit, relation.offset, fragment, side)
        if spec.wanted is not None:
            first = beam.ParDo(LimitFn(spec)).with_output_types(self.hint(ToKeys(())))
            rows = rows | f"{label}: first rows" >> first
        return computing.add(rows | f"{label}: all" >> beam.GroupByKey(), label, SortFn(spec))


def in_order(sink: Sink, rows: Any, label: str) -> Any:
    """Returns the messages of a sink, in one queue if they are in order."""
    relation: Relation = sink.input
    while isinstance(relation, Calc):
        relation = relation.input
    if not isinstance(relation, Sorted) or not relation.keys:
        return rows
    return rows | f"{label}: one queue" >> beam.Map(_in_one_queue).with_output_types(rows.element_type)


def _in_one_queue(batch: list[Any]) -> Batch[Any]:
    if batch and isinstance(batch[0], tuple):  # with their ids
        ids, values = zip(*batch, strict=True)
        return Batch(list(zip(ids, in_one_queue(list(values)), strict=True)))
    return Batch(in_one_queue(batch))
