"""Single lines of the view: the title, the sums, and short forms of tables for which there is no room."""

from __future__ import annotations

import time
from typing import Final

from rich.text import Text

from rmqio.command_line.terminal import safe_line, without_middle
from rmqio.watch.figures import WINDOW_S, short_age, short_count, short_rate
from rmqio.watch.frames import Frame
from rmqio.watch.terminal.drawing import BAD, DIM, GOOD, HEAD, Part, cut, fitting, part

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
