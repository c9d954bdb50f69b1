"""Schemas behind Confluent's REST API, which Apicurio, Karapace, Redpanda and others speak too.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

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
from rmqio.serde.registry.base import (
    LARGEST_ID,
    ProcessLocal,
    RegisteredSchema,
    RegistryUnavailable,
    SchemaRegistryError,
    UnknownSchema,
    parsed_json,
    require_fingerprint,
)

_LOGGER: Final = logging.getLogger("rmqio.serde.registry")
T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_CHUNK: Final = 16 * 1024
_CONNECTIONS: Final = 8
_KEPT_FOR_S: Final = 30.0
"""How long a newest version that could not be asked for again goes on to be used before the next try."""
_UNKNOWN_FOR_S: Final = 5.0
"""How long an id stays unknown without being asked for again, lest each message with a wrong one make a request."""
_MOST_UNKNOWN: Final = 1024
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_BROKEN: Final = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
# Of the errors of TLS these alone pass by themselves: the others are about certificates and versions.
_TLS_ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

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


_SYSTEM_RANDOM: Final = random.SystemRandom()


def _random() -> float:
    # Not Python's shared generator: forked workers would all draw the same numbers. A function, since that object's
    # methods do not pickle.
    return _SYSTEM_RANDOM.random()


class Timing(NamedTuple):
    """Time and chance, for tests."""

    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    random: Callable[[], float] = _random


class _Failed(Exception):
    """This try failed, a later one may not.

    `pause_s`: how long the registry asks to be left alone. `final`: the error if later ones fail too.
    """

    def __init__(self, reason: str, pause_s: float = 0.0, final: SchemaRegistryError | None = None) -> None:
        super().__init__(reason)
        self.pause_s, self.final = pause_s, final


class _State(ProcessLocal):
    """Connections, and what has been learnt: values that are set in one step each, so the dicts need no lock."""

    def __init__(self) -> None:
        super().__init__()
        self.session: requests.Session | None = None
        self.closed = threading.Event()
        self.registering = threading.Lock()
        self.schemas: dict[int, str] = {}
        self.ids: dict[tuple[str, str], int] = {}
        self.versions: dict[tuple[str, int], RegisteredSchema] = {}
        self.newest: dict[str, tuple[RegisteredSchema, float]] = {}
        self.unknown: dict[int, tuple[float, str]] = {}

    def after_fork(self) -> None:
        """The child keeps what is known, and makes connections of its own."""
        super().after_fork()
        self.session = None
        self.closed = threading.Event()
        self.registering = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRegistry:
    """A schema registry that speaks Confluent's REST API.

    Schemas by id and by version never change and are asked for once in a process; the newest version of a subject is
    asked for again after `latest_ttl_s`. While the registry is down, all that is known stays usable, the newest
    versions as they were last seen. Requests are repeated after failed connections and after HTTP status 408, 425, 429,
    500, 502, 503 and 504, with growing random pauses, or as long as the registry asks for, up to 10 s. Redirections are
    refused: credentials go to the one place that was named.

    Args:
      url: http or https. Apicurio's has the path /apis/ccompat/v7. `user:password@` in it is taken for `auth`.
      auth: `BasicAuth` or `TokenAuth`. Over plain http to another machine it is sent too, with a warning in the log.
      ca_file: certificates to trust, in PEM; None: those of `requests`, or of its variable REQUESTS_CA_BUNDLE. The
        registry's certificate and name are always checked.
      client_certificate: a PEM file with certificate and key, or two files (certificate, key without a passphrase).
      timeout_s: for a connection to be made, and between two pieces of an answer.
      retries: further tries of a failed request.
      latest_ttl_s: how long the newest version of a subject is taken to be the newest.

    Only Avro schemas are served. A schema that refers to others (Confluent's "references") is refused: register it with
    what it refers to written out.
    """

    url: str = field(kw_only=False)
    auth: BasicAuth | TokenAuth | None = None
    ca_file: str | None = None
    client_certificate: str | tuple[str, str] | None = None
    timeout_s: float = 10.0
    retries: int = 3
    latest_ttl_s: float = 300.0
    timing: Timing = field(default=Timing(), repr=False, compare=False)
    _state: _State = field(default_factory=_State, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        url, credentials = _with_credentials_apart(self.url)
        if credentials is not None and self.auth is not None:
            raise LocalError("credentials are given both in url= and in auth=: leave them out of the URL")
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "auth", self.auth or credentials)
        if not self.timeout_s > 0:
            raise LocalError(f"timeout_s={self.timeout_s}: it must be more than 0 seconds")
        if self.retries < 0:
            raise LocalError(f"retries={self.retries}: it must be 0 or more")
        if not self.latest_ttl_s >= 0:
            raise LocalError(f"latest_ttl_s={self.latest_ttl_s}: it must be 0 seconds or more")

    def close(self) -> None:
        """Close connections, and end pauses between tries in other threads with an error. A later call opens anew."""
        state = self._state
        with state.lock:
            session, state.session = state.session, None
            closed, state.closed = state.closed, threading.Event()
        closed.set()
        if session is not None:
            session.close()

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema. Raises `SchemaRegistryError` if the registry finds it invalid or incompatible.

        Sent without white space between its parts: Apicurio takes the same schema with other white space for another
        one. It also makes two versions of a schema that two processes register at the same moment, with one id, so
        better register before the pipeline starts; threads of one process take turns.
        """
        state, compact = self._state, json.dumps(parsed_json(schema), separators=(",", ":"))
        path, body = f"/subjects/{_escaped(subject)}/versions", json.dumps({"schema": compact}).encode()
        if (known := state.ids.get((subject, compact))) is not None:
            return known
        with state.registering:
            if (known := state.ids.get((subject, compact))) is not None:
                return known
            schema_id = self._field(self._call("POST", path, body), "id", int)
            state.ids[subject, compact] = schema_id
            state.newest.pop(subject, None)
        return schema_id

    def by_id(self, schema_id: int) -> str:
        """The schema with an id. Raises `UnknownSchema`, for 5 s without asking again."""
        state = self._state
        if (known := state.schemas.get(schema_id)) is not None:
            return known
        if not 0 <= schema_id <= LARGEST_ID:
            raise UnknownSchema(f"{self._where}: {schema_id} cannot be an id; they go from 0 to {LARGEST_ID}")
        now = self.timing.clock()
        if (refused := state.unknown.get(schema_id)) is not None and now < refused[0]:
            raise UnknownSchema(refused[1])
        try:
            answer = self._call("GET", f"/schemas/ids/{schema_id}")
        except UnknownSchema as error:
            if len(state.unknown) >= _MOST_UNKNOWN:
                state.unknown.clear()
            state.unknown[schema_id] = now + _UNKNOWN_FOR_S, str(error)
            raise
        schema = state.schemas[schema_id] = self._schema(answer, f"schema {schema_id}")
        return schema

    def by_version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; None: the newest, up to `latest_ttl_s` late. Raises `UnknownSchema`."""
        if version is None:
            return self._newest(subject)
        if (known := self._state.versions.get((subject, version))) is not None:
            return known
        if version < 1:
            raise UnknownSchema(f"{self._where}: {subject!r} has no version {version}; they are counted from 1")
        return self._ask_version(subject, str(version))

    def versions(self, subject: str) -> list[int]:
        """Those of a subject, ascending. Asked each time. Raises `UnknownSchema` if there is no such subject."""
        return sorted(self._list(f"/subjects/{_escaped(subject)}/versions", int))

    def subjects(self) -> list[str]:
        """Their names, sorted. Asked each time."""
        return sorted(self._list("/subjects", str))

    def by_fingerprint(self, fingerprint: bytes) -> str:
        """Raises `UnknownSchema`. Schemas seen before are not searched: what they are differs between workers."""
        require_fingerprint(fingerprint)
        raise UnknownSchema(
            f"{self._where}: Confluent's API cannot look for the fingerprint {fingerprint.hex()}. Read Avro's "
            "single-object encoding with a FolderRegistry or a MemoryRegistry, or write Confluent's format"
        )

    @property
    def _where(self) -> str:
        return f"schema registry {self.url}"

    def _newest(self, subject: str) -> RegisteredSchema:
        state, clock = self._state, self.timing.clock
        held = state.newest.get(subject)
        if held is not None and clock() < held[1]:
            return held[0]
        try:
            found, lifetime_s = self._ask_version(subject, "latest"), self.latest_ttl_s
        except RegistryUnavailable as error:
            if held is None:
                raise
            found, lifetime_s = held[0], min(self.latest_ttl_s, _KEPT_FOR_S)
            _LOGGER.warning("version %d of %r is still taken for the newest one: %s", found.version, subject, error)
        state.newest[subject] = found, clock() + lifetime_s
        return found

    def _ask_version(self, subject: str, version: str) -> RegisteredSchema:
        answer = self._call("GET", f"/subjects/{_escaped(subject)}/versions/{version}")
        number, schema_id = self._field(answer, "version", int), self._field(answer, "id", int)
        if version not in ("latest", str(number)):
            self._nonsense(f"version {number} of {subject!r} for version {version}")
        schema = self._schema(answer, f"{subject!r} version {number}")
        found = RegisteredSchema(subject, number, schema_id, schema)
        self._state.versions[subject, number] = found
        self._state.schemas.setdefault(schema_id, schema)
        return found

    def _schema(self, answer: Any, what: str) -> str:
        schema = self._field(answer, "schema", str)
        if (kind := answer.get("schemaType") or "AVRO") != "AVRO":
            raise SchemaRegistryError(f"{self._where}: {what} is of type {_cropped(kind)}; only AVRO is supported")
        if references := answer.get("references"):
            names = [each.get("name") if isinstance(each, dict) else each for each in _as_list(references)]
            raise SchemaRegistryError(
                f"{self._where}: {what} refers to other schemas ({_cropped(', '.join(map(str, names)))}), which is not "
                "supported: register a version with their definitions written out"
            )
        try:
            parsed_json(schema)
        except LocalError as error:
            raise SchemaRegistryError(f"{self._where}: {what}: {error}") from error
        return schema

    def _list(self, path: str, kind: type[T]) -> list[T]:
        answer = self._call("GET", path)
        if not isinstance(answer, list) or not all(type(each) is kind for each in answer):
            self._nonsense(f"GET {path}: a list of {kind.__name__} is expected")
        return answer

    def _field(self, answer: Any, name: str, kind: type[T]) -> T:
        value = answer.get(name) if isinstance(answer, dict) else None
        if type(value) is not kind:
            self._nonsense(f"an object with {name!r} of type {kind.__name__} is expected")
        return value

    def _nonsense(self, what: str, cause: Exception | None = None) -> NoReturn:
        raise SchemaRegistryError(
            f"{self._where} answers something else than Confluent's API ({what}): is url= the API's, path included?"
        ) from cause

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The JSON that the registry answers, after as many tries as it takes and is allowed."""
        closed, tries = self._state.closed, 0
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
                    f"{self._where} does not serve {method} {path} ({tries} tries): {reason}. Is it running, and can "
                    "this machine reach it? Check url=; schemas that were used before stay usable meanwhile"
                ) from cause
            bound = min(_FIRST_PAUSE_S * 2.0 ** min(tries - 1, 30), _LONGEST_PAUSE_S)
            pause_s = max(self.timing.random() * bound, min(pause_s, _LONGEST_PAUSE_S))
            _LOGGER.debug("%s %s: try %d of %d in %.1f s: %s", method, path, tries, self.retries, pause_s, reason)
            if self.timing.wait(closed, pause_s):
                raise RegistryUnavailable(f"{self._where} was closed between two tries of {method} {path}: {reason}")

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
        except OSError as error:  # those of requests are, and a file of certificates may be missing
            inner = _innermost(error, handled)
            reason = f"{type(inner).__name__}: {_cropped(inner)}"
            if isinstance(error, _BROKEN) and (not isinstance(inner, ssl.SSLError) or isinstance(inner, _TLS_ENDED)):
                raise _Failed(reason) from inner
            raise SchemaRegistryError(
                f"{self._where} cannot be spoken to: {reason}. Check url=, ca_file= and client_certificate="
            ) from inner
        return self._answer(response, content, f"{method} {path}")

    def _authorization(self) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
        try:
            header = None if self.auth is None else self.auth.header()
        except LocalError:
            raise
        except Exception as error:
            raise _Failed(f"the function that gives its credentials raised {type(error).__name__}") from error

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            # Set also when there is nothing to add: without, requests would look into the user's .netrc.
            if header is not None:
                request.headers["Authorization"] = header
            return request

        return authorize

    def _content(self, response: requests.Response) -> bytes:
        content = bytearray()
        for chunk in response.iter_content(_CHUNK):
            content += chunk
            if len(content) > _LARGEST_ANSWER:
                self._nonsense(f"more than {_LARGEST_ANSWER} bytes")
        return bytes(content)

    def _answer(self, response: requests.Response, content: bytes, what: str) -> Any:
        status = response.status_code
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError) as error:
            if status == 200:
                self._nonsense(f"{what}: no JSON", error)
            answer = None
        if status == 200:
            return answer
        said = answer if isinstance(answer, dict) else {}
        code, text = said.get("error_code"), _cropped(said.get("message") or "it does not say why")
        if status in _TRY_AGAIN:
            raise _Failed(f"HTTP status {status}: {text}", _seconds(response.headers.get("Retry-After")))
        # A path that is not the API's is a 404 too, but without one of the API's own codes.
        if status == 404 and isinstance(code, int) and 40400 < code < 40500:
            raise UnknownSchema(f"{self._where}: {what}: {text} (code {code})")
        remedy = {
            401: "give the right auth=",
            403: "these credentials do not allow it",
            404: "is url= that of the API, with its path (Apicurio's is /apis/ccompat/v7)?",
            409: "the schema is not compatible with those before it; change it, or the subject's compatibility level",
            422: "the registry takes it for no valid Avro schema",
        }.get(status, "is url= that of the API?")
        if response.is_redirect:
            remedy = f"redirections are not followed; if it is the right place, give url= as {_place(response)}"
        refused = SchemaRegistryError(f"{self._where} refuses {what} with HTTP status {status}: {text}: {remedy}")
        if status == 409:
            # Apicurio answers so also to one of two that register the first version of a subject at the same time.
            raise _Failed(f"HTTP status 409: {text}", final=refused)
        raise refused

    def _session(self) -> requests.Session:
        state = self._state
        with state.lock:
            if state.session is None:
                parts = urlsplit(self.url)
                if self.auth is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
                    _LOGGER.warning("credentials are sent unencrypted to the %s: use https", self._where)
                session = requests.Session()
                for scheme in ("http://", "https://"):
                    session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
                session.headers["Accept"] = f"{_CONTENT_TYPE}, application/json"
                state.session = session
            return state.session


def _reveal(secret: Secret) -> str:
    return secret() if callable(secret) else secret


def _with_credentials_apart(url: str) -> tuple[str, BasicAuth | None]:
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


def _escaped(subject: str) -> str:
    # A path of dots would be resolved, and name something else.
    if not subject or not subject.strip("."):
        raise LocalError(f"{subject!r} cannot be a subject")
    return quote(subject, safe="", errors="replace")


def _innermost(error: BaseException, handled: BaseException | None) -> BaseException:
    """What went wrong in the end; the errors around it hold the request, and with it the credentials.

    `handled` is what the caller was handling when all began, and no cause of it.
    """
    while (inner := error.__cause__ or error.__context__) is not None and inner is not handled:
        error = inner
    return error


def _cropped(text: object) -> str:
    """One line of bounded length, whatever a server says."""
    line = " ".join(str(text).split())
    return line if len(line) <= 300 else f"{line[:300]}..."


def _seconds(retry_after: str | None) -> float:
    # It may also be a date, which needs clocks that agree: the usual pause will do.
    return float(retry_after) if retry_after and re.fullmatch(r"[0-9]{1,6}", retry_after) else 0.0


def _place(response: requests.Response) -> str:
    parts = urlsplit(response.headers.get("Location", ""))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
