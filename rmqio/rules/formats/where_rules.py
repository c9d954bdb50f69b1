"""Rules as conditions of SQL: one after the other with a semicolon between, each with comments that describe it.

-- id: large-order
-- title: A large order from a new customer
-- level: high
-- tags: fraud, orders
amount > 10000 AND customer.age_days < 7;
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from rmqio.errors import LocalError
from rmqio.hints import did_you_mean
from rmqio.rules.errors import Problem
from rmqio.rules.formats.base import (
    LEVELS,
    Parsed,
    RuleText,
    joined,
    level_refused,
    line_and_column,
    line_with_caret,
)
from rmqio.rules.ir import Place, Rule

_NEEDS: Final = "rules as SQL need the extra 'sql': pip install 'rmqio[sql]'"
_PIECE: Final = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|;|.", re.DOTALL)
_HEADER: Final = re.compile(r"--[ \t]*(\w+)[ \t]*:[ \t]*(.*?)[ \t\r]*", re.ASCII)
_KEYS: Final = ("id", "title", "level", "tags")


class _Statement(NamedTuple):
    """A condition, the offset of its text, and its comments with their offsets."""

    text: str
    start: int
    comments: tuple[tuple[str, int], ...]


def parse(texts: Sequence[RuleText]) -> Parsed:
    """Returns the rules of texts. Raises `LocalError` without the extra."""
    return joined(_parsed(each) for each in texts)


def _parsed(given: RuleText) -> Parsed:
    try:
        from rmqio.rules.where import condition_of
        from rmqio.sql.errors import SqlError
    except ImportError as error:
        raise LocalError(f"{_NEEDS} ({error})") from error
    text = given.text.removeprefix("\ufeff")
    statements = list(_statements(text))
    rules: list[Rule] = []
    problems: list[Problem] = []
    for each in statements:
        found: dict[str, str] = {}
        wrong = ""
        first_line, column = line_and_column(text, each.comments[0][1] if each.comments else each.start)
        wrong_line = first_line
        for comment, offset in each.comments:
            header = _HEADER.fullmatch(comment)
            if header is None or wrong:
                continue
            key, value = header[1].lower(), header[2]
            if key in _KEYS and key not in found:
                found[key] = value
            elif key in found or did_you_mean(key, _KEYS):  # other comments are prose
                twice = "is listed twice" if key in found else f"is not known{did_you_mean(key, _KEYS)}"
                wrong, (wrong_line, column) = f"the key {key!r} {twice}", line_and_column(text, offset)
        rule_id = found.get("id") or (PurePath(given.name).stem if len(statements) == 1 else "")
        level = found.get("level", "medium").lower()
        if not wrong and not rule_id:
            wrong = "the rule has no id: write `-- id: NAME` above its condition"
        if not wrong and level not in LEVELS:
            wrong = level_refused(level)
        if wrong:
            shown = line_with_caret(text, wrong_line, column)
            problems.append(Problem(given.name, wrong_line, rule_id, wrong, shown))
            continue
        try:
            condition = condition_of(each.text, given.name)
        except SqlError as error:
            line = line_and_column(text, each.start)[0] + max(error.line, 1) - 1
            problems.append(Problem(given.name, line, rule_id, error.message, error.shown))
            continue
        tags = tuple(tag.strip() for tag in found.get("tags", "").split(",") if tag.strip())
        rules.append(Rule(rule_id, condition, found.get("title", ""), level, tags, (), Place(given.name, first_line)))
    return Parsed(tuple(rules), (), tuple(problems))


def _statements(text: str) -> Iterator[_Statement]:
    comments: list[tuple[str, int]] = []
    start: int | None = None
    end = 0
    for piece in _PIECE.finditer(text):
        each = piece[0]
        if each == ";":
            if start is not None:
                yield _Statement(text[start:end], start, tuple(comments))
            comments, start = [], None
        elif each.startswith("--") and start is None:
            comments.append((each, piece.start()))
        elif not each.isspace() and not (start is None and each.startswith(("--", "/*"))):
            start = piece.start() if start is None else start
            end = piece.end()
    if start is not None:
        yield _Statement(text[start:end], start, tuple(comments))
