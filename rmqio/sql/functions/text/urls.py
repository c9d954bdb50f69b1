"""Functions of URLs."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

from rmqio.sql.functions.registry import define

_URL: Final = re.compile(
    r"(?P<protocol>https?|ftp|file|jar|mailto):(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<ref>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_AUTHORITY: Final = re.compile(r"(?:(?P<user>.*)@)?(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d*))?", re.DOTALL)
_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def url_part(url: str, part: str, key: str | None = None) -> str | None:
    """Returns HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY or USERINFO; of QUERY, also the value of a key.

    None: there is none, or it is not a URL of a protocol that Java knows.
    """
    found = _URL.fullmatch(url.strip())
    of_authority = found and _AUTHORITY.fullmatch(found["authority"] or "")
    if not found or not of_authority:
        return None
    query = found["query"]
    if key is not None:
        if part != "QUERY" or query is None:
            return None
        value = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", query)
        return value[1] if value else None
    match part:
        case "HOST":
            return of_authority["host"]
        case "PATH":
            return found["path"]
        case "QUERY":
            return query
        case "REF":
            return found["ref"]
        case "PROTOCOL":
            return found["protocol"].lower()
        case "FILE":
            return found["path"] if query is None else f"{found['path']}?{query}"
        case "AUTHORITY":
            return found["authority"]
        case "USERINFO":
            return of_authority["user"]
    return None


def encode(text: str) -> str:
    """Returns the text as application/x-www-form-urlencoded."""
    return urllib.parse.quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def decode(text: str) -> str | None:
    """Returns the text of application/x-www-form-urlencoded; None: an escape is not valid."""
    return None if _ESCAPE.search(text) else urllib.parse.unquote_plus(text)


define("PARSE_URL", "s s [s] -> s", url_part, can_be_null=True)
define("URL_ENCODE", "s -> s", encode, can_be_null=True)
define("URL_DECODE", "s -> s", decode, can_be_null=True)
