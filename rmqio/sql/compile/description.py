"""Descriptions of fragments: what travels to the workers, where `fragment.compiled` makes a function of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rmqio.sql.catalog.options import ON_ERROR
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.emitter import Emitter
from rmqio.sql.expressions import Expr, leaves_first
from rmqio.sql.planning.plan import AggregateCall, Field, Window
from rmqio.sql.planning.relations import Expand, Shape
from rmqio.sql.types import SqlType
from rmqio.sql.values import last_instant_in, session_zone

# The statement that a fragment is a part of: it names the errors of rows, and says what becomes of such rows.


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, where its rows come from certain tables.

    Attributes:
      name: such as `INSERT INTO totals, line 7`; empty: it is unknown.
      on_error: what becomes of a row that cannot be computed. If it comes from several tables, the strictest option of
        theirs counts.
      has_nulls: a value that cannot be computed is NULL in one of these tables: NULL can be where types are NOT NULL.
    """

    name: str = ""
    on_error: str = "fail"
    has_nulls: bool = False

    @property
    def makes_nulls(self) -> bool:
        """Whether a value that cannot be computed is NULL."""
        return self.on_error == "null"


def strictest(options: Iterable[str]) -> str:
    """Returns the strictest of the values of `on-error`; `fail` if there are none."""
    return min(options, key=ON_ERROR.index, default="fail")


_NONE: Final = Statement()
_CURRENT: Final[ContextVar[Statement]] = ContextVar("statement", default=_NONE)


def current_statement() -> Statement:
    """Returns the statement that is translated."""
    return _CURRENT.get()


@contextlib.contextmanager
def translating(statement: Statement) -> Iterator[None]:
    """Makes it the statement of the fragments that are made in this block."""
    token = _CURRENT.set(statement)
    try:
        yield
    finally:
        _CURRENT.reset(token)


# Steps: they happen to each row on its way.


@dataclass(frozen=True, slots=True)
class Step:
    """A filter and a projection."""

    condition: Expr | None
    projections: tuple[Expr, ...]


# Rows of one side of a join meet those of the other one in windows of Beam, of one size.
#
# Beam drops what comes when a window is over, counts it, and forgets the window's state. So the windows are the
# state's bound. A row of an interval join is in the window of its own time, and in each that has rows of the other
# side within the interval, by the side whose windows they are (`Route`).


@dataclass(frozen=True, slots=True)
class Route:
    """Windows that a row goes to: those that hold a time from `first_us` to `last_us` after its own.

    `prefix` stands before the key: what goes different ways does not meet.
    """

    prefix: bytes = b""
    first_us: int = 0
    last_us: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """By which time and into which windows rows go.

    Attributes:
      time: the position of the time column.
      size_us: the length of a window, in microseconds.
      origin_us: a time at which a window begins.
      shift_us: by how much Beam's windows are later: they are over when no more rows come for them.
      routes: the ways that a row goes.
      ends_in: the time column is the end of a window by the clock of this zone, and counts as its last millisecond.
    """

    time: int
    size_us: int
    origin_us: int
    shift_us: int
    routes: tuple[Route, ...]
    ends_in: str | None = None

    def places(self, time_us: int) -> Iterator[tuple[bytes, int]]:
        """Yields the prefix of the key, and the start of Beam's window, for each window that a row goes to."""
        size, origin = self.size_us, self.origin_us
        if self.ends_in is not None:
            time_us = last_instant_in(self.ends_in, time_us)
        for route in self.routes:
            first = (time_us + route.first_us - origin) // size
            last = (time_us + route.last_us - origin) // size
            for number in range(first, last + 1):
                yield route.prefix, number * size + origin + self.shift_us


@dataclass(frozen=True, slots=True)
class FromTable:
    """Rows are decoded from records of a table."""

    table: Table
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class FromRows:
    """Rows are tuples."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class WindowStep(Step):
    """A row becomes one per window: its columns, and `WINDOW_COLUMNS`. `fields`: the columns before."""

    window: Window
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Generate(Step):
    """A row becomes several: its columns, and those of an element of a list.

    Attributes:
      rows: the list.
      shape: how an element becomes columns.
      types: of the columns that are added, with that of the ordinal at the end.
      names: theirs, for errors.
    """

    rows: Expr
    shape: Shape
    types: tuple[SqlType, ...]
    names: tuple[str, ...] = ()


def step_of(expand: Expand) -> Generate:
    """Returns what happens to the rows of the input."""
    own = expand.fields[len(expand.input.fields) :]
    kinds, names = tuple(each.type for each in own), tuple(each.name for each in own)
    return Generate(None, (), expand.rows, expand.shape, kinds, names)


@dataclass(frozen=True, slots=True)
class ToTable:
    """Rows become messages.

    Attributes:
      columns: those of the table, in the order of the row.
      has_body: else the messages have their keys only.
    """

    table: Table
    columns: tuple[Column, ...]
    has_body: bool = True


@dataclass(frozen=True, slots=True)
class ToKeys:
    """Rows become (bytes of the key, bytes of the row), and their time if the join is bounded by it.

    Attributes:
      keys: the columns of the key.
      timing: where the rows of the other side are by time; None: anywhere.
      nulls_of: which side of the join the rows are, if a row whose key has a NULL comes out, too: it gets a key that no
        row of the other side has. None: it is left out.
      with_nulls: a NULL is a value of the key like others.
      kinds: the types of the columns of the key, if keys must be equal: a NaN is equal to nothing, as NULL.
    """

    keys: tuple[int, ...]
    timing: Timing | None = None
    nulls_of: int | None = None
    with_nulls: bool = False
    kinds: tuple[SqlType, ...] = ()


@dataclass(frozen=True, slots=True)
class ToRows:
    """Rows stay tuples."""


@dataclass(frozen=True, slots=True)
class ToGroups:
    """Rows become partial aggregates: pairs ((keys, bucket of time), accumulators), one for each group of the batch."""

    keys: tuple[int, ...]
    window: Window | None
    calls: tuple[AggregateCall, ...]
    fields: tuple[Field, ...]
    """The columns of the rows."""


class OtherSource:
    """A source that emits its own code."""

    __slots__ = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of its rows."""
        raise NotImplementedError

    def codes(self, used: set[int], out: Emitter) -> dict[int, str]:
        """Emits what loads columns of `record`. Returns the expression of each column that is used."""
        raise NotImplementedError


class OtherTarget:
    """A target that emits its own code, and whose results are elements."""

    __slots__ = ()

    @property
    def hint(self) -> Any:
        """The type of the elements."""
        raise NotImplementedError

    def emit(self, columns: Sequence[str], out: Emitter) -> None:
        """Emits what adds a row to the results. `columns`: the names of its values."""
        raise NotImplementedError

    def stamped(self, values: list[Any]) -> list[Any]:
        """Returns results of a batch of messages, with their own times."""
        return values


@dataclass(frozen=True, slots=True)
class ToRanks:
    """Rows become pairs (bytes of the key, bytes of the row), for the first rows of each key. NULL is a key, too.

    `window_end`: the position of the end of the window that a row belongs to, if its rank is one of windows.
    """

    keys: tuple[int, ...]
    window_end: int | None = None
    ranking: Any = None
    """The order of the rows, see `runtime.ranking`: only the first rows of a batch go on. None: all."""
    delay_us: int = 0
    """By how much the times of the rows can be behind the watermark."""
    zone: str | None = None
    """The zone by whose clock the window ends; None: UTC."""
    time: int | None = None
    """The position of a time that each row must have: that of its window's end, or that by which it waits."""


Target = ToTable | ToKeys | ToRows | ToGroups | ToRanks | OtherTarget


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows on their way from a source through steps to a target.

    Attributes:
      zone: of the session in which it was planned.
      statement: what it is a part of.
    """

    source: FromTable | FromRows | OtherSource
    steps: tuple[Step, ...]
    target: Target
    zone: str = field(default_factory=session_zone)
    statement: Statement = field(default_factory=current_statement)

    def __reduce__(self) -> tuple[Any, ...]:
        return _travelled, (
            leaves_first(self.source, self.steps, self.target),
            *map(self.__getattribute__, self.__slots__),
        )


def _travelled(_: list[Expr], *parts: Any) -> Fragment:
    return Fragment(*parts)


class Mapped(NamedTuple):
    """The results of a fragment for a batch.

    Attributes:
      values: the results.
      positions: the position in the batch that each result comes from.
      failed: errors by position.
      nulls: errors of values that are NULL instead.
    """

    values: list[Any]
    positions: list[int]
    failed: dict[int, Exception]
    nulls: Sequence[Exception] = ()
