"""Wildcards: `*` is any text, `?` one character; a backslash before either, or before a backslash, the character."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Wild(Enum):
    """A part of a wildcard that is not text."""

    ANY = "*"
    ONE = "?"


Part = str | Wild
_SPECIAL: Final = "*?\\"


def parts_of(pattern: str) -> list[Part]:
    """Texts and wildcards in order; several `*` in a row are one."""
    parts: list[Part] = []
    text: list[str] = []
    at = 0
    while at < len(pattern):
        each = pattern[at]
        if each == "\\" and at + 1 < len(pattern) and pattern[at + 1] in _SPECIAL:
            text.append(pattern[at + 1])
            at += 2
            continue
        at += 1
        if each not in "*?":
            text.append(each)
            continue
        if text:
            parts.append("".join(text))
            text = []
        wild = Wild(each)
        if not (wild is Wild.ANY and parts and parts[-1] is Wild.ANY):
            parts.append(wild)
    if text:
        parts.append("".join(text))
    return parts


def matches(parts: list[Part], text: str) -> bool:
    """Whether the parts are the whole text. The work is bounded by the product of both lengths: no backtracking.

    A `*` takes as little as it can: what fits after the last one fits after any earlier one, too.
    """
    at, position = 0, 0
    after_any, from_position = -1, 0
    while True:
        part = parts[at] if at < len(parts) else None
        if part is Wild.ANY:
            at += 1
            after_any, from_position = at, position
            if at == len(parts):
                return True
            continue
        if part is None:
            if position == len(text):
                return True
        elif part is Wild.ONE:
            if position < len(text):
                at, position = at + 1, position + 1
                continue
        elif text.startswith(part, position):
            at, position = at + 1, position + len(part)
            continue
        if after_any < 0 or from_position >= len(text):
            return False
        from_position += 1
        first = parts[after_any]
        if isinstance(first, str):
            from_position = text.find(first, from_position)
            if from_position < 0:
                return False
        at, position = after_any, from_position
