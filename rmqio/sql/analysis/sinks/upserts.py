"""Kinds of relations: append-only, or upsert by key, and what is neither is refused with the reason.

Some relations give a row again whenever it changes: a GROUP BY without a window, a window that is given before its end,
the first rows so far of an order. That is possible where the row goes into a table whose PRIMARY KEY tells which row it
replaces, through projections and filters only. A row that is no longer there is deleted by a tombstone. There are no
retractions, so that such rows are neither joined, united nor grouped again, but for the first rows of groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmqio.sql.analysis.ranks.forms import Form, form_of
from rmqio.sql.analysis.sinks.destinations import parted
from rmqio.sql.analysis.sinks.endings import Ends, ends_by_itself, require_ends
from rmqio.sql.analysis.values.conversions import fits
from rmqio.sql.compile.expressions.purity import is_pure
from rmqio.sql.errors import Refusal, Span, listed
from rmqio.sql.expressions import SET_NUMBER, Constant, Conversion, InputRef, NotNull, conjuncts
from rmqio.sql.planning.plan import Aggregate, Calc, Rank, Relation, Sink

ENDS = "a window, or --stop latest, gives rows that do not change"
NO_TABLE = "its rows change, and only a table with a PRIMARY KEY takes them"


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a relation.

    Attributes:
      changing: the relation whose rows change; None: append-only.
      groups: the groups whose rows change, if `changing` is a rank of them, or they themselves.
      refused: why the rows cannot be given; empty: they can.
      span: the place of what is refused.
    """

    changing: Aggregate | Rank | None = None
    groups: Aggregate | None = None
    refused: str = ""
    span: Span | None = None


APPEND_ONLY = Kind()


def kind_of(relation: Relation, ends: Ends = ends_by_itself) -> Kind:
    """Returns the kind of a relation."""
    kinds = [kind_of(each, ends) for each in relation.inputs()]
    if refused := next((each for each in kinds if each.refused), None):
        return refused
    changing = next((each.changing for each in kinds if each.changing is not None), None)
    match relation:
        case Sink() | Calc():
            return kinds[0]
        case Aggregate():
            if changing is not None:
                return Kind(
                    refused=f"GROUP BY groups the rows of {named(changing)}, which change: {ENDS}", span=relation.span
                )
            return _of_aggregate(relation, ends)
        case Rank():
            return _of_rank(relation, changing, ends)
    if changing is not None:
        return Kind(
            refused=f"{named(changing)}: rows that change cannot be joined, united or grouped again: {ENDS}",
            span=changing.span,
        )
    return APPEND_ONLY


def _of_aggregate(aggregate: Aggregate, ends: Ends) -> Kind:
    if aggregate.origin is not None:  # refused where its inputs do not end
        return APPEND_ONLY
    if ends(aggregate) or (aggregate.window is not None and aggregate.emit is None):
        return APPEND_ONLY
    if aggregate.window is None and not aggregate.calls:
        return Kind(
            refused=f"DISTINCT: DISTINCT of rows without end would keep all of them: {ENDS}", span=aggregate.span
        )
    if aggregate.window is None and any(each.name == SET_NUMBER for each in aggregate.fields):
        return Kind(
            refused="GROUPING SETS, ROLLUP and CUBE without a window: NULL stands for the keys that a set lacks, so "
            f"that no PRIMARY KEY tells the rows apart: {ENDS}",
            span=aggregate.span,
        )
    return Kind(aggregate, aggregate)


def _of_rank(rank: Rank, changing: Aggregate | Rank | None, ends: Ends) -> Kind:
    if changing is None:
        return Kind(rank) if form_of(rank) is Form.UPDATES and not ends(rank) else APPEND_ONLY
    if not isinstance(changing, Aggregate) or changing.window is not None:
        return Kind(refused=f"ROW_NUMBER() numbers the rows of {named(changing)}, which change: {ENDS}", span=rank.span)
    chain = calcs(rank.input, changing)
    grouped = range(len(changing.keys))
    if any(source_of(each, chain) not in grouped for each in rank.keys):
        return Kind(
            refused="PARTITION BY takes what its rows are grouped by only, as they change: a row that goes into another"
            f" partition could not leave the one before; or {ENDS}",
            span=rank.span,
        )
    return Kind(rank, changing)


def named(relation: Aggregate | Rank) -> str:
    """Returns what changes, in words."""
    if isinstance(relation, Rank):
        return "a top-n"
    return "GROUP BY without a window" if relation.window is None else "EMIT before the end of a window"


# ---- into a table ---------------------------------------------------------------------------------------------------


def check_sink(sink: Sink, ends: Ends) -> Kind:
    """Returns the kind of what goes into a table. Raises `Refusal`, at its place, if that is not possible."""
    require_ends(sink, ends)
    kind = kind_of(sink, ends)
    if kind.refused:
        raise Refusal(f"INSERT INTO {sink.table.name}: {kind.refused}", kind.span)
    if kind.changing is not None and (reason := _refused(sink, kind.changing)):
        raise Refusal(f"INSERT INTO {sink.table.name}: {reason}", kind.changing.span)
    return kind


def _refused(sink: Sink, changing: Aggregate | Rank) -> str:
    name, what = sink.table.name, named(changing)
    if not sink.table.primary_key:
        return f"{what}: its rows change, and {name} has no PRIMARY KEY by which they do: {ENDS}"
    chain = calcs(sink.input, changing)
    if not all(map(is_pure, (part for calc in chain for part in conjuncts(calc.condition)))):
        return f"{what}: a condition differs from call to call, so that it does not tell which rows are there"
    places = {each.name: position for position, each in enumerate(sink.columns)}
    sources = [source_of(places[each], chain) if each in places else None for each in sink.table.primary_key]
    found = {each for each in sources if each != "constant"}
    key = f"the PRIMARY KEY of {name} ({', '.join(sink.table.primary_key)})"
    if isinstance(changing, Aggregate):
        if found not in _keys_of(changing):
            names = _names(changing, sorted(_keys_of(changing)[0]))
            return f"{what}: {key} is not what the rows are grouped by{names}: {ENDS}"
    elif not set(changing.keys) <= found:
        return f"{what}: {key} lacks the columns of PARTITION BY{_names(changing, changing.keys)}"
    elif changing.limit > 1 and found == set(changing.keys):
        return f"{what}: several rows of a partition have one PRIMARY KEY: add the number of the row, or a column"
    reason = parted(sink, changing, chain, {each for each in found if isinstance(each, int)})
    return f"{what}: {reason}" if reason else ""


def _keys_of(aggregate: Aggregate) -> list[set[int]]:
    """The columns that tell the rows of an aggregate apart: any of these sets."""
    keys = set(range(len(aggregate.keys)))
    if aggregate.window is None:
        return [keys]
    start, end = len(keys), len(keys) + 1
    found = [{*keys, start, end}, {*keys, end}]
    return found if aggregate.window.kind == "CUMULATE" else [*found, {*keys, start}]


def _names(relation: Aggregate | Rank, columns: Iterable[int]) -> str:
    names = [relation.fields[each].name for each in columns]
    shown = [each for each in names if "$" not in each]
    return f", {listed(shown, 'and')}" if shown and shown == names else ""


def calcs(relation: Relation, source: Relation) -> list[Calc]:
    """Returns what stands between a relation and its source, from the top."""
    found = []
    while isinstance(relation, Calc) and relation is not source:
        found.append(relation)
        relation = relation.input
    return found


def source_of(position: int, chain: list[Calc]) -> int | str | None:
    """Returns the column of the source that a column is without a change; `constant`, or None: it is another."""
    for calc in chain:
        expression = calc.projections[position]
        while isinstance(expression, NotNull) or (
            isinstance(expression, Conversion) and fits(expression.operand.type, expression.type)
        ):
            expression = expression.operand
        if isinstance(expression, Constant):
            return "constant"
        if not isinstance(expression, InputRef):
            return None
        position = expression.index
    return position
