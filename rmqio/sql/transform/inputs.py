"""What a `SqlTransform` is given: its text, and PCollections of rows and of messages as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from rmqio.batches import Batch
from rmqio.model import Record
from rmqio.sql import types
from rmqio.sql.analysis import definitions
from rmqio.sql.catalog.options import TableOptions
from rmqio.sql.catalog.tables import Column, Metadata, Table
from rmqio.sql.compile.description import Fragment, FromTable, Step, Target
from rmqio.sql.errors import Refusal, Source, Span, SqlError, nearest
from rmqio.sql.planning.plan import Relation, Scan
from rmqio.sql.runtime.outputs import hint_of
from rmqio.sql.runtime.reads import ERRORS, FragmentFn
from rmqio.sql.runtime.table_time import TableTime
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.parser import parse
from rmqio.sql.transform.elements import ERRORS as BAD_ROWS
from rmqio.sql.transform.elements import BadRow, ElementsFn, FromElements, of_failure
from rmqio.sql.transform.row_types import columns_of
from rmqio.sql.types import SqlType
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import BatchConstraint

# The text of a `SqlTransform`: statements, and a query at their end.


class QueryScript(Script):
    """A script that ends with a query. `selected`, `span`: its plan and its place, when it has run."""

    selected: Relation | None = None
    span: Span | None = None

    def _run(self, statement: statements.Statement) -> None:
        if self.selected is not None:
            raise Refusal("nothing can follow the query whose rows are the output", statement.span)
        match statement:
            case statements.QueryStatement():
                resolved = definitions.resolved(statement, self.catalog.functions)
                assert isinstance(resolved, statements.QueryStatement)
                self.selected, self.span = self.query(resolved.query), statement.span
            case statements.Insert():
                raise Refusal(
                    "INSERT INTO returns no rows: end with SELECT, and write its rows with WriteToRocketMQ",
                    statement.span,
                )
            case statements.Explain():
                raise Refusal("EXPLAIN returns no rows: `rmqio sql --explain` shows plans", statement.span)
            case _:
                super()._run(statement)

    def select(self, text: str) -> Relation:
        """Runs the statements. Returns the plan of the query. Raises `SqlError`."""
        self.run(text)
        if self.selected is None:
            raise Source(text).error("the text ends without a query: SELECT ...", None)
        return self.selected

    def error(self, message: str, span: Span | None) -> SqlError:
        """Returns the error of a message at its place, or at the query if the place is not known."""
        return self.texts.error(message, span or self.span)


def declared(text: str, name: str) -> Table:
    """Returns the table of a CREATE TABLE, or of its columns in parentheses. Raises `SqlError`.

    It needs no topic, since its messages come from a PCollection.
    """
    ddl = f"CREATE TABLE `{name}` {text}" if text.lstrip().startswith("(") else text
    found = parse(ddl, f"table {name}")
    if len(found) != 1 or not isinstance(found[0], statements.CreateTable):
        raise SqlError(f"the table {name} needs one CREATE TABLE, or columns in parentheses, not {text!r:.60}")
    statement = found[0]
    statement = replace(statement, name=replace(statement.name, text=name))
    if not any("topic" in option.key.lower() for option in statement.options):
        statement = replace(statement, options=(*statement.options, statements.Option("topic", name)))
    script = Script()
    source = Source(ddl, f"table {name}")
    try:
        script._run(statement)
    except Refusal as refusal:
        raise source.error(refusal.message, refusal.span or statement.span) from None
    return script.catalog.tables[name]


CONNECTOR: Final = "elements"
_INSTANT: Final = SqlType("TIMESTAMP_LTZ", False, precision=6)
_ELEMENT_TIME: Final = Metadata("element_time", _INSTANT, "record[1]", "", "the time of the element")


@dataclass(frozen=True, slots=True)
class element_time:
    """For `rowtime`: the time of the rows is that of the elements, as a column with this name."""

    column: str


def row_time(table: str) -> Any:
    """Returns the time of a table's messages, for `ReadFromRocketMQ(timestamp=...)`: the column of WATERMARK FOR.

    A message without a time gets that of another one: `SqlTransform` says what becomes of it.

    Args:
      table: the CREATE TABLE, or its columns in parentheses, that `SqlTransform(tables=...)` gets, too.

    Raises `SqlError` if it is not valid, or has no WATERMARK FOR.
    """
    found = declared(table, "t")
    if found.watermark is None:
        from rmqio.sql.errors import SqlError

        raise SqlError("the table has no WATERMARK FOR: its rows have no time of their own")
    return TableTime(found, is_lenient=True)


@dataclass(slots=True)
class ElementsInput:
    """A PCollection of rows as a table. Raises `Refusal` if they have no schema.

    Attributes:
      pcoll: the elements.
      table: the table.
      on_error: what becomes of bad rows: `fail`, `skip` or `output`.
      errors: the PCollections of bad rows.
    """

    pcoll: Any
    table: Table
    on_error: str
    time: Column | None = None
    errors: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, pcoll: Any, rowtime: str | element_time | None, on_error: str) -> ElementsInput:
        columns = [Column(column, kind) for column, kind in columns_of(pcoll.element_type, name)]
        names = [each.name for each in columns]
        watermark = time = None
        if isinstance(rowtime, element_time):
            if rowtime.column in names:
                raise Refusal(f"{name} has a column {rowtime.column} already: element_time(...) adds one", None)
            columns.append(Column(rowtime.column, _INSTANT, _ELEMENT_TIME, is_virtual=True))
            watermark = rowtime.column
        elif rowtime is not None:
            if rowtime not in names:
                hint = nearest(rowtime, names)
                raise Refusal(
                    f"rowtime is {rowtime!r}, which is not a column of {name}{hint}; the time of the elements is "
                    f"rowtime=element_time({rowtime!r})",
                    None,
                )
            time = columns[names.index(rowtime)]
            if time.type.kind not in types.TIMESTAMPS:
                raise Refusal(f"rowtime is a Timestamp or a datetime, and {rowtime} is {time.type.text}", None)
            watermark = rowtime
        given = None if watermark is None else (watermark, nodes.Column(nodes.Name(watermark)))
        table = Table(
            name, tuple(columns), TableOptions(connector=CONNECTOR, on_error=_option(on_error)), watermark=given
        )
        return cls(pcoll, table, on_error, time)

    @property
    def is_bounded(self) -> bool:
        """Whether it ends."""
        return bool(self.pcoll.is_bounded)

    def write_failed(self, failed: Any, label: str) -> None:
        """Takes the dead letters of rows of this table and others that failed together."""
        self.errors.append(_bad_rows(self.table.name, failed, label))

    def rows(self, label: str, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        """Adds what selects from it. Returns the rows in the form of the target."""
        fragment = Fragment(FromElements(scan.columns), steps, target)
        mapping = beam.ParDo(ElementsFn(fragment, self.table.name, self.on_error, side, self.time))
        hint = hint_of(target)
        if self.on_error != "output":
            return self.pcoll | label >> mapping.with_output_types(hint)
        outputs = self.pcoll | label >> mapping.with_outputs(BAD_ROWS, main="rows")
        self.errors.append(outputs[BAD_ROWS] | f"{label}: bad" >> beam.Map(_same).with_output_types(BadRow))
        return outputs["rows"] | f"{label}: good" >> beam.Map(_same).with_output_types(hint)


@dataclass(slots=True)
class MessagesInput:
    """A PCollection of `ReadFromRocketMQ(batches=True)`, or of records, as a table."""

    pcoll: Any
    table: Table
    on_error: str
    errors: list[Any] = field(default_factory=list)
    _batches: Any = None

    @classmethod
    def of(cls, name: str, pcoll: Any, ddl: str, on_error: str) -> MessagesInput:
        table = declared(ddl, name)
        return cls(pcoll, replace(table, options=replace(table.options, on_error=_option(on_error))), on_error)

    @property
    def is_bounded(self) -> bool:
        """Whether it ends."""
        return bool(self.pcoll.is_bounded)

    def write_failed(self, failed: Any, label: str) -> None:
        """Takes the dead letters of rows of this table and others that failed together."""
        self.errors.append(_bad_rows(self.table.name, failed, label))

    def rows(self, label: str, scan: Scan, steps: tuple[Step, ...], target: Target, side: int) -> Any:
        """Adds what selects from it. Returns the rows in the form of the target."""
        fragment = Fragment(FromTable(self.table, scan.columns), steps, target)
        mapping = beam.ParDo(FragmentFn(fragment, label, _option(self.on_error), side))
        hint = hint_of(target)
        batches = self._stamped()
        if self.on_error != "output":
            return batches | label >> mapping.with_output_types(hint)
        outputs = batches | label >> mapping.with_outputs(ERRORS, main="rows")
        failures = outputs[ERRORS] | f"{label}: failures" >> beam.Map(_same).with_output_types(ReadFailure)
        self.errors.append(_bad_rows(self.table.name, failures, label))
        return outputs["rows"] | f"{label}: good" >> beam.Map(_same).with_output_types(hint)

    def _stamped(self) -> Any:
        """Batches with the time of their earliest row, if the table has one."""
        if self._batches is None:
            batches = self.pcoll
            name = self.table.name
            if batches.element_type is Record:
                one = beam.Map(_batch_of_one).with_output_types(BatchConstraint(Record))
                batches = batches | f"Batches of {name}" >> one
            if self.table.watermark is not None:
                stamp = beam.ParDo(_StampFn(self.table)).with_output_types(BatchConstraint(Record))
                batches = batches | f"Times of {name}" >> stamp
            self._batches = batches
        return self._batches


class _StampFn(beam.DoFn):
    """Gives each batch the time of its earliest row. A row without a time is for the fragment to fail."""

    def __init__(self, table: Table) -> None:
        self._time = TableTime(table, is_lenient=True)

    def process(self, element: Batch[Record], timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        times, _ = self._time.many(element)
        earliest_us = min(times, default=0) * 1000
        yield element if earliest_us >= timestamp.micros else TimestampedValue(element, Timestamp(micros=earliest_us))


def _option(on_error: str) -> str:
    """The value of the option of a table."""
    return "dead-letter" if on_error == "output" else on_error


def _bad_rows(name: str, failures: Any, label: str) -> Any:
    bad = beam.Map(lambda failure: of_failure(name, failure)).with_output_types(BadRow)
    return failures | f"{label}: bad" >> bad


def _batch_of_one(record: Record) -> Batch[Record]:
    return Batch([record], record.queue, [record.queue_offset])


def _same(element: Any) -> Any:
    return element
