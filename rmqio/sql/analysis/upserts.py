"""Updates by key: a GROUP BY without a window over rows that do not end gives a row again whenever it changes.

That is possible where the row goes straight into a table whose PRIMARY KEY is what it is grouped by: the message's key
says which row it replaces. There are no retractions, so that nothing else can stand between.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqio.sql.analysis.conversions import fits
from rmqio.sql.expressions import Conversion, Expr, InputRef, NotNull
from rmqio.sql.plan import Aggregate, Calc, Relation, Sink

ENDS = "a window, or --stop latest, gives rows that do not change"


@dataclass(frozen=True, slots=True)
class Updates:
    """An aggregate whose rows replace each other in the sink, or the reason why they cannot."""

    aggregate: Aggregate | None
    refused: str = ""


def updates_of(sink: Sink) -> Updates:
    """Returns the aggregate without a window that the sink takes its rows from, if there is no other one."""
    relation: Relation = sink.input
    places = {each.name: position for position, each in enumerate(sink.columns)}
    keys: dict[str, int | None] = {name: places.get(name) for name in sink.table.primary_key}
    while isinstance(relation, Calc):
        if relation.condition is not None:
            return Updates(None, f"HAVING would have to delete rows that no longer fit: {ENDS}")
        projections = relation.projections
        keys = {name: None if at is None else _column(projections[at]) for name, at in keys.items()}
        relation = relation.input
    if not isinstance(relation, Aggregate) or relation.window is not None:
        return Updates(None, f"rows that change cannot be joined, united or grouped again: {ENDS}")
    if not relation.calls:
        return Updates(None, f"DISTINCT of rows without end would keep all of them: {ENDS}")
    if not keys:
        return Updates(None, f"its rows change, and {sink.table.name} has no PRIMARY KEY by which they do: {ENDS}")
    if set(keys.values()) != set(range(len(relation.keys))):
        names = ", ".join(sink.table.primary_key)
        return Updates(
            None, f"the PRIMARY KEY of {sink.table.name} ({names}) is not what the rows are grouped by: {ENDS}"
        )
    return Updates(relation)


def _column(expression: Expr) -> int | None:
    while isinstance(expression, NotNull) or (
        isinstance(expression, Conversion) and fits(expression.operand.type, expression.type)
    ):
        expression = expression.operand
    return expression.index if isinstance(expression, InputRef) else None
