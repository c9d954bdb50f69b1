"""EXPLAIN on a terminal: lines that are longer than it is wide go on below, within the lines of the tree."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import Final

from rmqio.hints import character_width

_TREE: Final = re.compile(r"[│├└─ ]*")
_FILLER: Final = "\ue000"
"""Stands behind a character that takes two columns of a terminal, while lines are broken by their length."""
_LEAST: Final = 30
"""Columns of text that a line has at least, however deep it is."""


def for_terminal(text: str) -> str:
    """Returns the trees for standard output: as they are, unless it is a terminal."""
    return fitted(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text


def fitted(text: str, columns: int) -> str:
    """Returns the trees with lines of at most so many columns, as far as words and depth permit."""
    lines = text.split("\n")
    found: list[str] = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if len(_padded(line)) <= columns:
            found.append(line)
            continue
        found += _parts(line, below, columns)
    return "\n".join(found)


def _parts(line: str, below: str, columns: int) -> list[str]:
    found = _TREE.match(line)
    assert found is not None
    before = found[0]
    rest = before.replace("├─", "│ ").replace("└─", "  ")
    if (rest != before or not before) and below.startswith(f"{rest}│"):  # the head of a relation that has others below
        rest += "│"
    rest += " " * (5 if rest.endswith("│") else 2)
    width = max(columns - max(len(before), len(rest)), _LEAST)
    text = _padded(line[len(before) :])
    first, *others = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [(before + first).replace(_FILLER, ""), *((rest + each).replace(_FILLER, "") for each in others)]


def _padded(text: str) -> str:
    if text.isascii():
        return text
    return "".join(each + _FILLER * (character_width(each) - 1) for each in text)
