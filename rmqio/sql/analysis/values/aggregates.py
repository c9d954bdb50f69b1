"""Aggregates beside COUNT, SUM, AVG, MIN and MAX: lists of values, and what is written otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.analysis.values.json_aggregates import JSON_AGGREGATES
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant, Expr
from rmqio.sql.planning.plan import BY_TIME, VARIANCES, AggregateCall
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType

LIST_AGGREGATES: Final = ("LISTAGG", "ARRAY_AGG")
INSTEAD: Final = {
    "COLLECT": "there is no MULTISET; ARRAY_AGG and JSON_ARRAYAGG collect values",
}
"""Aggregates of Flink that are not supported, each with the reason."""
AGGREGATES: Final = frozenset(
    {
        "COUNT", "SUM", "AVG", "MIN", "MAX", "APPROX_COUNT_DISTINCT", *VARIANCES, *LIST_AGGREGATES, *JSON_AGGREGATES,
        *BY_TIME, *INSTEAD,
    }
)  # fmt: skip


def plain_call(node: nodes.Call) -> nodes.Call:
    """Returns the call as another aggregate writes it: an approximate count is an exact one."""
    if node.name.text.upper() != "APPROX_COUNT_DISTINCT" or len(node.arguments) != 1:
        return node
    return replace(node, name=replace(node.name, text="COUNT"), quantifier="DISTINCT")


def list_aggregate(
    node: nodes.Call, binder: Any, check: Callable[[Expr, Span], None]
) -> tuple[AggregateCall, Expr, Expr | None]:
    """Returns the call of LISTAGG or ARRAY_AGG with its argument and the condition of FILTER. Raises `Refusal`."""
    name = node.name.text.upper()
    condition = None if node.filter is None else replace(binder, place="in FILTER").condition(node.filter)
    most = 2 if name == "LISTAGG" else 1
    if node.is_star or not 1 <= len(node.arguments) <= most:
        takes = "text, and a constant that separates it" if name == "LISTAGG" else "one argument"
        raise Refusal(f"{name} takes {takes}", node.span)
    value = replace(binder, place="in another one").bind(node.arguments[0])
    check(value, node.arguments[0].span)
    is_distinct = node.quantifier == "DISTINCT"
    if name == "ARRAY_AGG":
        kind: SqlType = types.array_of(value.type)
        return AggregateCall(name, kind, is_distinct=is_distinct), value, condition
    if value.type.kind != "VARCHAR":
        raise Refusal(
            f"LISTAGG takes text, and this is {value.type.text}: use CAST(... AS STRING)", node.arguments[0].span
        )
    separator = ","
    if len(node.arguments) == 2:
        given = binder.bind(node.arguments[1])
        if not isinstance(given, Constant) or not isinstance(given.value, str):
            raise Refusal("what separates the texts of LISTAGG is a constant: ';'", node.arguments[1].span)
        separator = given.value
    return AggregateCall(name, types.VARCHAR, is_distinct=is_distinct, separator=separator), value, condition
