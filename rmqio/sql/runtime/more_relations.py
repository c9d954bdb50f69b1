"""Further relations of a plan as transforms: sub-queries, OVER, ORDER BY and rows that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from rmqio.batches import Batch
from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToKeys, ToRows
from rmqio.sql.errors import Refusal
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.planning.checks import GIVES_END
from rmqio.sql.planning.plan import Calc, Relation, Sink
from rmqio.sql.planning.relations import Analytic, Over, Repeated, Sorted, SubqueryJoin
from rmqio.sql.planning.watermarks import delay_us
from rmqio.sql.runtime.joins.subquery_join_fn import SemiFn, SubqueryJoinFn, SubqueryJoinSpec, copied, divided, fewest
from rmqio.sql.runtime.over.analytic_fn import AnalyticFn, AnalyticSpec
from rmqio.sql.runtime.over.over_fn import ExpiringOverFn, OverAllFn, OverFn, OverSpec
from rmqio.sql.runtime.rows.failed_rows import Computing
from rmqio.sql.runtime.rows.row_outputs import RepeatFn
from rmqio.sql.runtime.rows.sort_fn import LimitFn, SortFn, SortSpec, in_one_queue


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
