"""The function that query 14 calls."""

from __future__ import annotations


def count_char(text: str, char: str) -> int:
    """Returns how often a character is in a text."""
    return text.count(char)
