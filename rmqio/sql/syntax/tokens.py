"""Tokens of the parser: their places and texts."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.tree import Meta

from rmqio.sql.errors import Span
from rmqio.sql.syntax import nodes


def span_of(meta: Meta | Token) -> Span:
    """Returns the characters of a rule or a token."""
    if isinstance(meta, Token):
        return Span(meta.start_pos or 0, meta.end_pos or 0)
    return Span(meta.start_pos, meta.end_pos) if not meta.empty else nodes.NOWHERE


def text_of(token: Token) -> str:
    """Returns the text of a string literal."""
    return token[1:-1].replace("''", "'")


def words(tokens: list[Any]) -> str:
    """Returns keywords in upper case, with one space between them."""
    return " ".join(str(each).upper() for each in tokens)
