"""Aggregates beside COUNT, SUM, AVG, MIN and MAX: lists, JSON, and the first and last value by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.analysis.calls import MADE, carried, parts
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.errors import Refusal, Span, listed
from rmqio.sql.expressions import Constant, Expr, InputRef, Operation
from rmqio.sql.planning.plan import (
    BY_TIME,
    SAME_WINDOW,
    VARIANCES,
    AggregateCall,
    Calc,
    Field,
    LookupJoin,
    Relation,
    Scan,
    Union,
    Window,
    Windowed,
)
from rmqio.sql.planning.relations import Expand
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType

# JSON_ARRAYAGG and JSON_OBJECTAGG: each row gives its part as JSON already, so that only text is accumulated.

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


# FIRST_VALUE and LAST_VALUE of groups: the time of each row goes with its value.

_INSTEAD: Final = "take the row WHERE rn = 1 of ROW_NUMBER() OVER (PARTITION BY key ORDER BY column), or MIN or MAX"


def offset_of_rows(relation: Relation) -> Expr | None:
    """Returns the offset of the message that each row is made of; None: of several, of none, or it is shuffled."""
    if isinstance(relation, Scan):
        has_offset = relation.table.options.connector not in (DATABASE, FILES)
        return Operation(types.BIGINT.nullable(False), "OFFSET OF MESSAGE", ()) if has_offset else None
    if not isinstance(relation, (Calc, Expand, LookupJoin, Union, Windowed)):
        return None
    found = list(map(offset_of_rows, relation.inputs()))
    return None if None in found else found[0]


def value_by_time(
    node: nodes.Call, binder: Any, time: InputRef, offset: Expr | None, check: Callable[[Expr, Span], None]
) -> tuple[AggregateCall, Expr, Expr | None]:
    """Returns the call with its argument, ROW(value, time, offset), and the condition of FILTER. Raises `Refusal`."""
    name = node.name.text.upper()
    if node.is_star or len(node.arguments) != 1:
        raise Refusal(f"{name} takes one argument, not {'*' if node.is_star else len(node.arguments)}", node.span)
    condition = None if node.filter is None else replace(binder, place="in FILTER").condition(node.filter)
    value = replace(binder, place="in another one").bind(node.arguments[0])
    check(value, node.arguments[0].span)
    parts = (value, time) if offset is None else (value, time, offset)
    names = ("value", "time", "offset")[: len(parts)]
    row = SqlType("ROW", False, elements=tuple(each.type for each in parts), names=names)
    return AggregateCall(name, value.type.nullable()), Operation(row, "ROW", parts), condition


def time_of_rows(fields: Sequence[Field], window: Window | None, node: nodes.Call) -> InputRef:
    """Returns the time that says which row of a group is the first one. Raises `Refusal` if the rows have none.

    Args:
      fields: the columns of the rows, without those of the window.
      window: of the group.
    """
    name = node.name.text.upper()
    which = "first" if name == "FIRST_VALUE" else "last"
    need = f"{name} takes the value of the {which} row by time"
    if window is not None and window.kind == SAME_WINDOW:
        raise Refusal(
            f"{need}, and a sub-query has left the rows no time but that of their window: compute {name} in the SELECT "
            "FROM TABLE(...) of the window, or take MIN or MAX",
            node.span,
        )
    times = [position for position, each in enumerate(fields) if each.is_time]
    if window is not None and not window.is_processing:
        times = [window.time]
    if not times:
        raise Refusal(
            f"{need}, and these rows have none: give the table a WATERMARK FOR a column, and keep this column in "
            f"sub-queries; or {_INSTEAD}",
            node.span,
        )
    if len(times) > 1:
        names = listed([fields[each].name for each in times], "and")
        raise Refusal(f"{need}, and these rows have several, {names}: keep one of them in a sub-query", node.span)
    return InputRef(fields[times[0]].type, times[0])


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
