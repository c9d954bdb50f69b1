"""The width of a terminal, and of text on it; text that cannot control it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from typing import Final

from rmqio.carets import character_width

COLUMNS: Final = 80
"""The width of help texts and tables."""
GAP: Final = 2
"""Spaces between the columns of a table."""
_SHORTEST: Final = 16
_DOTS: Final = "..."
_LONGEST: Final = 200
"""Of a word in a message; paths are shorter as a rule."""
# Control, bidirectional and invisible characters, lone surrogates, tags. Joiners stay, since scripts and emoji need
# them; newlines and tabs stay.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def line_width() -> int:
    """Return the width to print for: the terminal's, but at least 80."""
    return max(COLUMNS, shutil.get_terminal_size((COLUMNS, 24)).columns)


def display_width(text: str) -> int:
    """Return the columns that text takes: Chinese characters take two."""
    return len(text) if text.isascii() else sum(map(character_width, text))


def safe(text: str) -> str:
    """Escape characters that would control a terminal, or that nobody would see."""
    return _UNSAFE.sub(_escape, text)


def safe_line(text: str) -> str:
    """Like `safe`, on one line."""
    return safe(text).replace("\n", "\\n").replace("\t", "\\t")


def cut(text: str, columns: int) -> str:
    """Return the text on one line, cut with dots if it takes more columns."""
    text = " ".join(text.split())
    if display_width(text) <= columns:
        return text
    left, end = columns - 4, 0
    while end < len(text) and (left := left - character_width(text[end])) >= 0:
        end += 1
    return text[:end].rstrip() + " ..."


def with_short_words(text: str, words: Iterable[str]) -> str:
    """Return a message in which the words of a command line are cut, as it has them or quoted, if they are very long.

    Args:
      words: the command line; the value behind the equals sign of an option is one, too.
    """
    parts = {part for word in words for part in (word, word.partition("=")[2]) if len(part) > _LONGEST}
    for part in sorted(parts, key=len, reverse=True):
        for shown in (part, repr(part)[1:-1]):
            text = text.replace(shown, f"{shown[:_LONGEST]}{_DOTS}")
    return text


def without_middle(text: str, columns: int) -> str:
    """Return the text with dots in place of its middle if it takes more columns. Both ends tell names apart."""
    if display_width(text) <= columns:
        return text
    head, tail, left = 0, len(text), columns - len(_DOTS)
    while head < tail:
        takes_head = head <= len(text) - tail
        left -= character_width(text[head if takes_head else tail - 1])
        if left < 0:
            break
        head, tail = (head + 1, tail) if takes_head else (head, tail - 1)
    return text[:head] + _DOTS + text[tail:]


def with_short_names(rows: Sequence[Sequence[str]], names: Sequence[int], most: int) -> list[list[str]]:
    """Return a table's rows with the middle of long names left out, so that they take at most so many columns.

    The widest of the columns `names` gives first. All stay whole if two names would then look the same.
    """
    if not rows:
        return []
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    before = list(widths)
    while sum(widths) + GAP * (len(widths) - 1) > most:
        widest = max(names, key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] <= _SHORTEST:
            break
        widths[widest] -= 1
    found = [list(row) for row in rows]
    for column in names:
        if widths[column] == before[column]:
            continue
        short = [without_middle(row[column], widths[column]) for row in rows]
        if len(set(short)) == len({row[column] for row in rows}):
            for row, cell in zip(found, short, strict=True):
                row[column] = cell
    return found


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
