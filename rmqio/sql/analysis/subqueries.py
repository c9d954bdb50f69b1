"""Sub-queries in expressions: IN, EXISTS and queries as values become joins, whose results the expressions read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import conversions
from rmqio.sql.analysis.binder import ExpressionBinder, is_aggregate
from rmqio.sql.analysis.conversions import conditional
from rmqio.sql.analysis.scope import Queries, Scope, ScopeColumn
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import (
    Conditional,
    Constant,
    Expr,
    InputRef,
    Is,
    Logical,
    Not,
    Operation,
    all_of,
    inputs,
    shifted,
    substituted,
    transform,
)
from rmqio.sql.planning.plan import Aggregate, AggregateCall, Calc, Field, Relation, Windowed
from rmqio.sql.planning.relations import SubqueryJoin, without_time
from rmqio.sql.syntax import nodes

# Sub-queries that read columns from outside: their conditions become keys and conditions of a join.

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


Subquery = nodes.InQuery | nodes.Exists | nodes.ScalarQuery
_FLAG = types.BOOLEAN.nullable(False)
_COUNT = types.BIGINT.nullable(False)


def find(node: object) -> list[Subquery]:
    """Returns the sub-queries of an expression, those of operands first, without those that stand in a sub-query."""
    found: list[Subquery] = []
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, tuple):
            pending += [one for one in each if not isinstance(one, nodes.Literal)]  # IN can have thousands
        elif isinstance(each, nodes.Node) and not isinstance(each, nodes.Query):
            if isinstance(each, nodes.InQuery | nodes.Exists | nodes.ScalarQuery):
                found.append(each)
            pending += vars(each).values()
    return found[::-1]


def parted(condition: nodes.Expression | None) -> tuple[nodes.Expression | None, list[nodes.Expression]]:
    """Returns what a condition says without sub-queries, and its conditions with them."""
    plain: list[nodes.Expression] = []
    others: list[nodes.Expression] = []
    pending = [] if condition is None else [condition]
    while pending:
        each = pending.pop()
        if isinstance(each, nodes.Binary) and each.operator == "AND":
            pending += [each.right, each.left]
        else:
            (others if find(each) else plain).append(each)
    if not others:
        return condition, []
    kept: nodes.Expression | None = None
    for each in plain:
        kept = each if kept is None else nodes.Binary("AND", kept, each, span=each.span)
    return kept, others


@dataclass
class SubqueryJoins:
    """Adds what sub-queries say to rows. The columns of the rows keep their positions.

    Attributes:
      binder: binds the sub-queries.
      rows: the rows so far.
      scope: the columns that expressions can name.
      known: what sub-queries mean now.
      correlated: those that read columns of the rows.
    """

    binder: Queries
    rows: Relation
    scope: Scope
    known: dict[nodes.Expression, Expr] = field(default_factory=dict)
    correlated: list[Subquery] = field(default_factory=list)

    def where(self, condition: nodes.Expression) -> None:
        """Keeps the rows for which a condition with sub-queries is true."""
        self._refuse_windows(condition.span)
        if isinstance(condition, nodes.InQuery) and not condition.is_negated and self._semi_in(condition):
            return
        if isinstance(condition, nodes.Exists) and self._semi_exists(condition):
            return
        self.values(condition)
        self._keep(self._bound("in WHERE").condition(condition))

    def values(self, node: object) -> None:
        """Adds the results of all sub-queries of an expression."""
        for each in find(node):
            self._refuse_windows(each.span)
            if each not in self.known:
                match each:
                    case nodes.Exists():
                        self.known[each] = self._exists(each)
                    case nodes.InQuery():
                        self.known[each] = self._in(each)
                    case nodes.ScalarQuery():
                        self.known[each] = self._scalar(each)

    def _refuse_windows(self, span: Span) -> None:
        if isinstance(self.rows, Windowed):
            _refuse(
                "a sub-query cannot be combined with a window: put the window, or its groups, into a sub-query of FROM",
                span,
            )

    def _bound(self, place: str = "") -> ExpressionBinder:
        return ExpressionBinder(self.scope, place, known=self._known)

    def _known(self, node: nodes.Expression) -> Expr | None:
        return self.known.get(node) if isinstance(node, nodes.InQuery | nodes.Exists | nodes.ScalarQuery) else None

    def _keep(self, condition: Expr | None) -> None:
        columns = tuple(InputRef(each.type, i) for i, each in enumerate(self.rows.fields))
        self.rows = Calc(self.rows.fields, self.rows, condition, columns)

    def _inner(self, node: Subquery) -> Inner:
        found = inner_of(self.binder, node.query, self.scope, may_be_empty=isinstance(node, nodes.Exists))
        if found.keys or found.residual:
            self.correlated.append(node)
        return found

    # ---- IN ----

    def _operands(self, node: nodes.InQuery, inner: Inner) -> list[tuple[Expr, Expr]]:
        """The values before IN, each with the column of the sub-query that it is compared with, as one type."""
        given = node.operand.items if isinstance(node.operand, nodes.Row) else (node.operand,)
        self.values(node.operand)
        if len(given) != inner.width:
            _refuse(f"IN compares {len(given)} value{'s' * (len(given) > 1)} with {inner.width} columns", node.span)
        binder = self._bound("before IN with a query")
        return [conversions.compared(binder.bind(each), inner.column(i), node) for i, each in enumerate(given)]

    def _semi_in(self, node: nodes.InQuery) -> bool:
        inner = self._inner(node)
        if inner.totals is not None:
            return False
        pairs = self._operands(node, inner)
        self._add("SEMI", inner, [*inner.keys, *pairs], inner.residual, node)
        return True

    def _in(self, node: nodes.InQuery) -> Expr:
        inner = self._inner(node)
        if inner.totals is not None:
            return self._in_totals(node, inner)
        pairs = self._operands(node, inner)
        mark = self._add("MARK", inner, [*inner.keys, *pairs], inner.residual, node)[0]
        found: Expr = mark
        if any(each.type.is_nullable for pair in pairs for each in pair):
            if len(pairs) > 1 or inner.residual:
                what = "a row" if len(pairs) > 1 else "a query with such a condition"
                _refuse(
                    f"NOT IN, or IN in a larger condition, of {what} whose columns can be NULL is not supported: use "
                    "[NOT] EXISTS with equalities",
                    node.span,
                )
            ((value, member),) = pairs
            all_rows, not_null = self._facts(inner, member, node)
            unknown = Logical(
                types.BOOLEAN, "OR", (Is(_FLAG, value, None), Operation(_FLAG, "<", (not_null, all_rows)))
            )
            true, false = Constant(_FLAG, True), Constant(_FLAG, False)
            found = conditional(
                [mark, Is(_FLAG, all_rows, None), unknown], [true, false, Constant(types.BOOLEAN, None), false]
            )
        return Not(found.type, found) if node.is_negated else found

    def _facts(self, inner: Inner, member: Expr, node: Subquery) -> tuple[Expr, Expr]:
        """How many rows the sub-query has for a row, and how many of them are not NULL; both NULL: none."""
        keys = [other for _, other in inner.keys]
        columns = [*keys, member]
        fields = tuple(Field(f"${i}", each.type) for i, each in enumerate(columns))
        computed = Calc(fields, inner.relation, None, tuple(columns))
        calls = (AggregateCall("COUNT", _COUNT), AggregateCall("COUNT", _COUNT, len(keys)))
        counted = tuple(Field(f"KEY${i}", each.type) for i, each in enumerate(keys))
        counted += (Field("COUNT$0", _COUNT), Field("COUNT$1", _COUNT))
        groups = Aggregate(counted, computed, tuple(range(len(keys))), None, calls)
        pairs: list[tuple[Expr, Expr]] = [(one, InputRef(each.type, i)) for i, (one, each) in enumerate(inner.keys)]
        facts = Inner(groups, pairs, [], len(counted))
        first, second = self._add("SCALAR", facts, pairs, [], node)[len(keys) :]
        return first, second

    def _in_totals(self, node: nodes.InQuery, inner: Inner) -> Expr:
        """The sub-query has one row, or none if HAVING is not true."""
        given = node.operand.items if isinstance(node.operand, nodes.Row) else (node.operand,)
        if len(given) != inner.width:
            _refuse(f"IN compares {len(given)} value{'s' * (len(given) > 1)} with {inner.width} columns", node.span)
        self.values(node.operand)
        projections, having = self._totals(inner, node)
        parts = []
        for each, other in zip(given, projections, strict=True):
            one, two = conversions.compared(self._bound("before IN with a query").bind(each), other, node)
            is_nullable = types.any_nullable((one.type, two.type))
            parts.append(Operation(types.BOOLEAN.nullable(is_nullable), "=", (one, two)))
        found = all_of(list(parts))
        assert found is not None
        if having is not None:
            found = conditional([having], [found, Constant(_FLAG, False)])
        return Not(found.type, found) if node.is_negated else found

    # ---- EXISTS ----

    def _semi_exists(self, node: nodes.Exists) -> bool:
        inner = self._inner(node)
        if inner.totals is not None or not inner.keys:
            return False
        self._add("SEMI", inner, inner.keys, inner.residual, node)
        return True

    def _exists(self, node: nodes.Exists) -> Expr:
        inner = self._inner(node)
        if inner.totals is not None:
            _, having = self._totals(inner, node)
            return Constant(_FLAG, True) if having is None else Is(_FLAG, having, True)
        if inner.keys:
            return self._add("MARK", inner, inner.keys, inner.residual, node)[0]
        if inner.residual:
            _refuse(
                "a sub-query with outer columns needs an equality between one of its own columns and an outer one",
                node.span,
            )
        computed = Calc((), inner.relation, None, ())
        counted = Aggregate((Field("COUNT$0", _COUNT),), computed, (), None, (AggregateCall("COUNT", _COUNT),))
        (rows,) = self._add("SCALAR", Inner(counted, [], [], 1), [], [], node)
        return Not(_FLAG, Is(_FLAG, rows, None))

    # ---- values ----

    def _scalar(self, node: nodes.ScalarQuery) -> Expr:
        inner = self._inner(node)
        if inner.width != 1:
            _refuse(f"a sub-query as a value must have one column, but this one has {inner.width}", node.span)
        if inner.residual:
            _refuse("a sub-query as a value can use outer columns only in equalities of columns", node.span)
        if inner.totals is not None:
            (found,), having = self._totals(inner, node)
            if having is None:
                return found
            return conditional([having], [found, Constant(found.type.nullable(), None)])
        return self._add("SCALAR", inner, inner.keys, [], node)[0]

    def _totals(self, inner: Inner, node: Subquery) -> tuple[tuple[Expr, ...], Expr | None]:
        """SELECT and HAVING of aggregates without GROUP BY, of the joined columns: a COUNT of no rows is 0."""
        if inner.residual:
            _refuse("a sub-query with aggregates can use outer columns only in equalities of columns", node.span)
        totals = inner.totals
        assert totals is not None
        assert isinstance(totals.input, Aggregate)
        groups = totals.input
        added = self._add("SCALAR", inner, inner.keys, [], node, tuple(range(len(groups.fields))))
        columns = list(added)
        for i, call in enumerate(groups.calls):
            at = len(groups.keys) + i
            if call.name == "COUNT":
                is_there = Not(_FLAG, Is(_FLAG, added[at], None))
                columns[at] = Conditional(_COUNT, (is_there, added[at], Constant(_COUNT, 0)))
        having = None if totals.condition is None else substituted(totals.condition, tuple(columns))
        return tuple(substituted(each, tuple(columns)) for each in totals.projections), having

    # ---- joins ----

    def _add(
        self,
        kind: str,
        inner: Inner,
        pairs: list[tuple[Expr, Expr]],
        residual: list[Expr],
        node: Subquery,
        values: tuple[int, ...] | None = None,
    ) -> list[Expr]:
        """Adds a join, and returns the columns that it adds."""
        width = len(self.rows.fields)
        left, left_keys = _with_keys(self.rows, [one for one, _ in pairs])
        right, right_keys = _with_keys(inner.relation, [other for _, other in pairs])
        condition = all_of([_placed(each, len(left.fields)) for each in residual])
        values = tuple(range(inner.width)) if values is None else values
        added: tuple[Field, ...] = ()
        if kind == "MARK":
            added = (Field("$exists", _FLAG),)
        elif kind == "SCALAR":
            added = tuple(right.fields[each]._replace(type=right.fields[each].type.nullable()) for each in values)
        text = {nodes.InQuery: "IN", nodes.Exists: "EXISTS"}.get(type(node), "value")
        joined = SubqueryJoin(
            without_time(left.fields + added),
            left=left,
            right=right,
            kind=kind,
            keys=tuple(zip(left_keys, right_keys, strict=True)),
            residual=condition,
            values=values if kind == "SCALAR" else (),
            ttl_ms=self.binder.ttl_ms,
            text=text,
            span=node.span,
        )
        start = len(left.fields)
        kept = [*range(width), *range(start, start + len(added))]
        self.rows = joined
        if start > width:
            fields = tuple(joined.fields[each] for each in kept)
            self.rows = Calc(fields, joined, None, tuple(InputRef(joined.fields[i].type, i) for i in kept))
        return [InputRef(each.type, width + i) for i, each in enumerate(added)]


def _with_keys(relation: Relation, keys: list[Expr]) -> tuple[Relation, list[int]]:
    """The relation with columns for keys that are computed, and the positions of all keys."""
    extra = [each for each in keys if not isinstance(each, InputRef)]
    places = [each.index if isinstance(each, InputRef) else len(relation.fields) + extra.index(each) for each in keys]
    if not extra:
        return relation, places
    own = tuple(InputRef(each.type, i) for i, each in enumerate(relation.fields))
    fields = relation.fields + tuple(Field(f"KEY${i}", each.type) for i, each in enumerate(extra))
    return Calc(fields, relation, None, (*own, *extra)), places


def _placed(expression: Expr, start: int) -> Expr:
    """The condition of an `Inner`, with the columns of the sub-query from `start` on."""

    def moved(each: Expr) -> Expr:
        if isinstance(each, InputRef) and each.index >= INNER:
            return replace(each, index=each.index - INNER + start)
        return each

    return transform(expression, moved)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
