"""Queries: SELECT becomes relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from rmqio.errors import counted
from rmqio.sql import types
from rmqio.sql.analysis import conversions, laterals
from rmqio.sql.analysis.binder import ExpressionBinder, is_aggregate, ranking
from rmqio.sql.analysis.grouping import Grouping, WindowIsUsed, require_key
from rmqio.sql.analysis.joins import is_versioned, joined, looked_up
from rmqio.sql.analysis.over import Ranked, field_of, with_results
from rmqio.sql.analysis.scope import Scope, ScopeColumn, check_names, name_of, renamed
from rmqio.sql.analysis.set_operations import set_operation, sorted_query
from rmqio.sql.analysis.subqueries import parted
from rmqio.sql.analysis.windows import WINDOW_FUNCTIONS, emit_of, partition_of, refuse_rows, refuse_use, table_window
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.settings import EmitSettings
from rmqio.sql.catalog.tables import Catalog, Table, View
from rmqio.sql.errors import Refusal, Span, nearest
from rmqio.sql.expressions import Expr, InputRef, is_processing_time
from rmqio.sql.planning.plan import (
    Aggregate,
    Calc,
    Constants,
    Field,
    Relation,
    Scan,
    Union,
    Window,
    Windowed,
    window_fields,
)
from rmqio.sql.syntax import nodes

# Windows that WINDOW names: `SUM(a) OVER w ... WINDOW w AS (PARTITION BY k ORDER BY ts)`.


def with_windows(select: nodes.Select) -> nodes.Select:
    """Returns the SELECT with each named window where it is used. Raises `Refusal` for a name that is not there."""
    known: dict[str, nodes.Over] = {}
    for name, window in select.windows:
        if name.text in known:
            raise Refusal(f"WINDOW has {name} twice", name.span)
        known[name.text] = window
    items, having = (_replaced(each, known) for each in (select.items, select.having))
    if items is select.items and having is select.having:
        return select
    return replace(select, items=items, having=having)


def _replaced(node: Any, known: dict[str, nodes.Over]) -> Any:
    if isinstance(node, tuple):
        found = tuple(_replaced(each, known) for each in node)
        return node if all(new is old for new, old in zip(found, node, strict=True)) else found
    if not isinstance(node, nodes.Node) or isinstance(node, nodes.Query):
        return node
    if isinstance(node, nodes.Over):
        if node.name is None:
            return node
        if node.name.text not in known:
            hint = nearest(node.name.text, known) or ": WINDOW defines it, before ORDER BY and LIMIT"
            raise Refusal(f"there is no window {node.name}{hint}", node.name.span)
        return replace(known[node.name.text], span=node.span)
    changes: dict[str, Any] = {}
    for each in fields(node):
        before = getattr(node, each.name)
        if isinstance(before, (tuple, nodes.Node)):
            after = _replaced(before, known)
            if after is not before:
                changes[each.name] = after
    return replace(node, **changes) if changes else node


@dataclass(frozen=True)
class QueryBinder:
    """Binds queries to a catalog.

    Attributes:
      catalog: tables and views.
      ttl_ms: how long what nothing else bounds keeps its state, such as a join its rows; 0: it was not said.
      emit: when windows give rows besides at their ends.
      common: the relations of WITH, by name.
      within: views that are being planned, so that none contains itself.
      checked: relations of views by their `id`, for statements that only check a query; None: each view is planned.
    """

    catalog: Catalog
    ttl_ms: int = 0
    emit: EmitSettings = field(default_factory=EmitSettings)
    common: dict[str, Relation] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    checked: dict[int, tuple[View, Relation]] | None = None

    def query(self, query: nodes.Query) -> Relation:
        """Returns the relation of a query. Raises `Refusal` if it is not valid."""
        binder = self
        for each in query.tables:
            if each.name.text in [other.name.text for other in query.tables if other is not each]:
                _refuse(f"WITH has two queries with the name {each.name}", each.name.span)
            found = renamed(binder.query(each.query), each.columns, each.name.span)
            check_names(each.name, each.columns, each.query, found.fields)
            binder = replace(binder, common={**binder.common, each.name.text: found})
        if query.order_by or query.limit is not None or query.offset:
            return sorted_query(query, binder)
        return binder.body(query.body)

    def body(self, body: nodes.Body) -> Relation:
        """Returns the relation of a body."""
        match body:
            case nodes.Query():
                return self.query(body)
            case nodes.Select():
                return self._select(body)
            case nodes.Values():
                return self._values(body)
            case nodes.SetOperation():
                return self._set_operation(body)
        raise AssertionError(body)

    # ---- SELECT ----

    def _select(self, select: nodes.Select) -> Relation:
        plain, tests = parted(select.where)
        select = with_windows(_with_conditions(replace(select, where=plain) if tests else select))
        source, scope = self._from(select)
        added = with_results(self, select, tests, source, scope)
        source, select = added.rows, added.select
        binder = ExpressionBinder(scope, known=added.known)
        where = replace(binder, place="in WHERE")
        condition = None if select.where is None else where.condition(select.where)
        is_ranked = not added.is_analytic and ranking(select) is not None
        if not is_ranked and (select.group_by or select.having is not None or _has_aggregates(select)):
            return self._grouped(select, source, binder, condition, added.constants)
        if select.emit:
            is_needless = select.emit[0].kind == "changes"
            hint = "; without one, each row is there at once: leave EMIT out" if is_needless else ""
            _refuse(f"EMIT needs a window, but this query has no GROUP BY{hint}", select.emit[0].span)
        refuse_rows(source, (select.source or select).span)
        if is_ranked:
            return self._ranked(select, source, scope, binder, condition)
        projections: list[Expr] = []
        fields: list[Field] = []
        for item in select.items:
            if isinstance(item, nodes.Star):
                if select.source is None:
                    _refuse("* needs FROM", item.span)
                for each in _starred(item, scope):
                    projections.append(each.expression)
                    fields.append(field_named(each.name, each.expression, source))
            else:
                found = binder.bind(item.expression)
                projections.append(found)
                fields.append(field_named(name_of(item, len(fields)), found, source))
        calc = Calc(tuple(fields), source, condition, tuple(projections))
        return _distinct(calc, select.span) if select.is_distinct else calc

    def _ranked(
        self, select: nodes.Select, source: Relation, scope: Scope, binder: ExpressionBinder, condition: Expr | None
    ) -> Relation:
        items: list[tuple[Field, Expr] | nodes.Call] = []
        names: list[str] = []
        number = ranking(select)
        for item in select.items:
            if isinstance(item, nodes.Star):
                starred = [(field_named(c.name, c.expression, source), c.expression) for c in _starred(item, scope)]
                items += starred
                names += [each.name for each, _ in starred]
                continue
            names.append(name_of(item, len(names)))
            if item is number:
                assert isinstance(item.expression, nodes.Call)
                items.append(item.expression)
            else:
                found = binder.bind(item.expression)
                items.append((field_named(names[-1], found, source), found))
        return Ranked(source, binder, condition, self.ttl_ms).relation(items, names)

    def _grouped(
        self,
        select: nodes.Select,
        source: Relation,
        binder: ExpressionBinder,
        condition: Expr | None,
        constants: Sequence[Expr] = (),
    ) -> Relation:
        try:
            return self._aggregated(select, source, binder, condition, constants)
        except WindowIsUsed as used:
            assert isinstance(source, Windowed)
            windowed = source.window
            refuse_use(select, windowed, self.emit, used.span)
        # As in a sub-query, SELECT * FROM TABLE(...): the rows are in their windows before they are grouped.
        refs = tuple(InputRef(each.type, position) for position, each in enumerate(source.fields))
        fields = tuple(field_named(each.name, ref, source) for each, ref in zip(source.fields, refs, strict=True))
        return self._aggregated(select, Calc(fields, source, None, refs), binder, condition, constants, windowed)

    def _aggregated(
        self,
        select: nodes.Select,
        source: Relation,
        binder: ExpressionBinder,
        condition: Expr | None,
        constants: Sequence[Expr],
        windowed: Window | None = None,
    ) -> Relation:
        where = None if select.where is None else select.where.span
        grouping = Grouping(source, replace(binder, place="in GROUP BY"), condition, where, windowed)
        grouping.add_groups(select.group_by)
        grouping.close_groups(select.group_by[0].span if select.group_by else select.span)
        grouping.keys += constants
        outer = grouping.binder()
        projections: list[Expr] = []
        fields: list[Field] = []
        for each in select.items:
            for item in _without_stars(each, binder.scope):
                projections.append(outer.bind(item.expression))
                fields.append(Field(name_of(item, len(fields)), projections[-1].type))
        having = None if select.having is None else outer.condition(select.having)
        emit, place = emit_of(select, grouping.window, self.emit), _place_of_groups(select)
        ttl_ms = 0 if grouping.window else self.ttl_ms
        aggregate = replace(grouping.relation(), emit=emit, ttl_ms=ttl_ms, span=place)
        fields = [field_named(each.name, one, aggregate) for each, one in zip(fields, projections, strict=True)]
        calc = Calc(tuple(fields), aggregate, having, tuple(projections))
        return _distinct(calc, select.span) if select.is_distinct else calc

    def _from(self, select: nodes.Select) -> tuple[Relation, Scope]:
        if select.source is None:
            return Constants((), ((),)), Scope(())
        if isinstance(select.source, nodes.Join):
            return self._join(select.source, select.where)
        return self._from_item(select.source)

    def from_of(self, select: nodes.Select) -> tuple[Relation, Scope]:
        """Returns the rows of FROM, and the columns that expressions can name."""
        return self._from(_with_conditions(select))

    def _from_item(self, item: nodes.FromItem, *, is_right: bool = False) -> tuple[Relation, Scope]:
        match item:
            case nodes.TableRef():
                if item.as_of is not None and not is_right:
                    _refuse("a table FOR SYSTEM_TIME AS OF must be on the right of a JOIN or LEFT JOIN", item.span)
                relation = self.named(item.name)
                return _aliased(relation, item.alias or item.name, item.columns)
            case nodes.Derived():
                return _aliased(self.query(item.query), item.alias, item.columns)
            case nodes.Join():
                return self._join(item)
            case nodes.TableFunction() if item.call.name.text.upper() in WINDOW_FUNCTIONS:
                return self._windowed(item)
        return laterals.alone(self, item)

    def _windowed(self, item: nodes.TableFunction) -> tuple[Relation, Scope]:
        data = next((each for each in item.call.arguments), None)
        if isinstance(data, nodes.NamedArgument):
            data = data.value
        if not isinstance(data, nodes.TableArgument):
            _refuse(f"{item.call.name} takes TABLE and the name of a table first", item.call.span)
        relation = self.query(data.table) if isinstance(data.table, nodes.Query) else self.named(data.table)
        window = table_window(item.call, relation)
        partition = partition_of(data, relation, item.call.name.text.upper())
        alias = item.alias or (data.table if isinstance(data.table, nodes.Name) else None)
        # The time of a row is that of its window from here on.
        fields = tuple(each._replace(is_time=False) for each in relation.fields) + window_fields(window)
        return _aliased(Windowed(fields, relation, window, partition), alias, item.columns)

    def named(self, name: nodes.Name) -> Relation:
        """Returns the rows of a table, a view or a query of WITH. Raises `Refusal` if there is none."""
        if name.text in self.common:
            return self.common[name.text]
        relation = self.catalog.relation(name)
        if isinstance(relation, Table):
            return scan_of(relation)
        if relation.name in self.within:
            _refuse(f"the view {name} contains itself", name.span)
        return self._view(relation, name.span)

    def _view(self, view: View, span: Span) -> Relation:
        if self.checked is not None and id(view) in self.checked:
            return self.checked[id(view)][1]
        binder = replace(self, common={}, within=(*self.within, view.name))
        relation = renamed(binder.query(view.query), view.columns, span)
        if self.checked is not None:
            self.checked[id(view)] = view, relation
        return relation

    def _join(self, join: nodes.Join, where: nodes.Expression | None = None) -> tuple[Relation, Scope]:
        if is_versioned(join.right):
            return looked_up(join, self._from_item(join.left), self._from_item(join.right, is_right=True))
        if laterals.is_lateral(join.right):
            found = laterals.expanded(self, join, self._from_item(join.left))
            if found is not None:
                return found
        left, right = self._from_item(join.left), self._from_item(join.right)
        refuse_rows(left[0], join.left.span)
        refuse_rows(right[0], join.right.span)
        return joined(join, left, right, self.ttl_ms, where)

    # ---- others ----

    def _values(self, body: nodes.Values) -> Relation:
        binder = ExpressionBinder(Scope(()), "in VALUES")
        rows = [[binder.bind(each) for each in row] for row in body.rows]
        width = len(rows[0])
        for row, bound in zip(body.rows, rows, strict=True):
            if len(bound) != width:
                _refuse(f"this row has {counted(len(bound), 'value')}, but the first one has {width}", row[0].span)
        columns = [
            conversions.same_type([row[i] for row in rows], [row[i] for row in body.rows], "VALUES")
            for i in range(width)
        ]
        fields = tuple(
            Field(f"EXPR${i}", column[0].type.nullable(types.any_nullable(each.type for each in column)))
            for i, column in enumerate(columns)
        )
        return Constants(fields, tuple(zip(*columns, strict=True)))

    def _set_operation(self, body: nodes.SetOperation) -> Relation:
        what = f"{body.kind} ALL" if body.is_all else body.kind
        left, right = self.body(body.left), self.body(body.right)
        if len(left.fields) != len(right.fields):
            _refuse(
                f"{what} needs the same number of columns on both sides, not {len(left.fields)} and "
                f"{len(right.fields)}",
                body.right.span,
            )
        fields = []
        for one, other in zip(left.fields, right.fields, strict=True):
            found = types.common_type((one.type, other.type))
            if found is None:
                _refuse(
                    f"{what} cannot combine {one.name}, {one.type.text}, with {other.name}, {other.type.text}: "
                    "use CAST",
                    body.right.span,
                )
            fields.append(Field(one.name, found, one.is_time and other.is_time))
        members = [_as_types(each, fields, body) for each in (left, right)]
        if body.kind != "UNION" or not body.is_all:
            return set_operation(body, tuple(fields), members)
        flat = [m for each in members for m in (each.members if isinstance(each, Union) else (each,))]
        return Union(tuple(fields), tuple(flat))


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)


def scan_of(table: Table) -> Relation:
    """Returns the rows of a table, with its computed columns."""
    if table.options.connector not in ("rocketmq", "elements", FILES, DATABASE):
        raise Refusal(f"the table {table.name} cannot be read: its connector is {table.options.connector!r}", None)
    # Metadata that is only written, such as a delay, is not a column of what is read.
    read = tuple(
        each for each in table.columns if each.expression is None and (each.metadata is None or each.metadata.read)
    )
    time = table.watermark[0] if table.watermark else None
    fields = tuple(Field(each.name, each.type, each.name == time) for each in read)
    scan = Scan(fields, table, read)
    columns = tuple(each for each in table.columns if each in read or each.expression is not None)
    if len(read) == len(columns):
        return scan
    by_name = {each.name: InputRef(each.type, i) for i, each in enumerate(fields)}
    binder = ExpressionBinder(Scope.of(fields, table.name), "in a computed column")
    projections = [by_name[each.name] if each.expression is None else binder.bind(each.expression) for each in columns]
    named = tuple(
        Field(c.name, e.type, c.name == time, is_processing=is_processing_time(e))
        for c, e in zip(columns, projections, strict=True)
    )
    return Calc(named, scan, None, tuple(projections))


def field_named(name: str, expression: Expr, source: Relation) -> Field:
    """Returns the field of a projection. A time column that is not changed stays one."""
    return field_of(name, expression, source)


def _as_types(relation: Relation, fields: list[Field], body: nodes.SetOperation) -> Relation:
    if all(conversions.same_but_null(a.type, b.type) for a, b in zip(relation.fields, fields, strict=True)):
        return relation
    projections = tuple(
        conversions.converted(InputRef(old.type, i), new.type, body)
        for i, (old, new) in enumerate(zip(relation.fields, fields, strict=True))
    )
    return Calc(tuple(fields), relation, None, projections)


def _aliased(relation: Relation, alias: nodes.Name | None, columns: tuple[nodes.Name, ...]) -> tuple[Relation, Scope]:
    relation = renamed(relation, columns, alias.span if alias else nodes.NOWHERE)
    return relation, Scope.of(relation.fields, alias.text if alias else None)


def _starred(item: nodes.Star, scope: Scope) -> list[ScopeColumn]:
    """The columns of * or t.*; those of USING are there once."""
    if item.qualifier is not None:
        return scope.of_table(item.qualifier)
    merged = {each.name: each for each in reversed(scope.columns) if each.name in scope.merged}
    first = [merged.pop(each.name) for each in scope.columns if each.name in merged]
    return [*first, *(each for each in scope.columns if each.name not in scope.merged)]


def _without_stars(item: nodes.Item | nodes.Star, scope: Scope) -> list[nodes.Item]:
    """The columns of * or t.* as if they were named."""
    if isinstance(item, nodes.Item):
        return [item]
    found = []
    for each in _starred(item, scope):
        name = nodes.Name(each.name, span=item.span)
        column: nodes.Expression = nodes.Column(name, span=item.span)
        if each.table is not None and each.name not in scope.merged:
            column = nodes.Member(
                nodes.Column(nodes.Name(each.table, span=item.span), span=item.span), name, span=item.span
            )
        found.append(nodes.Item(column, None, span=item.span))
    return found


def _distinct(calc: Calc, span: Span) -> Relation:
    """One of each row: a GROUP BY of all columns. Its rows come at the end: no watermark follows their times."""
    for each in calc.fields:
        require_key(each.type, each.name, span)
    fields = tuple(each._replace(is_time=False) for each in calc.fields)
    return Aggregate(fields, calc, tuple(range(len(fields))), None, (), span=span)


def _place_of_groups(select: nodes.Select) -> Span:
    """The place of what is grouped by; without GROUP BY, of the SELECT."""
    if not select.group_by:
        return select.span
    return Span(select.group_by[0].span.start, select.group_by[-1].span.end)


def _has_aggregates(select: nodes.Select) -> bool:
    return any(isinstance(item, nodes.Item) and _calls_aggregate(item.expression) for item in select.items)


def _calls_aggregate(node: object) -> bool:
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, nodes.Call) and is_aggregate(each) and each.over is None:
            return True
        if isinstance(each, tuple):
            pending += each
        elif isinstance(each, nodes.Node) and not isinstance(each, nodes.Query):
            pending += vars(each).values()
    return False


def _with_conditions(select: nodes.Select) -> nodes.Select:
    """`FROM a, b WHERE a.x = b.x` is an inner join on the condition."""
    source = select.source
    if not isinstance(source, nodes.Join) or isinstance(source.left, nodes.Join):
        return select
    if source.kind != "CROSS" or select.where is None or laterals.is_lateral(source.right):
        return select
    joined = replace(source, kind="INNER", condition=select.where)
    return replace(select, source=joined, where=None)
