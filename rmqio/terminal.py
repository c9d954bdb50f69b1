"""The width of a terminal, and of text on it."""

from __future__ import annotations

import unicodedata
from typing import Final

COLUMNS: Final = 80
"""What help and tables are written for."""


def display_width(text: str) -> int:
    """Return the columns that text takes: Chinese characters take two."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, columns: int) -> str:
    """Return the text on one line, cut with dots if it takes more columns."""
    text = " ".join(text.split())
    if display_width(text) <= columns:
        return text
    left, end = columns - 4, 0
    while end < len(text) and (left := left - _width(text[end])) >= 0:
        end += 1
    return text[:end].rstrip() + " ..."


def _width(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
