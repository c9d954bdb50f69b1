"""Passwords in the text of a script: errors and listings show `***` in their place, also if the option is misspelt.

A statement that parses says where the values of its options are. Of any other text nothing is sure, since one
apostrophe too many turns its strings inside out. So behind each name that can be that of a secret all of the line is
hidden, unless a literal and the next option are there, and what is below it if the value goes on. A query has no
options: `token = 'x'` compares a column.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from rmqio.sql.secret_values import SCHEME, Spans, hides, may_hide, secrets_in_text, secrets_in_value
from rmqio.sql.syntax.pieces import Piece, pieces

HIDDEN: Final = "***"
_COMMENT: Final = re.compile(r"'[^']*'?|`[^`]*`?|(?P<comment>--[^\n]*|/\*(?!\+).*?(?:\*/|\Z))", re.DOTALL)
_STATEMENT: Final = re.compile(
    r";(?=\s*(?:\Z|--|/\*|(?:ALTER|CREATE|DROP|EXECUTE|INSERT|RESET|SELECT|SET|UPDATE|WITH)\b)|[^\S\n]*\n)",
    re.IGNORECASE,
)
_QUERY: Final = re.compile(r"\b(?:SELECT|VALUES|WHERE|UPDATE)\b", re.IGNORECASE)
_LIST: Final = re.compile(
    r"/\*\+|\bCREATE\s+(?:TEMPORARY\s+)?(?!TEMPORARY\b|VIEW\b)\w|\bALTER\b|\bOPTIONS\s*\("
    r"|\bWITH\s*(?:\(|\s(?!DELAY\b)[\w.\-]+\s*[=:'])|'[\w.\-]+'\s*=\s*'|(?:^|;)\s*SET\s+(?:'|[\w\-]+\.)",
    re.IGNORECASE | re.MULTILINE,
)
"""Where options are, also behind a WITH or SET that is misspelt: a query does not compare two literals."""
_NAME: Final = re.compile(
    r"""
    (?<![\w.\-])(?P<key>[\w.\-]++(?:\[[\w.\-]*\])*+)(?P<close>[\\'"`\u2019\u201d\xb4\]]*+)
    \s*+(?: (?P<sign>(?:(?!--)[:=~<>!%\-])+)\s*+ | (?P<comma>,\s*+)(?=['=:])
      | (?=(?P<literal>(?:(?!(?:AS|COMMENT)\b)\w+\s+)?['"\u2018\u201c\xb4])|(?P<other>[^,;)\]}])) )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A name, and what is between it and a value."""
_LITERAL: Final = re.compile(r"(?:[ENX]|U&)?'(?P<inside>(?:[^'\n]|'')*+)'(?=\s*,?\s*'[\w.\-]+'\s*=)", re.IGNORECASE)
"""A value with the next option behind it."""
_WHOLE: Final = re.compile(
    r"""(?:(?:[ENX]|U&)?'[^'\n]*'|"[^"\n]*"|[^\s'"`(,;)]+)[^\S\n]*(?:[,;)}]|\*/|\n\s*(?:'[\w.\-]+'\s*=|[);])|\s*\Z)""",
    re.IGNORECASE,
)
"""A value that does not go on in the next line."""
_USER: Final = re.compile(r":(?://[^\s:/'\"]*[:/])?")
_NO_PORT: Final = re.compile(r"//[^\s:/'\"\[\]]*:(?!\d*(?:[,;/?#&\s'\")]|\Z))")
_QUOTED: Final = re.compile(r"(?<!\w)(['\"])(?P<inside>(?:\\.|(?!\1).)*)\1(?!\w)", re.DOTALL)
PARSERS: Final[list[Callable[[str], Sequence[Any] | None]]] = []
"""The parser, which adds itself, since its errors show no secrets: the options in a text; None: it does not parse."""
_QUOTES: Final = tuple("'\"\u2018\u201c\u2019\u201d\xb4")
_BEFORE: Final = (*_QUOTES, "=", ":")


@functools.lru_cache(maxsize=8)
def secrets_of(text: str, begin: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Returns where secrets stand in a part of a text of SQL, [start, end), in order; elsewhere, some of them."""
    end, found = len(text) if end is None else end, [*secrets_in_text(text)]
    for piece in pieces(text):
        if piece.start <= end and piece.end >= begin:
            if (known := _known(text, piece)) is None:
                return _merged([*found, *_supposed(text)])
            found += known
    return _merged(found)


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


def _known(text: str, piece: Piece) -> list[tuple[int, int]] | None:
    """Returns the secrets of a statement; None: it does not parse."""
    part, found = text[piece.start : piece.end], list[tuple[int, int]]()
    options = [] if _is_query(part) else next((parse(part) for parse in PARSERS), None)
    if options is None:
        return None
    for each in options:
        start, end = piece.start + each.value_span.start, piece.start + each.value_span.end
        if text[start] == "'":
            start, end = start + 1, end - 1
        whole = hides(each.key, each.value)
        inside = [(0, end - start)] if whole else [*secrets_in_value(text[start:end], each.key)]
        found += [(start + first, start + last) for first, last in inside]
    return [*found, *_in_comments(text, piece.start, piece.end, [end for _, end in found])]


def _is_query(text: str) -> bool:
    return _QUERY.search(text) is not None and _LIST.search(text) is None


def _in_comments(text: str, begin: int, end: int, ends: Sequence[int] = ()) -> Spans:
    """The secrets in comments. One directly behind a secret, which ends in `ends`, can be a part of it."""
    for each in _COMMENT.finditer(text, begin, end):
        if each["comment"]:
            if any(not text[known : each.start()].strip("' \t") for known in ends if 0 <= each.start() - known < 9):
                yield each.span()
            yield from _from_names(text, each.start() + 2, each.end(), each.end())


def _supposed(text: str) -> Spans:
    """All that can be a secret in a text that does not parse."""
    ends = [0, *(each.end() for each in _STATEMENT.finditer(text)), len(text)]
    for begin, end in pairwise(ends):
        if _is_query(text[begin:end]):
            yield from _in_comments(text, begin, end)
        else:
            yield from _from_names(text, begin, end, len(text))


def _from_names(text: str, begin: int, end: int, limit: int) -> Spans:
    """Values behind names of secrets, and all to the end of the line if their end is not sure.

    Also lines from the user of a URL, and from `Bearer x`.
    """

    def line_end(start: int) -> int:
        found = text.find("\n", start, limit)
        return found if found >= 0 else limit

    place = begin
    while (name := _NAME.search(text, place, end)) is not None:
        start, place = name.end(), name.end("close")
        if not _is_given(name, text[max(begin, name.start() - 9) : name.start()], text[start : start + 99]):
            continue
        if (literal := _LITERAL.match(text, start, limit)) is not None:
            place = literal.end()
            yield literal.span("inside")
        else:
            place = line_end(start) if _WHOLE.match(text, start, limit) else max(line_end(start), end)
            yield start, place
    for each in SCHEME.finditer(text, begin, end):  # `token INT` is a column
        if (
            each[0][:6].lower() == "bearer"
            or text[max(begin, each.start() - 9) : each.start()].rstrip()[-1:] in _BEFORE
        ):
            yield each.start(), line_end(each.start())
    place = begin
    while place < end:
        start, place = place, line_end(place) + 1
        at = text.rfind("@", start, place)
        for found in (_USER.search(text, start, max(start, at)), _NO_PORT.search(text, start, place)):
            if found is not None:
                yield found.end(), place - 1


def _is_given(name: re.Match[str], before: str, value: str) -> bool:
    """Whether a name is that of a secret, and has a value behind it."""
    is_quoted = before.rstrip()[-1:] in _QUOTES or any(each in _QUOTES for each in name["close"])
    is_value = name["close"] and before.rstrip(f"{''.join(_QUOTES)} ")[-1:] in ("=", ":")  # of another option
    if not name["sign"] and (is_value or not (is_quoted or name["literal"] or name["key"].startswith("-"))):
        return False
    return may_hide(name["key"]) and hides(name["key"], re.split(r"[\s'\",;)]", value.lstrip("'\""), maxsplit=1)[0])


def masked(text: str) -> str:
    """Returns a text of SQL with `***` in place of its secrets."""
    return _replaced(text, secrets_of(text))


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + HIDDEN + text[end:]
    return text


def masked_value(value: str, key: str = "") -> str:
    """Returns the value of an option with `***` in place of its secrets."""
    return HIDDEN if hides(key, value) else _replaced(value, _merged([*secrets_in_value(value, key)]))


def masked_line(text: str, begin: int, end: int, start: int, stop: int) -> tuple[str, int, int]:
    """Returns a part of a text without secrets, and where a place in it begins and ends there.

    Args:
      begin, end: the part.
      start, stop: the place, by offsets in the text. What is within a secret becomes all of it.
    """
    line, start, stop = text[begin:end], start - begin, stop - begin
    for first, last in reversed(secrets_of(text, begin, end)):
        first, last = max(first, begin) - begin, min(last, end) - begin
        if first < last:
            line, shift = line[:first] + HIDDEN + line[last:], len(HIDDEN) - (last - first)
            start = start + shift if start >= last else min(start, first)
            stop = stop + shift if stop >= last else first + len(HIDDEN) if stop > first else stop
    return line, start, stop


def masked_message(message: str) -> str:
    """Returns a message without secrets: those of URLs, and those in the texts that it quotes."""
    spans = [*secrets_in_text(message, is_message=True)]
    for each in _QUOTED.finditer(message):
        spans += [(each.start(2) + first, each.start(2) + last) for first, last in secrets_in_value(each["inside"])]
    return _replaced(message, _merged(spans))
