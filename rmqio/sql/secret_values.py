"""Secrets inside the value of an option, whatever the option is: headers, cookies, parameters, JSON, tokens.

The name of a secret may stand in front, as in `X-Api-Key: x`, `host=h password=x` and `{"password": "x"}`, or the name
of a scheme, as in `Bearer x`.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from typing import Final

from rmqio.security import is_variable_name

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SECRETS: Final = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "accesskey", "privatekey",
    "userinfo",
)  # fmt: skip
_KEYS: Final = ("accountkey", "sharedkey", "signingkey", "encryptionkey", "subscriptionkey", "sessionid")
"""Not by similar words: an account is no secret."""
_SHORT: Final = frozenset(("auth", "authorization", "pass", "pwd", "pw", "psw", "cookie", "cookies"))
_LAST: Final = frozenset(("signature", "sig"))
_PLACES: Final = frozenset(("env", "file", "path", "location", "variable"))
"""The last words of options that say where a secret is."""
_SIMILAR: Final = 0.75

_NAME: Final = re.compile(r"(?<![\w.\-])(?<!//)(?P<key>[\w.\-]+)(?:\\*\"|'')?\s*(?P<sign>[:=]+>?|%3[ADad])\s*")
_GIVEN: Final = re.compile(
    r"(?<![^\s,\"\[])(?:(?P<dash>--?)|(?!-))(?P<key>[a-zA-Z][\w.\-]*)\s+(?P<value>[^\s'\"=:,;|&\-](?:[^\s'\"]|'')*+)"
    r"(?(dash)|\s*\Z)"
)
"""An option of a command line, or the last two words."""
_QUOTED: Final = (
    r"\\+\"(?P<escaped>(?:(?!\\+\")[^'])*)|\"(?P<text>(?:\\.|[^\"\\])*)|(?P<literal>''[^']*(?:'')?)"
    r"|(?P<list>\[[^\]]*)"
)
_OTHER: Final = r"(?!%\{|\$\{|[{\"\[])(?P<value>"
"""A pattern of grok and a variable are no secrets, and an object has names of its own."""
_HEADER: Final = re.compile(rf"{_QUOTED}|{_OTHER}(?:(?![,;|\n]\s*[\w.\-]+\s*:)(?:''|[^']))+)")
"""Up to the next header or to the end: a cookie and the parameters of a scheme have all characters."""
_PARAMETER: Final = re.compile(rf"{_QUOTED}|{_OTHER}(?:''|[^&\s'\"])++(?:\s+(?![\w.\-]+\s*[=:])(?:''|[^&\s'\"])++)*+)")
"""Up to the next parameter."""
_SCHEME: Final = re.compile(
    r"(?<![\w.\-])(?:Bearer\s+|(?:Basic|Digest|Negotiate|NTLM|Token|Api-?Key|OAuth|Hawk|Splunk|SharedKey"
    r"|SharedAccessSignature|AWS4-HMAC-\w+)\s+(?=[^\s'\",;)]+\s*(?:[\"',;)]|\Z)))\w(?:[^\s'\",;)]|'')*+",
    re.IGNORECASE,
)
"""Most schemes are words, too, so that a sentence does not end behind the next one."""
_PEM: Final = re.compile(r"(?<=-----BEGIN )(?:[A-Z]+ )*PRIVATE KEY-----(?:(?!-----END)[^'])*")
_GROK: Final = re.compile(r"%\{\w*:\Z")
_PORT: Final = re.compile(r"[0-9]{2,5}(?![^,;/'])")


@functools.lru_cache(maxsize=1_000)
def is_secret(key: str) -> bool:
    """Returns whether the value of an option is a secret, by its name: `password`, `secretKey`, `pasword`."""
    words = [each.lower() for each in _WORD.findall(key)]
    if not words or words[-1] in _PLACES:
        return False
    joined = "".join(words)
    if any(each in joined for each in (*_SECRETS, *_KEYS)) or not _SHORT.isdisjoint(words) or words[-1] in _LAST:
        return True
    return any(difflib.get_close_matches(each, _SECRETS, n=1, cutoff=_SIMILAR) for each in (*words, joined))


def may_hide(key: str) -> bool:
    """Returns whether an option has a secret, or names the environment variable of one."""
    return is_secret(key) or key.lower().endswith(("_env", "-env"))


def hides(key: str, value: str) -> bool:
    """Whether a value is a secret: by its name, or since it is no name of the environment variable that has it."""
    return is_secret(key) or (may_hide(key) and not is_variable_name(value.strip("'\"")))


def schemes(text: str) -> Iterator[tuple[int, int]]:
    """Returns where schemes and what follows them stand in a text."""
    return (each.span() for each in _SCHEME.finditer(text))


def secrets_in_value(value: str, *, compares: bool = False) -> Iterator[tuple[int, int]]:
    """Returns where secrets stand in the value of an option, [start, end). A ' of it may be doubled, as in SQL.

    Args:
      compares: the value is a condition, in which `token = 5` and `5 > token` are no secrets.
    """
    yield from schemes(value)
    yield from (each.span() for each in _PEM.finditer(value))
    for each in _GIVEN.finditer(value):
        if not compares and hides(each["key"], each["value"]):
            yield each.span("value")
    place = 0
    while (name := _NAME.search(value, place)) is not None:
        place = name.end()
        if not may_hide(name["key"]) or _GROK.search(value, max(0, name.start() - 100), name.start()):
            continue
        is_header = name["sign"] == ":"
        if compares and not is_header:
            continue
        found = (_HEADER if is_header else _PARAMETER).match(value, place)
        if found is None or not hides(name["key"], found[0]) or (is_header and _is_address(name, value)):
            continue
        assert found.lastgroup is not None
        yield found.span(found.lastgroup)
        place = found.end()


def _is_address(name: re.Match[str], value: str) -> bool:
    """Whether a name and a number behind it are a host and its port, as in `token-service:8080`."""
    last = _WORD.findall(name["key"])[-1]
    return name[0].endswith(":") and not is_secret(last) and _PORT.match(value, name.end()) is not None
