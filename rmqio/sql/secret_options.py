"""Passwords in the text of a script: errors and listings show `***` in their place, also if the option is misspelt.

A secret is the value of an option, or of a parameter in a URL, with the name of a secret; the password before the @ of
a URL; and what `secret_values` finds in the value of any option. A name or a value of an option is in quotes, as in
`'password' = x` and `password = 'x'`, or the option stands in WITH (...), in a hint or behind SET. All else is SQL, and
so is `token = 'x'` in a query: it compares a column.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

from rmqio.sql.secret_values import hides, may_hide, schemes, secrets_in_value

HIDDEN: Final = "***"
_STRING: Final = r"'(?:[^']|'')*+(?:'|\Z)"
_LONGEST: Final = 4_000
"""Characters of a secret without quotes, so that a long text takes no minutes."""
_STRINGS: Final = re.compile(_STRING)
_COMMENT: Final = re.compile(rf"(?P<string>{_STRING})|--[^\n]*|/\*(?!\+).*?(?:\*/|\Z)", re.DOTALL)
_LIST: Final = re.compile(
    rf"""
      (?: \b (?: W(?!HERE\b|HEN\b)[A-Z]{{1,5}} | OPTIONS | SET )\s*\( | /\*\+\s*\w+\s*\( | \)\s*\( )
      (?: {_STRING} | \([^()']*\) | [^()'] )*+
    | \b SET\s+ [\w.\-]+\s*[:=] [^;]*
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Lists of options, also behind a WITH that is misspelt or left out."""
_QUERY: Final = re.compile(
    rf"""
      (?P<string> {_STRING} )
    | \b (?: SELECT | WHERE | ON | HAVING | WHEN | VALUES )\b (?: {_STRING} | [^';W] | \BW | W(?!ITH\b) )*+
    | \b AS\b (?: {_STRING} | \( (?: {_STRING} | [^()'] )*+ \) | [^'(),;] )*+
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Where columns are compared: in queries, in conditions, and in the expression of a column."""
_LISTED: Final = b"\1"
_COMPARED: Final = b"\2"
_OPTION: Final = re.compile(
    r"(?<![\w.\-?&])(?P<quote>['\"`]?)(?P<key>[\w.\-]+)(?![\w.\-])(?P=quote)(?P<sign>\s*(?:(?!::)[:=]+>?|,))?"
)
"""From the beginning of a word only: a long one that is searched from each of its letters takes minutes."""
_VALUE: Final = re.compile(
    rf"\s*(?:(?:[ENX]|U&)(?='))?(?P<value>''[^'\s,]+''?|{_STRING}|\"(?:\\.|[^\"\\])*(?:\"|\Z)"
    rf"|(?!--|/\*)[^\s'\",;()\[\]{{}}][^\s'\",;)}}\]]{{0,{_LONGEST}}})"
)
_SCHEME: Final = r"[A-Za-z][\w+.\-]*:(?:(?:[\w+.\-]+:)*//|/?(?!/))"
_URLS: Final = (
    re.compile(rf"'{_SCHEME}(?:[^:/'\s]|'')*[:/](?P<value>(?:[^'\n]|'')++)"),
    re.compile(rf"\"{_SCHEME}[^:/\"\s]*[:/](?P<value>[^\"\n]++)"),
    re.compile(r"://[^\s:/'\"]*[:/](?P<value>[^\s'\"]++)"),
    re.compile(r"\bhttps?://(?P<value>[^\s:/@'\"]++@)"),
)
"""What is behind a user. A URL that a quote begins can have any characters; another one ends at a space. Whoever is
alone before the @ of HTTP is a token."""
_PARAMETER: Final = re.compile(r"[?&;](?P<key>[\w.\-]+)=(?P<value>''[^']*''|(?:[^&\s'\"]|'')++)")
_CONDITION: Final = re.compile(r"\bsql(?:_filter)?['\"`]?\s*=\s*\Z", re.IGNORECASE)
_COMMENT_OF: Final = re.compile(r"\bCOMMENT\s*\Z", re.IGNORECASE)
_PROSE: Final = re.compile(r"(?<=['\"]): (?=[A-Za-z])")
"""In a message, as in `'password': did you mean`: no value of an option, which would be in quotes."""
_SIGN: Final = re.compile(r"\s*[=:]")
_LEAST: Final = 4
"""Characters of a secret that a message hides wherever they stand. Shorter ones only in quotes: they are everywhere."""


@functools.lru_cache(maxsize=8)
def secrets_of(text: str) -> list[tuple[int, int]]:
    """Returns where secrets stand in a text, [start, end), without their quotes, in order."""
    without_comments = _COMMENT.sub(lambda each: each["string"] or " " * len(each[0]), text)
    found = {span for each in {text, without_comments} for span in _found(each)}  # a comment can hold a secret, too
    found.update(_in_strings(without_comments, _places(without_comments)[1]))
    for each in _COMMENT.finditer(text):
        if each["string"] is None:  # its apostrophes begin no string of the text behind it
            found.update((each.start() + start, each.start() + end) for start, end in _in_strings(each[0]))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _found(text: str) -> Iterator[tuple[int, int]]:
    for each in (each for pattern in _URLS for each in pattern.finditer(text)):
        if (end := each["value"].rfind("@")) > 0:
            yield each.start("value"), each.start("value") + end
    place, in_string = _places(text)
    for start, end in schemes(text):
        if place[start : start + 1] == _LISTED and not in_string[start]:
            yield start, end
    for each in _PARAMETER.finditer(text):
        if hides(each["key"], each["value"]):
            yield each.span("value")
    for each in _OPTION.finditer(text):
        value = _VALUE.match(text, each.end()) if may_hide(each["key"]) else None
        if value is None or not hides(each["key"], value["value"]):
            continue
        if _is_option(text, each, value, place, in_string):
            shown, (start, end) = value["value"], value.span("value")
            is_quoted = shown[0] in "'\""
            yield start + is_quoted, end - (len(shown) > 1 and shown[-1] == shown[0] and is_quoted)


def _in_strings(text: str, in_string: bytearray | None = None) -> Iterator[tuple[int, int]]:
    """Returns where secrets stand in the strings of a text: in those that are marked, or in all."""
    for each in _STRINGS.finditer(text):
        before, first = max(0, each.start() - 100), each.start() + 1
        if (in_string is not None and not in_string[each.start()]) or _COMMENT_OF.search(text, before, each.start()):
            continue
        compares = _CONDITION.search(text, before, each.start()) is not None
        for start, end in secrets_in_value(each[0][1:].removesuffix("'"), compares=compares):
            yield first + start, first + end


def _places(text: str) -> tuple[bytearray, bytearray]:
    """Returns for each character whether it is in a list or in a query, and whether in a string outside queries."""
    place, in_string = bytearray(len(text)), bytearray(len(text))
    for each in _QUERY.finditer(text):
        marked, mark = (in_string, b"\1") if each["string"] else (place, _COMPARED)
        marked[each.start() : each.end()] = mark * len(each[0])
    for each in _LIST.finditer(text):
        place[each.start() : each.end()] = _LISTED * len(each[0])
        in_string[each.start() : each.end()] = bytes(len(each[0]))
        for string in _STRINGS.finditer(text, each.start(), each.end()):
            in_string[string.start() : string.end()] = b"\1" * len(string[0])
    return place, in_string


def _is_option(text: str, found: re.Match[str], value: re.Match[str], place: bytearray, in_string: bytearray) -> bool:
    """Whether a name and a value are those of an option."""
    here, is_named = place[found.start() : found.start() + 1], found["quote"] in ("'", '"')
    is_listed, is_quoted = here == _LISTED, value["value"][0] in "'\""
    # A name in a string is a text such as a condition, unless a quote is missing: `'password = 'x'`.
    if not is_named and in_string[found.start("key")]:
        is_text = not is_quoted or value["value"].startswith("''")
        if is_text or (found["sign"] is None and text[found.start("key") - 1] != "'"):
            return False
    if found["sign"] is not None and not found["sign"].endswith(","):
        return is_named or is_listed or (is_quoted and here != _COMPARED)
    # The sign is missing. The name is no value of an option before it, and the value no name of one behind it.
    before = text[max(0, found.start() - 100) : found.start()].rstrip()
    if not is_quoted or before.endswith(("=", "=>", ":")) or _SIGN.match(text, value.end()):
        return False
    return is_listed or (is_named and found["sign"] is None)


def masked(text: str) -> str:
    """Returns a text with `***` in place of its secrets."""
    for start, end in reversed(secrets_of(text)):
        text = text[:start] + HIDDEN + text[end:]
    return text


def masked_value(value: str, key: str = "") -> str:
    """Returns the value of an option with `***` in place of its secrets."""
    before, quoted = f"'{key}' = '", value.replace("'", "''")
    return masked(f"{before}{quoted}'")[len(before) : -1].replace("''", "'")


def masked_line(text: str, begin: int, end: int, start: int, stop: int) -> tuple[str, int, int]:
    """Returns a part of a text without secrets, and where a place in it begins and ends there.

    Args:
      begin, end: the part.
      start, stop: the place, by offsets in the text.
    """
    line, places = text[begin:end], [start - begin, stop - begin]
    for first, last in reversed(secrets_of(text)):
        first, last = max(first, begin) - begin, min(last, end) - begin
        if first < last:
            line = line[:first] + HIDDEN + line[last:]
            shift = len(HIDDEN) - (last - first)
            places = [
                each + shift if each >= last else min(each, first + len(HIDDEN)) if each > first else each
                for each in places
            ]
    return line, places[0], places[1]


def masked_message(message: str, text: str) -> str:
    """Returns a message about a text without the secrets of either."""
    for start, end in secrets_of(text):
        value = text[start:end].replace("''", "'")  # a message has the value, not its text
        if len(value) >= _LEAST:
            message = message.replace(value, HIDDEN)
        elif value:
            message = message.replace(f"'{value}'", f"'{HIDDEN}'")
    return ": ".join(map(masked, _PROSE.split(message)))
