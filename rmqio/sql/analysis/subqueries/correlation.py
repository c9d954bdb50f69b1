"""Sub-queries that read columns from outside: their conditions become keys and conditions of a join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from rmqio.sql.analysis.binding import Queries
from rmqio.sql.analysis.scope import Scope, ScopeColumn
from rmqio.sql.analysis.values import conversions
from rmqio.sql.analysis.values.binder import ExpressionBinder, is_aggregate
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Expr, InputRef, inputs, shifted, transform
from rmqio.sql.planning.plan import Aggregate, Calc, Relation
from rmqio.sql.syntax import nodes

INNER: Final = 1 << 20
"""In conditions on columns of both, those of the sub-query stand from here on."""


@dataclass(frozen=True)
class Inner:
    """A sub-query without what ties it to outside.

    Attributes:
      relation: its rows.
      keys: values from outside, and the columns of the rows that must equal them.
      residual: further conditions, on columns of both.
      width: how many of the columns are those of SELECT. They come first.
      totals: if it has aggregates and no GROUP BY, what SELECT and HAVING make of them: the rows are the aggregate's.
    """

    relation: Relation
    keys: list[tuple[Expr, Expr]]
    residual: list[Expr]
    width: int
    totals: Calc | None = None

    def column(self, position: int) -> Expr:
        """Returns a column of the rows."""
        return InputRef(self.relation.fields[position].type, position)


def inner_of(binder: Queries, query: nodes.Query, outer: Scope, *, may_be_empty: bool) -> Inner:
    """Returns a sub-query, bound. Raises `Refusal` if it is not valid.

    Args:
      outer: the columns from outside.
      may_be_empty: only whether there is a row counts.
    """
    try:
        relation = binder.query(query)
    except Refusal as refusal:
        tied = _tied(binder, query, outer, may_be_empty=may_be_empty)
        if tied is None:
            raise refusal from None
        return tied
    width = len(relation.fields)
    if isinstance(query.body, nodes.Select) and _is_total(query.body) and isinstance(relation, Calc):
        return Inner(relation.input, [], [], width, relation)
    return Inner(relation, [], [], width)


def _is_total(select: nodes.Select) -> bool:
    if select.group_by or select.is_distinct:
        return False
    return select.having is not None or any(
        isinstance(item, nodes.Item) and _calls_aggregate(item.expression) for item in select.items
    )


def _calls_aggregate(node: object) -> bool:
    return any(isinstance(each, nodes.Call) and is_aggregate(each) and each.over is None for each in _parts(node))


def _parts(node: object) -> Iterator[nodes.Node]:
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, tuple):
            pending += each
        elif isinstance(each, nodes.Node) and not isinstance(each, nodes.Query):
            yield each
            pending += vars(each).values()


# ---- tied to outside ------------------------------------------------------------------------------------------------


def _tied(binder: Queries, query: nodes.Query, outer: Scope, *, may_be_empty: bool) -> Inner | None:
    """The sub-query, if it is valid with the columns from outside; None: nothing in its WHERE reads them."""
    body = query.body
    if not isinstance(body, nodes.Select) or body.where is None or query.tables:
        return None
    scope = _scope(binder, body)
    both = _Both(scope.columns, scope.merged, outer=outer)
    plain: list[nodes.Expression] = []
    tied: list[tuple[nodes.Expression, Expr]] = []
    for each in _conditions(body.where):
        found = _reads_outside(each, scope, both)
        if found is None:
            plain.append(each)
        else:
            tied.append((each, found))
    if not tied:
        return None
    bounded = query.order_by or query.offset or query.limit is not None
    if bounded and not (may_be_empty and query.limit and not query.offset):
        _refuse("ORDER BY and LIMIT cannot be used in a sub-query that reads outer columns", query.span)
    pairs: list[tuple[nodes.Expression, nodes.Expression]] = []
    residual: list[Expr] = []
    for condition, bound in tied:
        pair = _equal_sides(condition, scope, outer)
        if pair is not None:
            pairs.append(pair)
        else:
            residual.append(bound)
    select = replace(body, where=_all(plain))
    return _bound(binder, select, pairs, residual, outer, scope)


def _scope(binder: Queries, select: nodes.Select) -> Scope:
    """The columns of FROM. In `FROM a, b` the condition of the join is still among the others."""
    source = select.source
    try:
        return binder.from_of(replace(select, where=None))[1]
    except Refusal:
        if not isinstance(source, nodes.Join) or source.kind != "CROSS":
            raise
    rows, left = binder.from_of(replace(select, source=source.left, where=None))
    right = binder.from_of(replace(select, source=source.right, where=None))[1]
    width = len(rows.fields)
    moved = tuple(replace(each, expression=shifted(each.expression, width)) for each in right.columns)
    return left.joined(Scope(moved, right.merged))


def _bound(
    binder: Queries,
    select: nodes.Select,
    pairs: list[tuple[nodes.Expression, nodes.Expression]],
    residual: list[Expr],
    outer: Scope,
    scope: Scope,
) -> Inner:
    """The sub-query with the columns that it is tied by beside its own."""
    is_total = _is_total(select)
    is_grouped = is_total or bool(select.group_by)
    used = sorted({each - INNER for condition in residual for each in inputs(condition) if each >= INNER})
    if residual and is_grouped:
        _refuse(
            "a sub-query with aggregates can use outer columns only in equalities of columns",
            select.span,
        )
    own = [inside for inside, _ in pairs]
    extra = [nodes.Item(each, None, span=each.span) for each in own]
    extra += [nodes.Item(_named(scope.columns[each], select.span), None, span=select.span) for each in used]
    changed = replace(select, items=(*select.items, *extra))
    if is_grouped:
        changed = replace(changed, group_by=(*select.group_by, *own))
    relation = binder.body(changed)
    width = len(relation.fields) - len(extra)
    totals: Calc | None = None
    first = width
    if is_total:
        assert isinstance(relation, Calc)
        assert isinstance(relation.input, Aggregate)
        totals = replace(relation, fields=relation.fields[:width], projections=relation.projections[:width])
        relation, first = relation.input, 0
    keys = []
    for i, (inside, outside) in enumerate(pairs):
        column = InputRef(relation.fields[first + i].type, first + i)
        keys.append(conversions.compared(ExpressionBinder(outer, "here").bind(outside), column, inside))
    places = {INNER + each: INNER + width + len(own) + i for i, each in enumerate(used)}

    def moved(each: Expr) -> Expr:
        return replace(each, index=places.get(each.index, each.index)) if isinstance(each, InputRef) else each

    return Inner(relation, keys, [transform(each, moved) for each in residual], width, totals)


def _conditions(condition: nodes.Expression) -> Iterator[nodes.Expression]:
    pending = [condition]
    while pending:
        each = pending.pop()
        if isinstance(each, nodes.Binary) and each.operator == "AND":
            pending += [each.right, each.left]
        else:
            yield each


def _all(conditions: list[nodes.Expression]) -> nodes.Expression | None:
    found: nodes.Expression | None = None
    for each in conditions:
        found = each if found is None else nodes.Binary("AND", found, each, span=each.span)
    return found


def _reads_outside(condition: nodes.Expression, scope: Scope, both: Scope) -> Expr | None:
    """The condition, if it reads columns from outside. Raises `Refusal` if it is not valid with them."""
    try:
        ExpressionBinder(scope, "in WHERE").condition(condition)
    except Refusal as first:
        try:
            return ExpressionBinder(both, "in WHERE").condition(condition)
        except Refusal as second:
            if (first.message, first.span) != (second.message, second.span):
                raise
    return None


def _equal_sides(
    condition: nodes.Expression, scope: Scope, outer: Scope
) -> tuple[nodes.Expression, nodes.Expression] | None:
    """The sides of an equality of which one reads the sub-query, and the other one outside only."""
    if not isinstance(condition, nodes.Binary) or condition.operator != "=":
        return None
    for inside, outside in ((condition.left, condition.right), (condition.right, condition.left)):
        if _is_valid(inside, scope) and _is_valid(outside, outer) and not _is_valid(outside, scope):
            return inside, outside
    return None


def _is_valid(node: nodes.Expression, scope: Scope) -> bool:
    try:
        return bool(inputs(ExpressionBinder(scope, "here").bind(node)))
    except Refusal:
        return False


def _named(column: ScopeColumn, span: Span) -> nodes.Expression:
    if column.table is None:
        return nodes.Column(nodes.Name(column.name, span=span), span=span)
    table = nodes.Column(nodes.Name(column.table, span=span), span=span)
    return nodes.Member(table, nodes.Name(column.name, span=span), span=span)


@dataclass(frozen=True, slots=True)
class _Both(Scope):
    """The columns of a sub-query, and those from outside for names that it does not have."""

    outer: Scope = field(kw_only=True)

    def find(self, node: nodes.Column | nodes.Member) -> Expr | None:
        try:
            found = Scope.find(self, node)
        except Refusal as refusal:
            first: nodes.Expression = node
            while isinstance(first, nodes.Member):
                first = first.base
            try:
                return self.outer.find(node)
            except Refusal:
                if isinstance(first, nodes.Column) and first.name.text in self.outer.tables and first is not node:
                    raise
            raise refusal from None
        return None if found is None else shifted(found, INNER)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
