"""From a plan to a pipeline: reads, fragments, joins and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, Repeatedly
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import Tuple

from rmqio.interfaces import ClientFactory
from rmqio.model import Message
from rmqio.options import ReadOptions
from rmqio.security import Security
from rmqio.sql.analysis.tables import watermark_delay_ms
from rmqio.sql.analysis.upserts import Updates, updates_of
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.fragment import (
    Fragment,
    FromRows,
    FromTable,
    OtherTarget,
    Step,
    Target,
    ToGroups,
    ToKeys,
    ToRows,
    ToTable,
)
from rmqio.sql.errors import SqlError
from rmqio.sql.plan import Aggregate, Calc, Constants, Join, Relation, Scan, Sink, Union
from rmqio.sql.runtime.aggregate_fn import AggregateSpec, FinishFn, MergeFn
from rmqio.sql.runtime.constants_fn import ConstantsFn
from rmqio.sql.runtime.fragment_fn import ERRORS, FragmentFn
from rmqio.sql.runtime.join_fn import ExpiringJoinFn, JoinFn, JoinSpec
from rmqio.sql.runtime.table_time import TableTime
from rmqio.sql.runtime.windows import window_fn
from rmqio.start import StartFrom, StopAt
from rmqio.transforms import ReadFailure, ReadFromRocketMQ, WriteDeadLetters, WriteToRocketMQ
from rmqio.transforms.batch_coder import BatchConstraint

_UPDATES_S: Final = 1
"""How often a group that changes is written again, in seconds."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How the tables of a job are reached, unless they say it themselves.

    Attributes:
      name_server: for tables without `nameServerAddress`.
      security: credentials and TLS.
      start: for tables that do not say where they begin.
      stop: where reads end that have no `endTime`; None: never.
      client_factory: replaces the clients in tests.
      commits: whether offsets of the tables' groups are committed.
    """

    name_server: str | None = None
    security: Security | None = None
    start: StartFrom | None = None
    stop: StopAt | None = None
    client_factory: ClientFactory | None = None
    commits: bool = True

    def of(self, table: Table) -> dict[str, Any]:
        """Returns the arguments of a transform that name the cluster."""
        if self.client_factory is not None:
            return {"client_factory": self.client_factory}
        return {"name_server": table.options.name_server or self.name_server, "security": self.security}


class Input(Protocol):
    """A table whose rows come from elsewhere than a topic."""

    @property
    def is_bounded(self) -> bool:
        """Whether it ends."""

    def rows(self, label: str, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        """Adds what selects from it. Returns the rows in the form of the target."""


@dataclass(slots=True)
class Translation:
    """Adds sinks to a pipeline. Tables that several of them read are read once.

    Labels come from the tables' names and the order of statements, never from lines: a comment changes none.
    """

    pipeline: beam.Pipeline
    connection: Connection
    _reads: dict[int, tuple[Table, Any]] = field(default_factory=dict)
    _labels: dict[str, int] = field(default_factory=dict)
    _updates: Updates = field(default_factory=lambda: Updates(None))
    inputs: Mapping[int, Input] = field(default_factory=dict)
    """Other inputs than topics, by the `id` of their table."""

    def rows(self, relation: Relation, target: Target, refused: str) -> Any:
        """Adds a query. Returns its rows in the form of the target. `refused`: why rows cannot change."""
        self._updates = Updates(None, refused)
        return self._rows(relation, (), target)

    def add(self, sink: Sink) -> None:
        """Adds what an INSERT INTO does."""
        target = ToTable(sink.table, sink.columns)
        self._updates = updates_of(sink)
        rows = self._rows(sink.input, (), target)
        label = self._label(f"Write {sink.table.name}")
        if sink.table.options.connector == "blackhole":
            return
        if sink.table.options.connector == "print":
            _ = rows | label.replace("Write", "Print") >> beam.Map(_print)
            return
        written = rows | label >> WriteToRocketMQ(
            sink.table.options.topic, batches=True, with_sent=False, **self.connection.of(sink.table)
        )
        _ = written.failed | f"{label}: refused" >> beam.Map(_refuse)

    def rows(self, relation: Relation) -> Any:
        """Returns the rows of a query: batches of tuples."""
        return self._rows(relation, (), ToRows())

    def _label(self, text: str) -> str:
        self._labels[text] = self._labels.get(text, 0) + 1
        return text if self._labels[text] == 1 else f"{text} {self._labels[text]}"

    def _rows(self, relation: Relation, steps: tuple[Step, ...], target: Target, side: int = 0) -> Any:
        """The rows of the relation, after further steps, in the form of the target."""
        match relation:
            case Calc():
                step = Step(relation.condition, relation.projections)
                return self._rows(relation.input, (step, *steps), target, side)
            case Scan():
                return self._scan(relation, steps, target, side)
            case Union():
                parts = [self._rows(each, steps, target, side) for each in relation.members]
                return parts | self._label("Union") >> beam.Flatten()
            case Join():
                return self._join(relation, steps, target, side)
            case Aggregate():
                return self._aggregate(relation, steps, target, side)
            case Constants():
                return self._constants(relation, steps, target, side)
        raise AssertionError(relation)

    def _constants(self, constants: Constants, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        label = self._label("Rows of the statement")
        fragments = [Fragment(FromRows(()), (Step(None, row), *steps), target) for row in constants.rows]
        once = self.pipeline | f"{label}: once" >> beam.Create([b""])
        return once | label >> beam.ParDo(ConstantsFn(fragments, side)).with_output_types(hint_of(target))

    def _scan(self, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        table = scan.table
        label = self._label(f"Select from {table.name}")
        if id(table) in self.inputs:
            return self.inputs[id(table)].rows(label, scan, steps, target, side)
        fragment = Fragment(FromTable(table, scan.columns), steps, target)
        mapping = beam.ParDo(FragmentFn(fragment, label, table.options.on_error, side))
        hint = hint_of(target)
        records = self._read(table)
        if table.options.on_error != "dead-letter":
            return records | label >> mapping.with_output_types(hint)
        outputs = records | label >> mapping.with_outputs(ERRORS, main="rows")
        rows, errors = outputs["rows"], outputs[ERRORS]
        rows.element_type, errors.element_type = hint, ReadFailure
        letters = WriteDeadLetters(table.options.dead_letter_topic or "", **self.connection.of(table))
        _ = errors | f"{label}: dead letters" >> letters
        return rows

    def _read(self, table: Table) -> Any:
        if id(table) in self._reads:  # a name can be dropped and created again
            return self._reads[id(table)][1]
        options = table.options
        stop = StopAt.timestamp(options.end_ms) if options.end_ms is not None else self.connection.stop
        start = options.start or self.connection.start
        if start is None:
            start = StartFrom.group_offsets("latest") if options.group else StartFrom.latest()
        commits = self.connection.commits
        time: dict[str, Any] = {} if commits else {"options": ReadOptions(commit_offsets=False)}
        if table.watermark is not None:
            delay_ms = watermark_delay_ms(table)
            time = {
                "timestamp": TableTime(table, is_lenient=options.on_error != "fail"),
                "options": ReadOptions(max_out_of_orderness_ms=delay_ms, commit_offsets=commits),
            }
        read = ReadFromRocketMQ(
            options.topic,
            consumer_group=options.group,
            start=start,
            stop=stop,
            tags=options.tag,
            sql_filter=options.sql,
            dead_letter_topic=options.dead_letter_topic if options.on_error == "dead-letter" else None,
            batches=True,
            **time,
            **self.connection.of(table),
        )
        records = self.pipeline | self._label(f"Read {table.name}") >> read
        self._reads[id(table)] = table, records
        return records

    def _aggregate(self, aggregate: Aggregate, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        fields = aggregate.input.fields
        repeats: dict[str, Any] = {}
        if aggregate.window is None and not all(map(self._ends, _scans(aggregate))):
            if aggregate != self._updates.aggregate:
                what = "GROUP BY without a window" if aggregate.calls else "DISTINCT"
                raise SqlError(f"{what}: {self._updates.refused or 'it stands below another one'}")
            repeats = {
                "trigger": Repeatedly(AfterProcessingTime(_UPDATES_S)),
                "accumulation_mode": AccumulationMode.ACCUMULATING,
            }
        groups = self._rows(aggregate.input, (), ToGroups(aggregate.keys, aggregate.window, aggregate.calls, fields))
        spec = AggregateSpec(aggregate, fields, Fragment(FromRows(aggregate.fields), steps, target), side)
        label = self._label("Group")
        windowed = groups | f"{label}: windows" >> beam.WindowInto(window_fn(aggregate.window), **repeats)
        merged = windowed | label >> beam.CombinePerKey(MergeFn(spec))
        rows = merged | f"{label}: rows" >> beam.ParDo(FinishFn(spec)).with_output_types(hint_of(target))
        return rows | f"{label}: all windows" >> beam.WindowInto(GlobalWindows())

    def _ends(self, table: Table) -> bool:
        if id(table) in self.inputs:
            return self.inputs[id(table)].is_bounded
        return table.options.end_ms is not None or self.connection.stop is not None

    def _join(self, join: Join, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        left = self._rows(join.left, (), ToKeys(tuple(one for one, _ in join.keys)), 0)
        right = self._rows(join.right, (), ToKeys(tuple(other for _, other in join.keys)), 1)
        label = self._label("Join")
        if join.residual is not None:
            columns = _all_columns(join)
            steps = (Step(join.residual, columns), *steps)
        fragment = Fragment(FromRows(join.fields), steps, target)
        spec = JoinSpec(join.left.fields, join.right.fields, join.ttl_ms, fragment, side)
        join_fn = JoinFn(spec) if all(map(self._ends, _scans(join))) else ExpiringJoinFn(spec)
        both = (left, right) | f"{label}: both sides" >> beam.Flatten()
        return both | label >> beam.ParDo(join_fn).with_output_types(hint_of(target))


def _scans(relation: Relation) -> Iterator[Table]:
    if isinstance(relation, Scan):
        yield relation.table
    for each in relation.inputs():
        yield from _scans(each)


def _all_columns(join: Join) -> tuple[Any, ...]:
    from rmqio.sql.expressions import InputRef

    return tuple(InputRef(each.type, i) for i, each in enumerate(join.fields))


def hint_of(target: Target) -> Any:
    """Returns the type of the elements of a target."""
    if isinstance(target, OtherTarget):
        return target.hint
    if isinstance(target, ToGroups):
        return Tuple[bytes, bytes]
    return Tuple[bytes, Tuple[int, list[bytes]]] if isinstance(target, ToKeys) else BatchConstraint(Any)


def _print(rows: Sequence[Any]) -> None:
    for row in rows:
        body = row.body if isinstance(row, Message) else row
        print(body.decode("utf-8", "replace"), flush=True)


def _refuse(failed: Any) -> None:
    """Fails the pipeline, which would otherwise commit offsets of rows that were never written."""
    from rmqio.errors import RmqioError

    raise RmqioError(f"cannot write to topic {failed.topic!r}: {failed.error}: {failed.reason}")
