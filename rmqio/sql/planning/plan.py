"""The logical plan: relations, each made of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.errors import Span
from rmqio.sql.expressions import Expr
from rmqio.sql.types import TIMESTAMP, TIMESTAMP_LTZ, SqlType
from rmqio.sql.user.definition import UserFunction
from rmqio.sql.values import UTC


class Field(NamedTuple):
    """A column of a relation.

    Attributes:
      is_time: it is the time that the watermark follows.
      table: of a join's column, the name of its table in FROM.
      is_processing: it is PROCTIME(), the time of the worker.
    """

    name: str
    type: SqlType
    is_time: bool = False
    table: str = ""
    is_processing: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows with these columns."""

    fields: tuple[Field, ...]

    def inputs(self) -> tuple[Relation, ...]:
        """Returns the relations that it is made of."""
        return ()

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        """Returns the same relation of others."""
        return self


@dataclass(frozen=True, slots=True)
class Scan(Relation):
    """The rows of a table: those of its columns that are read, in this order."""

    table: Table
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Constants(Relation):
    """Rows that the statement holds."""

    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class Calc(Relation):
    """Rows for which the condition is true, and the values that are computed of them."""

    input: Relation
    condition: Expr | None
    projections: tuple[Expr, ...]

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Interval:
    """The bound of an interval join: how long after the left row's time that of the right row is, in microseconds.

    Attributes:
      left_time, right_time: positions of the time columns in the inputs.
      lower_us, upper_us: the least and the most; negative: the right row comes first.
    """

    left_time: int
    right_time: int
    lower_us: int
    upper_us: int


@dataclass(frozen=True, slots=True)
class SameWindow:
    """The bound of a window join: both rows are in one window.

    Attributes:
      window: both sides' windows; its time column means nothing.
      left_end, right_end: positions of `window_end` in the inputs.
    """

    window: Window
    left_end: int
    right_end: int


@dataclass(frozen=True, slots=True)
class Join(Relation):
    """Pairs of rows whose keys are equal, and for which the residual condition is true.

    A row of an outer side that has no partner is there once, with NULL in the columns of the other side.

    Attributes:
      kind: INNER, LEFT, RIGHT or FULL.
      keys: positions of the columns that must be equal, left and right.
      residual: a condition on the columns of both.
      ttl_ms: how long a row waits for its partners, in milliseconds of processing time; 0: for ever.
      bound: what says by the watermark that no more partners come; None: nothing does.
    """

    left: Relation
    right: Relation
    kind: str
    keys: tuple[tuple[int, int], ...]
    residual: Expr | None
    ttl_ms: int
    bound: Interval | SameWindow | None = None
    is_crossed: bool = field(default=False, compare=False, repr=False)
    """It is a CROSS JOIN: equalities of conditions above it can become its keys."""
    way_out: str = field(default="", compare=False, repr=False)
    """How its rows could be bounded, for messages."""
    span: Span | None = field(default=None, compare=False, repr=False)
    """Its place."""

    def inputs(self) -> tuple[Relation, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True, slots=True)
class LookupJoin(Relation):
    """Each row of the input, with the rows of a dimension table that have its key at that moment.

    Attributes:
      dimension: projections and filters of the table's scan. It is not an input: workers load it.
      kind: INNER or LEFT.
      keys: what must be equal, of the input, and the position of the dimension's column.
      residual: a condition on the columns of both.
    """

    input: Relation
    dimension: Relation
    kind: str
    keys: tuple[tuple[Expr, int], ...]
    residual: Expr | None

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of event time, or of processing time.

    Attributes:
      kind: TUMBLE, HOP, CUMULATE or SESSION; or `SAME_WINDOW`: the window that the rows are in already, whose start and
        end are among the keys of the group.
      time: the position of the time column.
      size_us: the length of a window, in microseconds; of SESSION, the gap.
      slide_us: of HOP, the distance of starts; of CUMULATE, the step; else the size.
      offset_us: by which windows are shifted.
      delay_us: by how much the times of the rows can be behind the watermark.
      is_processing: a row belongs to the windows of the time at which it reaches the aggregate.
      zone: of the session, if the time is a TIMESTAMP_LTZ; None: it is a TIMESTAMP.
    """

    kind: str
    time: int
    size_us: int
    slide_us: int
    offset_us: int = 0
    delay_us: int = 0
    is_processing: bool = False
    zone: str | None = field(default=None, repr=False)

    @property
    def local_zone(self) -> str | None:
        """The zone by whose clock windows begin and end, if it is not UTC: they have no common length then."""
        return None if self.zone == UTC else self.zone

    @property
    def has_own_bounds(self) -> bool:
        """Whether rows bring start and end of their windows: no windows of Beam are those of the clock of a zone."""
        return self.local_zone is not None and self.kind != "SESSION" and not self.is_processing

    def same(self) -> Window:
        """Returns the window of rows that are in this one already."""
        if self.local_zone is None:
            return replace(self, kind=SAME_WINDOW, size_us=self.slide_us)
        return Window(SAME_WINDOW, self.time, _MILLISECOND_US, _MILLISECOND_US)


SAME_WINDOW = "SAME"
_MILLISECOND_US = 1000
WINDOW_COLUMNS = ("window_start", "window_end", "window_time")


def window_fields(window: Window) -> tuple[Field, ...]:
    """Returns `WINDOW_COLUMNS` with their types. A watermark follows the time of a window of event time.

    Start and end are times of a clock. The time is of the type of the rows' time.
    """
    start, end, time = WINDOW_COLUMNS
    kind = TIMESTAMP.nullable(False)
    is_time = not window.is_processing
    return Field(start, kind), Field(end, kind), Field(time, kind if window.zone is None else _INSTANT, is_time)


_INSTANT = TIMESTAMP_LTZ.nullable(False)


@dataclass(frozen=True, slots=True)
class Windowed(Relation):
    """Rows with the window that they are in: the input's columns, and `WINDOW_COLUMNS`.

    `partition`: the columns whose values have sessions of their own. Sessions exist in a group only.
    """

    input: Relation
    window: Window
    partition: tuple[int, ...] = ()

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


BY_TIME = ("FIRST_VALUE", "LAST_VALUE")
"""Aggregates whose argument is ROW(value, time): the times of the rows decide."""

VARIANCES = ("VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV")


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of an aggregate function.

    Attributes:
      name: in upper case.
      type: of the result.
      argument: the position of the argument's column; None: COUNT(*).
      condition: the position of the column of FILTER; None: every row counts.
      is_distinct: equal arguments count once.
      function: the user's own; its argument is the ROW of all arguments.
      separator: of LISTAGG.
    """

    name: str
    type: SqlType
    argument: int | None = None
    condition: int | None = None
    is_distinct: bool = False
    function: UserFunction | None = None
    separator: str = ","


class Origin(NamedTuple):
    """The operator that a relation comes from, such as UNION, and where it stands: for messages and EXPLAIN."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Emit:
    """When a window gives its row besides at its end. Each is a delay in milliseconds; None: it does not.

    Attributes:
      early_ms: before the watermark passes the end; 0: with every row.
      late_ms: after it.
      lateness_ms: how long after the watermark rows still count.
    """

    early_ms: int | None = None
    late_ms: int | None = None
    lateness_ms: int = 0


@dataclass(frozen=True, slots=True)
class Aggregate(Relation):
    """One row per key, and window: the keys, `WINDOW_COLUMNS` if there is a window, and the results of the calls.

    Attributes:
      emit: if it is there, the row of a window is given several times, and the newest counts.
      ttl_ms: how long a group without a window is kept after its last row, in milliseconds of processing time; 0: for
        ever.
    """

    input: Relation
    keys: tuple[int, ...]
    window: Window | None
    calls: tuple[AggregateCall, ...]
    emit: Emit | None = None
    ttl_ms: int = 0
    origin: Origin | None = field(default=None, compare=False)
    """The operator that it comes from; None: GROUP BY or DISTINCT."""
    is_total: bool = field(default=False, compare=False)
    """It is one group of all rows, which is there also if there are none, where the input ends."""
    span: Span | None = field(default=None, compare=False, repr=False)
    """The place of GROUP BY or DISTINCT."""

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


class SortKey(NamedTuple):
    """A column by which rows are ordered."""

    column: int
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Rank(Relation):
    """The first rows of each partition in an order: ROW_NUMBER() with a filter on it.

    Attributes:
      keys: the columns of PARTITION BY.
      order: those of ORDER BY.
      limit: how many rows of a partition there are; 0: nothing has limited them yet.
      is_numbered: the number of the row is its last column.
      ttl_ms: how long a partition is kept after its last row, in milliseconds of processing time; 0: for ever.
      span: where ROW_NUMBER() stands.
    """

    input: Relation
    keys: tuple[int, ...]
    order: tuple[SortKey, ...]
    limit: int = 0
    is_numbered: bool = True
    ttl_ms: int = 0
    span: Span | None = field(default=None, compare=False, repr=False)

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Union(Relation):
    """The rows of all of them."""

    members: tuple[Relation, ...]

    def inputs(self) -> tuple[Relation, ...]:
        return self.members

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, members=inputs)


@dataclass(frozen=True, slots=True)
class Sink(Relation):
    """Rows that are written to a table.

    Attributes:
      columns: the table's, in the order of the fields.
      span: the place of the table in INSERT INTO.
      place: the line of the statement, and perhaps its file, for errors in workers, which have no text.
    """

    input: Relation
    table: Table
    columns: tuple[Column, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    place: str = field(default="", compare=False)

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


def tables_of(relation: Relation) -> Iterator[Table]:
    """Yields the tables that a relation reads, but for those that workers load."""
    if isinstance(relation, Scan):
        yield relation.table
    for each in relation.inputs():
        yield from tables_of(each)
