"""FIRST_VALUE and LAST_VALUE of groups: the time of each row goes with its value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.errors import Refusal, Span, listed
from rmqio.sql.expressions import Expr, InputRef, Operation
from rmqio.sql.planning.expanding import Expand
from rmqio.sql.planning.plan import (
    SAME_WINDOW,
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
from rmqio.sql.syntax import nodes
from rmqio.sql.types import SqlType

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
