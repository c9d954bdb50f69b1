"""Statements of a script, as nodes of its syntax tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqio.sql.errors import Span
from rmqio.sql.syntax.nodes import NOWHERE, Expression, Name, Node, Query, TypeName


class Statement(Node):
    """A statement of a script."""


@dataclass(frozen=True)
class PhysicalColumn(Node):
    name: Name
    type: TypeName
    is_nullable: bool = True
    is_key: bool = False
    comment: str | None = None


@dataclass(frozen=True)
class MetadataColumn(Node):
    """`key`: the name of the metadata, if it is not the column's."""

    name: Name
    type: TypeName
    key: str | None
    is_virtual: bool
    comment: str | None = None


@dataclass(frozen=True)
class ComputedColumn(Node):
    name: Name
    expression: Expression
    comment: str | None = None


@dataclass(frozen=True)
class Watermark(Node):
    column: Name
    expression: Expression


@dataclass(frozen=True)
class PrimaryKey(Node):
    columns: tuple[Name, ...]


@dataclass(frozen=True)
class Period(Node):
    """Blink's mark of a dimension table."""


TableItem = PhysicalColumn | MetadataColumn | ComputedColumn | Watermark | PrimaryKey | Period


@dataclass(frozen=True)
class Option(Node):
    key: str
    value: str
    value_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class CreateTable(Statement):
    name: Name
    items: tuple[TableItem, ...]
    options: tuple[Option, ...]
    if_not_exists: bool = False
    comment: str | None = None


@dataclass(frozen=True)
class CreateView(Statement):
    name: Name
    columns: tuple[Name, ...]
    query: Query
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateFunction(Statement):
    name: Name
    path: str
    language: str | None
    if_not_exists: bool = False
    path_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Drop(Statement):
    """`kind`: TABLE, VIEW or FUNCTION."""

    kind: str
    name: Name
    if_exists: bool


@dataclass(frozen=True)
class SetOption(Statement):
    """`SET key = value`; without a key, `SET` shows all."""

    option: Option | None


@dataclass(frozen=True)
class Reset(Statement):
    key: str | None


@dataclass(frozen=True)
class Insert(Statement):
    table: Name
    columns: tuple[Name, ...]
    query: Query
    is_overwrite: bool = False


@dataclass(frozen=True)
class BeginSet(Statement):
    """`BEGIN STATEMENT SET`, or `EXECUTE STATEMENT SET BEGIN` with the first of its statements."""

    first: Insert | None


@dataclass(frozen=True)
class EndSet(Statement):
    """`END` of a statement set."""


@dataclass(frozen=True)
class Explain(Statement):
    statement: Insert | Query


@dataclass(frozen=True)
class Show(Statement):
    """`kind`: TABLES, VIEWS, FUNCTIONS, CREATE TABLE or CREATE VIEW."""

    kind: str
    name: Name | None = None


@dataclass(frozen=True)
class Describe(Statement):
    name: Name


@dataclass(frozen=True)
class QueryStatement(Statement):
    query: Query
