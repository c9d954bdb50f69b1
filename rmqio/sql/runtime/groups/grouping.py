"""GROUP BY in a pipeline: partial aggregates of batches are merged by key and window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from rmqio.sql.compile.description import Fragment, FromRows, Step, Target, ToGroups, ToRanks, ToTable
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.plan import Aggregate
from rmqio.sql.runtime.groups import emits
from rmqio.sql.runtime.groups.aggregate_fn import AggregateSpec, FinishFn, MergeFn, NoRowsFn
from rmqio.sql.runtime.groups.group_changes_fn import GroupChangesFn, GroupsToRanksFn
from rmqio.sql.runtime.groups.processing_fn import ProcessingFn
from rmqio.sql.runtime.groups.windows import window_fn
from rmqio.sql.runtime.hints import hint_of


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
        """Returns the form in which rows of the input go into the group. Raises `SqlError` if they cannot."""
        aggregate = self.aggregate
        if self._is_processing and self.ends:
            raise SqlError(
                "windows of processing time need an input that does not end, since one that ends is read at once: "
                "leave out --stop, or take a time of the rows, with WATERMARK FOR"
            )
        window = None if self._is_processing else aggregate.window
        return ToGroups(aggregate.keys, window, aggregate.calls, aggregate.input.fields)

    def added(self, groups: Any, label: str) -> Any:
        """Adds the merge of partial aggregates. Returns the rows in the form of the target."""
        aggregate, target = self.aggregate, self.target
        spec = AggregateSpec(
            replace(aggregate, origin=None),
            aggregate.input.fields,
            Fragment(FromRows(aggregate.fields), self.steps, target),
            self.side,
        )
        if self._is_processing:
            return groups | label >> beam.ParDo(ProcessingFn(spec)).with_output_types(hint_of(target))
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
        windowed = groups | f"{label}: windows" >> beam.WindowInto(window_fn(aggregate.window), **repeats)
        merged = windowed | label >> beam.CombinePerKey(MergeFn(spec))
        finish: beam.DoFn = FinishFn(spec)
        if self.is_changing and any(each.condition is not None for each in self.steps) and isinstance(target, ToTable):
            finish = GroupChangesFn(spec)
        elif self.is_changing and isinstance(target, ToRanks):
            finish = GroupsToRanksFn(spec, target.keys)
        rows = merged | f"{label}: rows" >> beam.ParDo(finish).with_output_types(hint_of(target))
        return rows | f"{label}: all windows" >> beam.WindowInto(GlobalWindows())
