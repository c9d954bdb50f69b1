"""The syntax tree of a script. Each node has the span of its text; spans do not count when trees are compared."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.sql.errors import Span

# Room for deep trees: a chain of operators is as deep as it is long, and Python stops at a thousand calls.

_DEEPEST: Final = 20_000


@contextlib.contextmanager
def deep_trees() -> Iterator[None]:
    """Lets calls be nested more deeply in this block."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


NOWHERE = Span(0, 0)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A part of a script."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Name(Node):
    """An identifier without its quotes."""

    text: str

    def __str__(self) -> str:
        return self.text


# ---- types ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeName(Node):
    """A type as it is written: `DECIMAL(10, 2)`, `ARRAY<STRING>`, `ROW<a INT>`.

    `is_nullable`: whether NOT NULL does not follow it, as a part of another type.
    """

    name: str
    parameters: tuple[int, ...] = ()
    elements: tuple[TypeName, ...] = ()
    fields: tuple[Name, ...] = ()
    is_nullable: bool = True


# ---- expressions ----------------------------------------------------------------------------------------------------


class Expression(Node):
    """A value: what stands in SELECT, WHERE, ON."""


@dataclass(frozen=True)
class Literal(Expression):
    """`kind`: number, string, binary, boolean, null, date, time or timestamp; the value is text, but for booleans."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Interval(Expression):
    text: str
    unit: str
    to: str | None
    is_negative: bool


@dataclass(frozen=True)
class Column(Expression):
    name: Name


@dataclass(frozen=True)
class Member(Expression):
    """`base.name`: a column of a table, or a field of a row."""

    base: Expression
    name: Name


@dataclass(frozen=True)
class Subscript(Expression):
    base: Expression
    index: Expression


@dataclass(frozen=True)
class Unary(Expression):
    """`operator`: NOT or -."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """`operator`: OR, AND, =, <>, <, <=, >, >=, +, -, *, /, % or ||."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class IsTest(Expression):
    """`what`: NULL, TRUE, FALSE or UNKNOWN, or JSON and a kind of it, as JSON VALUE."""

    operand: Expression
    what: str
    is_negated: bool


@dataclass(frozen=True)
class DistinctFrom(Expression):
    left: Expression
    right: Expression
    is_negated: bool


@dataclass(frozen=True)
class Between(Expression):
    operand: Expression
    low: Expression
    high: Expression
    is_negated: bool
    is_symmetric: bool


@dataclass(frozen=True)
class InList(Expression):
    operand: Expression
    items: tuple[Expression, ...]
    is_negated: bool


@dataclass(frozen=True)
class InQuery(Expression):
    operand: Expression
    query: Query
    is_negated: bool


@dataclass(frozen=True)
class Like(Expression):
    """`kind`: LIKE, SIMILAR TO, RLIKE or REGEXP."""

    operand: Expression
    pattern: Expression
    escape: Expression | None
    is_negated: bool
    kind: str


@dataclass(frozen=True)
class Exists(Expression):
    query: Query


@dataclass(frozen=True)
class ScalarQuery(Expression):
    query: Query


@dataclass(frozen=True)
class Case(Expression):
    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True)
class Cast(Expression):
    operand: Expression
    type: TypeName
    is_try: bool


@dataclass(frozen=True)
class Row(Expression):
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Array(Expression):
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class MapOf(Expression):
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Call(Expression):
    """A call of a function. `name` is upper case if it was written without quotes.

    `function`: the user's function of this name, a `UserFunction`; `known`: the names of all of them.
    """

    name: Name
    arguments: tuple[Expression, ...]
    quantifier: str | None = None
    is_star: bool = False
    filter: Expression | None = None
    over: Over | None = None
    function: Any = field(default=None, compare=False)
    known: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Unit(Expression):
    """A unit of time as an argument, as it is written."""

    unit: str


@dataclass(frozen=True)
class ToUnit(Expression):
    """`CEIL(operand TO unit)`."""

    operand: Expression
    unit: str


@dataclass(frozen=True)
class FromFor(Expression):
    """`SUBSTRING(operand FROM start FOR length)`."""

    operand: Expression
    start: Expression
    length: Expression | None


@dataclass(frozen=True)
class Placing(Expression):
    """`OVERLAY(operand PLACING other FROM start FOR length)`."""

    operand: Expression
    other: Expression
    start: Expression
    length: Expression | None


@dataclass(frozen=True)
class JsonClauses(Expression):
    """`operand RETURNING type NULL ON EMPTY DEFAULT 'x' ON ERROR`, as the last argument of a function of JSON.

    Attributes:
      operand: the argument; None: there is none.
      clauses: pairs of what is said and how: ("RETURNING", type), ("EMPTY" or "ERROR", a result in words or an
        expression), ("WRAPPER", words), ("NULL", NULL or ABSENT).
    """

    operand: Expression | None
    clauses: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class JsonPair(Expression):
    """`KEY key VALUE value` of JSON_OBJECT."""

    key: Expression
    value: Expression


@dataclass(frozen=True)
class Trim(Expression):
    """`TRIM(side characters FROM operand)`."""

    side: str
    characters: Expression | None
    operand: Expression


@dataclass(frozen=True)
class TableArgument(Expression):
    """`TABLE t PARTITION BY k`, or `TABLE (SELECT ...)`."""

    table: Name | Query
    partition: tuple[Name, ...] = ()


@dataclass(frozen=True)
class NamedArgument(Expression):
    name: Name
    value: Expression


@dataclass(frozen=True)
class Over(Node):
    """`name`: of a window that WINDOW defines; the rest is empty then."""

    partition: tuple[Expression, ...]
    order: tuple[Sort, ...]
    frame: Frame | None
    name: Name | None = None


@dataclass(frozen=True)
class Frame(Node):
    """`unit`: ROWS or RANGE. Bounds are (kind, expression); kind: unbounded, current_row, preceding or following."""

    unit: str
    start: tuple[str, Expression | None]
    end: tuple[str, Expression | None] | None


# ---- queries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item(Node):
    expression: Expression
    alias: Name | None


@dataclass(frozen=True)
class GroupingSets(Expression):
    """`GROUPING SETS (...)`, in GROUP BY. An empty set is a `Row` of nothing."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Star(Node):
    qualifier: Expression | None


@dataclass(frozen=True)
class Sort(Node):
    expression: Expression
    is_descending: bool
    nulls: str | None


class FromItem(Node):
    """A relation of FROM."""


@dataclass(frozen=True)
class TableRef(FromItem):
    name: Name
    alias: Name | None = None
    columns: tuple[Name, ...] = ()
    as_of: Expression | None = None


@dataclass(frozen=True)
class Derived(FromItem):
    query: Query
    alias: Name | None
    columns: tuple[Name, ...]
    is_lateral: bool


@dataclass(frozen=True)
class TableFunction(FromItem):
    call: Call
    alias: Name | None
    columns: tuple[Name, ...]
    is_lateral: bool


@dataclass(frozen=True)
class Unnest(FromItem):
    operand: Expression
    alias: Name | None
    columns: tuple[Name, ...]
    has_ordinality: bool


@dataclass(frozen=True)
class Join(FromItem):
    """`kind`: INNER, LEFT, RIGHT, FULL or CROSS."""

    left: FromItem
    right: FromItem
    kind: str
    condition: Expression | None = None
    using: tuple[Name, ...] = ()


@dataclass(frozen=True)
class Emit(Node):
    """`kind`: changes, on_close, delay or now. `phase`: BEFORE or AFTER the watermark."""

    kind: str
    interval: Interval | None = None
    phase: str | None = None


class Body(Node):
    """A query without WITH, ORDER BY and LIMIT."""


@dataclass(frozen=True)
class Select(Body):
    items: tuple[Item | Star, ...]
    source: FromItem | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    is_distinct: bool = False
    emit: tuple[Emit, ...] = ()
    windows: tuple[tuple[Name, Over], ...] = ()


@dataclass(frozen=True)
class Values(Body):
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class SetOperation(Body):
    """`kind`: UNION, EXCEPT or INTERSECT."""

    kind: str
    is_all: bool
    left: Body
    right: Body


@dataclass(frozen=True)
class Query(Body):
    body: Body
    tables: tuple[CommonTable, ...] = ()
    order_by: tuple[Sort, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class CommonTable(Node):
    name: Name
    columns: tuple[Name, ...]
    query: Query
