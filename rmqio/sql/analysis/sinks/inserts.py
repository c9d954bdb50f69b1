"""INSERT INTO: the query's columns become those of the table."""

from __future__ import annotations

from rmqio.errors import counted
from rmqio.sql.analysis.sinks.bounded import require_written
from rmqio.sql.analysis.values.conversions import can_overflow, fits, same_but_null
from rmqio.sql.catalog.metadata import METADATA
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
    written = [each for each in table.columns if each.is_written]
    targets = _named(statement, table) if statement.columns else written
    if len(targets) != len(relation.fields):
        names = ", ".join(each.name for each in targets)
        raise Refusal(
            f"{table.name} takes {counted(len(targets), 'value')} ({names}), but the query has {len(relation.fields)}",
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
    _require_one_each(columns, table, statement)
    tag = next((each for each in columns if each.name == table.options.tag_column and each.is_physical), None)
    if tag is not None and all(each.metadata is None or each.metadata.key != "tags" for each in columns):
        projections.append(projections[columns.index(tag)])
        columns.append(Column(f"tag of {tag.name}", tag.type, METADATA["tags"]))
    fields = tuple(Field(each.name, each.type) for each in columns)
    body = [field for field, each in zip(fields, columns, strict=True) if each.is_physical]
    require_writable(table, body, [each.name for each in body if each.name not in found])
    found_rows = Calc(fields, relation, None, tuple(projections))
    return Sink(fields, found_rows, table, tuple(columns), statement.table.span)


def _require_one_each(columns: list[Column], table: Table, statement: statements.Insert) -> None:
    """A message has each part once, so two values for it would be one lost."""
    names: dict[str, str] = {}
    for each in columns:
        if each.metadata is None:
            continue
        if (other := names.setdefault(each.metadata.key, each.name)) != each.name:
            raise Refusal(
                f"{other} and {each.name} of {table.name} are both the metadata {each.metadata.key!r}: declare one of "
                "them VIRTUAL, or list the columns, INSERT INTO t (a, b)",
                statement.table.span,
            )


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
            raise Refusal(f"the column {name} is listed twice", name.span)
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
    is_local_time = (given.type.kind, wanted.kind) == ("TIMESTAMP_LTZ", "TIMESTAMP")  # as Flink does it, of a sink only
    if not fits(given.type, wanted) and not is_local_time:
        name = "" if field.name.startswith("EXPR$") else f"{field.name}, "
        raise Refusal(f"{column.name} is {wanted.text}, but the query gives {name}{given.type.text}: use CAST", span)
    can_be_null = given.type.is_nullable
    found = given
    if not same_but_null(given.type, wanted):
        can_be_null = can_be_null or can_overflow(given.type, wanted)
        found = Conversion(wanted.nullable(can_be_null), given)
    if wanted.is_nullable or not can_be_null or column.metadata is not None:
        return found
    if given.type.kind == "NULL":
        raise Refusal(f"{column.name} is NOT NULL, but the query gives NULL", span)
    return NotNull(wanted, found, column.name)
