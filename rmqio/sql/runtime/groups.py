"""GROUP BY in a pipeline: partial aggregates of batches are merged by key and window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import BooleanCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindows

from rmqio.batches import Batch
from rmqio.model import Message
from rmqio.sql.compile.description import Fragment, FromRows, Mapped, Step, Target, ToGroups, ToRanks, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.expressions import Constant, inputs
from rmqio.sql.planning.plan import Aggregate
from rmqio.sql.runtime import windows
from rmqio.sql.runtime.aggregate_fn import AggregateSpec, ExpiringGroupFn, FinishFn, MergeFn, NoRowsFn, ProcessingFn
from rmqio.sql.runtime.outputs import ChangesFn, Computing, FailedRows, hint_of, tombstone
from rmqio.sql.runtime.ranking import payload
from rmqio.sql.runtime.windows import window_fn

# Rows of groups that change: what no longer passes a filter above them, or fails, is deleted.


def keys_only(steps: Sequence[Step], columns: set[int]) -> tuple[Step, ...]:
    """Returns the steps without filters, that compute these columns only. The others are NULL."""
    found: list[Step] = []
    for step in reversed(steps):
        kept = tuple(
            each if position in columns else Constant(each.type.nullable(), None)
            for position, each in enumerate(step.projections)
        )
        found.insert(0, Step(None, kept))
        columns = {index for position in columns for index in inputs(step.projections[position])}
    return tuple(found)


_PLACE: Final = ("topic", "sharding_key")
"""Metadata that says where a row is."""


class Deletions:
    """Makes tombstones of rows, also of those for which the fragment fails: it computes their keys and metadata.

    Args:
      fragment: makes messages of the rows.
    """

    def __init__(self, fragment: Fragment) -> None:
        metadata = {each.metadata.key for each in _table(fragment).columns if each.metadata is not None}
        self._fragments = [_without_filters(fragment, metadata), _without_filters(fragment, set(_PLACE))]

    def compile(self) -> None:
        """Compiles the fragment, in the worker."""
        self._runs = list(map(compiled, self._fragments))

    def of(self, row: tuple[Any, ...]) -> list[Message]:
        """Returns the tombstone of a row; none if its keys cannot be computed.

        If its other metadata fails, the tombstone goes without.
        """
        for run in self._runs:
            if found := run([row]).values:
                return [tombstone(each) for each in found]
        return []


def _table(fragment: Fragment) -> ToTable:
    assert isinstance(fragment.target, ToTable)
    return fragment.target


def _without_filters(fragment: Fragment, metadata: set[str]) -> Fragment:
    """The fragment for messages of all rows, with their keys and this metadata only."""
    target = _table(fragment)
    needed = {
        position
        for position, each in enumerate(target.columns)
        if each.name in target.table.primary_key or (each.metadata is not None and each.metadata.key in metadata)
    }
    return replace(fragment, steps=keys_only(fragment.steps, needed), target=replace(target, has_body=False))


class GroupUpdatesFn(FinishFn):
    """Makes messages of merged groups, of rows that no filter leaves out: one that fails is deleted.

    Nothing remembers whether its row was there, so that the first row of a group is deleted, too, if it fails.
    """

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec)
        self._deletions = Deletions(spec.fragment)

    def setup(self) -> None:
        super().setup()
        self._deletions.compile()

    def given(self, payload: bytes, window: Any, timestamp: Any) -> Iterator[Any]:
        yield from super().given(payload, window, timestamp)
        if self.failed is None:
            return
        if self._rows:  # among them can be its older version
            yield from self._flushed()
        if found := self._deletions.of(self.failed):
            yield Batch(found)

    def values(self, rows: list[tuple[Any, ...]], mapped: Mapped) -> list[Any]:
        """Returns the messages, and tombstones in the places of rows that fail."""
        if not mapped.failed:
            return mapped.values
        found = list(zip(mapped.positions, mapped.values, strict=True))
        found += [(place, each) for place in mapped.failed for each in self._deletions.of(rows[place])]
        return [each for _, each in sorted(found, key=itemgetter(0))]


class GroupChangesFn(ChangesFn):
    """Makes messages of merged groups: rows that pass the filter, and tombstones for those that passed it before.

    Elements are (key, payload); state is by key, and by window if there is one.
    """

    IS_THERE = ReadModifyWriteStateSpec("is_there", BooleanCoder())

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec.fragment)
        self._finish = FinishFn(spec)
        self._deletions = Deletions(spec.fragment)

    def setup(self) -> None:
        super().setup()
        self._finish.setup()
        self._deletions.compile()

    def process(
        self,
        element: tuple[bytes, bytes],
        is_there: Any = beam.DoFn.StateParam(IS_THERE),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        if not element[1]:  # an empty pane, see `FinishFn`, or a group that was forgotten
            is_there.clear()
            return
        rows = self._finish.row(element[1], window)
        self._letters += self._finish.letters()
        found = self.messages_of(rows)
        if found:
            is_there.write(True)
        elif is_there.read():
            is_there.clear()
            found = self._deletions.of(rows[0] if rows else self._finish.failed or ())
        yield from self.add(found, timestamp)


class GroupsToRanksFn(beam.DoFn):
    """Gives rows of groups to a rank, each with its group as its identity; of one that is filtered out, only that.

    Elements are (key, payload); the output is (key of the partition, payload of identity and row).
    """

    def __init__(self, spec: AggregateSpec, keys: tuple[int, ...]) -> None:
        self._finish = FinishFn(spec)
        self._fragment = spec.fragment
        self._failed_rows = FailedRows(spec.fragment)
        self._all = replace(spec.fragment, steps=keys_only(spec.fragment.steps, set(keys)))

    def setup(self) -> None:
        self._finish.setup()
        self._run = compiled(self._fragment)
        self._run_all = compiled(self._all)

    def process(self, element: tuple[bytes, bytes], window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if not element[1]:
            return
        rows = self._finish.row(element[1], window)
        yield from self._finish.letters()
        if self._finish.failed is not None:
            for key, _, _ in self._run_all([self._finish.failed]).values:
                yield key, payload([element[0], b""])
            return
        mapped = self._run(rows)
        if mapped.failed or mapped.nulls:
            yield from self._failed_rows.outputs(rows, mapped.failed, mapped.nulls)
        for key, found, _ in mapped.values:
            yield key, payload([element[0], found])
        if not mapped.values:
            for key, _, _ in self._run_all(rows).values:
                yield key, payload([element[0], b""])


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
            repeats = windows.of_groups() if aggregate.emit is None else windows.of_windows(aggregate.emit)
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
