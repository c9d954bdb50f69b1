"""Passwords in the text of a script: errors and listings show `***` in their place, also if the option is misspelt.

A statement that parses says where the values of its options are. Of any other text nothing is sure, since one
apostrophe too many turns its strings inside out. So behind each name that can be that of a secret all of the line is
hidden, unless a literal and the next option are there, and what is below it if the value goes on. A query has no
options: `token = 'x'` compares a column.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from rmqio.addresses import password_in
from rmqio.security import is_path, is_variable_name
from rmqio.sql.pieces import Piece, pieces

# Secrets inside the value of any option: headers, cookies, JSON, URLs. The name of a secret may stand in front, as in
# `X-Api-Key: x`, `host=h password=x` and `{"password": "x"}`, or that of a scheme, as in `Bearer x`. A secret in quotes
# ends with them, a parameter of a URL at `&`. Every other one is hidden up to the end of the value.

Spans = Iterator[tuple[int, int]]
"""Where secrets stand in a text: [start, end)."""

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SIMILAR: Final = (
    "password", "passwd", "passphrase", "secret", "secretkey", "token", "credential", "apikey", "accesskey",
    "privatekey", "userinfo",
)  # fmt: skip
"""Words of names, joined: parts of them, also misspelt."""
_PARTS: Final = (
    *_SIMILAR, "passcode", "accountkey", "encryptionkey", "hmackey", "keystorekey", "masterkey", "sharedkey",
    "signingkey", "subscriptionkey", "sessionid",
)  # fmt: skip
"""Not by similar words: an account is no secret."""
_ENDS: Final = (
    "auth", "authorization", "cookie", "cookies", "cred", "creds", "hmac", "jwt", "pass", "psw", "pw", "pwd",
)  # fmt: skip
"""Of a word, such as `keypass`."""
_LAST: Final = frozenset(("signature", "sig"))
_OTHERS: Final = frozenset(("bypass", "compass"))
_PLACES: Final = frozenset(("env", "file", "path", "location", "variable"))
"""The last words of options that say where a secret is."""
_VARIABLES: Final = frozenset(("env", "variable"))
_LIKENESS: Final = 0.75
_LONGEST_NAME: Final = 100
"""Letters of a name that can be misspelt."""
_PATTERNS: Final = frozenset(("pattern", "regex", "schema"))
"""The last words of options whose values have names of fields, and no secrets behind them."""
_ADDRESSES: Final = frozenset({
    "address", "addresses", "broker", "brokers", "host", "hosts", "server", "servers", "url",
})  # fmt: skip

_URL: Final = re.compile(
    r"://[^\s:/'\"]*[:/](?P<rest>[^\s'\"]{1,1000})@|\bhttps?://(?P<user>[^\s:/@'\"]+)@"
    r"|(?<=-----BEGIN )(?P<key>(?:[A-Z]+ )*PRIVATE KEY-----(?:(?!-----END)[^'])*)"
)
"""What is behind a user, up to the last @; whoever is alone before the @ of HTTP is a token; private keys as PEM."""
_LIKE_URL: Final = re.compile(r"(?![A-Za-z]:[/\\])[^\s'\"{]*:|[^'\"{]*//")
"""Any value that begins like this and has an @ is a URL, also a wrong one."""
_PARAMETER: Final = re.compile(r"(?<![\w.\-])(?P<key>[\w.\-]+)\]?=(?P<value>(?![,;)])(?:''|[^&\s'\"])+)")
_SECRET_VALUES_NAME: Final = re.compile(
    r"(?:(?<![\w.\-%])|(?<=%[0-9A-Fa-f]{2}))(?<!://)(?P<key>[\w.\-]+(?:\[[\w.\-]*\])*)"
    r"(?:(?:\\*\"|['\u2019\u201d\]])*\s*(?P<sign>[:=]+>?|>|%3[ADad])\s*|(?P<gap>\s+)(?=[^\s'\"=:,;|&\-]))"
)
_CLOSED: Final = re.compile(
    r"(?:(\\+\")(?P<escaped>(?:(?!\\+\").)*)\1|\"(?P<text>(?:\\.|[^\"\\])*)\"|(?P<literal>(''?)[^']*\5))"
    r"(?=\s*(?:[,;&}\])]|\Z|(?<=\s)[\w.\-]+=))",
    re.DOTALL,
)
SCHEME: Final = re.compile(
    r"(?<![\w.\-])(?:Bearer\s+|(?:Basic|Digest|Negotiate|NTLM|Token|Api-?Key|OAuth|Hawk|Splunk|SharedKey"
    r"|SharedAccessSignature|AWS4-HMAC-\w+)\s+(?=[^\s'\",;)]+\s*(?:[\"',;)]|\Z)))\w(?:[^\s'\",;)]|'')*+",
    re.IGNORECASE,
)
"""Most schemes are words, too, so that a sentence does not end behind the next one."""
_NO_SECRETS: Final = ("%{", "${", "YES)", "NO)")
"""Other texts behind a name and its sign: MySQL says `(using password: YES)`."""
_NEXT: Final = re.compile(r"&(?=[\w.\-%]+=)|&\Z")
"""The next parameter of a URL: what has no name is the rest of a value with an & in it."""
_LAST_WORD: Final = re.compile(r"\S+\s*\Z")
_PORT: Final = re.compile(r"[0-9]{2,5}(?![^,;/'])")


@functools.lru_cache(maxsize=10_000)
def is_secret(key: str) -> bool:
    """Returns whether the value of an option is a secret, by its name: `password`, `secretKey`, `pasword`."""
    words = [each.lower() for each in _WORD.findall(key)]
    if not words or words[-1] in _PLACES:
        return False
    joined = "".join(words)
    if any(each in joined for each in _PARTS) or words[-1] in _LAST:
        return True
    if any(each.endswith(_ENDS) and each not in _OTHERS for each in words):
        return True
    if len(joined) > _LONGEST_NAME:
        return False
    return any(
        difflib.get_close_matches(each, _SIMILAR, n=1, cutoff=_LIKENESS) for each in (*words, joined) if len(each) > 3
    )


def may_hide(key: str) -> bool:
    """Returns whether an option has a secret, or says where one is: in an environment variable or a file."""
    words = _WORD.findall(key)
    place = words.pop().lower() if len(words) > 1 else ""
    return is_secret(key) or place in _VARIABLES or (place in _PLACES and is_secret("-".join(words)))


def hides(key: str, value: str) -> bool:
    """Whether a value is a secret: by its name, or since it is no name of the variable, and no path of the file."""
    is_place = is_variable_name if key.lower().endswith(tuple(_VARIABLES)) else is_path
    return is_secret(key) or (may_hide(key) and not is_place(value.strip("'\"")))


def secrets_in_text(text: str, *, is_message: bool = False) -> Spans:
    """Returns where passwords of URLs and their parameters stand in any text.

    Args:
      is_message: no SQL, which compares by `token=5`. A part of a path, as in `token=5/x.csv`, ends at its slash.
    """
    for each in _URL.finditer(text):
        yield each.span(each.lastgroup or 0)
    for each in _PARAMETER.finditer(text):
        start, end = each.span("value")
        is_of_url = text[each.start() - 1 : each.start()] in ("?", "&", ";") and each.start() > 0
        if hides(each["key"], each["value"]) and (is_of_url or is_message):
            yield start, end if is_of_url else start + len(each["value"].partition("/")[0])


def secrets_in_value(value: str, key: str = "") -> Spans:
    """Returns where secrets stand in the value of an option. A ' of it may be doubled, as in SQL.

    Args:
      key: the name of the option. `token = 5` is no secret in a condition, nor `token:98` in an address, nor `token: `
        in a pattern, and a part of a path ends at its slash.
    """
    words = [each.lower() for each in _WORD.findall(key)] or [""]
    yield from secrets_in_text(value)
    is_url = words[-1] in _ADDRESSES or "@" not in value or _LIKE_URL.match(value)
    if is_url and (password := password_in(value)) is not None:
        yield password
    yield from _behind_names(value, words)


def _behind_names(value: str, words: Sequence[str] = ("",), *, is_message: bool = False) -> Spans:
    """Where secrets stand behind schemes and names. In a message, a word does not follow `password` as its value."""
    yield from (each.span() for each in SCHEME.finditer(value))
    if words[-1] in _PATTERNS:
        return
    compares, place = words[0] == "sql", 0
    while (name := _SECRET_VALUES_NAME.search(value, place)) is not None:
        place = name.end()
        is_header = name["sign"] == ":"
        if not may_hide(name["key"]) or (compares and not is_header) or value.startswith(_NO_SECRETS, place):
            continue
        if name["sign"] is None and (is_message or not _value_is_given(name, value)):
            place = name.end("key")
            continue
        if (
            name[0].endswith(":")
            and _PORT.match(value, place)
            and (not is_secret(_WORD.findall(name["key"])[-1]) or words[-1] in _ADDRESSES)
        ):
            continue
        start, end = _extent(name, value, words[-1] == "path")
        if hides(name["key"], re.split(r"[\s,;&]", value[start:end], maxsplit=1)[0]):
            yield start, end
            place = end


def _value_is_given(name: re.Match[str], value: str) -> bool:
    """Whether a name without a sign has a value: as an option of a command line, or in the last two words."""
    is_first = value[name.start() - 1 : name.start()] in ("", " ", ",", '"', "[")
    return name["key"].startswith("-") or (is_first and _LAST_WORD.match(value, name.end()) is not None)


def _extent(name: re.Match[str], value: str, is_path: bool) -> tuple[int, int]:
    """Returns where the secret behind a name is."""
    if (closed := _CLOSED.match(value, name.end())) is not None:
        return closed.span(next(each for each in ("escaped", "text", "literal") if closed[each] is not None))
    if value[name.start() - 1 : name.start()] in ("?", "&"):
        following = _NEXT.search(value, name.end())
        return name.end(), len(value) if following is None else following.start()
    end = value.find("/", name.end()) if is_path else -1
    return name.end(), end if end >= 0 else len(value)


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
    r"(?<![\w.\-])(?<!\bFROM ')(?<!\bAS ')(?P<key>[\w.\-]++(?:\[[\w.\-]*\])*+)(?P<more>[^\w\s=%&'\"`\\][\w.\-]++)?+"
    r"(?P<close>[\\'\"`\u2019\u201d\xb4\]]*+)\s*+(?:[:=]+>?|[^\w\s'\"`\u2018\u2019\u201c\u201d\xb4])?\s*+",
    re.IGNORECASE,
)
"""A name, also with a wrong character in it, and whatever is between it and a value."""
_OTHER: Final = re.compile(
    r"(?:[\s,()]|;(?=\s*(?:\Z|\n)))*+(?:\Z|--|/\*|`|(?!(?!(?:AS|COMMENT)\b)\w+\s*[=:'\"\u2018\u201c\xb4])\w)",
    re.IGNORECASE,
)
"""Behind a name without quotes that is no option: the type of a column, the next column, the next clause."""
_OTHER_QUOTED: Final = re.compile(r"[^\S\n]*[,;)]+[^\S\n]*(?:\Z|\n\s*(?:\Z|[\w`)]|--|'[\w.\-]+'\s*=))")
_OTHER_VALUE: Final = re.compile(r"[\s,;)]*(?:\Z|(?<=\n)|'[\w.\-]+'\s*=)")
"""The same behind a text in quotes, and behind the value of an option."""
_LITERAL: Final = re.compile(r"(?:[ENX]|U&)?'(?P<inside>(?:[^'\n]|'')*+)'(?=\s*,?\s*'[\w.\-]+'\s*=)", re.IGNORECASE)
"""A value with the next option behind it."""
_WHOLE: Final = re.compile(
    r"""(?:(?:[ENX]|U&)?'[^'\n]*'|"[^"\n]*"|[^\s'"`(,;)]+)[^\S\n]*(?:[,;)}]|\*/|\n\s*(?:'[\w.\-]+'\s*=|[);])|\s*\Z)""",
    re.IGNORECASE,
)
"""A value that does not go on in the next line."""
_USER: Final = re.compile(r"//[^\s:/'\"]*[:/]|[:/](?!//)")
_NO_PORT: Final = re.compile(r"(?://|@)[^\s:/'\"\[\]]*:(?!\d*(?:[,;/?#&\s'\")]|\Z))")
_QUOTED: Final = re.compile(r"(?<!\w)(?:[BbFRUfru][BFRbfr]?)?(['\"])(?P<inside>(?:\\.|(?!\1).)*)\1(?!\w)", re.DOTALL)
_PAIR: Final = re.compile(
    r"(?:\(|(?=['\"]-))(['\"])(?P<key>[\w.\-]+)\1,\s*(['\"])(?P<value>(?:\\.|(?!\3).)*)\3", re.DOTALL
)
"""`('password', '...')`, and an option in a list of words, with its value behind it."""
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
        key, start, place = name["key"], name.end(), name.end("close")
        if name["more"] and may_hide(key):
            start = place = name.end("key")
        elif name["more"]:
            key += name["more"]
        if not _is_given(key, text, max(begin, name.start() - 9), name, start, place):
            continue
        if (literal := _LITERAL.match(text, start, limit)) is not None:
            place = literal.end()
            yield literal.span("inside")
        else:
            place = line_end(start) if _WHOLE.match(text, start, limit) else limit
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


def _is_given(key: str, text: str, begin: int, name: re.Match[str], start: int, behind: int) -> bool:
    """Whether a name may be that of a secret, and nothing says that it has no value behind it."""
    before, value = text[begin : name.start()].rstrip(), text[start : start + 99].lstrip("'\"")
    if not hides(key, re.split(r"[\s'\",;)]", value, maxsplit=1)[0]):
        return False
    if before[-1:] not in _QUOTES and not any(each in _QUOTES for each in name["close"]):
        return key[0] == "-" or before[-3:].upper() == "SET" or _OTHER.match(text, behind) is None
    is_value = name["close"] and before.rstrip(f"{''.join(_QUOTES)} ")[-1:] in ("=", ":")
    return (_OTHER_VALUE if is_value else _OTHER_QUOTED).match(text, behind) is None


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


def masked_error(text: str) -> str:
    """Returns the text of a foreign error without secrets: also those in addresses, JSON, pairs and command lines."""
    pairs = [each.span("value") for each in _PAIR.finditer(text) if is_secret(each["key"])]
    return masked_message(_replaced(text, _merged([*_behind_names(text, is_message=True), *pairs])))
