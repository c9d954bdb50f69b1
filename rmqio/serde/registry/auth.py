"""Credentials for a schema registry, which no message, error or `repr` shows."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from rmqio.errors import LocalError

Secret = str | Callable[[], str]
"""Text, or a function that gives it, called for each request. Text travels inside of a pickled pipeline; a function at
module level that reads a file or a variable on the worker does not let it.
"""


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """A user's name and password, or an API key and its secret."""

    user: str
    password: Secret = field(repr=False)

    def header(self) -> str:
        """The value of the header Authorization."""
        return f"Basic {base64.b64encode(f'{self.user}:{_reveal(self.password)}'.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class TokenAuth:
    """A bearer token; a function gives a new one whenever the old one has expired."""

    token: Secret = field(repr=False)

    def header(self) -> str:
        """The value of the header Authorization. Raises `LocalError` for text that no header may hold."""
        token = _reveal(self.token)
        # Checked here, since the HTTP library would quote it in its error.
        if not re.fullmatch(r"[!-~]+", token):
            raise LocalError("the token of TokenAuth is empty or holds white space or other than ASCII characters")
        return f"Bearer {token}"


def _reveal(secret: Secret) -> str:
    return secret() if callable(secret) else secret


def with_credentials_apart(url: str) -> tuple[str, BasicAuth | None]:
    """So that a password in an address is never printed: not in the error about the address either."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise LocalError("url= of the schema registry is no URL: its host or port cannot be read") from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise LocalError("url= of the schema registry must be like https://host:port/path")
    if parts.query or parts.fragment:
        raise LocalError("url= of the schema registry must end with its path, without ? and #")
    place = parts.netloc.rpartition("@")[2]
    clean = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return clean, None
    return clean, BasicAuth(unquote(parts.username), unquote(parts.password or ""))
