"""Joins with dimension tables: `JOIN t FOR SYSTEM_TIME AS OF PROCTIME()`. A row meets the table as it is then."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from rmqio.sql.analysis.joins.joined import Side, _column_of, _equal, _equal_sides, _found, _widened
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.analysis.values.binder import ExpressionBinder
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Expr, InputRef, Operation, all_of, conjuncts, shifted
from rmqio.sql.planning.plan import Calc, Field, Join, LookupJoin, Relation, Scan, Union, Windowed
from rmqio.sql.syntax import nodes

_OTHER_TIME = (
    "a dimension table is joined as it is when the row comes: FOR SYSTEM_TIME AS OF takes processing time only, "
    "PROCTIME() or a column that is AS PROCTIME()"
)


def is_versioned(item: nodes.FromItem) -> bool:
    """Returns whether FROM names a table as of a time."""
    return isinstance(item, nodes.TableRef) and item.as_of is not None


def looked_up(join: nodes.Join, left: Side, right: Side) -> Side:
    """Returns the join of rows and a dimension table, and its columns. Raises `Refusal` if it is not possible."""
    (rows, left_scope), (dimension, right_scope) = left, right
    assert isinstance(join.right, nodes.TableRef)
    assert join.right.as_of is not None
    if doubled := next((each for each in right_scope.tables if each in left_scope.tables), None):
        _refuse(f"two tables of FROM have the name {doubled}: give one of them an alias", join.right.span)
    if join.kind not in ("INNER", "LEFT"):
        if join.kind == "CROSS":
            _refuse("a dimension table needs a condition with its key: JOIN ... ON", join.right.span)
        _refuse(
            f"a {join.kind} JOIN would give rows of the dimension that nothing has looked up: use JOIN or LEFT JOIN",
            join.span,
        )
    if isinstance(rows, Windowed):
        _refuse("rows of a window cannot be joined: join before the window, in a query of its own", join.span)
    _require_processing_time(join.right.as_of, left_scope, rows)
    table = table_of(dimension)
    if table is None:
        _refuse(f"{join.right.name} is not a table: a dimension is a table, or a view with columns and rows of one",
                join.right.name.span)  # fmt: skip
    _require_dimension(table, join.right.name)
    scope, conditions = _conditions(join, left_scope, right_scope, len(rows.fields))
    return _relation(join, rows, dimension, conditions), scope


def require_no_metadata(table: Table) -> None:
    """Raises `Refusal` for metadata of messages in a table that is not a topic."""
    if table.options.connector in (FILES, DATABASE):
        for each in table.columns:
            if each.metadata is not None:
                raise Refusal(
                    f"the metadata {each.metadata.key!r} is of messages: a table of the connector "
                    f"{table.options.connector} has none",
                    None,
                )


def table_of(relation: Relation) -> Table | None:
    """Returns the table of a dimension; None: it is more than projections and filters of one."""
    while isinstance(relation, Calc):
        relation = relation.input
    return relation.table if isinstance(relation, Scan) else None


def _require_processing_time(as_of: nodes.Expression, scope: Scope, rows: Relation) -> None:
    bound = ExpressionBinder(scope, "in FOR SYSTEM_TIME").bind(as_of)
    if not _is_processing_time(bound, rows):
        _refuse(_OTHER_TIME, as_of.span)


def _is_processing_time(expression: Expr, rows: Relation) -> bool:
    """Whether it is PROCTIME(), also by the name of a column."""
    while isinstance(expression, InputRef):
        match rows:
            case Calc():
                expression, rows = rows.projections[expression.index], rows.input
            case Join() if expression.index >= len(rows.left.fields):
                expression, rows = shifted(expression, -len(rows.left.fields)), rows.right
            case Join():
                rows = rows.left
            case LookupJoin() if expression.index < len(rows.input.fields):
                rows = rows.input
            case Union():
                return all(_is_processing_time(expression, each) for each in rows.members)
            case _:
                return False
    return isinstance(expression, Operation) and expression.name == "PROCTIME"


def _require_dimension(table: Table, name: nodes.Name) -> None:
    options = table.options
    if options.on_error == "dead-letter":
        _refuse(
            f"{name} sends bad rows to dead letters, which is not possible while it is loaded as a dimension: "
            "'on-error' is fail or skip there",
            name.span,
        )
    if options.on_error == "null":
        _refuse(f"{name} has 'on-error' = 'null', which a dimension cannot have: it is fail or skip there", name.span)
    if options.connector in (FILES, DATABASE):
        return
    if options.connector != "rocketmq":
        _refuse(f"{name} is neither a topic nor files nor a table of a database: workers cannot load it", name.span)
    if not table.primary_key:
        _refuse(
            f"{name} is a stream, whose rows are not versions of each other: with a PRIMARY KEY, the newest row of "
            "each key is the table",
            name.span,
        )
    for each in table.primary_key:
        column = table.column(each)
        if column is not None and column.expression is not None:
            _refuse(f"{each}, the PRIMARY KEY of {name}, is computed: a message must have it", name.span)
    if options.of_connector.refresh_ms:
        _refuse(f"{name} is a topic, which is kept up to date by itself: leave 'refresh' out", name.span)


def _conditions(join: nodes.Join, left: Scope, right: Scope, width: int) -> tuple[Scope, list[Expr]]:
    """The columns after the join, and its conditions."""
    scope = left.joined(
        Scope(
            tuple(replace(each, expression=shifted(each.expression, width)) for each in right.columns),
            right.merged,
        )
    )
    conditions: list[Expr] = []
    if join.using:
        for name in join.using:
            one, other = (_found(each, name) for each in (left, right))
            conditions += conjuncts(_equal(one, shifted(other, width), name))
        scope = replace(scope, merged=scope.merged | {each.text for each in join.using})
    elif join.condition is not None:
        conditions = conjuncts(ExpressionBinder(scope, "in ON").condition(join.condition))
    return _with_nulls(scope, width) if join.kind == "LEFT" else scope, conditions


def _with_nulls(scope: Scope, width: int) -> Scope:
    """The columns of the dimension can be NULL after a LEFT JOIN, and not yet in its condition."""

    def of(each: Expr) -> Expr:
        return replace(each, type=each.type.nullable()) if isinstance(each, InputRef) and each.index >= width else each

    return replace(scope, columns=tuple(replace(each, expression=of(each.expression)) for each in scope.columns))


def _relation(join: nodes.Join, rows: Relation, dimension: Relation, conditions: list[Expr]) -> Relation:
    width = len(rows.fields)
    keys: list[tuple[Expr, int]] = []
    residual: list[Expr] = []
    extra: list[Expr] = []
    for each in conditions:
        pair = _equal_sides(each, width)
        if pair is None or pair[0].type.elements:
            residual.append(each)
        else:
            keys.append((pair[0], _column_of(pair[1], dimension, extra)))
    if not keys:
        _refuse(
            f"the condition needs an equality with a column of {join.right.name}, by which its rows are found",  # type: ignore[attr-defined]
            (join.condition or join).span,
        )
    own = len(dimension.fields)
    dimension = _widened(dimension, extra)
    found = LookupJoin(
        rows.fields + _joined_fields(dimension.fields, join.kind), rows, dimension, join.kind, tuple(keys),
        all_of(residual),
    )  # fmt: skip
    if not extra:
        return found
    kept = range(width + own)
    return Calc(found.fields[: width + own], found, None, tuple(InputRef(found.fields[i].type, i) for i in kept))


def _joined_fields(fields: tuple[Field, ...], kind: str) -> tuple[Field, ...]:
    """A row keeps its time: the watermark follows that of the stream, and none of the dimension."""
    return tuple(Field(each.name, each.type.nullable() if kind == "LEFT" else each.type) for each in fields)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
