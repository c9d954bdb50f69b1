"""A client of RocketMQ's own schema registry, which has the REST API of OpenSchema.

https://github.com/apache/rocketmq-schema-registry
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from rmqio.errors import LocalError
from rmqio.serde.registry.auth import BasicAuth, TokenAuth, with_credentials_apart
from rmqio.serde.registry.base import ProcessLocal, RegistryUnavailable, SchemaRegistryError, UnknownSchema, parsed_json
from rmqio.serde.registry.http import Http, Timing, cropped, escaped

T = TypeVar("T")
_PATH: Final = "/schema-registry/v1"
_UNKNOWN_FOR_S: Final = 5.0
_MOST_UNKNOWN: Final = 1024
_API: Final = "the API of RocketMQ's schema registry"
_CODE: Final = re.compile(r"HTTP/1\.[01] (404|500)[0-9]{2}\b")
"""The registry sends its own codes, such as 40402, where HTTP has a status of three digits."""
_TENANT: Final = "/cluster/default/tenant/default"


class SchemaRecord(NamedTuple):
    """A version of a subject's schema."""

    subject: str
    version: int
    """Counted from 1."""
    record_id: int
    """The number with which a message begins: 64 bits, of which the last 14 are the version."""
    schema: str
    """The Avro schema as JSON text."""


class _State(ProcessLocal):
    """The cache. Each value is set in one step, so that the dicts need no lock."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[tuple[str, int], SchemaRecord] = {}
        self.unknown: dict[tuple[str, int], tuple[float, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSchemaRegistry:
    """RocketMQ's schema registry. A subject is a topic, and has one schema in versions.

    Records never change, and are requested once per process. Requests are retried as `RestRegistry` does.

    Args:
      url: of the API: http://host:8080/schema-registry/v1, or with /cluster/C/tenant/T after it; default for both:
        `default`. `user:password@` in it is used as `auth`.
      auth: `BasicAuth` or `TokenAuth`, for a proxy in front of it.
      ca_file: trusted certificates in PEM; None: those of `requests`.
      timeout_s: timeout of a connection attempt, and between two pieces of an answer.
      retries: how often a failed request is retried.

    Only Avro schemas are supported.
    """

    url: str = field(kw_only=False)
    auth: BasicAuth | TokenAuth | None = None
    ca_file: str | None = None
    timeout_s: float = 10.0
    retries: int = 3
    timing: Timing = field(default=Timing(), repr=False, compare=False)
    _http: Http = field(init=False, repr=False, compare=False)
    _state: _State = field(default_factory=_State, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        url, credentials = with_credentials_apart(self.url)
        if credentials is not None and self.auth is not None:
            raise LocalError("credentials are given both in url= and in auth=: leave them out of the URL")
        head, api, tenant = url.partition(_PATH)
        if not api:
            raise LocalError(f"url= of RocketMQ's schema registry ends with {_PATH}: http://host:8080{_PATH}")
        parts = tenant.strip("/").split("/")
        if tenant.strip("/") and (len(parts) != 4 or parts[::2] != ["cluster", "tenant"] or not all(parts)):
            raise LocalError(f"url= of RocketMQ's schema registry ends with {_PATH}/cluster/C/tenant/T, not {tenant}")
        object.__setattr__(self, "url", head + api + (tenant.rstrip("/") or _TENANT))
        object.__setattr__(self, "auth", self.auth or credentials)
        http = Http(self.url, self.auth, self.ca_file, None, self.timeout_s, self.retries, self.timing, _API)
        object.__setattr__(self, "_http", http)

    def close(self) -> None:
        """Close connections. A later call reconnects."""
        self._http.close()

    def subjects(self) -> list[str]:
        """The names of all subjects, sorted, requested each time."""
        answer = self._call("GET", "/subjects")
        if not isinstance(answer, list) or not all(isinstance(each, str) for each in answer):
            self._http.nonsense("GET /subjects: a list of names is expected")
        return sorted(answer)

    def newest(self, subject: str) -> SchemaRecord:
        """The newest version of a subject's schema, requested each time. Raises `UnknownSchema`."""
        return self._record(subject, self._call("GET", f"/subject/{escaped(subject)}/schema"))

    def by_record_id(self, subject: str, record_id: int) -> SchemaRecord:
        """The version that a message begins with. Raises `UnknownSchema`, for 5 s without a new request."""
        state, place = self._state, (subject, record_id)
        if (known := state.records.get(place)) is not None:
            return known
        now = self.timing.clock()
        if (refused := state.unknown.get(place)) is not None and now < refused[0]:
            raise UnknownSchema(refused[1])
        path = f"/subject/{escaped(subject)}/recordId/{record_id}/schema"
        try:
            found = self._record(subject, self._call("GET", path))
            # The registry looks for the version only, which are the last bits of the id.
            if found.record_id != record_id:
                raise UnknownSchema(f"{self._http.where}: {subject!r} has no record {record_id}")
        except UnknownSchema as error:
            if len(state.unknown) >= _MOST_UNKNOWN:
                state.unknown.clear()
            state.unknown[place] = now + _UNKNOWN_FOR_S, str(error)
            raise
        return found

    def by_schema(self, subject: str, schema: str) -> SchemaRecord:
        """The version of a subject that has this schema. Raises `UnknownSchema` if none has it."""
        found = self._call("POST", f"/subject/{escaped(subject)}/schema/schema", schema.encode())
        return self._record(subject, found)

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            return self._http.call(method, path, body)
        except RegistryUnavailable as error:
            if (code := _CODE.search(str(error))) is None:
                raise
            if code[1] == "404":
                raise UnknownSchema(f"{self._http.where}: {method} {path}: there is no such schema") from error
            raise SchemaRegistryError(f"{self._http.where} refuses {method} {path}, and does not say why") from error

    def _record(self, subject: str, answer: Any) -> SchemaRecord:
        kind = self._http.field(answer, "type", str)
        if kind != "AVRO":
            raise SchemaRegistryError(
                f"{self._http.where}: the schema of {subject!r} is of type {cropped(kind)}; only AVRO is supported"
            )
        version, record_id = self._http.field(answer, "version", int), self._http.field(answer, "recordId", int)
        found = SchemaRecord(subject, version, record_id, self._http.field(answer, "idl", str))
        try:
            parsed_json(found.schema)
        except LocalError as error:
            raise SchemaRegistryError(f"{self._http.where}: {subject!r} version {version}: {error}") from error
        self._state.records[subject, record_id] = found
        return found
