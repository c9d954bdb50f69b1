"""OVER of inputs that end: ranks, LEAD, frames with rows that follow, and any order.

A SELECT has all of them, if it has one that OVER by time cannot compute. OVERs of another partition or order are
further relations on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import conversions
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.analysis.grouping import require_key, result_type
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.errors import Refusal, Span, listed
from rmqio.sql.expressions import Constant, Expr, InputRef
from rmqio.sql.optimizer import fold
from rmqio.sql.planning.plan import AggregateCall, Calc, Field, Relation, SortKey, Windowed
from rmqio.sql.planning.relations import Analytic, AnalyticCall, without_time
from rmqio.sql.syntax import nodes

RANKS: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")
_SHARES: Final = ("PERCENT_RANK", "CUME_DIST")
_ONLY: Final = ("RANK", "DENSE_RANK", *_SHARES, "NTILE", "LEAD")
AGGREGATES: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_VALUES: Final = ("FIRST_VALUE", "LAST_VALUE")
FUNCTIONS: Final = (*RANKS, "NTILE", "LAG", "LEAD", *AGGREGATES, *_VALUES)

_ColumnOf = Callable[[Expr], int]


def calls_in(select: nodes.Select, scope: Scope, source: Relation) -> list[nodes.Call]:
    """Returns the calls with OVER of SELECT, if it needs all rows of a partition; else nothing."""
    found = [each for item in select.items if isinstance(item, nodes.Item) for each in _calls(item)]
    others = [each.over for each in found if each.over is not None and each.name.text.upper() != "ROW_NUMBER"]
    is_one = len({(each.partition, each.order) for each in others}) < 2
    return found if not is_one or any(_needs_all(each, scope, source) for each in found) else []


def _calls(node: object) -> Iterator[nodes.Call]:
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, tuple):
            pending += reversed(each)
        elif isinstance(each, nodes.Node) and not isinstance(each, nodes.Query):
            if isinstance(each, nodes.Call) and each.over is not None:
                yield each
            else:
                pending += reversed(list(vars(each).values()))


def _needs_all(node: nodes.Call, scope: Scope, source: Relation) -> bool:
    """Whether OVER by time cannot compute it."""
    over = node.over
    assert over is not None
    name = node.name.text.upper()
    if name == "ROW_NUMBER" or node.function is not None:
        return False
    if (
        name not in FUNCTIONS
        or name in _ONLY
        or len(over.order) != 1
        or over.order[0].is_descending
        or not _is_time(over, scope, source)
    ):
        return True
    end = None if over.frame is None else over.frame.end
    return end is not None and end[0] in ("following", "unbounded_following")


def _is_time(over: nodes.Over, scope: Scope, source: Relation) -> bool:
    bound = ExpressionBinder(scope, "in OVER").bind(over.order[0].expression)
    return isinstance(bound, InputRef) and source.fields[bound.index].is_time


def with_calls(
    source: Relation, scope: Scope, found: Sequence[nodes.Call], known: dict[nodes.Expression, Expr]
) -> Relation:
    """Returns the rows with the results, and adds to `known` what the calls mean."""
    for each in found:
        assert each.over is not None
        if each.function is not None:
            _refuse(f"{each.name} is a function of your own, which cannot be used with OVER", each.over.span)
        frame = each.over.frame
        size = None if frame is None or frame.unit != "RANGE" else frame.start[1]
        if size is not None and not _needs_all(each, scope, source):
            _refuse(
                "RANGE by an interval cannot stand beside OVERs of another PARTITION BY or ORDER BY, or that need all "
                "rows: compute it in a sub-query of FROM",
                size.span,
            )
    if isinstance(source, Windowed):
        assert found[0].over is not None
        _refuse(
            "OVER cannot be combined with a window: put the window, or its groups, into a sub-query of FROM",
            found[0].over.span,
        )
    binder = ExpressionBinder(scope, "in OVER", known=known.get)
    groups: dict[tuple[object, object], list[nodes.Call]] = {}
    for each in found:
        assert each.over is not None
        groups.setdefault((each.over.partition, each.over.order), []).append(each)
    rows = source
    for calls in groups.values():
        rows = _added(rows, binder, calls, known)
    return rows


def _added(
    source: Relation, binder: ExpressionBinder, found: Sequence[nodes.Call], known: dict[nodes.Expression, Expr]
) -> Relation:
    columns: list[Expr] = [InputRef(each.type, i) for i, each in enumerate(source.fields)]

    def column_of(expression: Expr) -> int:
        if expression not in columns:
            columns.append(expression)
        return columns.index(expression)

    over = found[0].over
    assert over is not None
    keys = tuple(column_of(_key(each, binder)) for each in over.partition)
    order = tuple(_sort(each, binder, column_of) for each in over.order)
    bound = [_call(each, binder, column_of) for each in found]
    calls = list(dict.fromkeys(bound))
    names = [each.name for each in source.fields] + [f"${i}" for i in range(len(source.fields), len(columns))]
    fields = tuple(Field(name, each.type) for name, each in zip(names, columns, strict=True))
    results = tuple(Field(f"{each.call.name}${i}", each.call.type) for i, each in enumerate(calls))
    for each, call in zip(found, bound, strict=True):
        known[each] = InputRef(call.call.type, len(columns) + calls.index(call))
    computed = Calc(fields, source, None, tuple(columns))
    return Analytic(without_time(fields) + results, computed, keys, order, tuple(calls), over.span)


def _key(node: nodes.Expression, binder: ExpressionBinder) -> Expr:
    found = binder.bind(node)
    require_key(found.type, "a key of PARTITION BY", node.span)
    return found


def _sort(sort: nodes.Sort, binder: ExpressionBinder, column_of: _ColumnOf) -> SortKey:
    bound = binder.bind(sort.expression)
    if isinstance(bound, Constant):
        _refuse("ORDER BY in OVER takes columns, not positions or constants", sort.span)
    if bound.type.kind not in types.ORDERED:
        _refuse(f"{bound.type.text} has no order: ORDER BY cannot take it", sort.span)
    nulls_first = sort.nulls == "FIRST" if sort.nulls else not sort.is_descending
    return SortKey(column_of(bound), sort.is_descending, nulls_first)


def _call(node: nodes.Call, binder: ExpressionBinder, column_of: _ColumnOf) -> AnalyticCall:
    name, over = node.name.text.upper(), node.over
    assert over is not None
    if name not in FUNCTIONS:
        _refuse(f"{name} cannot be used before OVER: {listed(FUNCTIONS)} can", node.span)
    if node.quantifier == "DISTINCT":
        _refuse("DISTINCT before OVER is not supported: the rows of a frame are not kept apart", node.span)
    if name not in (*AGGREGATES, *_VALUES):
        if node.filter is not None:
            _refuse(f"FILTER belongs to aggregate functions, but {name} is not one", node.span)
        if not over.order:
            _refuse(f"{name} needs an order: OVER (PARTITION BY key ORDER BY column)", over.span)
        if over.frame is not None:
            _refuse(f"{name} takes no ROWS or RANGE: it always uses the whole partition", over.frame.span)
    if name in RANKS:
        if node.arguments or node.is_star:
            _refuse(f"{name} takes no arguments", node.span)
        kind = types.DOUBLE if name in _SHARES else types.BIGINT
        return AnalyticCall(AggregateCall(name, kind.nullable(False)))
    if name == "NTILE":
        if len(node.arguments) != 1 or node.is_star:
            _refuse("NTILE takes the number of groups", node.span)
        groups = _number(node.arguments[0], binder, "the number of groups of NTILE is a constant: 1, 2 ...")
        return AnalyticCall(AggregateCall(name, types.BIGINT.nullable(False)), number=groups)
    if name in ("LAG", "LEAD"):
        return _shift(node, binder, column_of)
    return _framed(node, binder, column_of)


def _number(node: nodes.Expression, binder: ExpressionBinder, message: str) -> int:
    bound = binder.bind(node)
    if not isinstance(bound, Constant) or bound.type.kind not in types.INTEGERS or not bound.value or bound.value < 1:
        _refuse(message, node.span)
    return int(bound.value)


def _shift(node: nodes.Call, binder: ExpressionBinder, column_of: _ColumnOf) -> AnalyticCall:
    name, given = node.name.text.upper(), node.arguments
    where = "back" if name == "LAG" else "ahead"
    if node.is_star or not 1 <= len(given) <= 3:
        _refuse(
            f"{name} takes a column, the number of rows to go {where}, and a default value",
            node.span,
        )
    value = binder.bind(given[0])
    message = f"how far {name} goes {where} is a number of rows: 1, 2 ..."
    distance = _number(given[1], binder, message) if len(given) > 1 else 1
    if len(given) < 3:
        return AnalyticCall(AggregateCall(name, value.type.nullable(), column_of(value)), number=distance)
    value, other = conversions.same_type([value, binder.bind(given[2])], given[::2], name)
    kind = value.type.nullable(types.any_nullable((value.type, other.type)))
    call = AggregateCall(name, kind, column_of(value))
    return AnalyticCall(call, number=distance, default=column_of(other))


def _framed(node: nodes.Call, binder: ExpressionBinder, column_of: _ColumnOf) -> AnalyticCall:
    name, over = node.name.text.upper(), node.over
    assert over is not None
    condition = None
    if node.filter is not None:
        condition = column_of(replace(binder, place="in FILTER").condition(node.filter))
    argument = None
    if node.is_star:
        if name != "COUNT":
            _refuse(f"{name}(*) has no meaning: {name} takes a column", node.span)
    elif len(node.arguments) != 1:
        _refuse(f"{name} takes one argument, not {len(node.arguments)}", node.span)
    else:
        argument = binder.bind(node.arguments[0])
    given = None if argument is None else argument.type
    if name in AGGREGATES:
        kind = result_type(name, given, node)
    else:
        assert given is not None
        kind = given.nullable()
    call = AggregateCall(name, kind, None if argument is None else column_of(argument), condition)
    return AnalyticCall(call, *_frame(over))


def _frame(over: nodes.Over) -> tuple[str, int | None, int | None]:
    """The unit of a frame, and where it begins and ends."""
    frame = over.frame
    if frame is None:
        return "RANGE", None, 0 if over.order else None
    if not over.order:
        _refuse("a frame needs an order: OVER (PARTITION BY key ORDER BY column ROWS ...)", frame.span)
    kinds = frame.start[0], "current_row" if frame.end is None else frame.end[0]
    if kinds[0] == "unbounded_following" or kinds[1] == "unbounded":
        _refuse("a frame must begin before it ends", frame.span)
    sizes = frame.start[1], None if frame.end is None else frame.end[1]
    start, end = (_offset(kind, size, frame) for kind, size in zip(kinds, sizes, strict=True))
    if start is not None and end is not None and start > end:
        _refuse("a frame must begin before it ends", frame.span)
    return frame.unit, start, end


def _offset(kind: str, size: nodes.Expression | None, frame: nodes.Frame) -> int | None:
    if size is None:
        return 0 if kind == "current_row" else None
    if frame.unit == "RANGE":
        _refuse(
            "RANGE takes a distance, INTERVAL '1' HOUR PRECEDING, only in OVER by time up to the CURRENT ROW: here, it "
            "takes UNBOUNDED and CURRENT ROW, and ROWS takes numbers of rows",
            size.span,
        )
    bound = distance(size)
    is_number = isinstance(bound, Constant) and bound.type.kind in types.INTEGERS
    if not isinstance(bound, Constant) or not is_number or bound.value is None or bound.value < 0:
        _refuse("a frame of ROWS begins and ends a constant number of rows away: 1, 2 ...", size.span)
    return -int(bound.value) if kind == "preceding" else int(bound.value)


def distance(size: nodes.Expression) -> Expr:
    """Returns how far a frame goes, as a `Constant` if it can be computed. Raises `Refusal` for a column."""

    def refused(node: nodes.Expression) -> None:
        if isinstance(node, nodes.Column):
            _refuse(f"a frame goes a constant distance, and {node.name} is not constant", node.span)

    return fold(ExpressionBinder(Scope(()), known=refused).bind(size))


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
