"""The view on a terminal: a frame as rich renders it, whatever the size of the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rmqio.command_line.output import safe_line, without_middle
from rmqio.errors import counted
from rmqio.watch.frames import WINDOW_S, BrokerView, Frame, QueueView, bar, short_age, short_count, short_rate, spark

# The parts of which the view on a terminal is drawn: styles, tables, and lines that lose what does not fit.

GOOD, BAD, DIM, HEAD, WARNING = "green", "bold red", "dim", "bold", "yellow"
_GAPS: Final = ("   ", "  ")


class Part(NamedTuple):
    """A part of a line. The part with the largest rank goes first where a terminal is narrow."""

    rank: int
    text: Text


def part(rank: int, *texts: str | tuple[str, str]) -> Part:
    """Return a part of texts, some with their style."""
    return Part(rank, Text.assemble(*texts))


def fitting(parts: Sequence[Part], columns: int) -> Text:
    """Return the parts as one line, without those for which there is no room."""
    kept = [*parts]
    while True:
        for gap in _GAPS:
            line = Text(gap).join(each.text for each in kept)
            if line.cell_len <= columns:
                return line
        if len(kept) == 1:
            return cut(line, columns)
        kept.remove(max(kept, key=lambda each: each.rank))


def cut(text: Text, columns: int) -> Text:
    """Shorten a text, which is changed, to this width."""
    text.truncate(columns, overflow="ellipsis")
    return text


def ago(ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was."""
    if ms is None:
        return "-"
    return "now" if now_ms - ms < 1_500 else f"{short_age(now_ms - ms)} ago"


def table_of(first: str, width: int | None = None) -> Table:
    """Return a table with its first column."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style=DIM)
    table.add_column(first, width=width, no_wrap=True)
    return table


# Single lines of the view: the title, the sums, and short forms of tables for which there is no room.

_LEFT, _LEFT_WITH_HINT = 20, 40
"""The least columns of the title's left side, if it is as long."""
_COMMITS_S: Final = 5.0
"""The time between two commits of most groups."""


def title(frame: Frame, hint: str, width: int) -> Text:
    """Return the topics, the group and the clock. `hint` ends the line, if there is room."""
    what = ", ".join(frame.target.topics)
    if frame.target.group is not None:
        what += f", group {frame.target.group}"
    left = f"rmqio watch: {safe_line(what)}"
    right = time.strftime("%H:%M:%S", time.localtime(frame.time_ms / 1000))
    if hint and len(right) + len(hint) + 4 + min(len(left), _LEFT_WITH_HINT) <= width:
        right += f", {hint}"
    text = Text(without_middle(left, max(_LEFT, width - len(right) - 2)), HEAD)
    text.append(" " * max(2, width - text.cell_len - len(right)))
    return cut(text.append(right, DIM), width)


def totals(frame: Frame, width: int) -> Text:
    """Return the sums over all queues."""
    total, parts = frame.total, []
    has_group = frame.target.group is not None
    if has_group:
        parts.append(part(0, "lag ", (short_count(total.lag), BAD if total.lag is None else HEAD)))
        parts.append(part(1, "oldest waits ", (short_age(total.lag_ms), HEAD)))
    else:
        parts.append(part(0, "messages ", (short_count(total.messages), HEAD)))
    parts.append(part(2, "in ", (f"{short_rate(total.in_per_s)}/s", HEAD)))
    if has_group:
        parts.append(part(3, "out ", (f"{short_rate(total.out_per_s)}/s", HEAD)))
        left = _time_left(frame)
        if left is not None:
            parts.append(part(4, (f"empty in {short_age(left * 1000)}", DIM)))
    return fitting(parts, width)


def _time_left(frame: Frame) -> float | None:
    """Return the seconds until the lag is gone at these rates; None if it is gone, or grows.

    None, too, for a lag that can be what arrives between two commits, if the rates differ by no more than their steps.
    """
    total = frame.total
    if not total.lag or total.in_per_s is None or total.out_per_s is None or total.out_per_s <= total.in_per_s:
        return None
    faster = total.out_per_s - total.in_per_s
    if total.lag <= total.in_per_s * WINDOW_S and faster * WINDOW_S <= total.in_per_s * _COMMITS_S:
        return None
    return total.lag / faster


def brokers_line(frame: Frame, width: int) -> Text:
    """Return how many brokers are up, and those that are away."""
    away = [broker for broker in frame.brokers if not broker.is_up]
    text = Text("BROKERS   ", HEAD).append(f"{len(frame.brokers) - len(away)} up", "" if away else GOOD)
    for broker in away:
        since = short_age(frame.time_ms - broker.since_ms)
        text.append(f", {safe_line(broker.broker)} away for {since}", BAD)
    errors = [broker.error for broker in away if broker.error is not None]
    return cut(text.append(f": {safe_line(errors[0])}", DIM) if errors else text, width)


def letters_line(frame: Frame, width: int) -> Text:
    """Return the dead letters of each topic; those with new ones come first."""
    head = "DEAD LETTERS  "
    parts = [
        part(
            rank,
            f"{safe_line(each.topic)} {short_count(each.messages)} ",
            (f"+{short_count(each.new)}", BAD if each.new else ""),
        )
        for rank, each in enumerate(sorted(frame.dead_letters, key=lambda each: -(each.new or 0)))
        if each.messages is not None
    ]
    return Text(head, HEAD).append_text(fitting(parts or [Part(0, Text("none", DIM))], width - len(head)))


# The table of the queues in the view on a terminal: columns and rows go in the order of their importance.

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


_QUEUES: Final = 3
"""The least queues to show, for which other parts become shorter."""
_BROKER: Final = 22

_Lines = Sequence[RenderableType]


class View:
    """A frame as something that rich prints. `hint` ends the title.

    The lines fit the height of a terminal: parts become shorter, and of more queues than there is room for, those with
    the largest lag stay. The most important is then on top, because a terminal that is lower still shows only the top.
    """

    def __init__(self, frame: Frame, *, hint: str = "", fits_height: bool = False) -> None:
        self._frame, self._hint, self._fits = frame, hint, fits_height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frame, width = self._frame, options.max_width
        most = None
        for above, below in self._layouts(width):
            if not self._fits:
                break
            taken = sum(len(console.render_lines(each, options, pad=False)) for each in (*above, *below))
            most = console.height - taken - 1  # the titles of the columns
            if most >= min(len(frame.queues), _QUEUES + 1):
                break
        queues = queue_table(frame, width, most) if most is None or most > 0 else ()
        yield Group(*above, *queues, *below)

    def _layouts(self, width: int) -> Iterator[tuple[_Lines, _Lines]]:
        """Yield what is above and below the queues, in fewer and fewer lines."""
        frame, gap = self._frame, Text()
        head, sums = title(frame, self._hint, width), totals(frame, width)
        parts = [list(each(frame, width)) for each in (_brokers, _letters, _pipeline, _notes)]
        yield [head, gap, sums, gap], [line for part in parts if part for line in (gap, *part)]
        yield [head, sums], [line for part in parts for line in part]
        above = [head, sums, brokers_line(frame, width)]
        yield above, [line for part in parts[1:] for line in part]
        if frame.dead_letters:
            above.append(letters_line(frame, width))
        above += [cut(line, width) for line in _pipeline(frame, width)]
        yield above, [cut(line, width) for line in _notes(frame, width)]
        yield above, ()


def watch_on_terminal(console: Console, frame: Callable[[], Frame], hint: str, every_s: float) -> None:
    """Draw the newest frame again and again until Ctrl-C. The clock in the title goes on when no broker answers."""
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            live.update(View(frame(), hint=hint, fits_height=True), refresh=True)
            time.sleep(min(every_s, 0.5))


def _brokers(frame: Frame, width: int) -> Iterator[RenderableType]:
    table = table_of("BROKER", None)
    for name, columns in (("STATE", None), ("SINCE", 8), ("ANSWERED", 8)):
        table.add_column(name, min_width=columns, no_wrap=True)
    if frame.target.group is not None:
        table.add_column("COMMIT", no_wrap=True)
    for broker in frame.brokers:
        table.add_row(*_broker_row(broker, frame, max(8, min(_BROKER, width - 36))))
    yield table
    for broker in frame.brokers:
        if broker.error is not None:
            yield cut(Text(f"  {safe_line(broker.broker)}: {safe_line(broker.error)}", DIM), width * 2)


def _broker_row(broker: BrokerView, frame: Frame, columns: int) -> Iterator[Text]:
    yield Text(without_middle(safe_line(broker.broker), columns))
    yield Text("up", GOOD) if broker.is_up else Text("away", BAD)
    yield Text(time.strftime("%H:%M:%S", time.localtime(broker.since_ms / 1000)))
    yield Text(ago(broker.answered_ms, frame.time_ms))
    if frame.target.group is not None:
        yield Text(ago(broker.committed_ms, frame.time_ms))


def _letters(frame: Frame, width: int) -> Iterator[RenderableType]:
    if not frame.dead_letters:
        return
    table = table_of("DEAD LETTERS", None)
    for name in ("MESSAGES", "NEW", "IN/S"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in frame.dead_letters:
        topic = Text(without_middle(safe_line(each.topic), max(12, min(44, width - 26))))
        if each.messages is None:
            table.add_row(topic, Text("none", DIM), "", "")
        else:
            table.add_row(topic, short_count(each.messages), Text(f"+{short_count(each.new)}", BAD if each.new else ""),
                          short_rate(each.per_s))  # fmt: skip
    yield table


def _pipeline(frame: Frame, width: int) -> Iterator[Text]:
    pipeline = frame.pipeline
    if pipeline is None:
        return
    if pipeline.error is not None:
        when = "never" if pipeline.answered_ms is None else ago(pipeline.answered_ms, frame.time_ms)
        text = Text("PIPELINE ", HEAD).append(f"away, answered {when}: ", BAD)
        yield cut(text.append(safe_line(pipeline.error), DIM), width)
        return
    lag, watermark = pipeline.lag_s, pipeline.watermark_lag_s
    parts = [
        part(3, f"reads {short_rate(pipeline.read_per_s)}/s"),
        part(4, f"sends {short_rate(pipeline.sent_per_s)}/s"),
        part(2, f"read delay {short_age(None if lag is None else lag * 1000)}"),
        part(1, f"watermark delay {short_age(None if watermark is None else watermark * 1000)}"),
    ]
    yield Text("PIPELINE  ", HEAD).append_text(fitting(parts, width - 10))
    errors = [f"{name} {short_count(value)}" for name, value in pipeline.errors.items()]
    grown = f" (+{short_count(pipeline.new_errors)} while watching)" if pipeline.new_errors else ""
    shown = ", ".join(errors) + grown if errors else "none"
    yield cut(Text("ERRORS    ", HEAD).append(shown, BAD if pipeline.new_errors else ""), 2 * width)


def _notes(frame: Frame, width: int) -> Iterator[Text]:
    return (cut(Text(f"note: {safe_line(note)}", WARNING), width * 2) for note in frame.notes)
