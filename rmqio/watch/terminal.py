"""The view on a terminal: a frame as rich renders it, for 80 columns and more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rmqio.command_line.output import plural
from rmqio.command_line.terminal import safe_line, without_middle
from rmqio.watch.figures import bar, short_age, short_count, short_rate, spark
from rmqio.watch.frames import BrokerView, DeadLettersView, Frame, PipelineView, QueueView

_GOOD, _BAD, _DIM, _HEAD, _BAR, _CURVE = "green", "bold red", "dim", "bold", "yellow", "cyan"
_NAME = 22
"""The least columns of a queue's name."""
_FIGURES, _FIGURES_WITH_GROUP = 18, 37
"""The columns of the figures, and of the gaps between all columns."""


class View:
    """A frame as something that rich prints. `hint` ends the title.

    The lines fit the height of a terminal: of more queues than there is room for, those with the largest lag stay.
    """

    def __init__(self, frame: Frame, *, hint: str = "", fits_height: bool = False) -> None:
        self._frame, self._hint, self._fits = frame, hint, fits_height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frame, width = self._frame, options.max_width
        above: list[RenderableType] = [_title(frame, self._hint, width), Text(), _totals(frame, width), Text()]
        below: list[RenderableType] = [Text(), _brokers(frame)]
        below += [_cut(Text(f"  {safe_line(b.broker)}: {safe_line(b.error)}", _DIM), width * 2)
                  for b in frame.brokers if b.error is not None]  # fmt: skip
        if frame.dead_letters:
            below += [Text(), _dead_letters(frame.dead_letters)]
        if frame.pipeline is not None:
            below += [Text(), *_pipeline(frame.pipeline, frame.time_ms, width)]
        if frame.notes:
            below += [Text(), *(_cut(Text(f"note: {safe_line(note)}", _BAR), width * 2) for note in frame.notes)]
        most = None
        if self._fits:
            taken = sum(len(console.render_lines(each, options, pad=False)) for each in (*above, *below))
            most = max(3, console.height - taken - 3)
        yield Group(*above, *_queues(frame, width, most), *below)


def watch_on_terminal(console: Console, frame: Callable[[], Frame], hint: str, every_s: float) -> None:
    """Draw the newest frame again and again until Ctrl-C. The clock in the title goes on when no broker answers."""
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            live.update(View(frame(), hint=hint, fits_height=True), refresh=True)
            time.sleep(min(every_s, 0.5))


def _title(frame: Frame, hint: str, width: int) -> Text:
    what = ", ".join(frame.target.topics)
    if frame.target.group is not None:
        what += f", group {frame.target.group}"
    right = time.strftime("%H:%M:%S", time.localtime(frame.time_ms / 1000)) + (f", {hint}" if hint else "")
    left = without_middle(f"rmqio watch: {safe_line(what)}", max(20, width - len(right) - 2))
    text = Text(left, _HEAD)
    text.append(" " * max(2, width - text.cell_len - len(right)))
    text.append(right, _DIM)
    return text


def _totals(frame: Frame, width: int) -> Text:
    total, text = frame.total, Text()
    if frame.target.group is not None:
        text.append("lag ").append(short_count(total.lag), _BAD if total.lag is None else _HEAD)
        text.append("   oldest waits ").append(short_age(total.lag_ms), _HEAD)
    else:
        text.append("messages ").append(short_count(total.messages), _HEAD)
    text.append("   in ").append(f"{short_rate(total.in_per_s)}/s", _HEAD)
    if frame.target.group is not None:
        text.append("   out ").append(f"{short_rate(total.out_per_s)}/s", _HEAD)
        left = _time_left(frame)
        if left is not None:
            text.append(f"   empty in {short_age(left * 1000)}", _DIM)
    return _cut(text, width)


def _time_left(frame: Frame) -> float | None:
    """Return the seconds until the lag is gone at these rates; None if it is gone, or grows."""
    total = frame.total
    if not total.lag or total.in_per_s is None or total.out_per_s is None or total.out_per_s <= total.in_per_s:
        return None
    return total.lag / (total.out_per_s - total.in_per_s)


def _queues(frame: Frame, width: int, most: int | None) -> Iterator[RenderableType]:
    views = list(frame.queues)
    left_out = 0
    if most is not None and len(views) > most:
        kept = sorted(views, key=lambda view: (not view.is_away, -(view.state.lag or 0)))[: most - 1]
        left_out, views = len(views) - len(kept), [view for view in views if view in kept]
    has_group = frame.target.group is not None
    names = {view: _name(view, len(frame.target.topics) > 1) for view in views}
    name = max(_NAME, min(max((len(each) for each in names.values()), default=0), width // 3))
    room = max(12, width - name - (_FIGURES_WITH_GROUP if has_group else _FIGURES))
    curve = room * 3 // 5
    bars = room - curve
    table = _table(("QUEUE", "left", name))
    for title, justify, columns in (
        *((("LAG", "right", 7), ("", "left", bars), ("LAG SO FAR", "left", curve), ("WAIT", "right", 5))
          if has_group else (("MESSAGES", "right", 8), ("", "left", bars), ("IN SO FAR", "left", curve))),
        ("IN/S", "right", 6),
        *((("OUT/S", "right", 6), ("COMMIT", "right", 6)) if has_group else ()),
    ):  # fmt: skip
        table.add_column(title, justify=justify, width=columns, no_wrap=True)
    top = max((view.state.lag if has_group else view.state.messages) or 0 for view in frame.queues) if views else 0
    for view in views:
        table.add_row(*_row(view, frame.time_ms, without_middle(names[view], name), top, bars, curve, has_group))
    yield table
    if left_out:
        yield Text(f"... {plural(left_out, 'queue')} more, with less lag; the sums include them", _DIM)


def _row(view: QueueView, now_ms: int, name: str, top: int, bars: int, curve: int, has_group: bool) -> Iterator[Text]:
    state = view.state
    yield Text(name, _BAD if view.is_away else "")
    figure = state.lag if has_group else state.messages
    yield Text("away" if view.is_away else short_count(figure), _BAD if view.is_away else "")
    yield Text(bar(figure, top, bars), _DIM if view.is_away else _BAR)
    yield Text(spark(view.curve[-curve * 2 :], curve), _CURVE)
    if has_group:
        yield Text(short_age(state.lag_ms(now_ms)))
    yield Text(short_rate(view.in_per_s))
    if has_group:
        yield Text(short_rate(view.out_per_s))
        yield Text(short_age(None if view.committed_ms is None else now_ms - view.committed_ms))


def _name(view: QueueView, has_topics: bool) -> str:
    queue = view.state.queue
    name = f"{queue.broker}:{queue.queue_id}"
    return safe_line(f"{queue.topic} {name}" if has_topics else name)


def _brokers(frame: Frame) -> Table:
    table = _table(("BROKER", "left", None))
    for title, columns in (("STATE", None), ("SINCE", 8), ("ANSWERED", 8)):
        table.add_column(title, min_width=columns, no_wrap=True)
    if frame.target.group is not None:
        table.add_column("COMMIT", no_wrap=True)
    for broker in frame.brokers:
        table.add_row(*_broker_row(broker, frame))
    return table


def _broker_row(broker: BrokerView, frame: Frame) -> Iterator[Text]:
    yield Text(without_middle(safe_line(broker.broker), _NAME))
    yield Text("up", _GOOD) if broker.is_up else Text("away", _BAD)
    yield Text(time.strftime("%H:%M:%S", time.localtime(broker.since_ms / 1000)))
    yield Text(_ago(broker.answered_ms, frame.time_ms))
    if frame.target.group is not None:
        yield Text(_ago(broker.committed_ms, frame.time_ms))


def _dead_letters(letters: Sequence[DeadLettersView]) -> Table:
    table = _table(("DEAD LETTERS", "left", None))
    for title in ("MESSAGES", "NEW", "IN/S"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in letters:
        name = Text(without_middle(safe_line(each.topic), 44))
        if each.messages is None:
            table.add_row(name, Text("none", _DIM), "", "")
        else:
            style = _BAD if each.new else ""
            table.add_row(name, short_count(each.messages), Text(f"+{short_count(each.new)}", style),
                          short_rate(each.per_s))  # fmt: skip
    return table


def _pipeline(pipeline: PipelineView, now_ms: int, width: int) -> Iterator[Text]:
    text = Text().append("PIPELINE ", _HEAD)
    if pipeline.error is not None:
        when = "never" if pipeline.answered_ms is None else _ago(pipeline.answered_ms, now_ms)
        yield _cut(text.append(f"away, answered {when}: ", _BAD).append(safe_line(pipeline.error), _DIM), width)
        return
    text.append(f" reads {short_rate(pipeline.read_per_s)}/s   sends {short_rate(pipeline.sent_per_s)}/s")
    lag, watermark = pipeline.lag_s, pipeline.watermark_lag_s
    text.append(f"   read delay {short_age(None if lag is None else lag * 1000)}")
    text.append(f"   watermark delay {short_age(None if watermark is None else watermark * 1000)}")
    yield _cut(text, width)
    errors = [f"{name} {short_count(value)}" for name, value in pipeline.errors.items()]
    grown = f" (+{short_count(pipeline.new_errors)} while watching)" if pipeline.new_errors else ""
    shown = ", ".join(errors) + grown if errors else "none"
    yield _cut(Text().append("ERRORS    ", _HEAD).append(shown, _BAD if pipeline.new_errors else ""), 2 * width)


def _table(first: tuple[str, str, int | None]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style=_DIM)
    table.add_column(first[0], justify=first[1], width=first[2], no_wrap=True)  # type: ignore[arg-type]
    return table


def _ago(ms: int | None, now_ms: int) -> str:
    if ms is None:
        return "-"
    return "now" if now_ms - ms < 1_500 else f"{short_age(now_ms - ms)} ago"


def _cut(text: Text, columns: int) -> Text:
    text.truncate(columns, overflow="ellipsis")
    return text
