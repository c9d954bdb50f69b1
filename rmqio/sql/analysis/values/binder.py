"""Expressions: names become columns, functions are found, types are checked and made equal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rmqio.sql import types
from rmqio.sql.analysis.ranks.calls import RANKINGS, refuse_ranking
from rmqio.sql.analysis.scope import Scope, field_of
from rmqio.sql.analysis.values import calls, conversions, intervals, user_calls
from rmqio.sql.analysis.values.arithmetic import arithmetic
from rmqio.sql.analysis.values.conversions import converted, same_type
from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.expressions import Conditional, Constant, Expr, Is, Logical, Membership, Not, Operation
from rmqio.sql.functions import registry
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType
from rmqio.sql.user.definition import AGGREGATE
from rmqio.sql.values import ValueFailure

AGGREGATES: Final = frozenset(
    {
        "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE", "VAR_POP", "VAR_SAMP",
        "LISTAGG", "COLLECT", "FIRST_VALUE", "LAST_VALUE", "APPROX_COUNT_DISTINCT", "ARRAY_AGG",
    }
)  # fmt: skip
WITHOUT_PARENTHESES: Final = frozenset(
    {"CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME"}
)


def is_aggregate(node: nodes.Call) -> bool:
    """Returns whether an aggregate function is called."""
    if node.function is not None:
        return bool(node.function.kind == AGGREGATE)
    return node.name.text.upper() in AGGREGATES


@dataclass(frozen=True)
class ExpressionBinder:
    """Binds expressions to the columns of a scope.

    Attributes:
      scope: the columns.
      functions: the user's functions: names to what returns the bound call.
      place: where aggregates are not allowed, for messages; empty: `aggregate` binds them.
      aggregate: binds the call of an aggregate function.
      known: what some expressions of the syntax mean here, e.g. those of GROUP BY.
    """

    scope: Scope
    place: str = ""
    aggregate: Callable[[nodes.Call], Expr] | None = None
    known: Callable[[nodes.Expression], Expr | None] | None = None

    def bind(self, node: nodes.Expression) -> Expr:
        """Returns the expression. Raises `Refusal` if it is not valid."""
        if self.known is not None and (found := self.known(node)) is not None:
            return found
        return _bind(node, self)

    def condition(self, node: nodes.Expression) -> Expr:
        """Returns a condition: BOOLEAN. Raises `Refusal` for another type."""
        found = self.bind(node)
        if found.type.kind not in ("BOOLEAN", "NULL"):
            raise Refusal(f"a condition is BOOLEAN, and this is {found.type.text}", node.span)
        return found if found.type.kind == "BOOLEAN" else Constant(types.BOOLEAN, None)


@functools.singledispatch
def _bind(node: nodes.Expression, binder: ExpressionBinder) -> Expr:
    raise Refusal("this cannot stand here", node.span)


@_bind.register
def _literal(node: nodes.Literal, binder: ExpressionBinder) -> Expr:
    return conversions.literal(node)


@_bind.register
def _interval(node: nodes.Interval, binder: ExpressionBinder) -> Expr:
    return intervals.interval(node)


@_bind.register
def _column(node: nodes.Column, binder: ExpressionBinder) -> Expr:
    try:
        found = binder.scope.find(node)
    except Refusal:
        if node.name.text.upper() in WITHOUT_PARENTHESES:
            return call_of(node.name.text.upper(), [], node)
        raise
    assert found is not None
    return found


@_bind.register
def _member(node: nodes.Member, binder: ExpressionBinder) -> Expr:
    found = binder.scope.find(node)
    return field_of(binder.bind(node.base), node.name) if found is None else found


@_bind.register
def _subscript(node: nodes.Subscript, binder: ExpressionBinder) -> Expr:
    base, index = binder.bind(node.base), binder.bind(node.index)
    if base.type.kind == "ARRAY":
        if index.type.kind not in types.INTEGERS:
            raise Refusal(f"the position in an array is an integer, not {index.type.text}", node.index.span)
        return call_of("ITEM OF ARRAY", [base, index], node)
    if base.type.kind == "MAP":
        return call_of("ITEM OF MAP", [base, converted(index, base.type.elements[0], node.index)], node)
    raise Refusal(f"[...] takes an element of an ARRAY or a MAP, and this is {base.type.text}", node.base.span)


@_bind.register
def _unary(node: nodes.Unary, binder: ExpressionBinder) -> Expr:
    if node.operator == "NOT":
        operand = binder.condition(node.operand)
        return Not(operand.type, operand)
    if isinstance(node.operand, nodes.Literal) and node.operand.kind == "number":
        return conversions.literal(replace(node.operand, value=f"-{node.operand.value}"))
    operand = binder.bind(node.operand)
    if operand.type.kind not in (*types.NUMERIC, *types.INTERVALS):
        raise Refusal(f"- takes a number, and this is {operand.type.text}", node.operand.span)
    return Operation(operand.type, "NEGATE", (operand,))


@_bind.register
def _binary(node: nodes.Binary, binder: ExpressionBinder) -> Expr:
    if node.operator in ("AND", "OR"):
        return _logical(node, binder)
    left, right = binder.bind(node.left), binder.bind(node.right)
    if node.operator in ("=", "<>", "<", "<=", ">", ">="):
        return comparison(node.operator, left, right, node)
    if node.operator == "||":
        for side, at in ((left, node.left), (right, node.right)):
            if side.type.kind not in ("VARCHAR", "NULL"):
                raise Refusal(f"|| joins text, and this is {side.type.text}: use CAST(... AS STRING)", at.span)
        return call_of("||", [left, right], node)
    return arithmetic(node, left, right)


def _logical(node: nodes.Binary, binder: ExpressionBinder) -> Expr:
    operands: list[Expr] = []
    pending: list[nodes.Expression] = [node]
    while pending:  # a long chain is deep on its left
        each = pending.pop()
        if isinstance(each, nodes.Binary) and each.operator == node.operator:
            pending += [each.right, each.left]
        else:
            operands.append(binder.condition(each))
    kind = types.BOOLEAN.nullable(types.any_nullable(each.type for each in operands))
    return Logical(kind, node.operator, tuple(operands))


def comparison(operator: str, left: Expr, right: Expr, node: nodes.Expression) -> Expr:
    """Returns the comparison of two values of one type. Raises `Refusal` if they do not compare."""
    left, right = conversions.compared(left, right, node)
    if operator not in ("=", "<>") and left.type.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{left.type.text} has no order: {operator} cannot compare it", node.span)
    is_nullable = types.any_nullable((left.type, right.type))
    return Operation(types.BOOLEAN.nullable(is_nullable), operator, (left, right))


@_bind.register
def _is_test(node: nodes.IsTest, binder: ExpressionBinder) -> Expr:
    operand = binder.bind(node.operand) if node.what == "NULL" else binder.condition(node.operand)
    value = {"NULL": None, "UNKNOWN": None, "TRUE": True, "FALSE": False}[node.what]
    found: Expr = Is(types.BOOLEAN.nullable(False), operand, value)
    return Not(found.type, found) if node.is_negated else found


@_bind.register
def _distinct_from(node: nodes.DistinctFrom, binder: ExpressionBinder) -> Expr:
    left, right = conversions.compared(binder.bind(node.left), binder.bind(node.right), node)
    found: Expr = Operation(types.BOOLEAN.nullable(False), "IS NOT DISTINCT FROM", (left, right))
    return found if node.is_negated else Not(found.type, found)


@_bind.register
def _between(node: nodes.Between, binder: ExpressionBinder) -> Expr:
    operand, low, high = (binder.bind(each) for each in (node.operand, node.low, node.high))

    def within(first: Expr, last: Expr) -> Expr:
        parts = (comparison(">=", operand, first, node), comparison("<=", operand, last, node))
        return Logical(types.BOOLEAN.nullable(types.any_nullable(each.type for each in parts)), "AND", parts)

    found = within(low, high)
    if node.is_symmetric:
        other = within(high, low)
        found = Logical(types.BOOLEAN.nullable(found.type.is_nullable), "OR", (found, other))
    return Not(found.type, found) if node.is_negated else found


@_bind.register
def _in_list(node: nodes.InList, binder: ExpressionBinder) -> Expr:
    operand = binder.bind(node.operand)
    items = [binder.bind(each) for each in node.items]
    for item, at in zip(items, node.items, strict=True):
        conversions.compared(operand, item, at)
    operand, *items = same_type([operand, *items], [node.operand, *node.items], "IN")
    if all(isinstance(each, Constant) for each in items) and operand.type.kind not in ("ARRAY", "MAP", "ROW"):
        constants = tuple(each for each in items if isinstance(each, Constant))
        has_null = any(each.value is None for each in constants)
        kind = types.BOOLEAN.nullable(operand.type.is_nullable or has_null)
        found: Expr = Membership(kind, operand, constants)
    else:
        parts = tuple(comparison("=", operand, each, node) for each in items)
        kind = types.BOOLEAN.nullable(types.any_nullable(each.type for each in parts))
        found = parts[0] if len(parts) == 1 else Logical(kind, "OR", parts)
    return Not(found.type, found) if node.is_negated else found


@_bind.register
def _like(node: nodes.Like, binder: ExpressionBinder) -> Expr:
    operands = [each for each in (node.operand, node.pattern, node.escape) if each is not None]
    bound = [binder.bind(each) for each in operands]
    for each, at in zip(bound, operands, strict=True):
        if each.type.kind not in ("VARCHAR", "NULL"):
            raise Refusal(f"{node.kind} compares text, and this is {each.type.text}: use CAST(... AS STRING)", at.span)
    found = call_of(node.kind, bound, node)
    return Not(found.type, found) if node.is_negated else found


@_bind.register
def _case(node: nodes.Case, binder: ExpressionBinder) -> Expr:
    operand = None if node.operand is None else binder.bind(node.operand)
    conditions, results, places = [], [], []
    for when, then in node.whens:
        if operand is None:
            conditions.append(binder.condition(when))
        else:
            conditions.append(comparison("=", operand, binder.bind(when), when))
        results.append(binder.bind(then))
        places.append(then)
    otherwise = Constant(types.NULL, None) if node.otherwise is None else binder.bind(node.otherwise)
    results = same_type([*results, otherwise], [*places, node.otherwise or node], "CASE")
    return conditional(conditions, results)


def conditional(conditions: list[Expr], results: list[Expr]) -> Expr:
    """Returns CASE: one result more than conditions, all of one type."""
    parts = [each for pair in zip(conditions, results, strict=False) for each in pair]
    kind = results[0].type.nullable(types.any_nullable(each.type for each in results))
    return Conditional(kind, (*parts, results[-1]))


@_bind.register
def _cast(node: nodes.Cast, binder: ExpressionBinder) -> Expr:
    operand = binder.bind(node.operand)
    return conversions.cast(operand, types.resolve(node.type), node, is_try=node.is_try)


@_bind.register
def _array(node: nodes.Array, binder: ExpressionBinder) -> Expr:
    items = [binder.bind(each) for each in node.items]
    if not items:
        raise Refusal("an ARRAY of nothing has no type: use CAST(NULL AS ARRAY<...>)", node.span)
    items = same_type(items, list(node.items), "ARRAY")
    return Operation(types.array_of(items[0].type, False), "ARRAY", tuple(items))


@_bind.register
def _map(node: nodes.MapOf, binder: ExpressionBinder) -> Expr:
    items = [binder.bind(each) for each in node.items]
    if not items:
        raise Refusal("a MAP of nothing has no type: use CAST(NULL AS MAP<...>)", node.span)
    keys = same_type(items[::2], list(node.items[::2]), "MAP")
    found = same_type(items[1::2], list(node.items[1::2]), "MAP")
    pairs = tuple(each for pair in zip(keys, found, strict=True) for each in pair)
    return Operation(SqlType("MAP", False, elements=(keys[0].type, found[0].type)), "MAP", pairs)


@_bind.register
def _row(node: nodes.Row, binder: ExpressionBinder) -> Expr:
    items = tuple(binder.bind(each) for each in node.items)
    names = tuple(f"EXPR${i}" for i in range(len(items)))
    return Operation(SqlType("ROW", False, elements=tuple(each.type for each in items), names=names), "ROW", items)


@_bind.register
def _from_for(node: nodes.FromFor, binder: ExpressionBinder) -> Expr:
    raise Refusal("... FROM ... stands in SUBSTRING only", node.span)


@_bind.register(nodes.ScalarQuery)
@_bind.register(nodes.InQuery)
@_bind.register(nodes.Exists)
def _subquery(node: nodes.ScalarQuery | nodes.InQuery | nodes.Exists, binder: ExpressionBinder) -> Expr:
    raise Refusal(
        f"a sub-query cannot stand {binder.place or 'here'}: it stands in SELECT, WHERE and HAVING", node.span
    )


# ---- calls ----------------------------------------------------------------------------------------------------------


@_bind.register
def _call(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    name = node.name.text.upper()
    if node.function is not None:
        return user_calls.bound(node, binder)
    if name in RANKINGS:
        refuse_ranking(node)
    if node.over is not None:
        where = "it stands in SELECT, and a query around it can test it"
        raise Refusal(f"OVER cannot stand {binder.place or 'here'}: {where}", node.over.span)
    if name in AGGREGATES:
        if binder.aggregate is None:
            place = binder.place or "here"
            raise Refusal(f"{name} is an aggregate function, which cannot stand {place}", node.span)
        return binder.aggregate(node)
    if node.filter is not None or node.quantifier is not None or node.is_star:
        raise Refusal(f"DISTINCT, FILTER and * belong to aggregate functions, and {name} is none", node.span)
    if (special := _SPECIAL.get(name)) is not None:
        return special(node, binder)
    return call_of(name, [binder.bind(each) for each in node.arguments], node)


def call_of(name: str, arguments: list[Expr], node: nodes.Node) -> Expr:
    """Returns the call of a function with converted arguments. Raises `Refusal` if it does not take them."""
    functions = registry.load()
    function = functions.get(name)
    if function is None:
        known = [each for each in functions if " " not in each and each.isidentifier()] + sorted(AGGREGATES)
        known += node.known if isinstance(node, nodes.Call) else ()
        raise Refusal(f"there is no function {name}{nearest(name, known)}", node.span)
    try:
        wanted, result = registry.match(function, [each.type for each in arguments])
    except registry.WrongArguments as error:
        given = ", ".join(each.type.text for each in arguments) or "nothing"
        raise Refusal(f"{name} does not take ({given}); it is {error}", node.span) from None
    if function.check is not None:
        try:
            function.check([each.value if isinstance(each, Constant) else None for each in arguments])
        except ValueFailure as error:
            raise Refusal(f"{name}: {error}", node.span) from None
    return Operation(result, name, tuple(map(converted, arguments, wanted, [node] * len(wanted))))


def _coalesce(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    items = _some(node, binder)
    items = same_type(items, list(node.arguments), node.name.text.upper())
    conditions: list[Expr] = [_is_not_null(each) for each in items[:-1]]
    found = conditional(conditions, items)
    return Conditional(found.type.nullable(all(each.type.is_nullable for each in items)), found.children())


def _some(node: nodes.Call, binder: ExpressionBinder, least: int = 1) -> list[Expr]:
    if len(node.arguments) < least:
        raise Refusal(f"{node.name.text.upper()} takes at least {least} argument{'s' * (least > 1)}", node.span)
    return [binder.bind(each) for each in node.arguments]


def _is_not_null(operand: Expr) -> Expr:
    kind = types.BOOLEAN.nullable(False)
    return Not(kind, Is(kind, operand, None))


def _null_if(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    _exactly(node, 2)
    first, second = (binder.bind(each) for each in node.arguments)
    return conditional([comparison("=", first, second, node)], [Constant(first.type.nullable(), None), first])


def _if(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    _exactly(node, 3)
    condition = binder.condition(node.arguments[0])
    results = same_type([binder.bind(each) for each in node.arguments[1:]], list(node.arguments[1:]), "IF")
    return conditional([condition], results)


def _exactly(node: nodes.Call, count: int) -> None:
    if len(node.arguments) != count:
        name = node.name.text.upper()
        raise Refusal(f"{name} takes {count} arguments, not {len(node.arguments)}", node.span)


def _extremum(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    name = node.name.text.upper()
    items = same_type(_some(node, binder), list(node.arguments), name)
    kind = items[0].type.nullable(types.any_nullable(each.type for each in items))
    if kind.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{kind.text} has no order: {name} cannot compare it", node.span)
    return Operation(kind, f"{name} OF ALL", tuple(items))


def _modulo(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    _exactly(node, 2)
    left, right = node.arguments
    return binder.bind(nodes.Binary("%", left, right, span=node.span))


def _substring(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    arguments = list(node.arguments)
    if len(arguments) == 1 and isinstance(arguments[0], nodes.FromFor):
        given = arguments[0]
        arguments = [given.operand, given.start, *([given.length] if given.length else [])]
    return call_of(node.name.text.upper(), [binder.bind(each) for each in arguments], node)


def _trim(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    given = node.arguments[0] if node.arguments else None
    if isinstance(given, nodes.FromFor) and given.length is None:
        given = nodes.Trim("BOTH", given.operand, given.start, span=given.span)
    if not isinstance(given, nodes.Trim):
        return call_of("TRIM", [binder.bind(each) for each in node.arguments], node)
    name = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}[given.side]
    operands = [given.operand, *([given.characters] if given.characters else [])]
    return call_of(name, [binder.bind(each) for each in operands], node)


def _position(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    given = node.arguments[0] if len(node.arguments) == 1 else None
    arguments = (given.operand, *given.items) if isinstance(given, nodes.InList) else node.arguments
    return call_of("POSITION", [binder.bind(each) for each in arguments], node)


_Special = Callable[[nodes.Call, ExpressionBinder], Expr]


def _with_call_of(special: calls.Special) -> _Special:
    return lambda node, binder: special(node, binder, call_of)


_SPECIAL: Final[dict[str, _Special]] = {
    "COALESCE": _coalesce, "IFNULL": _coalesce, "NVL": _coalesce, "NULLIF": _null_if, "IF": _if,
    "GREATEST": _extremum, "LEAST": _extremum, "MOD": _modulo, "SUBSTRING": _substring, "SUBSTR": _substring,
    "TRIM": _trim, "POSITION": _position,
    **intervals.SPECIAL, **{name: _with_call_of(each) for name, each in calls.SPECIAL.items()},
}  # fmt: skip


def function_names() -> frozenset[str]:
    """Returns the names of all functions, of aggregates too."""
    return frozenset(each for each in {*registry.load(), *_SPECIAL, *AGGREGATES} if each.isidentifier())
