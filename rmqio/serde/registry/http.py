"""Requests to a schema registry: one URL, its credentials, and retries. Nothing shows the credentials."""

from __future__ import annotations

import base64
import json
import logging
import random
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter

from rmqio.errors import LocalError
from rmqio.serde.registry.base import ProcessLocal, RegistryUnavailable, SchemaRegistryError, UnknownSchema

# Credentials for a schema registry. No message, error or `repr` shows them.

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


T = TypeVar("T")

_LOGGER: Final = logging.getLogger("rmqio.serde.registry")
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_SILENT_S: Final = 2.0
"""After what time a call that is tried again is in the log, once."""
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_CHUNK: Final = 16 * 1024
_CONNECTIONS: Final = 8
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_BROKEN: Final = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
# Only these TLS errors are transient: the others are about certificates and versions.
_TLS_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SYSTEM_RANDOM: Final = random.SystemRandom()


def _random() -> float:
    # Not Python's shared generator: forked workers would all draw the same numbers. A function, because that object's
    # methods cannot be pickled.
    return _SYSTEM_RANDOM.random()


class Timing(NamedTuple):
    """Clock and randomness, replaceable in tests."""

    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    random: Callable[[], float] = _random


class _Failed(Exception):
    """This try failed; a later one may succeed.

    `pause_s`: how long the registry asks to wait. `final`: the error if later tries fail, too.
    """

    def __init__(self, reason: str, pause_s: float = 0.0, final: SchemaRegistryError | None = None) -> None:
        super().__init__(reason)
        self.pause_s, self.final = pause_s, final


class Connections(ProcessLocal):
    """The connections of one process. A forked child creates its own."""

    def __init__(self) -> None:
        super().__init__()
        self.session: requests.Session | None = None
        self.closed = threading.Event()

    def after_fork(self) -> None:
        super().after_fork()
        self.session = None
        self.closed = threading.Event()


@dataclass(frozen=True, slots=True)
class Http:
    """Sends requests. See `RestRegistry` for the arguments."""

    url: str
    auth: BasicAuth | TokenAuth | None
    ca_file: str | None
    client_certificate: str | tuple[str, str] | None
    timeout_s: float
    retries: int
    timing: Timing
    api: str = "Confluent's API"
    connections: Connections = field(default_factory=Connections, init=False, repr=False, compare=False)

    @property
    def where(self) -> str:
        """The registry's name in messages."""
        return f"schema registry {self.url}"

    def close(self) -> None:
        """Close connections, and end pauses between tries in other threads with an error. A later call reconnects."""
        state = self.connections
        with state.lock:
            session, state.session = state.session, None
            closed, state.closed = state.closed, threading.Event()
        closed.set()
        if session is not None:
            session.close()

    def nonsense(self, what: str, cause: Exception | None = None) -> NoReturn:
        raise SchemaRegistryError(
            f"{self.where} did not answer like {self.api} ({what}): is url= the API's, path included?"
        ) from cause

    def field(self, answer: Any, name: str, kind: type[T]) -> T:
        """A field of an answered object. Raises `SchemaRegistryError` if it is not there, or of another type."""
        value = answer.get(name) if isinstance(answer, dict) else None
        if type(value) is not kind:
            self.nonsense(f"an object with {name!r} of type {kind.__name__} is expected")
        return value

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The JSON of the registry's answer, after as many tries as are needed and allowed."""
        closed, tries, begun, is_told = self.connections.closed, 0, self.timing.clock(), False
        while True:
            try:
                return self._try(method, path, body)
            except _Failed as failure:
                cause, pause_s, final = failure.__cause__, failure.pause_s, failure.final
                reason = str(failure)
            tries += 1
            if tries > self.retries:
                if final is not None:
                    raise final
                raise RegistryUnavailable(
                    f"{self.where} does not serve {method} {path} ({tries} tries): {reason}. Is it running, and can "
                    "this machine reach it? Check url=; schemas that were used before stay usable in the meantime"
                ) from cause
            bound = min(_FIRST_PAUSE_S * 2.0 ** min(tries - 1, 30), _LONGEST_PAUSE_S)
            pause_s = max(self.timing.random() * bound, min(pause_s, _LONGEST_PAUSE_S))
            if not is_told and self.timing.clock() - begun >= _SILENT_S:
                is_told = True
                _LOGGER.warning("%s does not answer %s %s: %s; it is asked again", self.where, method, path, reason)
            _LOGGER.debug("%s %s: try %d of %d in %.1f s: %s", method, path, tries, self.retries, pause_s, reason)
            if self.timing.wait(closed, pause_s):
                raise RegistryUnavailable(f"{self.where} was closed between two tries of {method} {path}: {reason}")

    def _try(self, method: str, path: str, body: bytes | None) -> Any:
        auth, handled = self._authorization(), sys.exception()
        try:
            with self._session().request(
                method,
                self.url + path,
                data=body,
                headers={"Content-Type": _CONTENT_TYPE} if body is not None else None,
                auth=auth,
                timeout=self.timeout_s,
                verify=self.ca_file or True,
                cert=self.client_certificate,
                allow_redirects=False,
                stream=True,
            ) as response:
                content = self._content(response)
        except OSError as error:  # the errors of requests are OSErrors; a certificate file can also be missing
            inner = _innermost(error, handled)
            reason = f"{type(inner).__name__}: {cropped(inner)}"
            if isinstance(error, _BROKEN) and (not isinstance(inner, ssl.SSLError) or isinstance(inner, _TLS_ENDED)):
                raise _Failed(reason) from inner
            raise SchemaRegistryError(
                f"{self.where} cannot be reached: {reason}. Check url=, ca_file= and client_certificate="
            ) from inner
        return self._answer(response, content, f"{method} {path}")

    def _authorization(self) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
        try:
            header = None if self.auth is None else self.auth.header()
        except LocalError:
            raise
        except Exception as error:
            raise _Failed(f"the function that returns its credentials raised {type(error).__name__}") from error

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            # Set even if there is nothing to add: otherwise requests would read the user's .netrc.
            if header is not None:
                request.headers["Authorization"] = header
            return request

        return authorize

    def _content(self, response: requests.Response) -> bytes:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK):
            content += chunk
            if len(content) > _LARGEST_ANSWER:
                self.nonsense(f"more than {_LARGEST_ANSWER} bytes")
        return bytes(content)

    def _answer(self, response: requests.Response, content: bytes, what: str) -> Any:
        status = response.status_code
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError) as error:
            if status == 200:
                self.nonsense(f"{what}: no JSON", error)
            answer = None
        if status == 200:
            return answer
        said = answer if isinstance(answer, dict) else {}
        code, text = said.get("error_code"), cropped(said.get("message") or "it does not say why")
        if status in _TRY_AGAIN:
            raise _Failed(f"HTTP status {status}: {text}", _seconds(response.headers.get("Retry-After")))
        # A path outside the API is also a 404, but without one of the API's own codes.
        if status == 404 and isinstance(code, int) and 40400 < code < 40500:
            raise UnknownSchema(f"{self.where}: {what}: {text} (code {code})")
        remedy = {
            401: "give the right auth=",
            403: "these credentials do not allow it",
            404: "is url= that of the API, with its path (Apicurio's is /apis/ccompat/v7)?",
            409: "the schema is not compatible with those before it; change it, or the subject's compatibility level",
            422: "the registry does not consider it a valid Avro schema",
        }.get(status, "is url= that of the API?")
        if response.is_redirect:
            remedy = f"redirections are not followed; if it is the right place, give url= as {_place(response)}"
        refused = SchemaRegistryError(f"{self.where} refuses {what} with HTTP status {status}: {text}: {remedy}")
        if status == 409:
            # Apicurio also sends this to one of two clients that register a subject's first version at the same time.
            raise _Failed(f"HTTP status 409: {text}", final=refused)
        raise refused

    def _session(self) -> requests.Session:
        state = self.connections
        with state.lock:
            if state.session is None:
                parts = urlsplit(self.url)
                if self.auth is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
                    _LOGGER.warning("credentials are sent unencrypted to the %s: use https", self.where)
                session = requests.Session()
                for scheme in ("http://", "https://"):
                    session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
                session.headers["Accept"] = f"{_CONTENT_TYPE}, application/json"
                state.session = session
            return state.session


def _innermost(error: BaseException, handled: BaseException | None) -> BaseException:
    """The root cause. The errors around it contain the request, and with it the credentials.

    `handled` is the exception that the caller was already handling; it is not a cause.
    """
    while (inner := error.__cause__ or error.__context__) is not None and inner is not handled:
        error = inner
    return error


def cropped(text: object) -> str:
    """A server's text as one line of bounded length, without control characters, which a terminal would obey."""
    line = " ".join(str(text).split())
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in line[:301])
    return line if len(line) <= 300 else f"{line[:300]}..."


def _seconds(retry_after: str | None) -> float:
    # It can also be a date, which needs synchronized clocks: then the usual pause is used.
    return float(retry_after) if retry_after and re.fullmatch(r"[0-9]{1,6}", retry_after) else 0.0


def _place(response: requests.Response) -> str:
    parts = urlsplit(response.headers.get("Location", ""))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def escaped(subject: str) -> str:
    """A subject for a path. Raises `LocalError` for one that cannot be used there."""
    # A path of dots would be resolved, and would refer to something else.
    if not subject or not subject.strip("."):
        raise LocalError(f"{subject!r} cannot be a subject")
    return quote(subject, safe="", errors="replace")
