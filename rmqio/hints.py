"""Hints in error messages: the known name that is closest to a wrong one, and carets under a place in a line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

# Shows a place in a line of text: the line, or what is near the place, and carets under it.

_LONGEST: Final = 120
"""Columns of a line that is shown as a whole."""
_MOST_COLUMNS: Final = 100
"""Columns that are shown of a longer one."""
_BEFORE: Final = 40
"""Columns before the place, at most, if the line goes on behind it."""


def line_with_carets(line: str, start: int, count: int) -> str:
    """Returns the line with carets under `count` characters from `start`; of a long line 100 columns, with `...`.

    The caller has cut the line at its end; carets do not go beyond it.
    """
    first, last = _window(line, start)
    head, tail = "..." * (first > 0), "..." * (last < len(line))
    before, marked = line[first:start], line[start : min(last, start + max(1, count))]
    # Tabs stay tabs, and wide characters take two columns of a terminal.
    indent = "".join("\t" if each == "\t" else " " * character_width(each) for each in head + before)
    text = "".join("\ufffd" if (each < " " and each != "\t") or each == "\x7f" else each for each in line[first:last])
    return f"  {head}{text}{tail}\n  {indent}{'^' * max(1, sum(map(character_width, marked)))}"


def _window(line: str, start: int) -> tuple[int, int]:
    """Returns where what is shown of a line begins and ends."""
    if len(line) <= _LONGEST and sum(map(character_width, line)) <= _LONGEST:
        return 0, len(line)
    first = last = min(start, len(line))
    left = _MOST_COLUMNS
    while first and left > _MOST_COLUMNS - _BEFORE:
        first, left = first - 1, left - character_width(line[first - 1])
    while last < len(line) and left > 0:
        last, left = last + 1, left - character_width(line[last])
    while first and left > 0:
        first, left = first - 1, left - character_width(line[first - 1])
    return first, last


def character_width(character: str) -> int:
    """Returns the columns that a terminal gives a character: none, one or two."""
    if character.isascii():
        return 1
    import unicodedata

    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # accents, and what is not seen
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Return advice to append to a message; empty if no name is close."""
    found = nearest(wrong, names)
    return f"; did you mean {found}?" if found else ""


def meant_or_known(wrong: str, names: Iterable[str]) -> str:
    """Return advice to append to a message: the closest name, or the known names if none is close."""
    known = [name for name in names if isinstance(name, str)]
    there_are = f"; there are {', '.join(sorted(known)[:20])}" if known else ""
    return did_you_mean(wrong, known) or there_are


def nearest(wrong: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name that is closest to a wrong one, if any is close; `cutoff`: how close, up to 1 for the same."""
    return next(iter(difflib.get_close_matches(wrong, sorted(names), n=1, cutoff=cutoff)), None)
