"""Expressions: names become columns, functions are found, types are checked and made equal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import calls, conversions, functions
from rmqio.sql.analysis.aggregates import AGGREGATES
from rmqio.sql.analysis.conversions import arithmetic, comparison, conditional, converted, same_type
from rmqio.sql.analysis.functions import SPECIAL, call_of, check_pattern, require_function
from rmqio.sql.analysis.scope import Scope, field_of
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.emitter import is_pure
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.expressions import Constant, Expr, InputRef, Is, Logical, Membership, Not, Operation, walk
from rmqio.sql.planning.ranks import WAY_OUT
from rmqio.sql.rows import has_floats
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType
from rmqio.sql.user.definition import AGGREGATE, UserCall

# Constant expressions that always fail, such as 1 / 0, are refused where every row gets to them.

_MOST_PARTS: Final = 30
"""Parts of an expression that is computed: each level of a long chain is."""
_SOME: Final = ("COALESCE", "IFNULL", "NVL", "IF", "NULLIF")


def evaluates_some(node: nodes.Expression) -> bool:
    """Returns whether only some parts of an expression are computed for a row, or their errors are no errors."""
    match node:
        case nodes.Case():
            return True
        case nodes.Cast():
            return node.is_try
        case nodes.Binary():
            return node.operator in ("AND", "OR") or _is_of_rows(node)
        case nodes.Between():
            return True
        case nodes.InList():  # of literals, none can fail
            some = len(node.items) > 1 or isinstance(node.operand, nodes.Row)
            return some and not all(isinstance(each, nodes.Literal) for each in node.items)
        case nodes.Call():
            return node.function is None and node.name.text.upper() in _SOME
    return False


def computed_first(node: nodes.Expression) -> list[nodes.Expression]:
    """Returns parts of such an expression that are computed for every row all the same. Rows begin with their first.

    Not those of AND and OR: that the other side decides alone is found when the statement is planned.
    """
    match node:
        case nodes.Case(operand=None, whens=[(when, _), *_]):
            found = [when]
        case nodes.Case(operand=nodes.Expression() as operand, whens=[(when, _), *_]):
            found = [operand, when]
        case nodes.Binary() if _is_of_rows(node):
            found = [node.left, node.right]
        case nodes.Between(operand=operand, low=low):
            found = [operand, low]
        case nodes.InList(operand=operand, items=[item, *_]):
            found = [operand, item]
        case nodes.Call(arguments=arguments):
            found = [*arguments[: 2 if node.name.text.upper() == "NULLIF" else 1]]
        case _:
            found = []
    return [_first(each) for each in found]


def _is_of_rows(node: nodes.Binary) -> bool:
    """Whether it ends at the first value that differs."""
    return node.operator == "=" and isinstance(node.left, nodes.Row) and isinstance(node.right, nodes.Row)


def _first(node: nodes.Expression) -> nodes.Expression:
    while isinstance(node, nodes.Row) and node.items:
        node = node.items[0]
    return node


def check_failing(expression: Expr, node: nodes.Expression) -> None:
    """Raises `Refusal` for an expression of constants that always fails."""
    if not isinstance(node, nodes.Binary | nodes.Unary | nodes.Call | nodes.Cast):
        return
    parts = list(islice(walk(expression), _MOST_PARTS + 1))
    if len(parts) < 2 or len(parts) > _MOST_PARTS or any(isinstance(each, InputRef | UserCall) for each in parts):
        return
    if not any(isinstance(each, Constant) for each in parts) or not is_pure(expression):
        return
    if (reason := _failure(expression)) is not None:
        raise Refusal(f"this always fails: {reason}", node.span)


def _failure(expression: Expr) -> str | None:

    mapped = compiled(Fragment(FromRows(()), (Step(None, (expression,)),), ToRows()))([()])
    return next((str(each) for each in mapped.failed.values()), None)


# Calls of ROW_NUMBER() and of its relatives: where they can stand.

RANKINGS: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK")


def ranking(select: nodes.Select) -> nodes.Item | None:
    """Returns the item of a SELECT that is ROW_NUMBER(); None: there is none. Raises `Refusal` for others like it."""
    found = [
        each
        for each in select.items
        if isinstance(each, nodes.Item)
        and isinstance(each.expression, nodes.Call)
        and each.expression.over is not None
        and each.expression.name.text.upper() in RANKINGS
    ]
    if not found:
        return None
    first, *others = found
    assert isinstance(first.expression, nodes.Call)
    if first.expression.name.text.upper() != "ROW_NUMBER":
        refuse_ranking(first.expression)
    if others:
        raise Refusal("a query can have only one ROW_NUMBER(): put the other one into an outer query", others[0].span)
    if select.group_by or select.having is not None:
        raise Refusal(
            "ROW_NUMBER() cannot be combined with GROUP BY: put GROUP BY into a query of FROM", first.expression.span
        )
    if select.is_distinct:
        raise Refusal("numbered rows are distinct: remove DISTINCT", first.expression.span)
    return first


def refuse_ranking(node: nodes.Call) -> NoReturn:
    """Raises `Refusal`: what it is, if it stands where it cannot."""
    name = node.name.text.upper()
    if name == "ROW_NUMBER":
        raise Refusal(
            f"ROW_NUMBER() must be a column of its own in SELECT, as ROW_NUMBER() OVER (...) AS rn, with {WAY_OUT}",
            node.span,
        )
    raise Refusal(f"{name}() can be used only in SELECT, with OVER (...); an outer query can test it", node.span)


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
      is_conditional: not every row computes them, as in CASE.
      sure: but every row computes these.
    """

    scope: Scope
    place: str = ""
    aggregate: Callable[[nodes.Call], Expr] | None = None
    known: Callable[[nodes.Expression], Expr | None] | None = None
    is_conditional: bool = False
    sure: Sequence[nodes.Expression] = ()

    def bind(self, node: nodes.Expression) -> Expr:
        """Returns the expression. Raises `Refusal` if it is not valid."""
        if self.known is not None and (found := self.known(node)) is not None:
            return found
        if self.is_conditional:
            if not any(node is each for each in self.sure):
                return _bind(node, self)
            return replace(self, is_conditional=False, sure=()).bind(node)
        if evaluates_some(node):
            return _bind(node, replace(self, is_conditional=True, sure=computed_first(node)))
        found = _bind(node, self)
        check_failing(found, node)
        return found

    def condition(self, node: nodes.Expression) -> Expr:
        """Returns a condition: BOOLEAN. Raises `Refusal` for another type."""
        found = self.bind(node)
        if found.type.kind not in ("BOOLEAN", "NULL"):
            raise Refusal(f"a condition must be BOOLEAN, not {found.type.text}", node.span)
        return found if found.type.kind == "BOOLEAN" else Constant(types.BOOLEAN, None)


@functools.singledispatch
def _bind(node: nodes.Expression, binder: ExpressionBinder) -> Expr:
    raise Refusal("this is not allowed here", node.span)


@_bind.register
def _literal(node: nodes.Literal, binder: ExpressionBinder) -> Expr:
    return conversions.literal(node)


@_bind.register
def _interval(node: nodes.Interval, binder: ExpressionBinder) -> Expr:
    return calls.interval(node)


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
        key = converted(index, base.type.elements[0], node.index)
        return call_of("ITEM OF FLOATS" if has_floats(key.type) else "ITEM OF MAP", [base, key], node)
    raise Refusal(f"[...] takes an element of an ARRAY or a MAP, not of {base.type.text}", node.base.span)


@_bind.register
def _unary(node: nodes.Unary, binder: ExpressionBinder) -> Expr:
    if node.operator == "NOT":
        operand = binder.condition(node.operand)
        return Not(operand.type, operand)
    if isinstance(node.operand, nodes.Literal) and node.operand.kind == "number":
        return conversions.literal(replace(node.operand, value=f"-{node.operand.value}"))
    operand = binder.bind(node.operand)
    if operand.type.kind not in (*types.NUMERIC, *types.INTERVALS):
        raise Refusal(f"- takes a number, not {operand.type.text}", node.operand.span)
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
                raise Refusal(f"|| joins text, not {side.type.text}: use CAST(... AS STRING)", at.span)
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


@_bind.register
def _is_test(node: nodes.IsTest, binder: ExpressionBinder) -> Expr:
    if node.what.startswith("JSON"):
        return calls.is_json(node, binder.bind(node.operand), call_of)
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
    items = [conversions.literal(each) if isinstance(each, nodes.Literal) else binder.bind(each) for each in node.items]
    kinds: set[SqlType] = set()
    for item, at in zip(items, node.items, strict=True):
        if item.type not in kinds:  # one of each type tells: a list can have thousands of literals
            kinds.add(item.type)
            comparison("=", operand, item, at)
    one_type = types.common_type([operand.type, *kinds]) is not None or not _has_text(operand, *items)
    if one_type and operand.type.kind != "ROW":  # which is compared value by value
        operand, *items = same_type([operand, *items], [node.operand, *node.items], "IN", is_compared=True)
    is_plain = one_type and operand.type.kind not in ("ARRAY", "MAP", "ROW")
    if is_plain and all(isinstance(each, Constant) for each in items):
        constants = tuple(each for each in items if isinstance(each, Constant))
        has_null = any(each.value is None for each in constants)
        kind = types.BOOLEAN.nullable(operand.type.is_nullable or has_null)
        found: Expr = Membership(kind, operand, constants)
    else:
        parts = tuple(comparison("=", operand, each, at) for each, at in zip(items, node.items, strict=True))
        kind = types.BOOLEAN.nullable(types.any_nullable(each.type for each in parts))
        found = parts[0] if len(parts) == 1 else Logical(kind, "OR", parts)
    return Not(found.type, found) if node.is_negated else found


def _has_text(*items: Expr) -> bool:
    """Whether one is text that is not a constant: beside a time, it is compared as one."""
    return any(each.type.kind == "VARCHAR" and not isinstance(each, Constant) for each in items)


@_bind.register
def _like(node: nodes.Like, binder: ExpressionBinder) -> Expr:
    operands = [each for each in (node.operand, node.pattern, node.escape) if each is not None]
    bound = [binder.bind(each) for each in operands]
    for each, at in zip(bound, operands, strict=True):
        if each.type.kind not in ("VARCHAR", "NULL"):
            raise Refusal(f"{node.kind} compares text, not {each.type.text}: use CAST(... AS STRING)", at.span)
    check_pattern(node, bound[1:])
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


@_bind.register
def _cast(node: nodes.Cast, binder: ExpressionBinder) -> Expr:
    operand = binder.bind(node.operand)
    wanted = types.resolve(node.type)
    found = conversions.cast(operand, wanted, node, is_try=node.is_try, is_conditional=binder.is_conditional)
    if binder.is_conditional or not (isinstance(operand, Constant) and isinstance(found, Constant)):
        return found
    if operand.value is not None and found.value is None:
        raise Refusal(f"this CAST is always NULL: {operand.value} has too many digits for {found.type.text}", node.span)
    return found


@_bind.register
def _array(node: nodes.Array, binder: ExpressionBinder) -> Expr:
    items = [binder.bind(each) for each in node.items]
    if not items:
        raise Refusal("an ARRAY of nothing has no type: use CAST(NULL AS ARRAY<...>)", node.span)
    items = same_type(items, list(node.items), "ARRAY")
    return Operation(types.array_of(_type_of(items), False), "ARRAY", tuple(items))


@_bind.register
def _map(node: nodes.MapOf, binder: ExpressionBinder) -> Expr:
    items = [binder.bind(each) for each in node.items]
    if not items:
        raise Refusal("a MAP of nothing has no type: use CAST(NULL AS MAP<...>)", node.span)
    keys = same_type(items[::2], list(node.items[::2]), "MAP")
    if not types.is_key(keys[0].type):
        raise Refusal(f"a key of a MAP cannot be {keys[0].type.text}", node.items[0].span)
    found = same_type(items[1::2], list(node.items[1::2]), "MAP")
    if has_floats(keys[0].type):
        keys = [Operation(each.type, "ONE NAN", (each,)) for each in keys]
    pairs = tuple(each for pair in zip(keys, found, strict=True) for each in pair)
    return Operation(SqlType("MAP", False, elements=(keys[0].type, _type_of(found))), "MAP", pairs)


def _type_of(items: list[Expr]) -> SqlType:
    """That of values which have one, but for NULL."""
    return items[0].type.nullable(types.any_nullable(each.type for each in items))


@_bind.register
def _row(node: nodes.Row, binder: ExpressionBinder) -> Expr:
    items = tuple(binder.bind(each) for each in node.items)
    if not items:
        raise Refusal("a ROW of nothing has no fields: use CAST(NULL AS ROW<...>)", node.span)
    names = tuple(f"EXPR${i}" for i in range(len(items)))
    return Operation(SqlType("ROW", False, elements=tuple(each.type for each in items), names=names), "ROW", items)


@_bind.register
def _from_for(node: nodes.FromFor, binder: ExpressionBinder) -> Expr:
    raise Refusal("... FROM ... can be used only in SUBSTRING", node.span)


@_bind.register
def _placing(node: nodes.Placing, binder: ExpressionBinder) -> Expr:
    raise Refusal("... PLACING ... FROM ... can be used only in OVERLAY", node.span)


@_bind.register(nodes.JsonClauses)
@_bind.register(nodes.JsonPair)
def _of_json(node: nodes.JsonClauses | nodes.JsonPair, binder: ExpressionBinder) -> Expr:
    raise Refusal(
        "VALUE is only for JSON_OBJECT, and RETURNING, WRAPPER and ON EMPTY, ERROR or NULL only for JSON functions",
        node.span,
    )


@_bind.register(nodes.ScalarQuery)
@_bind.register(nodes.InQuery)
@_bind.register(nodes.Exists)
def _subquery(node: nodes.ScalarQuery | nodes.InQuery | nodes.Exists, binder: ExpressionBinder) -> Expr:
    raise Refusal(f"a sub-query cannot be used {binder.place or 'here'}, only in SELECT, WHERE and HAVING", node.span)


# ---- calls ----------------------------------------------------------------------------------------------------------


@_bind.register
def _call(node: nodes.Call, binder: ExpressionBinder) -> Expr:
    name = node.name.text.upper()
    if node.function is not None:
        return functions.bound(node, binder)
    if not name.isidentifier() and name not in calls.STEPS:  # an operation's name, which is none in SQL
        raise Refusal(f"there is no function `{node.name}`{nearest(name, node.known)}", node.span)
    if name in RANKINGS:
        refuse_ranking(node)
    if node.over is not None:
        where = "use it in SELECT, and test it in an outer query"
        raise Refusal(f"OVER cannot be used {binder.place or 'here'}: {where}", node.over.span)
    if name in AGGREGATES:
        if binder.aggregate is None:
            place = binder.place or "here"
            raise Refusal(f"{name} is an aggregate function, which cannot be used {place}", node.span)
        return binder.aggregate(node)
    if node.filter is not None or node.quantifier is not None or node.is_star:
        raise Refusal(f"DISTINCT, FILTER and * belong to aggregate functions, but {name} is not one", node.span)
    if (special := SPECIAL.get(name)) is not None:
        return special(node, binder)
    require_function(name, node)
    return call_of(name, [binder.bind(each) for each in node.arguments], node)
