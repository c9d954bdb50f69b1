"""GROUP BY: keys, windows and aggregates of a SELECT."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.analysis import functions, windows
from rmqio.sql.analysis.aggregates import (
    INSTEAD,
    JSON_AGGREGATES,
    LIST_AGGREGATES,
    json_aggregate,
    list_aggregate,
    offset_of_rows,
    plain_call,
    time_of_rows,
    value_by_time,
)
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.analysis.functions import AUXILIARY, call_of
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import (
    SET_NUMBER,
    Conditional,
    Constant,
    Expr,
    InputRef,
    Is,
    Logical,
    Membership,
    Operation,
    inputs,
)
from rmqio.sql.planning.plan import (
    BY_TIME,
    SAME_WINDOW,
    VARIANCES,
    Aggregate,
    AggregateCall,
    Calc,
    Field,
    Relation,
    Window,
    Windowed,
    window_fields,
)
from rmqio.sql.planning.relations import ELEMENT, SetRows, Shape
from rmqio.sql.planning.watermarks import window_columns
from rmqio.sql.syntax import nodes
from rmqio.sql.text import text_of
from rmqio.sql.types import SqlType

# GROUPING SETS, ROLLUP and CUBE: a row is in one group of each set, and NULL stands for the keys that a set lacks.
#
# A row becomes one per set (`SetRows`), with the number of the set as a column, which is a key of the group, too. So
# equal sets give their rows twice, and a NULL of the data is another group than that of a set without the key.

MOST_SETS: Final = 128
"""A row becomes one per set."""
_NUMBER: Final = types.INTEGER.nullable(False)
_FLAG: Final = types.BOOLEAN.nullable(False)
_BITS_TYPE: Final = types.BIGINT.nullable(False)

Nodes = tuple[nodes.Expression, ...]


def parted(items: Sequence[nodes.Expression]) -> tuple[list[nodes.Expression], list[Nodes]]:
    """Returns the plain items of GROUP BY, and the sets beside them; without any, GROUP BY is a plain one."""
    plain = [each for each in items if not _is_sets(each)]
    others = [_sets(each) for each in items if _is_sets(each)]
    if not others:
        return plain, []
    if _count(others) > MOST_SETS:
        _refuse(f"GROUP BY has more than {MOST_SETS} sets, for each of which every row is counted", items[0].span)
    return plain, [tuple(itertools.chain(*each)) for each in itertools.product(*others)]


def _count(others: Sequence[Sequence[Nodes]]) -> int:
    count = 1
    for each in others:
        count *= len(each)
    return count


def _is_sets(node: nodes.Expression) -> bool:
    return isinstance(node, nodes.GroupingSets) or _is_empty(node) or _named(node) in ("ROLLUP", "CUBE")


def _is_empty(node: nodes.Expression) -> bool:
    return isinstance(node, nodes.Row) and not node.items


def _named(node: nodes.Expression) -> str:
    is_call = isinstance(node, nodes.Call) and node.function is None
    return node.name.text.upper() if is_call else ""  # type: ignore[attr-defined]


def _sets(node: nodes.Expression) -> list[Nodes]:
    if isinstance(node, nodes.GroupingSets):
        return [one for each in node.items for one in _sets(each)]
    name = _named(node)
    if name not in ("ROLLUP", "CUBE"):
        return [node.items if isinstance(node, nodes.Row) else (node,)]
    assert isinstance(node, nodes.Call)
    if node.is_star or node.quantifier is not None or not node.arguments:
        _refuse(f"{name} takes columns, and columns together in parentheses: {name}(a, (b, c))", node.span)
    parts = [each.items if isinstance(each, nodes.Row) else (each,) for each in node.arguments]
    if name == "ROLLUP":
        return [tuple(itertools.chain(*parts[:count])) for count in range(len(parts), -1, -1)]
    if 1 << len(parts) > MOST_SETS:
        _refuse(f"CUBE of {len(parts)} columns has {1 << len(parts)} sets: at most {MOST_SETS} are allowed", node.span)
    chosen = itertools.product((True, False), repeat=len(parts))
    return [tuple(itertools.chain(*itertools.compress(parts, each))) for each in chosen]


@dataclass
class GroupingSets:
    """The sets of a GROUP BY.

    Attributes:
      sets: the positions of the keys of each.
      key: the position of the key that is the number of the set.
    """

    sets: list[frozenset[int]]
    key: int

    def rows(self, source: Relation, names: Sequence[str]) -> SetRows:
        """Returns the rows of the source, each once per set. `names`: of the keys, for EXPLAIN."""
        numbers = tuple(Constant(_NUMBER, each) for each in range(len(self.sets)))
        texts = tuple(f"({', '.join(names[key] for key in sorted(each))})" for each in self.sets)
        array = Operation(types.array_of(_NUMBER, False), "ARRAY", numbers)
        return SetRows((*source.fields, Field(SET_NUMBER, _NUMBER)), source, array, Shape(ELEMENT), texts)

    def value(self, position: int, key: Expr, number: Expr) -> Expr:
        """Returns what a key is in the rows of all sets. `number`: that of the set."""
        lacking = self._lacking(position)
        if not lacking or position == self.key:
            return key
        kind = key.type.nullable()
        return Conditional(kind, (Membership(_FLAG, number, lacking), Constant(kind, None), key))

    def ref(self, position: int, key: Expr) -> InputRef:
        """Returns the column of a key in the group."""
        is_nullable = key.type.is_nullable or (position != self.key and bool(self._lacking(position)))
        return InputRef(key.type.nullable(is_nullable), position)

    def _lacking(self, position: int) -> tuple[Constant, ...]:
        return tuple(Constant(_NUMBER, at) for at, each in enumerate(self.sets) if position not in each)

    def bits(self, keys: Sequence[int]) -> Expr:
        """Returns GROUPING of keys: a bit for each, the last one the lowest; 1: the set lacks it."""
        by_bits: dict[int, list[Constant]] = {}
        for number, each in enumerate(self.sets):
            found = 0
            for key in keys:
                found = found << 1 | (key not in each)
            by_bits.setdefault(found, []).append(Constant(_NUMBER, number))
        *others, last = by_bits.items()
        parts: list[Expr] = []
        for found, numbers in others:
            parts += [Membership(_FLAG, InputRef(_NUMBER, self.key), tuple(numbers)), Constant(_BITS_TYPE, found)]
        otherwise = Constant(_BITS_TYPE, last[0])
        return Conditional(_BITS_TYPE, (*parts, otherwise)) if parts else otherwise


def no_bits() -> Expr:
    """Returns GROUPING of keys of a GROUP BY without sets."""
    return Constant(_BITS_TYPE, 0)


_BITS: Final = 63
"""Bits of GROUPING, a BIGINT."""
SUPPORTED: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX", *VARIANCES)


class WindowIsUsed(Exception):
    """A column of the window of FROM is in WHERE, FILTER or an argument, so that rows must have it before the group."""

    def __init__(self, span: Span) -> None:
        super().__init__()
        self.span = span


@dataclass
class Grouping:
    """Collects what a SELECT with GROUP BY needs, and builds its relations.

    Attributes:
      source: what FROM and WHERE give.
      inner: binds expressions to the source.
      where: the place of the condition.
      windowed: the window of FROM, if the columns of the window are columns of the rows.
      keys: the expressions of GROUP BY, without the window.
      window: the window; None: there is none.
      calls: the aggregates, each with its argument and its condition.
    """

    source: Relation
    inner: ExpressionBinder
    condition: Expr | None
    where: Span | None = None
    windowed: Window | None = None
    keys: list[Expr] = field(default_factory=list)
    window: Window | None = None
    window_refs: dict[int, int] = field(default_factory=dict)
    window_call: nodes.Call | None = None
    calls: list[tuple[AggregateCall, Expr | None, Expr | None]] = field(default_factory=list)
    carried: dict[tuple[Window, int], InputRef] = field(default_factory=dict)
    sets: list[frozenset[int]] = field(default_factory=list)
    by_set: GroupingSets | None = None

    def add_groups(self, items: Sequence[nodes.Expression]) -> None:
        """Adds all items of GROUP BY."""
        plain, sets = parted(items)
        for each in plain:
            self.add_group(each)
        always = frozenset(range(len(self.keys)))
        self.sets = [always | {self._key_of_set(node) for node in each} for each in sets]

    def _key_of_set(self, node: nodes.Expression) -> int:
        """The position of a key of a grouping set."""
        is_window = isinstance(node, nodes.Call) and node.name.text.upper() in windows.WINDOW_FUNCTIONS
        if not is_window and not isinstance(node, (nodes.Literal, nodes.GroupingSets)):
            bound = self.inner.bind(node)
            if bound in self.keys:
                return self.keys.index(bound)
            is_window = isinstance(bound, InputRef) and (
                bound.index in self._window_columns() or bound.index in window_columns(self.source)
            )
        if is_window:
            _refuse("in GROUP BY, write a window next to GROUPING SETS, ROLLUP and CUBE, not inside them", node.span)
        self.add_group(node)
        return len(self.keys) - 1

    def add_group(self, node: nodes.Expression) -> None:
        """Adds an item of GROUP BY. A number is not a position, as in Flink."""
        if isinstance(node, nodes.Call) and node.name.text.upper() in windows.WINDOW_FUNCTIONS:
            if self.window is not None:
                _refuse("GROUP BY can have only one window", node.span)
            self.window = windows.group_window(node, self.inner, self.source)
            self.window_call = node
            return
        if isinstance(node, nodes.Literal):
            _refuse("GROUP BY takes columns, not positions", node.span)
        bound = self.inner.bind(node)
        if isinstance(bound, InputRef) and bound.index in self._window_columns():
            self.window_refs[bound.index] = bound.index - self._window_columns()[0]
            return
        require_key(bound.type, "a key of GROUP BY", node.span)
        self._refuse_window(bound, node.span)
        if isinstance(bound, InputRef) and bound.index in (columns := window_columns(self.source)):
            self.carried[columns[bound.index]] = bound
        self.keys.append(bound)

    def _refuse_window(self, bound: Expr, span: Span) -> None:
        if set(self._window_columns()) & inputs(bound):
            _refuse(
                "columns of the window cannot be in expressions of GROUP BY, only in those of SELECT and HAVING",
                span,
            )

    def _need_rows(self, bound: Expr, span: Span) -> None:
        """Raises `WindowIsUsed` if an expression of the rows has a column of the window."""
        if set(self._window_columns()) & inputs(bound):
            raise WindowIsUsed(span)

    def _window_columns(self) -> range:
        if isinstance(self.source, Windowed):
            width = len(self.source.fields)
            return range(width - 3, width)
        return range(0)

    def close_groups(self, span: Span) -> None:
        """Takes the window of FROM if GROUP BY names its start and its end. Raises `Refusal` if it names one only."""
        self._close_window(span)
        if len(self.sets) > 1:
            self.by_set = GroupingSets(self.sets, len(self.keys))
            self.keys.append(InputRef(types.INTEGER.nullable(False), len(self._rows().fields)))

    def _rows(self) -> Relation:
        """The rows that are grouped, without the columns of the window."""
        if self.window_refs:
            assert isinstance(self.source, Windowed)
            return self.source.input
        return self.source

    def _close_window(self, span: Span) -> None:
        if not self.window_refs:
            if isinstance(self.source, Windowed):
                _refuse("GROUP BY over a window must name window_start and window_end", span)
            if self.window is None:
                self.window = self._carried_window()
            return
        assert isinstance(self.source, Windowed)
        if not {0, 1} <= set(self.window_refs.values()):
            _refuse("GROUP BY a window needs both window_start and window_end", span)
        self.window = self.source.window
        if self.window.kind == "SESSION":
            self._require_partition(self.source.partition, span)
        if self.condition is not None:
            self._need_rows(self.condition, span if self.where is None else self.where)

    def _require_partition(self, partition: tuple[int, ...], span: Span) -> None:
        """The sessions of a group are those of its keys: of other keys, they would be other ones."""
        wanted = {InputRef(self.source.fields[each].type, each) for each in partition}
        if set(self.keys) != wanted or (self.sets and len(self.sets) > 1):
            names = "".join(f", {self.source.fields[each].name}" for each in partition)
            _refuse(f"GROUP BY takes the columns of SESSION's PARTITION BY: window_start, window_end{names}", span)

    def _carried_window(self) -> Window | None:
        """The window that the rows are in already, if GROUP BY names its start and its end."""
        for window, column in self.carried:
            if column == 1 and (window, 0) in self.carried:
                return window.same()
        return None

    def _carried_time(self) -> Expr:
        window = next(each for each, column in self.carried if column == 1 and (each, 0) in self.carried)
        return last_moment(self.carried[window, 1], is_local=window.local_zone is not None)

    # ---- what SELECT and HAVING mean ----

    def binder(self) -> ExpressionBinder:
        """Returns what binds expressions of SELECT and HAVING to the aggregate's columns."""
        return ExpressionBinder(_NotGrouped(self.inner.scope.columns), aggregate=self._aggregate, known=self._known)

    def _known(self, node: nodes.Expression) -> Expr | None:
        if isinstance(node, nodes.Call):
            auxiliary = AUXILIARY.get(node.name.text.upper())
            if auxiliary is not None:
                return self._auxiliary(node, *auxiliary)
            if node.name.text.upper() in windows.WINDOW_FUNCTIONS and node == self.window_call:
                return self._window_column(0)
            if node.name.text.upper() in ("GROUPING", "GROUPING_ID") and node.function is None:
                return self._grouping_of(node)
        if isinstance(node, nodes.Literal):
            return None
        try:
            bound = self.inner.bind(node)
        except Refusal:
            return None
        if isinstance(bound, InputRef) and bound.index in self._window_columns() and self.window_refs:
            return self._window_column(bound.index - self._window_columns()[0])
        if bound in self.keys:
            position = self.keys.index(bound)
            return InputRef(bound.type, position) if self.by_set is None else self.by_set.ref(position, bound)
        return None

    def _grouping_of(self, node: nodes.Call) -> Expr:
        name = node.name.text.upper()
        if node.is_star or node.quantifier is not None or not node.arguments:
            _refuse(f"{name} takes columns of GROUP BY", node.span)
        keys = []
        for each in node.arguments:
            bound = self.inner.bind(each)
            if bound not in self.keys:
                _refuse(f"{name} takes columns of GROUP BY, and this is not one", each.span)
            keys.append(self.keys.index(bound))
        if len(keys) > _BITS:
            _refuse(f"{name} takes at most {_BITS} columns, a bit each", node.span)
        return no_bits() if self.by_set is None else self.by_set.bits(keys)

    def _window_column(self, column: int) -> Expr:
        assert self.window is not None
        return InputRef(window_fields(self.window)[column].type, len(self.keys) + column)

    def _auxiliary(self, node: nodes.Call, function: str, column: int | None) -> Expr:
        given = self.window_call
        if given is None or given.name.text.upper() != function or given.arguments != node.arguments:
            _refuse(f"{node.name} needs the same {function}(...) in GROUP BY", node.span)
        return call_of("PROCTIME", [], node) if column is None else self._window_column(column)

    def _aggregate(self, node: nodes.Call) -> Expr:
        node = plain_call(node)
        name = node.name.text.upper()
        if node.over is not None:
            _refuse("OVER cannot be combined with GROUP BY: group in a sub-query of FROM first", node.over.span)
        if node.function is not None:
            return self._added(node, *functions.aggregate(node, self.inner, self._need_rows))
        if name in JSON_AGGREGATES:
            return self._added(node, *json_aggregate(node, self.inner, self._need_rows))
        if name in LIST_AGGREGATES:
            call, value, condition = list_aggregate(node, self.inner, self._need_rows)
            if call.is_distinct:
                require_key(value.type, f"{name}(DISTINCT ...)", node.span)
            return self._added(node, call, value, condition)
        if name in BY_TIME:
            time = time_of_rows(self._rows().fields, self.windowed or self.window, node)
            offset = offset_of_rows(self._rows())
            return self._added(node, *value_by_time(node, self.inner, time, offset, self._need_rows))
        if name not in SUPPORTED:
            _refuse(f"{name} is not supported: {INSTEAD[name]}", node.span)
        condition = None if node.filter is None else replace(self.inner, place="in FILTER").condition(node.filter)
        argument = None
        if node.is_star:
            if name != "COUNT":
                _refuse(f"{name}(*) has no meaning: {name} takes a column", node.span)
        elif name == "COUNT" and node.quantifier == "DISTINCT" and len(node.arguments) > 1:
            argument = self._together(node)
        elif len(node.arguments) != 1:
            _refuse(f"{name} takes one argument, not {len(node.arguments)}", node.span)
        else:
            argument = replace(self.inner, place="in another one").bind(node.arguments[0])
            self._need_rows(argument, node.span)
            if node.quantifier == "DISTINCT":
                require_key(argument.type, f"{name}(DISTINCT ...)", node.span)
        kind = result_type(name, argument.type if argument is not None else None, node)
        is_distinct = node.quantifier == "DISTINCT" and name not in ("MIN", "MAX")
        return self._added(node, AggregateCall(name, kind, is_distinct=is_distinct), argument, condition)

    def _added(
        self, node: nodes.Call, made: AggregateCall, argument: Expr | None, condition: Expr | None = None
    ) -> Expr:
        if condition is not None and node.filter is not None:
            self._need_rows(condition, node.filter.span)
        call = (made, argument, condition)
        if call not in self.calls:
            self.calls.append(call)
        start = len(self.keys) + (3 if self.window is not None else 0)
        return InputRef(made.type, start + self.calls.index(call))

    def _together(self, node: nodes.Call) -> Expr:
        """The values of COUNT(DISTINCT a, b) as one; NULL if one of them is."""
        values = [replace(self.inner, place="in another one").bind(each) for each in node.arguments]
        for each, at in zip(values, node.arguments, strict=True):
            self._need_rows(each, at.span)
            require_key(each.type, "COUNT(DISTINCT ...)", at.span)
        flag = types.BOOLEAN.nullable(False)
        tests = tuple(Is(flag, each, None) for each in values)
        names = tuple(f"EXPR${i}" for i in range(len(values)))
        kind = SqlType("ROW", False, elements=tuple(each.type for each in values), names=names)
        row = Operation(kind, "ROW", tuple(values))
        return Conditional(kind.nullable(), (Logical(flag, "OR", tests), Constant(kind.nullable(), None), row))

    # ---- relations ----

    def relation(self) -> Aggregate:
        """Returns the aggregate, on an input that computes keys, arguments and conditions."""
        columns: list[Expr] = []

        def column_of(expression: Expr) -> int:
            if expression not in columns:
                columns.append(expression)
            return columns.index(expression)

        given, source, window = self.keys, self._rows(), self.window
        if self.by_set is not None:
            number = self.keys[self.by_set.key]
            names = [text_of(each, [field.name for field in source.fields]) for each in self.keys[: self.by_set.key]]
            source = self.by_set.rows(source, names)
            given = [self.by_set.value(position, each, number) for position, each in enumerate(self.keys)]
        keys = tuple(map(column_of, given))
        if window is not None:
            if window.is_processing:
                window = replace(window, time=windows.PROCESSING)
            else:
                time: Expr = InputRef(source.fields[window.time].type, window.time)
                if window.kind == SAME_WINDOW:
                    time = self._carried_time()
                window = replace(window, time=column_of(time))
        calls = []
        for call, argument, condition in self.calls:
            calls.append(
                replace(
                    call,
                    argument=None if argument is None else column_of(argument),
                    condition=None if condition is None else column_of(condition),
                )
            )
        computed = Calc(
            tuple(Field(f"${i}", each.type) for i, each in enumerate(columns)), source, self.condition, tuple(columns)
        )
        times = [each for (_, column), each in self.carried.items() if column == 2 and window is not None]
        fields = [Field(f"KEY${i}", each.type, each in times) for i, each in enumerate(given)]
        if self.by_set is not None:
            fields[self.by_set.key] = source.fields[-1]
        fields += window_fields(window) if window is not None else ()
        fields += [Field(f"{call.name}${i}", call.type) for i, call in enumerate(calls)]
        is_total = not keys and window is None
        return Aggregate(tuple(fields), computed, keys, window, tuple(calls), is_total=is_total)


def last_moment(window_end: Expr, *, is_local: bool) -> Expr:
    """Returns the time of the rows of a window. `is_local`: its end is a time of the clock of the session's zone."""
    if is_local:
        return Operation(types.TIMESTAMP_LTZ.nullable(window_end.type.is_nullable), "LAST INSTANT", (window_end,))
    return Operation(window_end.type, "TIME -", (window_end, Constant(types.INTERVAL_DAY.nullable(False), 1000)))


class _NotGrouped(Scope):
    """Columns that are neither in GROUP BY nor in an aggregate."""

    def find(self, node: nodes.Column | nodes.Member) -> Expr | None:
        found = super().find(node)
        if found is not None:
            name = node.name.text
            _refuse(f"{name} is neither in GROUP BY nor in an aggregate function", node.span)
        return found


def require_key(kind: SqlType, what: str, span: Span) -> None:
    """Raises `Refusal` if values of the type cannot be told apart as keys."""
    if not types.is_key(kind):
        _refuse(f"{what} cannot be {kind.text}: use JSON_STRING of it", span)


def result_type(name: str, given: SqlType | None, node: nodes.Call) -> SqlType:
    """Returns the type of an aggregate. Raises `Refusal` if it does not take the argument."""
    if name == "COUNT" or given is None:
        return types.BIGINT.nullable(False)
    if name in ("MIN", "MAX"):
        if given.kind not in types.ORDERED:
            _refuse(f"{name} takes values that have an order, not {given.text}", node.span)
        return given.nullable()
    if given.kind not in types.NUMERIC:
        _refuse(f"{name} takes numbers, not {given.text}", node.span)
    if given.kind == "DECIMAL":
        scale = given.scale if name == "SUM" else max(given.scale, 6)
        return types.decimal(types.MAX_DECIMAL, scale)
    return given.nullable()


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
