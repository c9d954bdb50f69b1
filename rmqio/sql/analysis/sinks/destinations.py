"""Destinations of rows that change: a written topic, sharding key or delay must not part a row from its versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqio.sql.compile.expressions.purity import is_pure
from rmqio.sql.errors import listed
from rmqio.sql.expressions import inputs
from rmqio.sql.planning.plan import Aggregate, Calc, Rank, Sink

_PARTED: Final = {
    "topic": "the row would also stay in the topic where it was",
    "sharding_key": "its versions would be in several queues, which have no order",
}
_DELAYS: Final = ("delay_level", "deliver_at")


def parted(sink: Sink, changing: Aggregate | Rank, chain: Sequence[Calc], keys: set[int]) -> str:
    """Returns why a metadata column cannot be written with rows that change; empty: all can.

    Args:
      sink: writes the rows.
      changing: gives the rows.
      chain: what stands between them, from the top.
      keys: the columns of `changing` that the PRIMARY KEY has.
    """
    if isinstance(changing, Aggregate) and changing.window is not None:
        count = len(changing.keys)
        keys = keys | {count, count + 1, count + 2}  # one time of a window tells the other two
    for position, column in enumerate(sink.columns):
        name = "" if column.metadata is None else column.metadata.key
        if name in _DELAYS:
            others = [each.name for each in sink.columns if each.metadata is None or each.metadata.key not in _DELAYS]
            return (
                f"{column.name} delays messages, and a row that waits could arrive after a newer one, or after it was "
                f"deleted: leave {column.name} out, INSERT INTO {sink.table.name} ({', '.join(others)})"
            )
        if name not in _PARTED:
            continue
        sources, is_stable = _sources(position, chain)
        if not is_stable:
            return f"{column.name}, the {name} of the message, differs from call to call, so that {_PARTED[name]}"
        if sources <= keys or (name == "topic" and isinstance(changing, Rank)):  # a rank deletes the row where it was
            continue
        return (
            f"{column.name}, the {name} of the message, can change with the row, and {_PARTED[name]}: compute it from "
            f"the PRIMARY KEY alone, {listed(sink.table.primary_key, 'and')}"
        )
    return ""


def _sources(position: int, chain: Sequence[Calc]) -> tuple[set[int], bool]:
    """The columns below that a column is computed from, and whether they always give the same value."""
    columns, is_stable = {position}, True
    for calc in chain:
        expressions = [calc.projections[each] for each in columns]
        is_stable = is_stable and all(map(is_pure, expressions))
        columns = {each for expression in expressions for each in inputs(expression)}
    return columns, is_stable
