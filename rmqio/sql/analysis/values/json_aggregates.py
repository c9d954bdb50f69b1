"""JSON_ARRAYAGG and JSON_OBJECTAGG: each row gives its part as JSON already, so that only text is accumulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.analysis.values.json_calls import MADE, carried, parts
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant, Expr, Operation
from rmqio.sql.planning.plan import AggregateCall
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType

JSON_AGGREGATES: Final = ("JSON_ARRAYAGG", "JSON_OBJECTAGG")
_NULLS: Final = {"JSON_ARRAYAGG": "ABSENT", "JSON_OBJECTAGG": "NULL"}
"""How NULL is aggregated if the call does not say it."""
_ITEM: Final = {"NULL": "JSON ITEM OR NULL", "ABSENT": "JSON ITEM"}
_MEMBER: Final = {"NULL": "JSON MEMBER OR NULL", "ABSENT": "JSON MEMBER"}
_PAIR: Final = SqlType("ROW", elements=(types.VARCHAR, types.VARCHAR), names=("key", "value"))


def json_aggregate(
    node: nodes.Call, binder: Any, check: Callable[[Expr, Span], None]
) -> tuple[AggregateCall, Expr, Expr | None]:
    """Returns the call with its argument, the item or the member, and the condition of FILTER. Raises `Refusal`."""
    name = node.name.text.upper()
    if node.quantifier == "DISTINCT":
        raise Refusal(f"{name} takes no DISTINCT: group a SELECT DISTINCT in a sub-query of FROM", node.span)
    condition = None if node.filter is None else replace(binder, place="in FILTER").condition(node.filter)
    arguments, clauses = parts(node)
    given: list[nodes.Expression] = []
    for each in arguments:
        given += (each.key, each.value) if isinstance(each, nodes.JsonPair) else (each,)
    wanted = 1 if name == "JSON_ARRAYAGG" else 2
    if node.is_star or len(given) != wanted or (wanted == 1 and isinstance(arguments[0], nodes.JsonPair)):
        takes = "one argument" if wanted == 1 else "a key and a value"
        raise Refusal(f"{name} takes {takes}: {name}({'v' if wanted == 1 else 'KEY k VALUE v'})", node.span)
    inner = replace(binder, place="in another one")
    bound = [inner.bind(each) for each in given]
    for found, at in zip(bound, given, strict=True):
        check(found, at.span)
    nulls = clauses.get("NULL", _NULLS[name])
    call = AggregateCall(name, types.VARCHAR.nullable(False))
    *key, value = bound
    if not key:
        kind = types.VARCHAR.nullable(nulls == "ABSENT")
        return call, Operation(kind, _ITEM[nulls], (_written_as(value), value)), condition
    if key[0].type.kind != "VARCHAR":
        raise Refusal(f"a key of JSON_OBJECTAGG is STRING, and this is {key[0].type.text}", given[0].span)
    kind = _PAIR.nullable(nulls == "ABSENT")
    return call, Operation(kind, _MEMBER[nulls], (_written_as(value), key[0], value)), condition


def _written_as(value: Expr) -> Constant:
    """The type of a value; None: it is JSON already, of JSON_OBJECT or JSON_ARRAY, and is not quoted."""
    return carried(None if isinstance(value, Operation) and value.name in MADE else value.type)
