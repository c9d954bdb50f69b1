"""Phrases: the parts of statements and queries that are no nodes of the tree."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from rmqio.sql.errors import Span
from rmqio.sql.syntax.tokens import span_of


class Phrase:
    """A part of a statement that is not a node of its own, with the rule's name."""

    __slots__ = ("kind", "span", "value")

    def __init__(self, kind: str, value: Any, span: Span) -> None:
        self.kind, self.value, self.span = kind, value, span


def phrase(kind: str) -> Any:
    def build(self: Any, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase(kind, children, span_of(meta))

    return v_args(meta=True)(build)


def take(children: list[Any], kind: str) -> list[Any] | None:
    """Returns the children of the phrase of this kind; None: it is not there."""
    return next((each.value for each in children if isinstance(each, Phrase) and each.kind == kind), None)


def has(children: list[Any], token: str) -> bool:
    return any(isinstance(each, Token) and each.type == token for each in children)


def of(children: list[Any], kind: type | tuple[type, ...]) -> list[Any]:
    return [each for each in children if isinstance(each, kind)]


def flat(children: list[Any], kind: str) -> list[Any]:
    """The members of a left-recursive list."""
    found: list[Any] = []
    while children:
        first, *rest = children
        found[:0] = rest if isinstance(first, Phrase) and first.kind == kind else children
        children = first.value if isinstance(first, Phrase) and first.kind == kind else []
    return _unwrapped(found, kind)


def _unwrapped(found: list[Any], kind: str) -> list[Any]:
    return [each for each in found if not (isinstance(each, Phrase) and each.kind == kind)]
