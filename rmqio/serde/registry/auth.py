"""Credentials for a schema registry. No message, error or `repr` shows them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from rmqio.errors import LocalError

Secret = str | Callable[[], str]
"""Text, or a function that returns it and is called for each request. Text is part of a pickled pipeline; a function at
module level that reads a file or a variable on the worker avoids that.
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
    """A bearer token; a function can return a new one when the old one has expired."""

    token: Secret = field(repr=False)

    def header(self) -> str:
        """The value of the header Authorization. Raises `LocalError` for text that a header cannot contain."""
        token = _reveal(self.token)
        # Checked here, because the HTTP library would quote it in its error.
        if not re.fullmatch(r"[!-~]+", token):
            raise LocalError("the token of TokenAuth is empty or contains white space or non-ASCII characters")
        return f"Bearer {token}"


def _reveal(secret: Secret) -> str:
    return secret() if callable(secret) else secret


def with_credentials_apart(url: str) -> tuple[str, BasicAuth | None]:
    """Separates credentials from a URL, so that no message prints a password, not even an error about the URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # which quotes the port
        raise LocalError("url= of the schema registry is not a URL: its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise LocalError("url= of the schema registry must be like https://host:port/path")
    if parts.query or parts.fragment:
        raise LocalError("url= of the schema registry must end with its path, without ? and #")
    place = parts.netloc.rpartition("@")[2]
    clean = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return clean, None
    return clean, BasicAuth(unquote(parts.username), unquote(parts.password or ""))
