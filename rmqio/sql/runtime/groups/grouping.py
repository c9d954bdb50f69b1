"""GROUP BY in a pipeline: partial aggregates of batches are merged by key and window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToGroups, ToRanks, ToTable
from rmqio.sql.errors import Refusal
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.planning.plan import Aggregate
from rmqio.sql.runtime.groups import emits
from rmqio.sql.runtime.groups.aggregate_fn import AggregateSpec, FinishFn, MergeFn, NoRowsFn
from rmqio.sql.runtime.groups.expiring_group_fn import ExpiringGroupFn
from rmqio.sql.runtime.groups.group_changes_fn import GroupChangesFn, GroupsToRanksFn, GroupUpdatesFn
from rmqio.sql.runtime.groups.processing_fn import ProcessingFn
from rmqio.sql.runtime.groups.windows import window_fn
from rmqio.sql.runtime.hints import hint_of
from rmqio.sql.runtime.rows.failed_rows import Computing


@dataclass(frozen=True)
class Grouping:
    """A GROUP BY, and what happens to its rows.

    Attributes:
      aggregate: the plan, whose window waits for rows that are behind the watermark.
      steps: what happens to the rows.
      target: their form then.
      side: if they go into a join, which input of it they are.
      is_changing: whether a group gives its row again when it changes.
      ends: whether the input ends.
    """

    aggregate: Aggregate
    steps: tuple[Step, ...]
    target: Target
    side: int
    is_changing: bool
    ends: bool

    @property
    def _is_processing(self) -> bool:
        return self.aggregate.window is not None and self.aggregate.window.is_processing

    def partial(self) -> ToGroups:
        """Returns the form in which rows of the input go into the group. Raises `Refusal` if they cannot."""
        aggregate = self.aggregate
        if self._is_processing and self.ends:
            raise Refusal(
                "windows of processing time need an input that does not end, since one that ends is read at once: "
                "leave out --stop, or use a time of the rows, with WATERMARK FOR",
                aggregate.span,
            )
        window = None if self._is_processing else aggregate.window
        return ToGroups(aggregate.keys, window, aggregate.calls, aggregate.input.fields)

    def added(self, groups: Any, label: str, computing: Computing) -> Any:
        """Adds the merge of partial aggregates. Returns the rows in the form of the target."""
        aggregate, target = self.aggregate, self.target
        spec = AggregateSpec(
            replace(aggregate, origin=None, span=None),
            aggregate.input.fields,
            Fragment(FromRows(named_fields(aggregate)), self.steps, target),
            self.side,
        )
        if self._is_processing:
            return computing.add(groups, label, ProcessingFn(spec))
        repeats: dict[str, Any] = {}
        if self.is_changing:
            repeats = emits.of_groups() if aggregate.emit is None else emits.of_windows(aggregate.emit)
        if aggregate.is_total and self.ends:
            # SQL has a row of no rows, with COUNT 0. It merges with the others, and changes nothing there.
            once = groups.pipeline | f"{label}: once" >> beam.Create([b""])
            none = once | f"{label}: of no rows" >> beam.ParDo(NoRowsFn(spec)).with_output_types(
                hint_of(self.partial())
            )
            groups = (groups, none) | f"{label}: of all rows" >> beam.Flatten()
        if self.is_changing and aggregate.ttl_ms:
            merged = groups | label >> beam.ParDo(ExpiringGroupFn(spec)).with_output_types(hint_of(self.partial()))
        else:
            windowed = groups | f"{label}: windows" >> beam.WindowInto(window_fn(aggregate.window), **repeats)
            merged = windowed | label >> beam.CombinePerKey(MergeFn(spec))
        finish: beam.DoFn = FinishFn(spec)
        if self.is_changing and isinstance(target, ToTable):
            is_filtered = any(each.condition is not None for each in self.steps)
            finish = GroupChangesFn(spec) if is_filtered else GroupUpdatesFn(spec)
        elif self.is_changing and isinstance(target, ToRanks):
            finish = GroupsToRanksFn(spec, target.keys)
        rows = computing.add(merged, f"{label}: rows", finish)
        return rows | f"{label}: all windows" >> beam.WindowInto(GlobalWindows())
