"""Results that SELECT computes of more than its row: sub-queries, functions over the rows before (OVER), top-n."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import analytic, conversions
from rmqio.sql.analysis.aggregates import offset_of_rows
from rmqio.sql.analysis.binder import RANKINGS, ExpressionBinder
from rmqio.sql.analysis.grouping import require_key, result_type
from rmqio.sql.analysis.scope import Queries, Scope
from rmqio.sql.analysis.subqueries import SubqueryJoins, find
from rmqio.sql.compile.emitter import is_pure
from rmqio.sql.errors import Refusal, Span, listed
from rmqio.sql.expressions import Constant, Expr, InputRef, NotNull, Operation, is_processing_time
from rmqio.sql.planning.plan import AggregateCall, Calc, Field, Rank, Relation, SortKey, Windowed
from rmqio.sql.planning.ranks import OFFSET, WINDOW_TIME, Form, form_of, window_column
from rmqio.sql.planning.relations import Over, OverCall, without_time
from rmqio.sql.syntax import nodes

# ROW_NUMBER() with a filter on it: the first rows of each partition, for top-n and deduplication.
#
#     SELECT ... FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) AS rn FROM t) WHERE rn <= 3
#
# The query with ROW_NUMBER() becomes a `Rank` without a limit, and `rank_limits` takes the limit from the conditions
# on its number, wherever they stand.

_ColumnOf = Callable[[Expr, Field], int]


@dataclass
class Ranked:
    """Builds the relations of a SELECT with ROW_NUMBER().

    Attributes:
      source: what FROM gives.
      binder: binds expressions to it.
      condition: WHERE.
      ttl_ms: how long the state of a partition is kept; 0: for ever.
    """

    source: Relation
    binder: ExpressionBinder
    condition: Expr | None
    ttl_ms: int

    def relation(self, items: Sequence[tuple[Field, Expr] | nodes.Call], names: Sequence[str]) -> Relation:
        """Returns the rows with their numbers.

        Args:
          items: those of SELECT, in order: columns with what computes them, and the call.
          names: their names.
        """
        columns: list[Expr] = []
        fields: list[Field] = []

        def column_of(expression: Expr, field: Field) -> int:
            for position, each in enumerate(columns):
                if each == expression and is_pure(each):
                    return position
            columns.append(expression)
            fields.append(field)
            return len(columns) - 1

        places = {}
        for position, item in enumerate(items):
            if not isinstance(item, nodes.Call):
                field, expression = item
                places[position] = column_of(expression, field)
        (number, call) = next((at, each) for at, each in enumerate(items) if isinstance(each, nodes.Call))
        keys, order = self._keys(call, column_of), self._order(call, column_of, fields)
        computed = Calc(tuple(fields), self.source, self.condition, tuple(columns))
        number_field = Field("ROW_NUMBER", types.BIGINT.nullable(False))
        ranked = Rank((*fields, number_field), computed, keys, order, ttl_ms=self.ttl_ms, span=call.span)
        ranked = replace(ranked, fields=(*_times(ranked), number_field))
        places[number] = len(columns)
        projected = [ranked.fields[places[at]] for at in range(len(items))]
        return Calc(
            tuple(each._replace(name=name) for each, name in zip(projected, names, strict=True)),
            ranked,
            None,
            tuple(InputRef(each.type, places[at]) for at, each in enumerate(projected)),
        )

    def _keys(self, call: nodes.Call, column_of: _ColumnOf) -> tuple[int, ...]:
        assert call.over is not None
        keys = []
        for position, node in enumerate(call.over.partition):
            bound = replace(self.binder, place="in PARTITION BY").bind(node)
            require_key(bound.type, "a column of PARTITION BY", node.span)
            keys.append(column_of(bound, self._field(bound, f"PARTITION${position}")))
        return tuple(dict.fromkeys(keys))

    def _order(self, call: nodes.Call, column_of: _ColumnOf, fields: list[Field]) -> tuple[SortKey, ...]:
        over = call.over
        assert over is not None
        if call.arguments or call.is_star or call.filter is not None or call.quantifier is not None:
            _refuse("ROW_NUMBER() takes no arguments", call.span)
        if not over.order:
            _refuse("ROW_NUMBER() needs an order: OVER (PARTITION BY key ORDER BY column)", over.span)
        if over.frame is not None:
            _refuse("ROW_NUMBER() takes no ROWS or RANGE", over.frame.span)
        order = []
        for position, each in enumerate(over.order):
            bound = replace(self.binder, place="in ORDER BY").bind(each.expression)
            if isinstance(bound, Constant):
                _refuse("ORDER BY takes columns, not positions or constants", each.span)
            if bound.type.kind not in types.ORDERED:
                _refuse(f"{bound.type.text} has no order: ORDER BY cannot take it", each.span)
            if bound.type.kind in types.TIMESTAMPS and self._field(bound, "").is_processing:
                bound = Operation(types.BIGINT.nullable(False), "TIME OF ARRIVAL", ())
            nulls_first = each.nulls == "FIRST" if each.nulls else not each.is_descending
            column = column_of(bound, self._field(bound, f"ORDER${position}"))
            order.append(SortKey(column, each.is_descending, nulls_first))
        offset = offset_of_rows(self.source)
        if offset is not None and not any(fields[each.column].is_processing for each in order):
            # of equal rows, the earlier message is the first one; the later one, if the latest time is wanted
            is_last = order[0].is_descending and fields[order[0].column].type.kind in types.TIMESTAMPS
            order.append(SortKey(column_of(offset, Field(OFFSET, offset.type)), is_last, not is_last))
        return tuple(order)

    def _field(self, expression: Expr, name: str) -> Field:
        return field_of(name, expression, self.source)


def _times(rank: Rank) -> list[Field]:
    """The columns of a rank's input. A watermark follows their times if rows come at these, and no later."""
    form = form_of(replace(rank, limit=1))
    return [
        each
        if form is Form.FIRST or (form is Form.WINDOW and window_column(rank.input, position) == WINDOW_TIME)
        else each._replace(is_time=False)
        for position, each in enumerate(rank.input.fields)
    ]


def field_of(name: str, expression: Expr, source: Relation) -> Field:
    """Returns the field of a projection. A time that is not changed stays one; PROCTIME() is one."""
    if isinstance(expression, InputRef):
        return source.fields[expression.index]._replace(name=name, type=expression.type)
    return Field(name, expression.type, is_processing=is_processing_time(expression))


AGGREGATES: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_VALUES: Final = ("FIRST_VALUE", "LAST_VALUE", "LAG")


@dataclass(frozen=True)
class Results:
    """The rows of FROM with what SELECT needs beside them.

    Attributes:
      rows: the columns of FROM stand first, where they stood.
      select: what is left to do.
      known: what the sub-queries and the calls with OVER of SELECT mean; None: there are none.
      constants: results of sub-queries that are the same for all rows of a group.
      is_analytic: OVER has all rows of a partition, and numbers of rows are results like others.
    """

    rows: Relation
    select: nodes.Select
    known: Callable[[nodes.Expression], Expr | None] | None = None
    constants: tuple[Expr, ...] = ()
    is_analytic: bool = False


def with_results(
    binder: Queries, select: nodes.Select, tests: list[nodes.Expression], source: Relation, scope: Scope
) -> Results:
    """Returns the rows that `select` reads. Raises `Refusal` if a sub-query or an OVER is not valid.

    Args:
      tests: the conditions of WHERE with sub-queries, which are not in `select`.
    """
    items = tuple(each for each in select.items if isinstance(each, nodes.Item))
    whole = analytic.calls_in(select, scope, source)
    over = whole or [each for item in items for each in _over_calls(item)]
    queries = [*find(items), *find(select.having)]
    if not over and not queries and not tests:
        return Results(source, select)
    if select.where is not None and not isinstance(source, Windowed):
        condition = ExpressionBinder(scope, "in WHERE").condition(select.where)
        columns = tuple(InputRef(each.type, i) for i, each in enumerate(source.fields))
        source, select = Calc(source.fields, source, condition, columns), replace(select, where=None)
    lookups = SubqueryJoins(binder, source, scope)
    for each in tests:
        lookups.where(each)
    before = len(lookups.correlated)
    lookups.values((*items, select.having))
    is_grouped = bool(select.group_by) or select.having is not None
    if over and is_grouped:
        _refuse("OVER cannot be combined with GROUP BY: group in a sub-query of FROM first", over[0].span)
    if is_grouped and len(lookups.correlated) > before:
        _refuse(
            "a sub-query that reads outer columns cannot be combined with GROUP BY: group in a sub-query of FROM first",
            lookups.correlated[before].span,
        )
    if over and (tests or queries):
        _refuse(
            "OVER cannot be used in a query with a sub-query: its rows no longer have a watermark. Move OVER into a "
            "sub-query of FROM",
            over[0].span,
        )
    known = dict(lookups.known)
    constants = tuple(dict.fromkeys(known[each] for each in queries))
    rows = lookups.rows
    if over:
        found = analytic.with_calls(rows, scope, over, known) if whole else _with_over(rows, scope, over, known)
        rows = replace(found, ttl_ms=binder.ttl_ms) if isinstance(found, Over) else found

    def result(node: nodes.Expression) -> Expr | None:
        is_ours = isinstance(node, nodes.InQuery | nodes.Exists | nodes.ScalarQuery)
        if is_ours or (isinstance(node, nodes.Call) and node.over is not None):
            return known.get(node)
        return None

    return Results(rows, select, result, constants, bool(whole))


def _over_calls(node: object) -> Iterator[nodes.Call]:
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, tuple):
            pending += reversed(each)
        elif isinstance(each, nodes.Node) and not isinstance(each, nodes.Query):
            if isinstance(each, nodes.Call) and each.over is not None:
                if each.name.text.upper() not in RANKINGS:  # these number rows, which is not a result over a frame
                    yield each
            else:
                pending += reversed(list(vars(each).values()))


# ---- OVER -----------------------------------------------------------------------------------------------------------


def _with_over(
    source: Relation, scope: Scope, found: list[nodes.Call], known: dict[nodes.Expression, Expr]
) -> Relation:
    first = found[0].over
    assert first is not None
    for each in found:
        if each.function is not None and each.over is not None:
            _refuse(f"{each.name} is a function of your own, which cannot be used with OVER", each.over.span)
    if isinstance(source, Windowed):
        _refuse(
            "OVER cannot be combined with a window: put the window, or its groups, into a sub-query of FROM", first.span
        )
    binder = ExpressionBinder(scope, "in OVER", known=known.get)
    columns: list[Expr] = [InputRef(each.type, i) for i, each in enumerate(source.fields)]

    def column_of(expression: Expr) -> int:
        if expression not in columns:
            columns.append(expression)
        return columns.index(expression)

    time = _time(first, source, binder)
    keys = tuple(column_of(_key(each, binder)) for each in first.partition)
    calls: list[OverCall] = []
    for each in found:
        assert each.over is not None
        if (each.over.partition, each.over.order) != (first.partition, first.order):
            _refuse("all OVER of a SELECT must have the same PARTITION BY and ORDER BY", each.over.span)
        call = _call(each, binder, column_of)
        if call not in calls:
            calls.append(call)
        known[each] = InputRef(call.call.type, calls.index(call))
    if columns[time].type.is_nullable:
        columns[time] = NotNull(columns[time].type.nullable(False), columns[time], source.fields[time].name)
    names = [each.name for each in source.fields] + [f"${i}" for i in range(len(source.fields), len(columns))]
    fields = tuple(Field(name, each.type, i == time) for i, (name, each) in enumerate(zip(names, columns, strict=True)))
    for each in dict.fromkeys(found):  # the results stand after all columns
        place = known[each]
        assert isinstance(place, InputRef)
        known[each] = replace(place, index=place.index + len(columns))
    results = tuple(Field(f"{each.call.name}${i}", each.call.type) for i, each in enumerate(calls))
    computed = Calc(fields, source, None, tuple(columns))
    return Over(without_time(fields) + results, computed, keys, time, tuple(calls), span=first.span)


def _time(over: nodes.Over, source: Relation, binder: ExpressionBinder) -> int:
    if not over.order:
        _refuse("OVER needs an order: OVER (PARTITION BY ... ORDER BY time)", over.span)
    if len(over.order) > 1:
        _refuse("OVER must be ordered by one column, the time", over.order[1].span)
    (sort,) = over.order
    found = binder.bind(sort.expression)
    if not isinstance(found, InputRef) or not source.fields[found.index].is_time:
        name = source.fields[found.index].name if isinstance(found, InputRef) else "this"
        _refuse(
            f"OVER is ordered by a time, and no watermark follows {name}: use the column of WATERMARK FOR, which must "
            "come here unchanged",
            sort.span,
        )
    if sort.is_descending:
        _refuse("OVER looks at the rows before a row: its order must be ascending", sort.span)
    return found.index


def _key(node: nodes.Expression, binder: ExpressionBinder) -> Expr:
    found = binder.bind(node)
    require_key(found.type, "a key of PARTITION BY", node.span)
    return found


def _call(node: nodes.Call, binder: ExpressionBinder, column_of: Callable[[Expr], int]) -> OverCall:
    name = node.name.text.upper()
    assert node.over is not None
    if name not in (*AGGREGATES, *_VALUES):
        _refuse(f"{name} cannot be used before OVER: {listed((*AGGREGATES, *_VALUES))} can", node.span)
    if node.quantifier == "DISTINCT":
        _refuse("DISTINCT before OVER is not supported: the rows of a frame are not kept apart", node.span)
    condition = None
    if node.filter is not None:
        condition = column_of(replace(binder, place="in FILTER").condition(node.filter))
    if name == "LAG":
        return _lag(node, binder, column_of, condition)
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
    unit, preceding = _frame(node.over)
    place = None if argument is None else column_of(argument)
    return OverCall(AggregateCall(name, kind, place, condition), unit, preceding)


def _lag(
    node: nodes.Call, binder: ExpressionBinder, column_of: Callable[[Expr], int], condition: int | None
) -> OverCall:
    if condition is not None:
        _refuse("FILTER belongs to aggregate functions, but LAG is not one", node.span)
    assert node.over is not None
    if node.over.frame is not None:
        _refuse("LAG takes no ROWS or RANGE: its second argument says how far it goes back", node.over.frame.span)
    if node.is_star or not 1 <= len(node.arguments) <= 3:
        _refuse("LAG takes a column, the number of rows to go back, and a default value", node.span)
    given = node.arguments
    value = binder.bind(given[0])
    distance = 1
    if len(given) > 1:
        bound = binder.bind(given[1])
        is_number = isinstance(bound, Constant) and bound.type.kind in types.INTEGERS
        if not isinstance(bound, Constant) or not is_number or bound.value is None or bound.value < 1:
            _refuse("how far LAG goes back is a number of rows: 1, 2 ...", given[1].span)
        distance = bound.value
    if len(given) < 3:
        return OverCall(AggregateCall("LAG", value.type.nullable(), column_of(value)), "ROWS", distance)
    value, other = conversions.same_type([value, binder.bind(given[2])], given[::2], "LAG")
    kind = value.type.nullable(types.any_nullable((value.type, other.type)))
    return OverCall(AggregateCall("LAG", kind, column_of(value)), "ROWS", distance, column_of(other))


def _frame(over: nodes.Over) -> tuple[str, int | None]:
    """The unit of a frame, and how far it goes back; None: to the beginning."""
    frame = over.frame
    if frame is None:
        return "RANGE", None
    if frame.end is not None and frame.end[0] != "current_row":
        _refuse("a frame must end at the CURRENT ROW: later rows are not known yet", frame.span)
    kind, size = frame.start
    if kind == "following":
        _refuse("a frame must begin with UNBOUNDED PRECEDING, ... PRECEDING or CURRENT ROW", frame.span)
    if kind == "unbounded":
        return frame.unit, None
    if kind == "current_row" or size is None:
        return frame.unit, 0
    bound = analytic.distance(size)
    is_interval = bound.type.kind == "INTERVAL_DAY"
    if frame.unit == "RANGE" and not is_interval:
        _refuse("RANGE goes back by an INTERVAL of days, hours, minutes or seconds: INTERVAL '1' HOUR", size.span)
    if frame.unit == "ROWS" and bound.type.kind not in types.INTEGERS:
        _refuse("ROWS goes back by a whole number of rows", size.span)
    if not isinstance(bound, Constant) or bound.value is None or bound.value < 0:
        _refuse("a frame goes back by a constant that is not negative", size.span)
    return frame.unit, int(bound.value)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
