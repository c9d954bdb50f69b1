"""Relations of a plan beyond the usual ones: sub-queries, OVER, ORDER BY, and rows that become several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rmqio.sql.errors import Span
from rmqio.sql.expressions import Expr
from rmqio.sql.planning.plan import AggregateCall, Field, Relation, SortKey
from rmqio.sql.text import text_of
from rmqio.sql.user.definition import UserCall

# Rows that become several, in a plan: UNNEST and table functions.

ELEMENT: Final = "element"
ROW: Final = "row"
ENTRY: Final = "entry"
TUPLE: Final = "tuple"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the elements of a list become columns.

    Attributes:
      kind: an `ELEMENT` is one column; of a `ROW` the fields, which are NULL if it is NULL itself; of an `ENTRY` of a
        map key and value; a `TUPLE` is never NULL.
      has_ordinality: the last column is the element's number.
      is_outer: a row without elements stays, with NULLs.
    """

    kind: str
    has_ordinality: bool = False
    is_outer: bool = False


@dataclass(frozen=True, slots=True)
class Expand(Relation):
    """Each row of the input, with each element of a list that is computed of it: the input's columns, and its own.

    Attributes:
      rows: the list, or a map.
      shape: how its elements become columns.
    """

    input: Relation
    rows: Expr
    shape: Shape

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class SetRows(Expand):
    """Each row of the input once per grouping set: the input's columns, and the number of the set.

    `sets`: the keys of each, as text.
    """

    sets: tuple[str, ...] = ()


def described(expand: Expand, names: Sequence[str]) -> list[str]:
    """Returns the lines of EXPLAIN. `names`: the columns of the input."""
    if isinstance(expand, SetRows):
        return [f"One row for each of {len(expand.sets)} grouping sets, append-only", f"sets {', '.join(expand.sets)}"]
    text = text_of(expand.rows, names)
    is_call = isinstance(expand.rows, UserCall)
    made = expand.fields[len(expand.input.fields) :]
    given = ", ".join(f"{each.name} {each.type.text}" for each in made)
    lines = [f"{'Call' if is_call else 'Unnest'} {text} for each row, append-only", f"gives {given}"]
    if expand.shape.is_outer:
        lines.append("a row that gives none stays, with NULLs")
    return lines


_NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryJoin(Relation):
    """The rows of the left, and what a sub-query says of each.

    Attributes:
      kind: SEMI keeps the rows for which the sub-query has a row. MARK keeps all, and adds whether it has one. SCALAR
        keeps all, and adds the values of the only row, or NULL.
      keys: positions of the columns that must be equal, left and right. Only SCALAR can have none.
      residual: a condition on the columns of both; of SEMI and MARK.
      values: of SCALAR, the positions of the right's columns that are added.
      ttl_ms: of SEMI over rows without end, how long a row waits, in milliseconds of processing time; 0: not said.
      text: the sub-query, for messages.
      span: where it stands.
      place: of SCALAR, its line, perhaps its file, and its text, for errors in workers, which have no text.
    """

    left: Relation
    right: Relation
    kind: str
    keys: tuple[tuple[int, int], ...]
    residual: Expr | None = None
    values: tuple[int, ...] = ()
    ttl_ms: int = 0
    text: str = ""
    span: Span = field(default=_NOWHERE, compare=False, repr=False)
    place: str = field(default="", compare=False, repr=False)

    def inputs(self) -> tuple[Relation, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, left=inputs[0], right=inputs[1])


def with_places(relation: Relation, place_of: Callable[[Span], str]) -> Relation:
    """Returns the relation whose sub-queries as values know their places."""
    inputs = relation.inputs()
    placed = tuple(with_places(each, place_of) for each in inputs)
    if any(new is not old for new, old in zip(placed, inputs, strict=True)):
        relation = relation.with_inputs(placed)
    if isinstance(relation, SubqueryJoin) and relation.kind == "SCALAR" and relation.span is not _NOWHERE:
        return replace(relation, place=place_of(relation.span))
    return relation


@dataclass(frozen=True, slots=True)
class OverCall:
    """A function over the rows before a row.

    Attributes:
      call: the function, its argument and its FILTER.
      unit: ROWS or RANGE.
      preceding: how many rows, or microseconds, the frame goes back, or the distance of LAG; None: to the beginning.
      default: of LAG, the position of the column of the value where there is no such row; None: NULL.
    """

    call: AggregateCall
    unit: str
    preceding: int | None
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Over(Relation):
    """The columns of the input, and the results of calls over the rows before each one, in order of time.

    `ttl_ms`: how long a key is kept after its last row, in milliseconds of processing time; 0: for ever.
    """

    input: Relation
    keys: tuple[int, ...]
    time: int
    calls: tuple[OverCall, ...]
    ttl_ms: int = 0
    span: Span = field(default=_NOWHERE, compare=False, repr=False)

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class AnalyticCall:
    """A function over the rows of a partition that has all its rows.

    Attributes:
      call: the function, its argument and its FILTER.
      unit: of its frame, ROWS or RANGE.
      start, end: where the frame begins and ends, in rows after the current one; of RANGE, 0 is its first or last peer;
        None: at the first or last row of the partition.
      number: of NTILE, how many groups; of LAG and LEAD, the distance.
      default: of LAG and LEAD, the position of the column of the value where there is no such row; None: NULL.
    """

    call: AggregateCall
    unit: str = "RANGE"
    start: int | None = None
    end: int | None = None
    number: int = 0
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Analytic(Relation):
    """The columns of the input, and the results of calls over the rows of a partition in an order. The input ends."""

    input: Relation
    keys: tuple[int, ...]
    order: tuple[SortKey, ...]
    calls: tuple[AnalyticCall, ...]
    span: Span = field(default=_NOWHERE, compare=False, repr=False)

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Sorted(Relation):
    """The rows in order: from `offset` on, `limit` of them; None: all. Without keys, any of them."""

    input: Relation
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    span: Span = field(default=_NOWHERE, compare=False, repr=False)

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Repeated(Relation):
    """Each row as often as its last column says, without that column."""

    input: Relation

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


def without_time(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Returns the columns of rows that wait for others: the watermark no longer follows their times."""
    return tuple(each._replace(is_time=False) for each in fields)


MOST_SORTED: Final = 1_000_000
"""So many rows one worker sorts."""
