"""Passwords in the text of a script: errors and listings show `***` in their place, also if the option is misspelt.

A secret is the value of an option with the name of a secret, and what `secret_values` finds in the value of any option.
A name is in quotes, as in `'password' = x`, or the option stands in WITH (...), in a hint, behind the columns of a
table or behind SET. All else is SQL, and so is `token = 'x'` in a query: it compares a column.

A literal that is closed, and behind which the next option or the end is, is the secret. Whatever is written otherwise,
such as an apostrophe that is not doubled, can have any part of the secret in the rest of its line, which is hidden.
"""

from __future__ import annotations

import difflib
import functools
import re
from typing import Final

from rmqio.sql.secret_values import Spans, hides, may_hide, secrets_in_text, secrets_in_value

HIDDEN: Final = "***"
_BLANK: Final = r"(?:\s|--[^\n']*(?=\n|\Z)|/\*(?!\+)[^']*?\*/)*+"
_LITERAL: Final = r"""'(?:[^']|'')*+'|"(?:\\.|[^"\\\n])*+\""""
_LONGEST: Final = 1_000
"""Characters of a secret beyond its line, so that a long text takes no minutes."""
_TOKENS: Final = rf"(?P<literal>{_LITERAL}|'.*)|(?P<word>(?:[\w.]|-(?!-))+)|/\*\+|\S"
_IN_COMMENT: Final = re.compile(_TOKENS, re.DOTALL)
_TOKEN: Final = re.compile(rf"(?P<comment>--[^\n]*|/\*(?!\+).*?(?:\*/|\Z))|{_TOKENS}", re.DOTALL)
_VALUE: Final = re.compile(
    rf"""
    ['"`\u2019\u201d\]]*{_BLANK} (?P<sign> ,(?=\s*') | (?!::|--)[:=~<>!\-]{{1,3}} | (?!AS\b|\() ){_BLANK}
    (?: [ENX](?=') | U&(?=') )? (?P<start>) (?: (?P<literal>{_LITERAL}) (?P<is_name>{_BLANK}[=:])? | [^,;)\]] )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What is behind the name of an option."""
_CLEAN: Final = re.compile(
    rf"""
    {_BLANK} (?: \Z | [}}\]] | ;[^\S\n]*(?:\n|\Z|--|/\*|[A-Z]+\s) | \*/
      | \)[^\S\n]*(?: [^\w'"\s] | \n | \Z | (?:AS|LIKE|SELECT|INSERT|CREATE)\b )
      | ,{_BLANK}(?: ['"][^'"\n]*['"]{_BLANK}(?![,;)]|\Z) | [\w.\-]+{_BLANK}[=:] | [;)] | \Z )
      | (?<=\s)'[\w.\-]+'{_BLANK}= )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Behind a literal: the next option, or the end."""
_NO_NAME: Final = re.compile(r"[=:,;\n]|.{100}")
_FIRST: Final = re.compile(r"'\s*([\w.\-\[\]]++)(?!\s*'?\Z)")
_END: Final = re.compile(r"""['"](?=\s*[,);]|[^\S\n]*(?:\Z|\n\s*[^'"|+\s]))""")
"""Where a literal with quotes in it can end."""
_COMMENTS: Final = re.compile(r"(?:--[^\n]*\n\s*)*")
_FURTHER: Final = re.compile(r"\n\s*(?:\|\||\+|'[^'\n]*'\s*[,;)])")
_STATEMENT: Final = re.compile(r";[^\S\n]*(?=\n|\Z)|\Z")
_QUOTED: Final = re.compile(r"(?<!\w)(['\"])(?P<inside>(?:\\.|(?!\1).)*)\1(?!\w)", re.DOTALL)
_QUOTES: Final = "'\"`\u2018\u201c\xb4"
_PLAIN, _LISTED, _COMPARED, _ITEM = range(4)
"""Where a name stands: in no option, in a list of options, in a query, in the expression of a column."""
_MODES: Final = {
    **dict.fromkeys(("SET", "WITH"), _LISTED),
    **dict.fromkeys(("BEGIN", "CREATE", "INSERT"), _PLAIN),
    **dict.fromkeys(("SELECT", "WHERE", "ON", "HAVING", "WHEN", "VALUES"), _COMPARED),
}


@functools.lru_cache(maxsize=8)
def secrets_of(text: str) -> list[tuple[int, int]]:
    """Returns where secrets stand in a text of SQL, [start, end), without their quotes, in order."""
    return _merged([*secrets_in_text(text), *_Scan(text, 0, len(text)).found()])


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


class _Scan:
    """One way through a text, from its beginning: a secret that is written wrongly does not shift what follows."""

    def __init__(self, text: str, begin: int, end: int, tokens: re.Pattern[str] = _TOKEN) -> None:
        self._text, self._place, self._stop, self._tokens = text, begin, end, tokens
        self._modes = [_PLAIN]
        self._before = ["", "", ""]

    def found(self) -> Spans:
        while (token := self._tokens.search(self._text, self._place, self._stop)) is not None:
            self._place, piece = token.end(), token[0]
            if token.lastgroup == "comment":
                yield from self._commented(token)
                continue
            is_value = self._before[-1] in ("=", ":", ">")
            name = "" if _NO_NAME.search(piece) else piece.strip("'\"")
            if not is_value and token.lastgroup and may_hide(name) and (value := self._value_of(token)) is not None:
                yield from self._hidden(name, value)
            elif token.lastgroup == "literal" or (is_value and self._modes[-1] == _LISTED):
                yield from self._valued(token, self._before[-2].strip("'\"") if is_value else "")
            elif token.lastgroup == "word":
                self._word(piece if self._tokens is _IN_COMMENT else piece.upper())  # prose has "with", too
            else:
                self._sign(piece)
            self._before = [*self._before[1:], piece]

    def _commented(self, token: re.Match[str]) -> Spans:
        begin = token.start() + 2
        yield from _Scan(self._text, begin, token.end(), _IN_COMMENT).found()
        spans = secrets_in_text(token[0][2:], is_message=True)
        yield from ((begin + first, begin + last) for first, last in spans)

    def _word(self, word: str) -> None:
        mode = self._modes[-1]
        if word == "AS" and mode != _COMPARED:
            self._modes[-1] = _ITEM
        elif mode != _LISTED or word == "SELECT" or len(self._modes) == 1:
            self._modes[-1] = _MODES.get(word, mode)

    def _sign(self, sign: str) -> None:
        mode, before = self._modes[-1], self._before
        if sign == "(":
            word = before[-1].upper()
            is_list = word in ("WITH", "OPTIONS", "SET") or before[-2] == "/*+" or (word == ")" and mode != _COMPARED)
            if mode == _PLAIN and before[-2].upper() != "TABLE":  # misspelt
                is_list |= bool(difflib.get_close_matches(word, ["WITH"], cutoff=0.75))
            self._modes.append(_LISTED if is_list else _COMPARED if mode == _ITEM else mode)
        elif sign == ")" and len(self._modes) > 1:
            self._modes.pop()
        elif sign == ";":
            self._modes = [_PLAIN]
        if sign in (",", ")") and self._modes[-1] == _ITEM:
            self._modes[-1] = _PLAIN

    def _value_of(self, name: re.Match[str]) -> re.Match[str] | None:
        """Returns the value behind the name of a secret, if it is that of an option."""
        mode, is_literal = self._modes[-1], name.lastgroup == "literal"
        if mode == _PLAIN and self._before[-1] == ")":  # WITH is left out
            mode = self._modes[-1] = _PLAIN if is_literal else _LISTED
        value = _VALUE.match(self._text, name.end(), self._stop)
        if value is None or self._before[-1].upper() == "COMMENT":
            return None
        if value["sign"] not in ("", ","):
            is_option = mode == _LISTED or (is_literal and (mode == _PLAIN or value["sign"][0] in "=:"))
        elif value["literal"] is None:
            is_option = mode == _LISTED
        else:
            is_option = not value["is_name"] and (
                mode == _LISTED or (is_literal and (mode, value["sign"]) == (_PLAIN, ""))
            )
        return value if is_option else None

    def _hidden(self, key: str, value: re.Match[str]) -> Spans:
        start, end = value.end("start"), value.end("literal")
        if value["literal"] is None or not _CLEAN.match(self._text, end, self._stop):
            if hides(key, self._text[start : self._end_of(start)]):
                yield from self._to_end(start, start + (self._text[start] in _QUOTES))
        else:
            self._place = end
            if hides(key, self._text[start:end]):
                yield start + 1, end - 1

    def _to_end(self, begin: int, start: int) -> Spans:
        """A secret from `start` to the end of the line, in a value that begins before it."""
        end = self._end_of(begin)
        self._place = end + (self._text[end : end + 1] == "'")
        yield start, end

    def _valued(self, token: re.Match[str], key: str) -> Spans:
        """The secrets in the value of an option, or in another literal."""
        if self._before[-1].upper() == "COMMENT" or self._modes[-1] in (_COMPARED, _ITEM):
            return
        is_closed = token.lastgroup == "literal" and token[0][0] == token[0][-1] and len(token[0]) > 1
        begin, end = token.start() + (token[0][0] in _QUOTES), token.end() - is_closed
        is_clean = is_closed and _CLEAN.match(self._text, token.end(), self._stop)
        is_name = is_closed and not key and self._text[token.end() : token.end() + 100].lstrip()[:1] in ("=", ":")
        if is_clean or is_name or not (key or self._modes[-1] == _LISTED):
            yield from ((begin + first, begin + last) for first, last in secrets_in_value(self._text[begin:end], key))
            return
        end = self._end_of(token.start())
        named = None if key else _FIRST.match(token[0])
        starts = [first for first, _ in secrets_in_value(self._text[begin:end], key)]
        starts += [named.end(1) - 1] if named is not None and may_hide(named[1]) else []
        if starts:
            yield from self._to_end(token.start(), begin + min(starts))

    def _end_of(self, start: int) -> int:
        """Returns where a value can end that is no literal of SQL: at the end of a line, without what closes a list."""
        text, stop = self._text, self._text.find("\n", start + _LONGEST, self._stop)
        stop = next(_STATEMENT.finditer(text, start, self._stop if stop < 0 else stop)).start()
        end = next(_COMMENTS.finditer(text, start)).end()  # those with a quote, which can be a part of it
        if text[end : end + 1] in ("'", '"'):
            last = _END.search(text, end + 1, stop)
            end = stop if last is None else last.end()
        while True:
            line = text.find("\n", end, stop)
            end = line if line >= 0 else stop
            is_closed = text.count("(", start, end) <= text.count(")", start, end)
            if end == stop or (is_closed and not _FURTHER.match(text, end, stop)):
                break
            end += 1
        shown = text[start:end].rstrip(" \t\r\n,;)*/")
        return start + max(1, len(shown) - (shown[:1] == shown[-1:] == "'"))


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


def masked_message(message: str) -> str:
    """Returns a message without secrets: those of URLs, and those in the texts that it quotes."""
    spans = [*secrets_in_text(message, is_message=True)]
    for each in _QUOTED.finditer(message):
        spans += [(each.start(2) + first, each.start(2) + last) for first, last in secrets_in_value(each["inside"])]
    return _replaced(message, _merged(spans))
