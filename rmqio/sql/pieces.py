"""The pieces of a text between semicolons, without parsing it: also of a text that is not complete, or not valid."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
      (?P<string> '(?:[^']|'')*(?P<string_end>'?) )
    | (?P<name> `(?:[^`]|``)*(?P<name_end>`?) )
    | \{[^{}\n]+\}
    | --[^\n]*
    | (?P<comment> /\*(?!\+).*?(?P<comment_end>\*/|\Z) )
    | (?P<semicolon> ; )
    | \s+
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Piece(NamedTuple):
    """A statement with the comments before it: [start, end) in the text, the semicolon included.

    `is_ended`: it has its semicolon. `is_empty`: there is nothing but comments.
    """

    start: int
    end: int
    is_ended: bool
    is_empty: bool


def pieces(text: str) -> list[Piece]:
    """Returns the pieces of a text. A semicolon in a string, a name or a comment ends none."""
    found: list[Piece] = []
    start, is_empty = 0, True
    for token in _TOKEN.finditer(text):
        if token["semicolon"]:
            found.append(Piece(start, token.end(), True, is_empty))
            start, is_empty = token.end(), True
        elif token["string"] or token["name"] or token["other"] or token[0].startswith("{"):
            is_empty = False
    if text[start:].strip():
        found.append(Piece(start, len(text), False, is_empty))
    return found


def open_token(text: str) -> str:
    """Returns what the text ends within: `'`, a backquote or `/*`; nothing if it is not one of them."""
    for token in _TOKEN.finditer(text):
        for kind, sign in (("string", "'"), ("name", "`"), ("comment", "/*")):
            if token[kind] and not token[f"{kind}_end"]:
                return sign
    return ""
