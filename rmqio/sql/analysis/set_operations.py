"""What stands between and behind SELECTs: UNION, EXCEPT and INTERSECT, ORDER BY, LIMIT, OFFSET, FETCH FIRST."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis.grouping import last_moment, require_key
from rmqio.sql.analysis.scope import Queries
from rmqio.sql.errors import Refusal, Span, nearest
from rmqio.sql.expressions import Conditional, Constant, Expr, InputRef, Logical, Not, Operation
from rmqio.sql.planning.plan import (
    Aggregate,
    AggregateCall,
    Calc,
    Field,
    Origin,
    Relation,
    SortKey,
    Union,
    Window,
    Windowed,
)
from rmqio.sql.planning.relations import MOST_SORTED, Repeated, Sorted, without_time
from rmqio.sql.syntax import nodes

# ORDER BY, LIMIT, OFFSET and FETCH FIRST.

_MOST_DIGITS: Final = 18
"""Of a position. Python converts no more than 4,300."""


def sorted_query(query: nodes.Query, binder: Queries) -> Relation:
    """Returns a query with ORDER BY, LIMIT or OFFSET, whose WITH is bound already. Raises `Refusal`.

    A name is a column of SELECT, or else one of FROM. A number is the position of a column, as in Flink.
    """
    body = query.body
    rows = binder.body(body)
    names = [each.name for each in rows.fields]
    places: list[int | nodes.Expression] = []
    hidden: list[nodes.Expression] = []
    for sort in query.order_by:
        place = _place(sort.expression, body, names)
        if place is None:
            if not isinstance(body, nodes.Select):
                place = _named(sort.expression, names)
            elif body.is_distinct:
                _refuse(
                    "ORDER BY of SELECT DISTINCT takes columns of SELECT: others can differ between equal rows",
                    sort.span,
                )
            elif sort.expression not in hidden:
                hidden.append(sort.expression)
        places.append(sort.expression if place is None else place)
    if hidden:
        assert isinstance(body, nodes.Select)
        items = tuple(nodes.Item(each, None, span=each.span) for each in hidden)
        rows = binder.body(replace(body, items=(*body.items, *items)))
    width = len(names)
    keys = []
    for sort, at in zip(query.order_by, places, strict=True):
        position = at if isinstance(at, int) else width + hidden.index(at)
        keys.append(_key(sort, position, rows, width))
    span = (query.order_by or (query,))[0].span
    last = (query.limit or 0) + query.offset
    if query.limit is not None and last > MOST_SORTED:
        _refuse(
            f"LIMIT and OFFSET reach to row {last:,}, but one worker sorts at most {MOST_SORTED:,} rows", query.span
        )
    found: Relation = Sorted(without_time(rows.fields), rows, tuple(keys), query.limit, query.offset, span)
    if hidden:
        columns = tuple(InputRef(each.type, i) for i, each in enumerate(found.fields[:width]))
        found = Calc(found.fields[:width], found, None, columns)
    return found


def _key(sort: nodes.Sort, position: int, rows: Relation, width: int) -> SortKey:
    if not 0 <= position < len(rows.fields):
        _refuse(f"ORDER BY takes the positions 1 to {width}, not {position + 1}", sort.span)
    kind = rows.fields[position].type
    if kind.kind not in (*types.ORDERED, "NULL"):
        _refuse(f"{kind.text} has no order: ORDER BY cannot compare it", sort.span)
    first = not sort.is_descending if sort.nulls is None else sort.nulls == "FIRST"
    return SortKey(position, sort.is_descending, first)


def _place(node: nodes.Expression, body: nodes.Body, names: list[str]) -> int | None:
    """The position of the column of SELECT that ORDER BY names; None: it names none."""
    if isinstance(node, nodes.Literal):
        if node.kind != "number" or not node.value.isdecimal():
            _refuse("ORDER BY takes columns, expressions of them, or positions", node.span)
        if len(node.value) > _MOST_DIGITS:
            _refuse(f"ORDER BY takes the positions 1 to {len(names)}, not {node.value[:_MOST_DIGITS]}...", node.span)
        return int(node.value) - 1
    if isinstance(node, nodes.Column) and names.count(node.name.text) == 1:
        return names.index(node.name.text)
    if isinstance(body, nodes.Select) and not any(isinstance(each, nodes.Star) for each in body.items):
        same = [i for i, each in enumerate(body.items) if isinstance(each, nodes.Item) and each.expression == node]
        return same[0] if same else None
    return None


def _named(node: nodes.Expression, names: list[str]) -> int:
    """The column of UNION or VALUES that ORDER BY names."""
    if not isinstance(node, nodes.Column):
        _refuse("ORDER BY of UNION, EXCEPT, INTERSECT and VALUES takes names or positions of columns", node.span)
    if node.name.text not in names:
        _refuse(f"there is no column {node.name}{nearest(node.name.text, names)}", node.span)
    return names.index(node.name.text)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)


_COUNT: Final = types.BIGINT.nullable(False)
_FLAG: Final = types.BOOLEAN.nullable(False)
_MILLISECOND_US: Final = 1000


def set_operation(body: nodes.SetOperation, fields: tuple[Field, ...], members: list[Relation]) -> Relation:
    """Returns UNION, EXCEPT or INTERSECT of two relations with columns of the same types. Raises `Refusal`."""
    for each in fields:
        require_key(each.type, each.name, body.span)
    ends = set.intersection(*map(_window_ends, members))
    marked = [_marked(member, side, fields, body, ends) for side, member in enumerate(members)]
    width = len(fields)
    last = len(marked[0].fields) - 1
    window = Window("TUMBLE", last, _MILLISECOND_US, _MILLISECOND_US) if ends else None
    calls: tuple[AggregateCall, ...] = ()
    if body.kind != "UNION":
        calls = tuple(AggregateCall("COUNT", _COUNT, condition=width + each) for each in (0, 1))
    grouped = tuple(each._replace(is_time=False) for each in fields)
    if window is not None:
        kind = types.TIMESTAMP.nullable(False)
        grouped += tuple(Field(f"${each}", kind) for each in ("start", "end", "moment"))
    grouped += tuple(Field(f"COUNT${i}", _COUNT) for i in range(len(calls)))
    united = Union(marked[0].fields, tuple(marked))
    origin = Origin(f"{body.kind} ALL" if body.is_all else body.kind, body.span)
    groups = Aggregate(grouped, united, tuple(range(width)), window, calls, origin=origin)
    return _rows(body, fields, groups, len(grouped) - len(calls), is_windowed=window is not None)


def _marked(
    member: Relation, side: int, fields: tuple[Field, ...], body: nodes.SetOperation, ends: set[int]
) -> Relation:
    """The rows of a side with what tells its side, where that counts, and with their time, if they have windows."""
    columns: list[Expr] = [InputRef(each.type, i) for i, each in enumerate(member.fields)]
    shown = list(fields)
    if body.kind != "UNION":
        columns += [Constant(_FLAG, side == 0), Constant(_FLAG, side == 1)]
        shown += [Field("$left", _FLAG), Field("$right", _FLAG)]
    if ends:
        end = min(ends)
        columns.append(last_moment(columns[end], is_local=_window_columns(member)[1][end]))
        shown.append(Field("$time", columns[-1].type, True))
    return Calc(tuple(shown), member, None, tuple(columns))


def _rows(
    body: nodes.SetOperation, fields: tuple[Field, ...], groups: Aggregate, at: int, *, is_windowed: bool
) -> Relation:
    """The rows that the counts of both sides leave. Times of windows stay times: their rows come in order of them."""
    shown = tuple(each if is_windowed else each._replace(is_time=False) for each in fields)
    columns: list[Expr] = [InputRef(each.type, i) for i, each in enumerate(shown)]
    if body.kind == "UNION":
        return groups if not is_windowed else Calc(shown, groups, None, tuple(columns))
    left, right = InputRef(_COUNT, at), InputRef(_COUNT, at + 1)
    zero = Constant(_COUNT, 0)
    is_left, is_right = (Operation(_FLAG, ">", (each, zero)) for each in (left, right))
    if body.kind == "INTERSECT":
        condition: Expr = Logical(_FLAG, "AND", (is_left, is_right))
        fewer = Operation(_FLAG, "<", (left, right))
        times: Expr = Conditional(_COUNT, (fewer, left, right))
    else:
        condition = Logical(_FLAG, "AND", (is_left, Not(_FLAG, is_right)))
        if body.is_all:
            condition = Operation(_FLAG, ">", (left, right))
        times = Operation(_COUNT, "INTEGER -", (left, right))
    if not body.is_all:
        return Calc(shown, groups, condition, tuple(columns))
    counted = Calc((*shown, Field("$times", _COUNT)), groups, condition, (*columns, times))
    return Repeated(shown, counted)


def _window_ends(relation: Relation) -> set[int]:
    """The columns that are the end of the window that a row comes from, if its start is a column, too."""
    starts, ends = _window_columns(relation)
    return set(ends) if starts else set()


def _window_columns(relation: Relation) -> tuple[set[int], dict[int, bool]]:
    """The columns that are the start of the window, and its end: whether it is a time of the session's zone."""
    match relation:
        case Calc():
            starts, ends = _window_columns(relation.input)
            columns = [each.index if isinstance(each, InputRef) else -1 for each in relation.projections]
            return ({i for i, each in enumerate(columns) if each in starts},
                    {i: ends[each] for i, each in enumerate(columns) if each in ends})  # fmt: skip
        case Aggregate(window=window) if window is not None:
            width = len(relation.keys)
            return {width}, {width + 1: window.local_zone is not None}
        case Windowed(window=window):
            width = len(relation.input.fields)
            return {width}, {width + 1: window.local_zone is not None}
        case Union():
            (first, ends), *others = map(_window_columns, relation.members)
            of_all = {i: each for i, each in ends.items() if all(ends_.get(i) == each for _, ends_ in others)}
            return first.intersection(*(starts for starts, _ in others)), of_all
    return set(), {}
