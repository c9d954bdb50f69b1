"""Rows of groups that change, with a filter above them: what no longer passes it is deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.coders import BooleanCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from rmqio.sql.compile.description import Fragment, Step, ToTable
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.expressions import Constant, inputs
from rmqio.sql.runtime.groups.aggregate_fn import AggregateSpec, FinishFn
from rmqio.sql.runtime.ranks.ranking import payload
from rmqio.sql.runtime.writes.changes import ChangesFn, tombstone


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


def without_filters(fragment: Fragment) -> Fragment:
    """Returns what makes a message of any row, with its keys only."""
    target = fragment.target
    assert isinstance(target, ToTable)
    needed = {
        position
        for position, each in enumerate(target.columns)
        if each.name in target.table.primary_key or each.metadata is not None
    }
    return replace(fragment, steps=keys_only(fragment.steps, needed), target=replace(target, has_body=False))


class GroupChangesFn(ChangesFn):
    """Makes messages of merged groups: rows that pass the filter, and tombstones for those that passed it before.

    Elements are (key, payload); state is by key, and by window if there is one.
    """

    IS_THERE = ReadModifyWriteStateSpec("is_there", BooleanCoder())

    def __init__(self, spec: AggregateSpec) -> None:
        super().__init__(spec.fragment)
        self._finish = FinishFn(spec)
        self._all = without_filters(spec.fragment)

    def setup(self) -> None:
        super().setup()
        self._finish.setup()
        self._run_all = compiled(self._all)

    def process(
        self,
        element: tuple[bytes, bytes],
        is_there: Any = beam.DoFn.StateParam(IS_THERE),
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        if not element[1]:  # an empty pane, see `FinishFn`
            return
        row = self._finish.row(element[1], window)
        found = self.messages_of([row])
        if found:
            is_there.write(True)
        elif is_there.read():
            is_there.clear()
            mapped = self._run_all([row])
            for error in mapped.failed.values():
                raise error
            found = [tombstone(each) for each in mapped.values]
        yield from self.add(found, timestamp)


class GroupsToRanksFn(beam.DoFn):
    """Gives rows of groups to a rank, each with its group as its identity; of one that is filtered out, only that.

    Elements are (key, payload); the output is (key of the partition, payload of identity and row).
    """

    def __init__(self, spec: AggregateSpec, keys: tuple[int, ...]) -> None:
        self._finish = FinishFn(spec)
        self._fragment = spec.fragment
        self._all = replace(spec.fragment, steps=keys_only(spec.fragment.steps, set(keys)))

    def setup(self) -> None:
        self._finish.setup()
        self._run = compiled(self._fragment)
        self._run_all = compiled(self._all)

    def process(self, element: tuple[bytes, bytes], window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if not element[1]:
            return
        row = self._finish.row(element[1], window)
        mapped = self._run([row])
        for error in mapped.failed.values():
            raise error
        for key, found, _ in mapped.values:
            yield key, payload([element[0], found])
        if not mapped.values:
            for key, _, _ in self._run_all([row]).values:
                yield key, payload([element[0], b""])
