"""The parts of which the view on a terminal is drawn: styles, tables, and lines that lose what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.table import Table
from rich.text import Text

from rmqio.watch.figures import short_age

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
