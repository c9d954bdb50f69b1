"""Terminal output: tables, numbers with units, times, JSON; nothing in it can control the terminal."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rmqio.command_line.terminal import GAP, display_width, line_width, safe, with_short_names
from rmqio.errors import counted


def allow_any_text(stream: TextIO) -> None:
    """Escape a character that the stream cannot encode, instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def one_line(text: str) -> str:
    """Join text of several lines, such as a broker's remark, into one."""
    return safe(" ".join(text.split()))


def print_json(value: Any) -> None:
    """Print one JSON document on one line, in ASCII: it is the same everywhere and holds no control character."""
    print(json.dumps(value).replace("\x7f", "\\u007f"))


def note(text: str) -> None:
    """Print a remark that is not part of the data, on stderr."""
    sys.stdout.flush()
    print(f"rmqio: {one_line(text)}", file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, total: Sequence[str] | None = None) -> None:
    """Print aligned columns.

    A title that begins with `>` marks a column of numbers, aligned to the right. A `?` in front of it marks a column to
    leave out if the table is wider than the terminal; those on the left go first. `~` marks a column of names: if the
    table is still too wide for a terminal, long names lose their middle. Elsewhere they stay whole, for scripts.
    """
    lines = [[title.lstrip("?>~") for title in columns], *map(list, rows), *([list(total)] if total else [])]
    most = line_width()
    widths = _widths(lines)
    shown = list(range(len(columns)))
    for number in [number for number, title in enumerate(columns) if title.startswith("?")]:
        if sum(widths[i] + GAP for i in shown) - GAP > most:
            shown.remove(number)
    lines = [[line[i] for i in shown] for line in lines]
    titles = [columns[i] for i in shown]
    if sys.stdout.isatty():
        lines = with_short_names(lines, [i for i, title in enumerate(titles) if title.startswith("~")], most)
    widths = _widths(lines)
    for number, line in enumerate(lines):
        if total and number == len(lines) - 1:
            print((" " * GAP).join("-" * width for width in widths))
        cells = [
            _aligned(cell, width, is_number=">" in title[:2])
            for cell, width, title in zip(line, widths, titles, strict=True)
        ]
        print((" " * GAP).join(cells).rstrip())


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, column)) for column in zip(*lines, strict=True)]


def _aligned(cell: str, width: int, *, is_number: bool) -> str:
    space = " " * (width - display_width(cell))
    return space + cell if is_number else cell + space


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Join names; of many, only the first and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def count(number: int | None) -> str:
    """Format a number as 1,234; None as a dash."""
    return "-" if number is None else f"{number:,}"


def size(number: int) -> str:
    """Format a number of bytes, in a larger unit where that is clearer."""
    if number < 10_000:
        return counted(number, "byte")
    return f"{number / 1e3:,.0f} kB" if number < 1e6 else f"{number / 1e6:,.1f} MB"


def duration(ms: float | None) -> str:
    """Format a duration in the unit that fits; None as a dash, one that a wrong clock makes negative as 0."""
    if ms is None:
        return "-"
    seconds = max(ms, 0) / 1000
    if seconds == 0:
        return "0 s"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours, days = seconds / 60, seconds / 3_600, seconds / 86_400
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.0f} h" if hours < 100 else f"{days:,.0f} d"


def time_text(ms: int | None, *, timespec: str = "milliseconds") -> str:
    """Format a time in the local time zone as ISO 8601, which `--from` takes; None as a dash."""
    if ms is None:
        return "-"
    try:
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).astimezone().isoformat(timespec=timespec)
    except (OverflowError, ValueError, OSError):  # a producer can write any number
        return f"{ms} ms"


def age(ms: int | None, now_ms: int) -> str:
    """Format how long ago a time was; None as a dash."""
    return "-" if ms is None else f"{duration(now_ms - ms)} ago"
