"""From a plan to a pipeline: reads, fragments, joins and writes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.runners.runner import PipelineRunner

from rmqio.interfaces import ClientFactory
from rmqio.model import Record
from rmqio.options import ReadOptions
from rmqio.sql.analysis.definitions import watermark_delay_ms
from rmqio.sql.analysis.sinks import APPEND_ONLY, NO_TABLE, Kind, check_sink, kind_of, named
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import (
    Fragment,
    FromRows,
    FromTable,
    Statement,
    Step,
    Target,
    ToRanks,
    ToRows,
    ToTable,
    WindowStep,
    current_statement,
    step_of,
    strictest,
    translating,
)
from rmqio.sql.compile.look_ups import Dimension, LookUp
from rmqio.sql.errors import Refusal, Span, SqlError
from rmqio.sql.explain.plans import named_fields
from rmqio.sql.lookup.dimensions import acquire
from rmqio.sql.planning.checks import require_ends, table_ends
from rmqio.sql.planning.identity import is_unique
from rmqio.sql.planning.plan import (
    Aggregate,
    Calc,
    Constants,
    Join,
    LookupJoin,
    Rank,
    Relation,
    Scan,
    Sink,
    Union,
    Windowed,
    tables_of,
)
from rmqio.sql.planning.pushdown import Use, pushed_of, uses_of
from rmqio.sql.planning.relations import Analytic, Expand, Over, Repeated, Sorted, SubqueryJoin
from rmqio.sql.planning.watermarks import delayed
from rmqio.sql.runtime import ranks
from rmqio.sql.runtime.groups import Grouping
from rmqio.sql.runtime.joins import JoinRows, key_targets, waiting_join
from rmqio.sql.runtime.outputs import Computing, ConstantsFn, hint_of
from rmqio.sql.runtime.reads import ERRORS, FragmentFn, ReadRowsFn, SharedFragmentFn, parts_of
from rmqio.sql.runtime.relations import MoreRelations
from rmqio.sql.runtime.scans import Connection, Input, ScanUse, SharedScan, SharedScans, bounds
from rmqio.sql.runtime.subquery_joins import copied, divided
from rmqio.sql.runtime.table_time import TableTime
from rmqio.sql.runtime.writes import RefusedFn, identified, write
from rmqio.transforms import ReadFailure, ReadFromRocketMQ, WriteDeadLetters
from rmqio.transforms.parts import BatchConstraint, factory_of

# From plans to pipelines: tables that end, and look-ups in dimension tables.

Reach = Callable[[Table], dict[str, Any]]
"""Returns the arguments of a transform that name the cluster of a table."""
_MOST_LOOK_UPS: Final = 12
"""Look-ups of one fragment are nested loops, and Python has at most 20 nested blocks."""


class ReadRows(beam.PTransform):
    """Reads files or a table of a database, as batches of `Line`. Several files are read at the same time."""

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        super().__init__()
        self._table, self._names = table, names

    def expand(self, begin: Any) -> Any:
        parts = begin | "Parts" >> beam.Create(parts_of(self._table))
        return parts | "Rows" >> beam.ParDo(ReadRowsFn(self._table, self._names)).with_output_types(
            BatchConstraint(Any)
        )


def look_up(join: LookupJoin, job: str, reach: Reach) -> LookUp:
    """Returns the step of a fragment that joins its rows with a dimension table. Raises `SqlError`."""
    if _nested(join) > _MOST_LOOK_UPS:
        raise SqlError(f"there are more than {_MOST_LOOK_UPS} dimension tables in one chain of joins")
    return LookUp(
        None,
        (),
        dimension=dimension_of(join.dimension, tuple(place for _, place in join.keys), job, reach),
        acquire=acquire,
        kind=join.kind,
        fields=join.input.fields,
        keys=tuple(key for key, _ in join.keys),
        residual=join.residual,
        is_unique=is_unique(join),
    )


def dimension_of(relation: Relation, keys: tuple[int, ...], job: str, reach: Reach) -> Dimension:
    """Returns what workers need to load the rows of a relation: projections and filters of a table's scan.

    Args:
      keys: the positions of the columns by which rows are looked up.
      job: the job, which loads a copy of its own.
    """
    fields = relation.fields
    steps: tuple[Step, ...] = ()
    while isinstance(relation, Calc):
        steps = (Step(relation.condition, relation.projections), *steps)
        relation = relation.input
    assert isinstance(relation, Scan)
    table = relation.table
    factory = None if table.options.connector in (FILES, DATABASE) else _factory(table, reach)
    return Dimension(table, relation.columns, steps, fields, keys, job, factory)


def _factory(table: Table, reach: Reach) -> ClientFactory:
    given = reach(table)
    factory, _ = factory_of(
        given.get("client_factory"),
        given.get("name_server"),
        None,
        ReadOptions(security=given["security"]) if given.get("security") else ReadOptions(),
        group=None,
        looks_again=False,
        writes_letters=False,
    )
    return factory


def _nested(relation: Relation) -> int:
    return isinstance(relation, LookupJoin) + max(map(_nested, relation.inputs()), default=0)


def require_written(sink: Sink, is_bounded: bool) -> None:
    """Raises `Refusal` if rows of this input cannot be written to the table."""
    table = sink.table
    if table.options.connector != FILES:
        return
    if not is_bounded:
        raise Refusal(
            f"the files of {table.name} are written when all rows have arrived, but the input does not end: "
            "add --stop latest",
            sink.span,
        )


@dataclass(slots=True)
class Translation:
    """Adds sinks to a pipeline. Tables that several of them read are read once, and decoded once by `add_all`.

    Labels come from the tables' names and the order of statements, never from lines: a comment changes none.
    """

    pipeline: beam.Pipeline
    connection: Connection
    _reads: dict[int, tuple[Table, Any]] = field(default_factory=dict)
    _labels: dict[str, int] = field(default_factory=dict)
    _kind: Kind = APPEND_ONLY
    _statement: str = ""
    inputs: Mapping[int, Input] = field(default_factory=dict)
    """Other inputs than topics, by the `id` of their table."""
    errors: Callable[[str, Span | None], SqlError] = lambda message, _: SqlError(message)
    """Makes the error of a message, at its place."""
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _uses: list[Use] = field(default_factory=list)
    _shared: SharedScans = field(default_factory=SharedScans)

    def rows(self, relation: Relation, target: Target = ToRows(), refused: str = "") -> Any:  # noqa: B008
        """Adds a query. Returns its rows in the form of the target. `refused`: why they cannot change."""
        with self._placing():
            require_ends(relation, self._all_end)
            self._kind = kind_of(relation, self._all_end)
            if self._kind.refused:
                raise Refusal(self._kind.refused, self._kind.span)
            if (changing := self._kind.changing) is not None:
                raise Refusal(f"{named(changing)}: {refused or NO_TABLE}", changing.span)
            return self._rows(relation, (), target)

    def add_all(self, sinks: Sequence[Sink]) -> None:
        """Adds all sinks of a job. The broker gets the conditions that all reads of a table imply."""
        recorded = _Recorded(beam.Pipeline(self.pipeline.runner, self.pipeline.options), self.connection)
        recorded.inputs, recorded.errors = self.inputs, self.errors
        recorded._run = self._run
        for sink in sinks:
            recorded.add(sink)
        self._uses = uses_of(sinks)
        self._shared = SharedScans(recorded.scans)
        for sink in sinks:
            self.add(sink)

    def add(self, sink: Sink) -> None:
        """Adds what an INSERT INTO does. Raises `SqlError` if its inputs do not end and must."""
        with self._placing():
            self._add(sink)

    @contextlib.contextmanager
    def _placing(self) -> Iterator[None]:
        """Raises a `SqlError` for a `Refusal` in the block, at its place if that is known."""
        try:
            yield
        except Refusal as refusal:
            raise self.errors(refusal.message, refusal.span) from None

    def _add(self, sink: Sink) -> None:
        label = self._label(f"Write {sink.table.name}")
        self._statement = f"INSERT INTO {sink.table.name}{f', {sink.place}' if sink.place else ''}"
        self._kind = check_sink(sink, self._all_end)
        require_written(sink, self._all_end(sink))
        if sink.table.options.connector == "rocketmq":
            is_stream = self.pipeline.options.view_as(StandardOptions).streaming or not self._all_end(sink)
            has_places = not any(id(each) in self.inputs for each in tables_of(sink))
            sink = identified(sink, label, self._run, is_stream=is_stream, has_places=has_places)
        target = ToTable(sink.table, sink.columns)
        rows = self._rows(sink.input, (), target)
        self._write(sink, rows, label)

    def _write(self, sink: Sink, rows: Any, label: str) -> None:
        tables = list(tables_of(sink))

        def refused(failures: Any, label: str) -> None:
            on_error = strictest(each.options.on_error for each in tables)
            letters = failures | label >> beam.ParDo(RefusedFn(on_error, self._statement)).with_output_types(Any)
            if on_error == "dead-letter":
                self._write_letters(_table_of_letters(tables), letters, label)

        write(sink, rows, label, self.connection, self._run, refused)

    def _label(self, text: str) -> str:
        self._labels[text] = self._labels.get(text, 0) + 1
        return text if self._labels[text] == 1 else f"{text} {self._labels[text]}"

    def _rows(self, relation: Relation, steps: tuple[Step, ...], target: Target, side: int = 0) -> Any:
        """The rows of the relation, after further steps, in the form of the target."""
        options = [each.options.on_error for each in tables_of(relation)]
        with translating(Statement(self._statement, strictest(options), "null" in options)):
            return self._translated(relation, steps, target, side)

    def _translated(self, relation: Relation, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        match relation:
            case Calc():
                step = Step(relation.condition, relation.projections)
                return self._rows(relation.input, (step, *steps), target, side)
            case Scan():
                return self._scan(relation, steps, target, side)
            case Expand():
                return self._rows(relation.input, (step_of(relation), *steps), target, side)
            case LookupJoin():
                step = look_up(relation, self._run, self.connection.of)
                return self._rows(relation.input, (step, *steps), target, side)
            case Union():
                parts = [self._rows(each, steps, target, side) for each in relation.members]
                return parts | self._label("Union") >> beam.Flatten()
            case Windowed():
                step = WindowStep(None, (), relation.window, relation.input.fields)
                return self._rows(relation.input, (step, *steps), target, side)
            case Join():
                return self._join(relation, steps, target, side)
            case Aggregate():
                return self._aggregate(relation, steps, target, side)
            case Rank():
                return self._rank(relation, steps, target, side)
            case Constants():
                return self._constants(relation, steps, target, side)
            case SubqueryJoin() | Over() | Analytic() | Sorted() | Repeated():
                runner = type(self.pipeline.runner).__name__
                more = MoreRelations(self._rows, self._label, self._all_end, self._computing, hint_of, runner)
                return more.add(relation, steps, target, side)
        raise AssertionError(relation)

    def _constants(self, constants: Constants, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        label = self._label("Rows of the statement")
        fragments = [Fragment(FromRows(()), (Step(None, row), *steps), target) for row in constants.rows]
        once = self.pipeline | f"{label}: once" >> beam.Create([b""])
        return self._computing(constants, target).add(once, label, ConstantsFn(fragments, side))

    def _scan(self, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        table = scan.table
        label = self._label(f"Select from {table.name}")
        if id(table) in self.inputs:
            return self.inputs[id(table)].rows(label, scan, steps, target, side)
        fragment = Fragment(FromTable(table, scan.columns), steps, target)
        is_topic = table.options.connector == "rocketmq"
        if is_topic and (shared := self._shared.next(table, ScanUse(fragment, side))) is not None:
            return self._shared_rows(table, shared, label)
        mapping = beam.ParDo(FragmentFn(fragment, label, table.options.on_error, side))
        hint = hint_of(target)
        records = self._read(table) if is_topic else self._read_rows(scan)
        if table.options.on_error != "dead-letter":
            return records | label >> mapping.with_output_types(hint)
        outputs = records | label >> mapping.with_outputs(ERRORS, main="rows")
        rows, errors = outputs["rows"], outputs[ERRORS]
        rows.element_type, errors.element_type = hint, ReadFailure
        self._write_letters(table, errors, label)
        return rows

    def _write_letters(self, table: Table, errors: Any, label: str) -> None:
        if id(table) in self.inputs:
            self.inputs[id(table)].write_failed(errors, label)
            return
        letters = WriteDeadLetters(table.options.dead_letter_topic or "", **self.connection.of(table))
        _ = errors | f"{label}: dead letters" >> letters

    def _shared_rows(self, table: Table, shared: SharedScan, label: str) -> Any:
        """The rows of one of several scans of a table, which are made together when the first one is translated."""
        if shared.outputs is None:
            fn = SharedFragmentFn(*shared.columns_of(label), table.options.on_error)
            tags = [str(number) for number in range(len(shared.uses))]
            letters = [ERRORS] if table.options.on_error == "dead-letter" else []
            shared.outputs = self._read(table) | label >> beam.ParDo(fn).with_outputs(*tags, *letters)
            if letters:
                shared.outputs[ERRORS].element_type = ReadFailure
                self._write_letters(table, shared.outputs[ERRORS], label)
        rows = shared.outputs[str(shared.taken)]
        rows.element_type = hint_of(shared.uses[shared.taken].fragment.target)
        shared.taken += 1
        return rows

    def _read(self, table: Table) -> Any:
        if id(table) in self._reads:  # a name can be dropped and created again
            return self._reads[id(table)][1]
        options = table.options
        pushed = pushed_of(table, [use for use in self._uses if use.scan.table is table])
        start, stop = bounds(options, self.connection.start, self.connection.stop, pushed, self.connection.resumed_ms)
        commits = self.connection.commits
        time: dict[str, Any] = {} if commits else {"options": ReadOptions(commit_offsets=False)}
        if table.watermark is not None:
            idle: dict[str, Any] = {}
            if self.connection.idle_timeout_ms is not None:
                idle["idle_timeout_ms"] = self.connection.idle_timeout_ms
            time = {
                "timestamp": TableTime(table, is_lenient=options.on_error != "fail"),
                "options": ReadOptions(
                    max_out_of_orderness_ms=watermark_delay_ms(table), commit_offsets=commits, **idle
                ),
            }
        read = ReadFromRocketMQ(
            options.topic,
            consumer_group=options.group,
            start=start,
            stop=stop,
            tags=pushed.expression or options.tag,
            sql_filter=pushed.selector.text if pushed.selector is not None else options.sql,
            dead_letter_topic=options.dead_letter_topic if options.on_error == "dead-letter" else None,
            batches=True,
            **time,
            **self.connection.of(table),
        )
        read.start_advice = "give --start=earliest, or the table 'scan.startup.mode' = 'earliest-offset'"
        records = self.pipeline | self._label(f"Read {table.name}") >> read
        self._reads[id(table)] = table, records
        return records

    def _read_rows(self, scan: Scan) -> Any:
        """The rows of files or of a database: of the columns that the statement needs."""
        read = ReadRows(scan.table, tuple(each.name for each in scan.columns if each.is_physical))
        return self.pipeline | self._label(f"Read {scan.table.name}") >> read

    def _aggregate(self, aggregate: Aggregate, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        is_changing = self._kind.groups == aggregate
        ends = self._all_end(aggregate)
        grouping = Grouping(delayed(aggregate), steps, target, side, is_changing=is_changing, ends=ends)
        groups = self._rows(aggregate.input, (), grouping.partial())
        return grouping.added(groups, self._label("Group"), self._computing(aggregate, target))

    def _rank(self, rank: Rank, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        fragment = Fragment(FromRows(named_fields(rank)), steps, target)
        if self._kind.changing == rank and self._kind.groups is not None:
            rows = self._rows(rank.input, (), ToRanks(rank.keys))
            computing = self._computing(rank, target)
            return ranks.of_groups(rank, rows, fragment, computing, self._label("Rank"))
        rows = self._rows(rank.input, (), ranks.target_of(rank))
        ends = self._all_end(rank)
        computing = self._computing(rank, target)
        return ranks.ranked(rank, rows, fragment, side, computing, self._label("Rank"), ends=ends)

    def _all_end(self, relation: Relation) -> bool:
        return all(map(self._ends, tables_of(relation)))

    def _ends(self, table: Table) -> bool:
        if id(table) in self.inputs:
            return self.inputs[id(table)].is_bounded
        return table_ends(table) or self.connection.stop is not None

    def _join(self, join: Join, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        ends = self._all_end(join.left), self._all_end(join.right)
        fn = waiting_join(join, steps, target, side, ends)
        left_keys, right_keys = key_targets(join)
        left = self._rows(join.left, (), left_keys, 0)
        right = self._rows(join.right, (), right_keys, 1)
        label = self._label("Join")
        if not join.keys:
            left = left | f"{label}: divide" >> beam.FlatMap(divided).with_output_types(hint_of(left_keys))
            right = right | f"{label}: copy" >> beam.FlatMap(copied).with_output_types(hint_of(right_keys))
        both = (left, right) | f"{label}: both sides" >> beam.Flatten()
        computing = self._computing(join, target)
        if fn is not None:
            return computing.add(both, label, fn)
        return both | label >> JoinRows(join, steps, target, side, computing)

    def _computing(self, relation: Relation, target: Target) -> Computing:
        """Adds DoFns to rows without a place in a topic. Their dead letters go where those of the first table go."""
        if current_statement().on_error != "dead-letter":
            return Computing(hint_of(target))
        table = _table_of_letters(tables_of(relation))
        return Computing(hint_of(target), lambda errors, label: self._write_letters(table, errors, label))


def _table_of_letters(tables: Iterable[Table]) -> Table:
    """Returns the table whose option says where dead letters of rows go that come from all of them."""
    return next(each for each in tables if each.options.on_error == "dead-letter")


def check_plans(sinks: Sequence[Sink], connection: Connection, errors: Callable[[str, Span | None], SqlError]) -> None:
    """Raises `SqlError` for the first sink that no runner can run. Nothing is read or written."""
    plans = _Recorded(beam.Pipeline(PipelineRunner()), connection)
    plans.errors = errors
    for sink in sinks:
        plans.add(sink)


class _Recorded(Translation):
    """A translation for which nothing is read or written: it notes the scans in the order of the real one."""

    scans: list[tuple[Table, ScanUse]]

    def __init__(self, pipeline: beam.Pipeline, connection: Connection) -> None:
        super().__init__(pipeline, connection)
        self.scans = []

    def _scan(self, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        fragment = Fragment(FromTable(scan.table, scan.columns), steps, target)
        self.scans.append((scan.table, ScanUse(fragment, side)))
        return self._nothing(hint_of(target))

    def _read(self, table: Table) -> Any:
        return self._nothing(BatchConstraint(Record))

    def _write(self, sink: Sink, rows: Any, label: str) -> None:
        pass

    def _nothing(self, hint: Any) -> Any:
        made = self.pipeline | self._label("Nothing") >> beam.Create([])
        made.element_type = hint
        return made
