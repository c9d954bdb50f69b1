"""The table of the queues in the view on a terminal: columns and rows go in the order of their importance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from rmqio.command_line.terminal import safe_line, without_middle
from rmqio.errors import counted
from rmqio.watch.figures import bar, short_age, short_count, short_rate, spark
from rmqio.watch.frames import Frame, QueueView
from rmqio.watch.terminal.drawing import BAD, DIM, WARNING, table_of

_CURVE: Final = "cyan"
_NAME: Final = 22
"""The least columns of a queue's name, where there is room."""
_SHORT_NAME: Final = 10
_BARS, _BARS_AND_CURVES = 5, 12
"""The least columns of bars, and of bars with curves."""


class _Figure(NamedTuple):
    title: str
    columns: int
    rank: int
    """The one with the largest rank goes first."""


_WITH_GROUP: Final = (
    _Figure("LAG", 7, 0), _Figure("WAIT", 5, 1), _Figure("IN/S", 6, 3), _Figure("OUT/S", 6, 2), _Figure("COMMIT", 6, 4)
)  # fmt: skip
_WITHOUT_GROUP: Final = (_Figure("MESSAGES", 8, 0), _Figure("IN/S", 6, 1))


def queue_table(frame: Frame, width: int, most: int | None) -> Iterator[RenderableType]:
    """Yield the table, with so many rows at most, and what is left out. `most`: at least 1; None: all."""
    views = list(frame.queues)
    left_out = 0
    if most is not None and len(views) > most:
        kept = sorted(views, key=lambda view: (not view.is_away, -(view.state.lag or 0)))[: max(1, most - 1)]
        left_out, views = len(views) - len(kept), [view for view in views if view in kept]
    has_group = frame.target.group is not None
    names = {view: _name(view, len(frame.target.topics) > 1) for view in views}
    longest = max((len(each) for each in names.values()), default=0)
    name = max(_NAME, min(longest, width // 3))
    figures = [*(_WITH_GROUP if has_group else _WITHOUT_GROUP)]
    room = width - name - _taken(figures) - 2
    if room < _BARS_AND_CURVES:
        name = min(longest, max(_SHORT_NAME, width // 3))
        room = width - name - _taken(figures) - 2
    while room < -1 and len(figures) > 1:
        figures.remove(max(figures, key=lambda each: each.rank))
        room = width - name - _taken(figures) - 2
    curve = room * 3 // 5 if room >= _BARS_AND_CURVES else 0
    bars = room - curve if curve else room + 1 if room + 1 >= _BARS else 0
    table = table_of("QUEUE", name)
    for figure in figures:
        table.add_column(figure.title, justify="right", width=figure.columns, no_wrap=True)
        if figure is figures[0]:
            if bars:
                table.add_column("", width=bars, no_wrap=True)
            if curve:
                table.add_column("LAG SO FAR" if has_group else "IN SO FAR", width=curve, no_wrap=True)
    top = max((view.state.lag if has_group else view.state.messages) or 0 for view in frame.queues) if views else 0
    for view in views:
        found = _figures(view, frame.time_ms)
        first, *rest = (found[figure.title] for figure in figures)
        amount = view.state.lag if has_group else view.state.messages
        cells = [Text(without_middle(names[view], name), BAD if view.is_away else "")]
        cells.append(Text("away" if view.is_away else first, BAD if view.is_away else ""))
        if bars:
            cells.append(Text(bar(amount, top, bars), DIM if view.is_away else WARNING))
        if curve:
            cells.append(Text(spark(view.curve[-curve * 2 :], curve), _CURVE))
        table.add_row(*cells, *rest)
    yield table
    if left_out and (most is None or most > 1):
        more = f"... {counted(left_out, 'queue')} more, with less lag; the sums include them"
        yield Text(more if len(more) <= width else f"... {counted(left_out, 'queue')} more", DIM)


def _taken(figures: list[_Figure]) -> int:
    """The columns of figures, with the gap before each."""
    return sum(figure.columns + 1 for figure in figures)


def _figures(view: QueueView, now_ms: int) -> dict[str, str]:
    state = view.state
    return {
        "LAG": short_count(state.lag),
        "MESSAGES": short_count(state.messages),
        "WAIT": short_age(state.lag_ms(now_ms)),
        "IN/S": short_rate(view.in_per_s),
        "OUT/S": short_rate(view.out_per_s),
        "COMMIT": short_age(None if view.committed_ms is None else now_ms - view.committed_ms),
    }


def _name(view: QueueView, has_topics: bool) -> str:
    queue = view.state.queue
    name = f"{queue.broker}:{queue.queue_id}"
    return safe_line(f"{queue.topic} {name}" if has_topics else name)
