"""Joins: conditions become keys, by which both sides are shuffled, and what is left of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from rmqio.sql import types
from rmqio.sql.analysis.joins.bounds import TimeBounds, half_window, same_window, time_bounds, window_columns
from rmqio.sql.analysis.scope import Scope, ScopeColumn
from rmqio.sql.analysis.values import conversions
from rmqio.sql.analysis.values.binder import ExpressionBinder
from rmqio.sql.analysis.values.comparisons import conditional
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Expr, InputRef, Is, Not, Operation, all_of, conjuncts, inputs, shifted, transform
from rmqio.sql.planning.plan import Calc, Field, Interval, Join, Relation, SameWindow
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
