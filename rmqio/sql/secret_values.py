"""Secrets by their names, and inside the value of an option, whatever the option is: headers, cookies, JSON, URLs.

The name of a secret may stand in front, as in `X-Api-Key: x`, `host=h password=x` and `{"password": "x"}`, or the name
of a scheme, as in `Bearer x`. A secret in quotes ends with them, and a parameter of a URL at `&`. Every other one can
have any characters, and is hidden up to the end of the value.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from typing import Final

from rmqio.addresses import wrong_port
from rmqio.security import is_variable_name

Spans = Iterator[tuple[int, int]]
"""Where secrets stand in a text: [start, end)."""

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SIMILAR: Final = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "accesskey", "privatekey",
    "userinfo",
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
_URL_ALONE: Final = re.compile(r"(?:[\w+.\-:]*//[^:/\s]*[:/]|(?![\w+.\-:]*//)[^\s:/'\"{]*:)([^\n]+)@")
"""A value that begins with a URL, also without its scheme or colon: a password can have any characters."""
_PARAMETER: Final = re.compile(r"(?<![\w.\-])(?P<key>[\w.\-]+)\]?=(?P<value>(?![,;)])(?:''|[^&\s'\"])+)")
_NAME: Final = re.compile(
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
_NO_SECRETS: Final = ("%{", "${", "{", "YES)", "NO)")
"""Other texts behind a name and its sign: MySQL says `(using password: YES)`."""
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
    """Returns whether an option has a secret, or names the environment variable of one."""
    words = _WORD.findall(key)
    return is_secret(key) or (len(words) > 1 and words[-1].lower() in _VARIABLES)


def hides(key: str, value: str) -> bool:
    """Whether a value is a secret: by its name, or since it is no name of the environment variable that has it."""
    return is_secret(key) or (may_hide(key) and not is_variable_name(value.strip("'\"")))


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
    if (url := _URL_ALONE.match(value)) is not None:
        yield url.span(1)
    if (port := wrong_port(value)) is not None:
        yield port, len(value)
    yield from (each.span() for each in SCHEME.finditer(value))
    if words[-1] in _PATTERNS:
        return
    compares, place = words[0] == "sql", 0
    while (name := _NAME.search(value, place)) is not None:
        place = name.end()
        is_header = name["sign"] == ":"
        if not may_hide(name["key"]) or (compares and not is_header) or value.startswith(_NO_SECRETS, place):
            continue
        if name["sign"] is None and not _is_given(name, value):
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


def _is_given(name: re.Match[str], value: str) -> bool:
    """Whether a name without a sign has a value: as an option of a command line, or in the last two words."""
    is_first = value[name.start() - 1 : name.start()] in ("", " ", ",", '"', "[")
    return name["key"].startswith("-") or (is_first and _LAST_WORD.match(value, name.end()) is not None)


def _extent(name: re.Match[str], value: str, is_path: bool) -> tuple[int, int]:
    """Returns where the secret behind a name is."""
    if (closed := _CLOSED.match(value, name.end())) is not None:
        return closed.span(next(each for each in ("escaped", "text", "literal") if closed[each] is not None))
    before = value[name.start() - 1 : name.start()]
    end = value.find("&" if before in ("?", "&") else "/", name.end()) if before in ("?", "&") or is_path else -1
    return name.end(), end if end >= 0 else len(value)
