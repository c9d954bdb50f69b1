"""Forms of ranks, by what they are ordered and divided by: each has its own way to run."""

from __future__ import annotations

from enum import Enum, auto

from rmqio.sql.analysis.joins.bounds import window_columns
from rmqio.sql.expressions import InputRef
from rmqio.sql.planning.plan import Aggregate, Calc, Rank, Relation, SortKey, Window, Windowed

WINDOW_START, WINDOW_END, WINDOW_TIME = range(3)
OFFSET = "$offset"
"""The name of the column by which rows that are equal in ORDER BY are in the order of their queue."""


class Form(Enum):
    """How the rows of a rank come, of an input that does not end."""

    WINDOW = auto()
    """The first rows of a window: they come once, when the watermark passes the window."""
    FIRST = auto()
    """The first row by event time: it comes once, when the watermark passes its time."""
    SEEN = auto()
    """The first row by processing time: it comes once, and at once."""
    UPDATES = auto()
    """The first rows so far: they come again whenever they change."""


def form_of(rank: Rank) -> Form:
    """Returns the form of a rank that has its limit."""
    if window_end(rank) is not None:
        return Form.WINDOW
    order = stated_order(rank)
    if rank.limit == 1 and len(order) == 1 and not order[0].is_descending:
        time = rank.input.fields[order[0].column]
        if time.is_time:
            return Form.FIRST
        if time.is_processing:
            return Form.SEEN
    return Form.UPDATES


def stated_order(rank: Rank) -> list[SortKey]:
    """Returns what ORDER BY says."""
    return [each for each in rank.order if rank.input.fields[each.column].name != OFFSET]


def is_by_arrival(rank: Rank) -> bool:
    """Returns whether rows are ordered by PROCTIME(): of equal times, the order of arrival counts."""
    return len(rank.order) == 1 and rank.input.fields[rank.order[0].column].is_processing


def window_end(rank: Rank) -> int | None:
    """Returns the position of the column with the end of the window, if a rank is one of windows of event time."""
    found = {window_column(rank.input, each): each for each in rank.keys}
    return found.get(WINDOW_END) if WINDOW_START in found else None


def window_column(relation: Relation, position: int) -> int | None:
    """Returns which column of a window of event time a column is: start, end or time; None: none of them."""
    found = window_and_column(relation, position)
    return None if found is None else found[1]


def window_and_column(relation: Relation, position: int) -> tuple[Window, int] | None:
    """Returns the window of event time that a column is of, and which one it is; None: it is of none."""
    match relation:
        case Calc():
            expression = relation.projections[position]
            return window_and_column(relation.input, expression.index) if isinstance(expression, InputRef) else None
        case Rank():
            below = position < len(relation.input.fields) and form_of(relation) is Form.WINDOW
            return window_and_column(relation.input, position) if below else None
        case Windowed():
            return _of_window(relation.window, position - len(relation.input.fields))
        case Aggregate(window=window, emit=None) if window is not None:
            if position < len(relation.keys):
                return window_and_column(relation.input, relation.keys[position])
            return _of_window(window, position - len(relation.keys))
    return window_columns(relation).get(position)


def _of_window(window: Window, position: int) -> tuple[Window, int] | None:
    return (window, position) if 0 <= position <= WINDOW_TIME and not window.is_processing else None
