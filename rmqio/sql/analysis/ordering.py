"""ORDER BY, LIMIT, OFFSET and FETCH FIRST."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis.binding import Queries
from rmqio.sql.errors import Refusal, Span, nearest
from rmqio.sql.expressions import InputRef
from rmqio.sql.planning.plan import Calc, Relation, SortKey
from rmqio.sql.planning.relations import MOST_SORTED, Sorted, without_time
from rmqio.sql.syntax import nodes

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
