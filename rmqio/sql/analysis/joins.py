"""Joins: conditions become keys, by which both sides are shuffled, and what is left of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import conversions
from rmqio.sql.analysis.expressions import ExpressionBinder
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Expr, InputRef, Operation, all_of, conjuncts, inputs, shifted, transform
from rmqio.sql.plan import Calc, Field, Join, Relation, Windowed
from rmqio.sql.syntax import nodes

Side = tuple[Relation, Scope]


def joined(join: nodes.Join, left: Side, right: Side, ttl_ms: int) -> Side:
    """Returns the join of two relations, and its columns. Raises `Refusal` if it is not supported.

    Args:
      ttl_ms: how long a row waits for its partners, in milliseconds; 0: it was not said, and the join is refused.
    """
    (left_rows, left_scope), (right_rows, right_scope) = left, right
    if doubled := next((each for each in right_scope.tables if each in left_scope.tables), None):
        _refuse(f"two tables of FROM are called {doubled}: give one of them an alias", join.right.span)
    if join.kind == "CROSS":
        _refuse("a join without a condition is not supported: its rows would wait for all others", join.right.span)
    if join.kind != "INNER":
        _refuse(f"{join.kind} JOIN of two topics needs a bound in time, and is not supported yet", join.span)
    if isinstance(left_rows, Windowed) or isinstance(right_rows, Windowed):
        _refuse("a join of rows of windows is not supported yet: group them first", join.span)
    width = len(left_rows.fields)
    scope = left_scope.joined(
        Scope(
            tuple(replace(each, expression=shifted(each.expression, width)) for each in right_scope.columns),
            right_scope.merged,
        )
    )
    conditions: list[Expr] = []
    if join.using:
        for name in join.using:
            one, other = (_found(each, name) for each in (left_scope, right_scope))
            conditions += conjuncts(_equal(one, shifted(other, width), name))
        scope = replace(scope, merged=scope.merged | {each.text for each in join.using})
    elif join.condition is not None:
        conditions = conjuncts(ExpressionBinder(scope, "in ON").condition(join.condition))
    relation = _relation(join, left_rows, right_rows, conditions, ttl_ms)
    if not ttl_ms:
        _refuse(
            "this join keeps every row for ever: say how long a row waits for its partners, with "
            "SET 'table.exec.state.ttl' = '1 h' before it",
            join.span,
        )
    return relation, scope


def _relation(join: nodes.Join, left: Relation, right: Relation, conditions: list[Expr], ttl_ms: int) -> Relation:
    """The join, of inputs with the columns that keys need beside their own, which are left out after it."""
    width = len(left.fields)
    keys: list[tuple[int, int]] = []
    residual: list[Expr] = []
    left_extra: list[Expr] = []
    right_extra: list[Expr] = []
    for each in conditions:
        pair = _equal_sides(each, width)
        if pair is None:
            residual.append(each)
        else:
            keys.append((_column_of(pair[0], left, left_extra), _column_of(pair[1], right, right_extra)))
    if not keys:
        _refuse("a join needs an equality between a column of each side", (join.condition or join).span)
    fields = _without_time(left.fields + right.fields)
    left, right = _widened(left, left_extra), _widened(right, right_extra)
    moved = len(left_extra)

    def placed(each: Expr) -> Expr:
        return replace(each, index=each.index + moved) if isinstance(each, InputRef) and each.index >= width else each

    condition = all_of([transform(each, placed) for each in residual])
    found = Join(_without_time(left.fields + right.fields), left, right, join.kind, tuple(keys), condition, ttl_ms)
    if found.fields == fields:
        return found
    kept = [*range(width), *range(width + moved, width + moved + len(fields) - width)]
    return Calc(fields, found, None, tuple(InputRef(found.fields[each].type, each) for each in kept))


def _without_time(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """A row leaves the join when its last partner has come: the watermark no longer follows its times."""
    return tuple(each._replace(is_time=False) for each in fields)


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
