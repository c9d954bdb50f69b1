"""Calls of functions: their arguments get the types that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rmqio.sql import types
from rmqio.sql.analysis.values import calls, intervals, json_calls
from rmqio.sql.analysis.values.aggregates import AGGREGATES
from rmqio.sql.analysis.values.comparisons import comparison, conditional
from rmqio.sql.analysis.values.constants import check_constants
from rmqio.sql.analysis.values.conversions import converted, same_type
from rmqio.sql.analysis.values.elsewhere import AUXILIARY, ELSEWHERE, OPERATORS, WINDOWS
from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.expressions import Conditional, Constant, Expr, Is, Not, Operation
from rmqio.sql.functions import registry
from rmqio.sql.syntax import nodes


class Binder(Protocol):
    """Binds expressions to columns."""

    def bind(self, node: nodes.Expression) -> Expr:
        """Returns the expression. Raises `Refusal` if it is not valid."""

    def condition(self, node: nodes.Expression) -> Expr:
        """Returns a condition: BOOLEAN. Raises `Refusal` for another type."""


_OF_OVER: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD")


def require_function(name: str, node: nodes.Node) -> None:
    """Raises `Refusal` if there is no such function: with what stands for it here, or the nearest name."""
    functions = registry.load()
    if name in functions and name not in OPERATORS:
        return
    if name in AUXILIARY:
        raise Refusal(f"{name} needs GROUP BY {AUXILIARY[name][0]}(...)", node.span)
    if name in WINDOWS:
        raise Refusal(WINDOWS[name], node.span)
    if (instead := ELSEWHERE.get(name) or OPERATORS.get(name)) is not None:
        raise Refusal(f"there is no function {name}: use {instead}", node.span)
    known = [each for each in functions if each.isidentifier() and each not in OPERATORS] + sorted(AGGREGATES)
    known += node.known if isinstance(node, nodes.Call) else ()
    raise Refusal(f"there is no function {name}{nearest(name, known)}", node.span)


def call_of(name: str, arguments: list[Expr], node: nodes.Node, given: Sequence[Expr] | None = None) -> Expr:
    """Returns the call of a function with converted arguments. Raises `Refusal` if it does not take them.

    `given`: the arguments as they are written, for the error, if these are others.
    """
    function = registry.load()[name]
    try:
        wanted, result = registry.match(function, [each.type for each in arguments])
    except registry.WrongArguments as error:
        kinds = ", ".join(each.type.text for each in given or arguments) or "nothing"
        raise Refusal(f"{name} does not take ({kinds}); it is {error}", node.span) from None
    check_constants(function, arguments, node)
    return Operation(result, name, tuple(map(converted, arguments, wanted, [node] * len(wanted))))


def _coalesce(node: nodes.Call, binder: Binder) -> Expr:
    items = _some(node, binder)
    items = same_type(items, list(node.arguments), node.name.text.upper())
    conditions: list[Expr] = [_is_not_null(each) for each in items[:-1]]
    found = conditional(conditions, items)
    return Conditional(found.type.nullable(all(each.type.is_nullable for each in items)), found.children())


def _some(node: nodes.Call, binder: Binder, least: int = 1) -> list[Expr]:
    if len(node.arguments) < least:
        raise Refusal(f"{node.name.text.upper()} takes at least {least} argument{'s' * (least > 1)}", node.span)
    return [binder.bind(each) for each in node.arguments]


def _is_not_null(operand: Expr) -> Expr:
    kind = types.BOOLEAN.nullable(False)
    return Not(kind, Is(kind, operand, None))


def _null_if(node: nodes.Call, binder: Binder) -> Expr:
    _exactly(node, 2)
    first, second = (binder.bind(each) for each in node.arguments)
    return conditional([comparison("=", first, second, node)], [Constant(first.type.nullable(), None), first])


def _if(node: nodes.Call, binder: Binder) -> Expr:
    _exactly(node, 3)
    condition = binder.condition(node.arguments[0])
    results = same_type([binder.bind(each) for each in node.arguments[1:]], list(node.arguments[1:]), "IF")
    return conditional([condition], results)


def _exactly(node: nodes.Call, count: int) -> None:
    if len(node.arguments) != count:
        name = node.name.text.upper()
        raise Refusal(f"{name} takes {count} arguments, not {len(node.arguments)}", node.span)


def _extremum(node: nodes.Call, binder: Binder) -> Expr:
    name = node.name.text.upper()
    items = same_type(_some(node, binder), list(node.arguments), name)
    kind = items[0].type.nullable(types.any_nullable(each.type for each in items))
    if kind.kind not in (*types.ORDERED, "NULL"):
        raise Refusal(f"{kind.text} has no order: {name} cannot compare it", node.span)
    return Operation(kind, f"{name} OF {'FLOATS' if kind.kind in types.APPROXIMATE else 'ALL'}", tuple(items))


def _modulo(node: nodes.Call, binder: Binder) -> Expr:
    _exactly(node, 2)
    left, right = node.arguments
    return binder.bind(nodes.Binary("%", left, right, span=node.span))


def _substring(node: nodes.Call, binder: Binder) -> Expr:
    arguments = list(node.arguments)
    if len(arguments) == 1 and isinstance(arguments[0], nodes.FromFor):
        given = arguments[0]
        arguments = [given.operand, given.start, *([given.length] if given.length else [])]
    return call_of(node.name.text.upper(), [binder.bind(each) for each in arguments], node)


def _overlay(node: nodes.Call, binder: Binder) -> Expr:
    arguments = list(node.arguments)
    if len(arguments) == 1 and isinstance(arguments[0], nodes.Placing):
        given = arguments[0]
        arguments = [given.operand, given.other, given.start, *([given.length] if given.length else [])]
    return call_of("OVERLAY", [binder.bind(each) for each in arguments], node)


def _trim(node: nodes.Call, binder: Binder) -> Expr:
    given = node.arguments[0] if node.arguments else None
    if isinstance(given, nodes.FromFor) and given.length is None:
        given = nodes.Trim("BOTH", given.operand, given.start, span=given.span)
    if not isinstance(given, nodes.Trim):
        return call_of("TRIM", [binder.bind(each) for each in node.arguments], node)
    name = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}[given.side]
    operands = [given.operand, *([given.characters] if given.characters else [])]
    return call_of(name, [binder.bind(each) for each in operands], node)


def _grouping(node: nodes.Call, binder: Binder) -> Expr:
    raise Refusal(f"{node.name.text.upper()} can be used only in SELECT and HAVING of a query with GROUP BY", node.span)


_Special = Callable[[nodes.Call, Binder], Expr]


def _with_call_of(special: calls.Special) -> _Special:
    return lambda node, binder: special(node, binder, call_of)


SPECIAL: Final[dict[str, _Special]] = {
    "COALESCE": _coalesce, "IFNULL": _coalesce, "NVL": _coalesce, "NULLIF": _null_if, "IF": _if,
    "GREATEST": _extremum, "LEAST": _extremum, "MOD": _modulo, "SUBSTRING": _substring, "SUBSTR": _substring,
    "TRIM": _trim, "OVERLAY": _overlay, "GROUPING": _grouping, "GROUPING_ID": _grouping,
    **intervals.SPECIAL,
    **{name: _with_call_of(each) for name, each in (calls.SPECIAL | json_calls.SPECIAL).items()},
}  # fmt: skip


def function_names() -> frozenset[str]:
    """Returns the names of all functions, of aggregates and of those that need OVER too."""
    known = {*registry.load(), *SPECIAL, *AGGREGATES, *_OF_OVER} - {"COLLECT"}  # which is known, to be refused
    return frozenset(each for each in known - set(OPERATORS) if each.isidentifier())
