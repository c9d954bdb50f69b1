"""INSERT INTO: the query's columns become those of the table."""

from __future__ import annotations

from rmqio.sql.analysis.sinks.bounded import require_written
from rmqio.sql.analysis.values.conversions import can_overflow, fits, same_but_null
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.errors import Refusal, Span, nearest
from rmqio.sql.expressions import Constant, Conversion, Expr, InputRef, NotNull
from rmqio.sql.formats import require_writable
from rmqio.sql.planning.plan import Calc, Field, Relation, Sink
from rmqio.sql.syntax import nodes, statements


def sink_of(statement: statements.Insert, table: Table, relation: Relation) -> Sink:
    """Returns the sink. Raises `Refusal` if the columns do not fit."""
    require_written(statement, table)
    if statement.is_overwrite:
        raise Refusal("INSERT OVERWRITE is not supported: a topic cannot be overwritten", statement.span)
    require_writable(table)
    written = [each for each in table.columns if each.is_written]
    targets = _named(statement, table) if statement.columns else written
    if len(targets) != len(relation.fields):
        names = ", ".join(each.name for each in targets)
        raise Refusal(
            f"{table.name} takes {len(targets)} values ({names}), and the query has {len(relation.fields)}",
            statement.query.span,
        )
    found: dict[str, Expr] = {}
    for position, (column, given) in enumerate(zip(targets, relation.fields, strict=True)):
        span = _span(statement.query, position, len(targets))
        found[column.name] = _fitted(InputRef(given.type, position), column, given, span)
    columns, projections = [], []
    for column in written:
        if column.name not in found and column.metadata is not None:
            continue
        if column.name not in found and not column.type.is_nullable:
            raise Refusal(f"the column {column.name} is NOT NULL and gets no value", statement.table.span)
        columns.append(column)
        projections.append(found.get(column.name, Constant(column.type.nullable(), None)))
    fields = tuple(Field(each.name, each.type) for each in columns)
    return Sink(fields, Calc(fields, relation, None, tuple(projections)), table, tuple(columns))


def _named(statement: statements.Insert, table: Table) -> list[Column]:
    targets = []
    for name in statement.columns:
        column = table.column(name.text)
        if column is None:
            known = [each.name for each in table.columns]
            raise Refusal(f"{table.name} has no column {name}{nearest(name.text, known)}", name.span)
        if not column.is_written:
            raise Refusal(f"the column {name} is {_why(column)}: it gets no value", name.span)
        if column in targets:
            raise Refusal(f"the column {name} is there twice", name.span)
        targets.append(column)
    return targets


def _why(column: Column) -> str:
    return "VIRTUAL" if column.is_virtual else "computed"


def _span(query: nodes.Query, position: int, count: int) -> Span:
    """The place of a column of the query, if it stands in its SELECT or its only row of VALUES."""
    match query.body:
        case nodes.Select(items=items) if len(items) == count:
            item = items[position]
            return item.expression.span if isinstance(item, nodes.Item) else item.span
        case nodes.Values(rows=(row,)) if len(row) == count:
            return row[position].span
    return query.span


def _fitted(given: Expr, column: Column, field: Field, span: Span) -> Expr:
    wanted = column.type
    if not fits(given.type, wanted):
        name = "" if field.name.startswith("EXPR$") else f"{field.name}, "
        raise Refusal(f"{column.name} is {wanted.text}, and the query gives {name}{given.type.text}: use CAST", span)
    can_be_null = given.type.is_nullable
    found = given
    if not same_but_null(given.type, wanted):
        can_be_null = can_be_null or can_overflow(given.type, wanted)
        found = Conversion(wanted.nullable(can_be_null), given)
    if wanted.is_nullable or not can_be_null or column.metadata is not None:
        return found
    if given.type.kind == "NULL":
        raise Refusal(f"{column.name} is NOT NULL, and the query gives NULL", span)
    return NotNull(wanted, found, column.name)
