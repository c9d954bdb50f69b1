"""For completion: the keywords and names that can follow a text that is not complete."""

from __future__ import annotations

from typing import Final, NamedTuple

from lark import UnexpectedInput

from rmqio.sql.errors import Refusal
from rmqio.sql.recursion import deep_trees
from rmqio.sql.syntax.parser import _parser

_WORDS: Final = {
    "PHASE": ("BEFORE", "AFTER"), "ROWS": ("ROWS", "RANGE"), "SIMILAR": ("SIMILAR TO",), "LIKE": ("LIKE", "RLIKE"),
    "CAST": ("CAST(", "TRY_CAST("), "WITHOUT_ZONE": ("WITHOUT TIME ZONE",), "WITH_ZONE": (), "WITH_LOCAL_ZONE": (),
    "ORDINALITY": ("WITH ORDINALITY",), "HEADER": (), "PERIOD": (), "GROUPING_SETS": ("GROUPING SETS (",),
    "QUANTIFIER": ("ANY (", "SOME (", "ALL ("), "_FETCH": ("FETCH FIRST",),
}  # fmt: skip
"""Terminals that are no keyword of their name."""


class Expected(NamedTuple):
    """The words that can follow.

    Attributes:
      keywords: in upper case.
      is_name: a name can follow.
      is_value: a value can: a column, a function, a constant.
    """

    keywords: frozenset[str]
    is_name: bool
    is_value: bool


def expected_after(text: str) -> Expected | None:
    """Returns what can follow the beginning of a statement; None: the text is not the beginning of one."""
    parser = _parser().parse_interactive(text)
    try:
        with deep_trees():
            for _ in parser.iter_parse():
                pass
            accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    except (UnexpectedInput, Refusal, RecursionError):
        return None
    keywords = {word for each in accepted for word in _WORDS.get(each, (each,) if each in _keywords() else ())}
    return Expected(frozenset(keywords), "WORD" in accepted, "NUMBER" in accepted and "WORD" in accepted)


def _keywords() -> frozenset[str]:
    return frozenset(
        each.name for each in _parser().terminals if each.name.isalpha() and each.pattern.value.upper() == each.name
    )
