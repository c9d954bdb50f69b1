"""ROW_NUMBER() with a filter on it: the first rows of each partition, for top-n and deduplication.

    SELECT ... FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) AS rn FROM t) WHERE rn <= 3

The query with ROW_NUMBER() becomes a `Rank` without a limit, and `rank_limits` takes the limit from the conditions on
its number, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from rmqio.sql import types
from rmqio.sql.analysis.grouping import require_key
from rmqio.sql.analysis.ranks.forms import OFFSET, WINDOW_TIME, Form, form_of, window_column
from rmqio.sql.analysis.values.binder import ExpressionBinder
from rmqio.sql.analysis.values.by_time import offset_of_rows
from rmqio.sql.compile.expressions.purity import is_pure
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import Constant, Expr, InputRef, Operation, is_processing_time
from rmqio.sql.planning.plan import Calc, Field, Rank, Relation, SortKey
from rmqio.sql.syntax import nodes

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


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
