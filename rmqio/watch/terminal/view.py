"""The view on a terminal: a frame as rich renders it, whatever the size of the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from rmqio.command_line.terminal import safe_line, without_middle
from rmqio.watch.figures import short_age, short_count, short_rate
from rmqio.watch.frames import BrokerView, Frame
from rmqio.watch.terminal.drawing import BAD, DIM, GOOD, HEAD, WARNING, ago, cut, fitting, part, table_of
from rmqio.watch.terminal.lines import brokers_line, letters_line, title, totals
from rmqio.watch.terminal.queue_table import queue_table

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
