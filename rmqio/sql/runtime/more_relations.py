"""Further relations of a plan as transforms: sub-queries, OVER, ORDER BY and rows that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from rmqio.batches import Batch
from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToKeys, ToRows
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.delays import delay_us
from rmqio.sql.planning.plan import Aggregate, Calc, Join, Origin, Relation, Sink
from rmqio.sql.planning.relations import Analytic, Over, Repeated, Sorted, SubqueryJoin
from rmqio.sql.runtime.joins.subquery_join_fn import SemiFn, SubqueryJoinFn, SubqueryJoinSpec, copied, divided, fewest
from rmqio.sql.runtime.over.analytic_fn import AnalyticFn, AnalyticSpec
from rmqio.sql.runtime.over.over_fn import OverAllFn, OverFn, OverSpec
from rmqio.sql.runtime.rows.row_outputs import RepeatFn
from rmqio.sql.runtime.rows.sort_fn import FirstRowsFn, SortFn, SortSpec, in_one_queue

_ENDS = "--stop latest, or 'endTime' of its tables, gives it an end"


@dataclass(frozen=True, slots=True)
class MoreRelations:
    """Adds the relations to a pipeline.

    Attributes:
      rows: the rows of a relation, after steps, in the form of a target; the number is the side.
      label: makes a label that no other transform has.
      ends: whether all inputs of a relation end.
      hint: the type of elements in the form of a target.
      runner: the name of the runner's class.
    """

    rows: Callable[[Relation, tuple[Step, ...], Target, int], Any]
    label: Callable[[str], str]
    ends: Callable[[Relation], bool]
    hint: Callable[[Target], Any]
    runner: str = ""

    def add(self, relation: Relation, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        """Adds a relation. Raises `Refusal` if it needs inputs that end, and they do not."""
        fragment = Fragment(FromRows(relation.fields), steps, target)
        match relation:
            case SubqueryJoin():
                return self._lookup(relation, fragment, side)
            case Over():
                return self._over(relation, fragment, side)
            case Analytic():
                return self._analytic(relation, fragment, side)
            case Sorted():
                return self._sorted(relation, fragment, side)
            case Repeated():
                counted = self.rows(relation.input, (), ToRows(), 0)
                return counted | self.label("Repeat") >> self._fn(RepeatFn(fragment, side), fragment)
        raise AssertionError(relation)

    def _fn(self, fn: beam.DoFn, fragment: Fragment) -> Any:
        return beam.ParDo(fn).with_output_types(self.hint(fragment.target))

    def _lookup(self, lookup: SubqueryJoin, fragment: Fragment, side: int) -> Any:
        ends = self.ends(lookup)
        left_keys, right_keys = (tuple(each[i] for each in lookup.keys) for i in (0, 1))
        left = self.rows(lookup.left, (), ToKeys(left_keys, nulls_of=None if lookup.kind == "SEMI" else 0), 0)
        right = self.rows(lookup.right, (), ToKeys(right_keys), 1)
        kind = self.hint(ToKeys(()))
        label = self.label("Look up")
        if lookup.residual is None:
            right = right | f"{label}: fewest" >> beam.Map(fewest).with_output_types(kind)
        if not lookup.keys:
            left = left | f"{label}: divide" >> beam.FlatMap(divided).with_output_types(kind)
            right = right | f"{label}: copy" >> beam.FlatMap(copied).with_output_types(kind)
        both = (left, right) | f"{label}: both sides" >> beam.Flatten()
        spec = SubqueryJoinSpec(
            lookup.kind, lookup.left.fields, lookup.right.fields, lookup.residual, lookup.values, fragment, side
        )
        if ends:
            return both | f"{label}: by key" >> beam.GroupByKey() | label >> self._fn(SubqueryJoinFn(spec), fragment)
        fn = SemiFn(spec, lookup.ttl_ms, right_ends=self.ends(lookup.right))
        return both | label >> self._fn(fn, fragment)

    def _over(self, over: Over, fragment: Fragment, side: int) -> Any:
        rows = self.rows(over.input, (), ToKeys(over.keys, with_nulls=True), 0)
        label = self.label("Over")
        spec = OverSpec(over.calls, over.time, over.input.fields, fragment, side, delay_us(over.input))
        if not self.ends(over):
            if self.runner.endswith("DirectRunner"):
                raise Refusal(
                    "OVER of rows without end waits for the watermark, and the DirectRunner's timers do not: take "
                    f"SparkRunner --streaming or FlinkRunner. {_ENDS}",
                    over.span,
                )
            return rows | label >> self._fn(OverFn(spec), fragment)
        return rows | f"{label}: by key" >> beam.GroupByKey() | label >> self._fn(OverAllFn(spec), fragment)

    def _analytic(self, analytic: Analytic, fragment: Fragment, side: int) -> Any:
        rows = self.rows(analytic.input, (), ToKeys(analytic.keys, with_nulls=True), 0)
        label = self.label("Over")
        spec = AnalyticSpec(analytic.calls, analytic.order, analytic.input.fields, fragment, side)
        return rows | f"{label}: by key" >> beam.GroupByKey() | label >> self._fn(AnalyticFn(spec), fragment)

    def _sorted(self, relation: Sorted, fragment: Fragment, side: int) -> Any:
        rows = self.rows(relation.input, (), ToKeys(()), 0)
        label = self.label("Sort")
        spec = SortSpec(relation.input.fields, relation.keys, relation.limit, relation.offset, fragment, side)
        if spec.wanted is not None:
            first = beam.ParDo(FirstRowsFn(spec)).with_output_types(self.hint(ToKeys(())))
            rows = rows | f"{label}: first rows" >> first
        return rows | f"{label}: all" >> beam.GroupByKey() | label >> self._fn(SortFn(spec), fragment)


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


def require_ends(relation: Relation, ends: Callable[[Relation], bool]) -> None:
    """Raises `Refusal` for what needs inputs that end, in a relation whose inputs do not."""
    match relation:
        case Aggregate() if relation.origin is not None and relation.window is None and not ends(relation):
            raise not_ended(relation.origin)
        case Join() if relation.span is not None and not ends(relation):
            _check_crossed(relation)
        case SubqueryJoin() if not ends(relation):
            _check_endless(relation)
        case Analytic() if not ends(relation):
            raise Refusal(
                "this OVER needs an input that ends: without an end, it takes functions of rows before a row, in "
                f"ascending order of the time of WATERMARK FOR, all with one PARTITION BY. {_ENDS}",
                relation.span,
            )
        case Sorted() if not ends(relation):
            what = "ORDER BY" if relation.keys else "LIMIT"
            why = "it could never say which row is the first" if relation.keys else "the job would have to end it"
            raise Refusal(f"{what} needs an input that ends, and this one does not: {why}. {_ENDS}", relation.span)
    for each in relation.inputs():
        require_ends(each, ends)


def _check_crossed(join: Join) -> None:
    if not join.keys and not join.ttl_ms:
        raise Refusal(
            "CROSS JOIN keeps every row for ever, for all that may still come: say how long a row waits, with "
            f"SET 'table.exec.state.ttl' = '1 h' before it. {_ENDS}",
            join.span,
        )
    if not join.ttl_ms:
        raise Refusal(
            "this join keeps every row for ever: say how long a row waits for its partners, with "
            "SET 'table.exec.state.ttl' = '1 h' before it, or write JOIN ... ON with bounds of the times",
            join.span,
        )


def not_ended(origin: Origin) -> Refusal:
    """Returns the error of UNION, EXCEPT or INTERSECT over rows that do not end."""
    hint = "UNION ALL keeps doubles" if origin.name == "UNION" else "IN and EXISTS with a query find partners"
    return Refusal(
        f"{origin.name} needs inputs that end, since it would keep all rows: {_ENDS}; rows with window_start and "
        f"window_end are compared by window, and {hint}",
        origin.span,
    )


def _check_endless(lookup: SubqueryJoin) -> None:
    if lookup.kind != "SEMI":
        what = {"IN": "NOT IN, or IN in a larger condition,", "EXISTS": "NOT EXISTS, or EXISTS in a larger condition,"}
        subject = what.get(lookup.text, "a query as a value")
        becomes = "false" if lookup.text in what else "another one"
        raise Refusal(
            f"{subject} needs inputs that end: while rows can come, it can become {becomes}. {_ENDS}; IN and EXISTS "
            "joined by AND in WHERE need none, and a dimension join (FOR SYSTEM_TIME AS OF) looks up what is there now",
            lookup.span,
        )
    if not lookup.ttl_ms:
        raise Refusal(
            f"{lookup.text} with a query keeps every row for ever, for partners that may still come: say how long a "
            "row waits, with SET 'table.exec.state.ttl' = '1 h' before it",
            lookup.span,
        )
