"""Items of FROM that are computed of the row before them: UNNEST, table functions, LATERAL (query)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from rmqio.errors import counted
from rmqio.sql import types
from rmqio.sql.analysis import functions
from rmqio.sql.analysis.binder import ExpressionBinder, is_aggregate
from rmqio.sql.analysis.functions import OPERATORS, require_function
from rmqio.sql.analysis.scope import Scope, ScopeColumn
from rmqio.sql.analysis.windows import WINDOW_FUNCTIONS
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Expr, InputRef, inputs, transform
from rmqio.sql.planning.plan import Calc, Constants, Field, Relation, Windowed, window_fields
from rmqio.sql.planning.relations import ELEMENT, ENTRY, ROW, TUPLE, Expand, Shape
from rmqio.sql.syntax import nodes

Side = tuple[Relation, Scope]


def is_lateral(item: nodes.FromItem) -> bool:
    """Returns whether an item of FROM is computed of the row before it."""
    match item:
        case nodes.Unnest():
            return True
        case nodes.TableFunction():
            return item.call.name.text.upper() not in WINDOW_FUNCTIONS
        case nodes.Derived():
            return item.is_lateral
    return False


def alone(queries: Any, item: nodes.FromItem) -> Side:
    """Returns the rows of an item that has nothing before it: its operands are constants."""
    return _expanded(item, (Constants((), ((),)), Scope(())), Scope(()), is_outer=False)


def expanded(queries: Any, join: nodes.Join, left: Side) -> Side | None:
    """Returns the rows of the left side, with those of the item. None: the item is a query that does not use them.

    Raises `Refusal` if the join or the item is not valid.
    """
    item = join.right
    if isinstance(item, nodes.Derived):
        found = _query(queries, item, left, join.kind)
        if found is None:
            return None
    else:
        if join.kind in ("RIGHT", "FULL"):
            _refuse(f"{join.kind} JOIN has no meaning here: the right side is computed from the left side", join.span)
        found = _expanded(item, left, left[1], is_outer=join.kind == "LEFT")
    if join.using:
        _refuse("USING is for two tables: write ON TRUE", join.using[0].span)
    if join.condition is None or _is_true(join.condition):
        return found
    if join.kind == "LEFT":
        _refuse("LEFT JOIN takes ON TRUE here; put the condition into a CASE, or filter the array", join.condition.span)
    condition = ExpressionBinder(found[1], "in ON").condition(join.condition)
    relation = found[0]
    if not isinstance(relation, Windowed):
        return _filtered(relation, condition), found[1]
    _refuse_window(relation, condition, join.condition.span)
    return replace(relation, input=_filtered(relation.input, condition)), found[1]


def _is_true(node: nodes.Expression) -> bool:
    return isinstance(node, nodes.Literal) and node.value is True


def _filtered(relation: Relation, condition: Expr) -> Relation:
    columns = tuple(InputRef(each.type, i) for i, each in enumerate(relation.fields))
    return Calc(relation.fields, relation, condition, columns)


# ---- UNNEST and table functions -------------------------------------------------------------------------------------


def _expanded(item: nodes.FromItem, left: Side, outer: Scope, *, is_outer: bool) -> Side:
    relation, scope = left
    binder = ExpressionBinder(outer, "in FROM")
    match item:
        case nodes.Unnest():
            rows = binder.bind(item.operand)
            kind, fields = _unnested(item, rows)
            has_ordinality = item.has_ordinality
        case nodes.TableFunction():
            rows, kind, has_ordinality = _rows_of(item.call, binder), TUPLE, False
            (row,) = rows.type.elements
            fields = [Field(name, each) for name, each in zip(row.names, row.elements, strict=True)]
        case _:
            raise AssertionError(item)
    if is_outer:
        fields = [each._replace(type=each.type.nullable()) for each in fields]
    if item.columns:
        if len(item.columns) != len(fields):
            _refuse(f"{counted(len(item.columns), 'name')} for {counted(len(fields), 'column')}", item.columns[0].span)
        fields = [each._replace(name=name.text) for name, each in zip(item.columns, fields, strict=True)]
    table = item.alias.text if item.alias else None
    if item.alias is not None and table in scope.tables:
        _refuse(f"two tables of FROM have the name {table}: give one of them an alias", item.alias.span)
    # A row becomes several before it gets its window, whose columns stay the last ones.
    source = relation.input if isinstance(relation, Windowed) else relation
    width = len(source.fields)
    made = Expand(source.fields + tuple(fields), source, rows, Shape(kind, has_ordinality, is_outer))
    own = Scope.of(fields, table, width)
    if not isinstance(relation, Windowed):
        return made, scope.joined(own)
    _refuse_window(relation, rows, item.span)

    def moved(each: Expr) -> Expr:
        if isinstance(each, InputRef) and each.index >= width:
            return replace(each, index=each.index + len(fields))
        return each

    columns = tuple(replace(each, expression=transform(each.expression, moved)) for each in scope.columns)
    fields_of_window = window_fields(relation.window)
    return Windowed(made.fields + fields_of_window, made, relation.window), Scope(columns, scope.merged).joined(own)


def _refuse_window(windowed: Windowed, used: Expr, span: Span) -> None:
    if max(inputs(used), default=0) >= len(windowed.input.fields):
        _refuse("columns of the window cannot be used here: they are those of groups, not of rows", span)


def _unnested(item: nodes.Unnest, rows: Expr) -> tuple[str, list[Field]]:
    kind = rows.type
    if kind.kind == "MAP":
        shape, fields = ENTRY, [Field(n, t) for n, t in zip(("KEY", "VALUE"), kind.elements, strict=True)]
    elif kind.kind not in ("ARRAY", "MULTISET"):
        return _refuse(f"UNNEST takes an ARRAY or a MAP, not {kind.text}", item.operand.span)
    elif kind.elements[0].kind == "ROW":
        row = kind.elements[0]
        shape = ROW
        fields = [Field(name, each.nullable()) for name, each in zip(row.names, row.elements, strict=True)]
    else:
        # The one column has no name of its own: it has that of the table.
        shape, fields = ELEMENT, [Field(item.alias.text if item.alias else "EXPR$0", kind.elements[0])]
    if item.has_ordinality:
        fields.append(Field("ORDINALITY", types.INTEGER.nullable(False)))
    return shape, fields


def _rows_of(call: nodes.Call, binder: ExpressionBinder) -> Expr:
    if call.function is not None:
        return functions.rows(call, binder)
    if not _is_known(call):
        require_function(call.name.text.upper(), call)  # which says that there is none, and the nearest name
    return _refuse(f"{call.name} is not a table function: UNNEST(...) makes rows of an array", call.span)


def _is_known(call: nodes.Call) -> bool:
    from rmqio.sql.functions import registry

    name = call.name.text.upper()
    return (name in registry.load() and name not in OPERATORS) or is_aggregate(call)


# ---- LATERAL (query) ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Nested(Scope):
    """The columns of a query, and after them those of the row from which it is computed."""

    outer: Scope = field(default_factory=lambda: Scope(()))

    def find(self, node: nodes.Column | nodes.Member) -> Expr | None:
        first: nodes.Expression = node
        while isinstance(first, nodes.Member):
            first = first.base
        if not isinstance(first, nodes.Column):
            return None
        name = first.name.text
        is_own = name in self.tables or any(each.name == name for each in self.columns)
        is_outer = name in self.outer.tables or any(each.name == name for each in self.outer.columns)
        return (self.outer if is_outer and not is_own else Scope(self.columns, self.merged)).find(node)


def _query(queries: Any, item: nodes.Derived, left: Side, kind: str) -> Side | None:
    """The query's rows beside the left ones, if it reads no table: it is computed with each row."""
    select = item.query.body
    if not _is_computed(item.query) or not isinstance(select, nodes.Select):
        try:
            queries.query(item.query)
        except Refusal as refusal:
            _refuse(
                f"LATERAL (query) can use columns of the row before it only if it reads no table: SELECT ... FROM "
                f"UNNEST(...), without GROUP BY, DISTINCT and LIMIT. Join instead (otherwise, {refusal.message})",
                refusal.span or item.span,
            )
        return None
    if kind not in ("CROSS", "INNER"):
        _refuse(f"{kind} JOIN LATERAL (query) is not supported: use LEFT JOIN UNNEST(...) ON TRUE", item.span)
    relation, outer = left
    if isinstance(relation, Windowed):
        _refuse("LATERAL (query) next to rows of a window is not supported: use UNNEST", item.span)
    width = len(relation.fields)
    scope = Scope(())
    for each in _items(select.source):
        relation, found = _expanded(
            each, (relation, scope), _Nested(scope.columns, scope.merged, outer), is_outer=False
        )
        scope = found
    binder = ExpressionBinder(_Nested(scope.columns, scope.merged, outer), "in LATERAL")
    condition = None if select.where is None else binder.condition(select.where)
    names, projections = [], []
    for position, one in enumerate(select.items):
        if isinstance(one, nodes.Star):
            starred: list[ScopeColumn] = list(scope.columns) if one.qualifier is None else scope.of_table(one.qualifier)
            names += [each.name for each in starred]
            projections += [each.expression for each in starred]
            continue
        projections.append(binder.bind(one.expression))
        written = one.alias or getattr(one.expression, "name", None)
        is_name = one.alias is not None or isinstance(one.expression, (nodes.Column, nodes.Member))
        names.append(str(written) if is_name else f"EXPR${position}")
    if item.columns:
        if len(item.columns) != len(names):
            _refuse(f"{counted(len(item.columns), 'name')} for {counted(len(names), 'column')}", item.columns[0].span)
        names = [each.text for each in item.columns]
    table = item.alias.text if item.alias else None
    if item.alias is not None and table in outer.tables:
        _refuse(f"two tables of FROM have the name {table}: give one of them an alias", item.alias.span)
    own = relation.fields[:width]
    fields = [Field(name, each.type) for name, each in zip(names, projections, strict=True)]
    kept = tuple(InputRef(each.type, i) for i, each in enumerate(own))
    made = Calc(own + tuple(fields), relation, condition, (*kept, *projections))
    return made, outer.joined(Scope.of(fields, table, width))


def _is_computed(query: nodes.Query) -> bool:
    select = query.body
    return (
        not (query.tables or query.order_by or query.offset or query.limit is not None)
        and isinstance(select, nodes.Select)
        and not (select.group_by or select.having is not None or select.is_distinct or select.emit)
        and all(is_lateral(each) and not isinstance(each, nodes.Derived) for each in _items(select.source))
        and not any(isinstance(each, nodes.Item) and _has_aggregate(each.expression) for each in select.items)
    )


def _has_aggregate(node: object) -> bool:
    if isinstance(node, nodes.Call) and is_aggregate(node):
        return True
    if isinstance(node, tuple):
        return any(map(_has_aggregate, node))
    return isinstance(node, nodes.Expression) and any(map(_has_aggregate, vars(node).values()))


def _items(source: nodes.FromItem | None) -> list[nodes.FromItem]:
    """The items of `FROM a, b`."""
    if source is None:
        return []
    if isinstance(source, nodes.Join) and source.kind == "CROSS":
        return [*_items(source.left), source.right]
    return [source]


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
