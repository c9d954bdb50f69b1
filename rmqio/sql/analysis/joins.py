"""Joins, also with dimension tables: conditions become keys, by which both sides are shuffled, and what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import conversions
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.analysis.conversions import conditional
from rmqio.sql.analysis.scope import Scope, ScopeColumn
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import (
    Expr,
    InputRef,
    Is,
    Not,
    Operation,
    all_of,
    conjuncts,
    inputs,
    shifted,
    transform,
)
from rmqio.sql.planning.plan import Calc, Field, Interval, Join, LookupJoin, Relation, SameWindow, Scan, Union, Windowed
from rmqio.sql.planning.watermarks import TimeBounds, half_window, same_window, time_bounds, window_columns
from rmqio.sql.syntax import nodes

Side = tuple[Relation, Scope]


def joined(join: nodes.Join, left: Side, right: Side, ttl_ms: int, where: nodes.Expression | None = None) -> Side:
    """Returns the join of two relations, and its columns. Raises `Refusal` if it is not supported.

    Args:
      ttl_ms: how long a row waits for its partners, in milliseconds; 0: it was not said. An inner join that nothing
        bounds needs inputs that end then.
      where: the condition of WHERE, which is tested after the join: it can bound the times of an inner join, too.
    """
    (left_rows, left_scope), (right_rows, right_scope) = left, right
    if doubled := next((each for each in right_scope.tables if each in left_scope.tables), None):
        _refuse(f"two tables of FROM have the name {doubled}: give one of them an alias", join.right.span)
    width = len(left_rows.fields)
    right_columns = tuple(replace(each, expression=shifted(each.expression, width)) for each in right_scope.columns)
    scope = left_scope.joined(Scope(right_columns, right_scope.merged))
    if join.kind == "CROSS":
        return _crossed(join, left_rows, right_rows, ttl_ms, scope), scope
    conditions: list[Expr] = []
    if join.using:
        for name in join.using:
            one, other = (_found(each, name) for each in (left_scope, right_scope))
            conditions += conjuncts(_equal(one, shifted(other, width), name))
    elif join.condition is not None:
        conditions = conjuncts(ExpressionBinder(scope, "in ON").condition(join.condition))
    hints: list[Expr] = []
    if where is not None and join.kind == "INNER":
        hints = conjuncts(ExpressionBinder(scope, "in WHERE").condition(where))
    relation = _relation(join, left_rows, right_rows, conditions, hints, ttl_ms, scope)
    return relation, _scope_after(join, left_scope, Scope(right_columns, right_scope.merged), scope)


def _crossed(join: nodes.Join, left: Relation, right: Relation, ttl_ms: int, scope: Scope) -> Join:
    """All pairs. A condition above may become its key; without one, both sides must end, which the job checks."""
    tables = {each.expression.index: each.table for each in scope.columns if isinstance(each.expression, InputRef)}
    fields = tuple(
        each._replace(is_time=False, table=tables.get(i) or "") for i, each in enumerate(left.fields + right.fields)
    )
    return Join(fields, left, right, "INNER", (), None, ttl_ms, is_crossed=True, span=join.span)


def _scope_after(join: nodes.Join, left: Scope, right: Scope, both: Scope) -> Scope:
    """The columns after the join: those of a side that can be missing can be NULL."""
    if join.kind in ("RIGHT", "FULL"):
        left = _nullable(left)
    if join.kind in ("LEFT", "FULL"):
        right = _nullable(right)
    scope = left.joined(right)
    if not join.using:
        return scope
    named = [(each, _found(left, each), _found(right, each)) for each in join.using]
    merged = tuple(ScopeColumn(None, each.text, _either(one, other, join.kind)) for each, one, other in named)
    names = frozenset(each.text for each in join.using)
    return Scope(scope.columns if join.kind in ("INNER", "LEFT") else merged + scope.columns, both.merged | names)


def _nullable(scope: Scope) -> Scope:
    def nullable(each: Expr) -> Expr:
        return replace(each, type=each.type.nullable()) if isinstance(each, InputRef) else each

    return replace(
        scope,
        columns=tuple(replace(each, expression=transform(each.expression, nullable)) for each in scope.columns),
    )


def _either(left: Expr, right: Expr, kind: str) -> Expr:
    """The column of USING, of whichever side has a row."""
    if kind != "FULL":
        return right if kind == "RIGHT" else left
    has_left = Not(types.BOOLEAN.nullable(False), Is(types.BOOLEAN.nullable(False), left, None))
    left, right = conversions.same_type([left, right], [nodes.Node(), nodes.Node()], "USING", is_compared=True)
    return conditional([has_left], [left, right])


def _relation(
    join: nodes.Join,
    left: Relation,
    right: Relation,
    conditions: list[Expr],
    hints: list[Expr],
    ttl_ms: int,
    scope: Scope,
) -> Relation:
    """The join, of inputs with the columns that keys need beside their own, which are left out after it."""
    width = len(left.fields)
    bounds = time_bounds([*conditions, *hints], left, right)
    keys: list[tuple[int, int]] = []
    residual: list[Expr] = []
    left_extra: list[Expr] = []
    right_extra: list[Expr] = []
    for each in conditions:
        pair = _equal_sides(each, width)
        if pair is not None:
            keys.append((_column_of(pair[0], left, left_extra), _column_of(pair[1], right, right_extra)))
        elif each not in bounds.used:
            residual.append(each)
    if not keys and join.kind == "INNER":
        pairs = _crossed(join, left, right, ttl_ms, scope)
        own = tuple(InputRef(each.type, i) for i, each in enumerate(pairs.fields))
        return Calc(pairs.fields, pairs, all_of(conditions), own)
    if not keys:
        also = ": bounds of times are not enough" if bounds.interval else ""
        _refuse(
            f"a {join.kind} JOIN needs an equality between a column of each side{also}", (join.condition or join).span
        )
    tables = {each.expression.index: each.table for each in scope.columns if isinstance(each.expression, InputRef)}
    names = {i: f"{tables.get(i)}.{each.name}" for i, each in enumerate(left.fields + right.fields)}
    bound = same_window(keys, left, right) or bounds.interval
    if isinstance(bound, Interval) and bound.lower_us > bound.upper_us:
        _refuse("no two rows fulfil the conditions on their times: the bounds exclude each other", join.span)
    if bound is None and (windows := half_window(keys, left, right)):
        _refuse(
            f"a window join needs both window_start = window_start and window_end = window_end: {windows}", join.span
        )
    fields = _fields(join.kind, bound, left, right)
    fields = tuple(each._replace(table=tables.get(i) or "") for i, each in enumerate(fields))
    wide_left, wide_right = _widened(left, left_extra), _widened(right, right_extra)
    moved = len(left_extra)

    def placed(each: Expr) -> Expr:
        return replace(each, index=each.index + moved) if isinstance(each, InputRef) and each.index >= width else each

    condition = all_of([transform(each, placed) for each in residual])
    wide = (
        *fields[:width], *_extra(wide_left, moved, join.kind in ("RIGHT", "FULL")),
        *fields[width:], *_extra(wide_right, len(right_extra), join.kind in ("LEFT", "FULL")),
    )  # fmt: skip
    found = Join(
        wide, wide_left, wide_right, join.kind, tuple(keys), condition, 0 if bound else ttl_ms, bound,
        way_out=_way_out(bounds, names), span=join.span,
    )  # fmt: skip
    if found.fields == fields:
        return found
    kept = [*range(width), *range(width + moved, width + moved + len(fields) - width)]
    return Calc(fields, found, None, tuple(InputRef(found.fields[each].type, each) for each in kept))


def _way_out(bounds: TimeBounds, names: dict[int, str]) -> str:
    way = "bound its times: AND a.time BETWEEN b.time - INTERVAL '5' MINUTE AND b.time, both with WATERMARK FOR"
    if bounds.missing is None:
        return way
    one, other, end = bounds.missing
    return f"{way} ({names[other]} and {names[one]} have one bound only: how long {end} is not said)"


def _extra(side: Relation, count: int, can_be_missing: bool) -> tuple[Field, ...]:
    fields = side.fields[len(side.fields) - count :]
    return tuple(each._replace(type=each.type.nullable()) if can_be_missing else each for each in fields)


def _fields(kind: str, bound: Interval | SameWindow | None, left: Relation, right: Relation) -> tuple[Field, ...]:
    """The columns of the join. The watermark follows the times by which it is bounded, of sides that all rows have."""
    times: set[int] = set()
    width = len(left.fields)
    if isinstance(bound, Interval):
        times = {bound.left_time, width + bound.right_time}
    elif bound is not None:
        shifts = ((left, 0), (right, width))
        times = {i + by for side, by in shifts for i, (_, column) in window_columns(side).items() if column == 2}

    def field(each: Field, position: int, can_be_missing: bool) -> Field:
        is_time = each.is_time and position in times and not can_be_missing
        return Field(each.name, each.type.nullable(each.type.is_nullable or can_be_missing), is_time)

    both = (*((each, kind in ("RIGHT", "FULL")) for each in left.fields),
            *((each, kind in ("LEFT", "FULL")) for each in right.fields))  # fmt: skip
    return tuple(field(each, position, missing) for position, (each, missing) in enumerate(both))


def _found(scope: Scope, name: nodes.Name) -> Expr:
    found = scope.find(nodes.Column(name, span=name.span))
    assert found is not None
    return found


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)


def _equal(left: Expr, right: Expr, node: nodes.Node) -> Expr:
    one, other = conversions.compared(left, right, node)
    return Operation(types.BOOLEAN.nullable(types.any_nullable((one.type, other.type))), "=", (one, other))


def _equal_sides(condition: Expr, width: int) -> tuple[Expr, Expr] | None:
    """The two sides of an equality of which each side reads one input, for the inputs themselves."""
    if not isinstance(condition, Operation) or condition.name != "=":
        return None
    one, other = condition.arguments
    left, right = inputs(one), inputs(other)
    if not left or not right:
        return None
    if max(left) < width <= min(right):
        return one, shifted(other, -width)
    if max(right) < width <= min(left):
        return other, shifted(one, -width)
    return None


def _column_of(key: Expr, relation: Relation, extra: list[Expr]) -> int:
    """The position of the column that holds a key; a key that is computed becomes a column of its own."""
    if isinstance(key, InputRef):
        return key.index
    extra.append(key)
    return len(relation.fields) + len(extra) - 1


def _widened(relation: Relation, extra: list[Expr]) -> Relation:
    if not extra:
        return relation
    own = tuple(InputRef(each.type, i) for i, each in enumerate(relation.fields))
    fields = relation.fields + tuple(Field(f"KEY${i}", each.type) for i, each in enumerate(extra))
    return Calc(fields, relation, None, (*own, *extra))


# Joins with dimension tables: `JOIN t FOR SYSTEM_TIME AS OF PROCTIME()`. A row meets the table as it is then.

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
    return _lookup_relation(join, rows, dimension, conditions), scope


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


def _lookup_relation(join: nodes.Join, rows: Relation, dimension: Relation, conditions: list[Expr]) -> Relation:
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
