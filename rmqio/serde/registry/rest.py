"""Clients of registries: with Confluent's REST API, which many have, and RocketMQ's own, which has OpenSchema's."""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

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
from rmqio.serde.registry.http import BasicAuth, Http, Timing, TokenAuth, cropped, escaped, with_credentials_apart

# A client of RocketMQ's own schema registry, which has the REST API of OpenSchema.
#
# https://github.com/apache/rocketmq-schema-registry

_PATH: Final = "/schema-registry/v1"
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


_LOGGER: Final = logging.getLogger("rmqio.serde.registry")
T = TypeVar("T")

_KEPT_FOR_S: Final = 30.0
"""How long a newest version that could not be refreshed is used before the next try."""
_UNKNOWN_FOR_S: Final = 5.0
"""How long an id counts as unknown without a new request, so that not every message with a wrong id makes a request."""
_MOST_UNKNOWN: Final = 1024


class _RestState(ProcessLocal):
    """The cache. Each value is set in one step, so the dicts need no lock."""

    def __init__(self) -> None:
        super().__init__()
        self.registering = threading.Lock()
        self.schemas: dict[int, str] = {}
        self.ids: dict[tuple[str, str], int] = {}
        self.versions: dict[tuple[str, int], RegisteredSchema] = {}
        self.newest: dict[str, tuple[RegisteredSchema, float]] = {}
        self.unknown: dict[int, tuple[float, str]] = {}

    def after_fork(self) -> None:
        """The child keeps the cache."""
        super().after_fork()
        self.registering = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRegistry:
    """A schema registry with Confluent's REST API.

    Schemas by id and by version never change and are requested once per process. The newest version of a subject is
    requested again after `latest_ttl_s`. While the registry is down, all known schemas stay usable, with the newest
    versions as last seen. Requests are retried after failed connections and after HTTP status 408, 425, 429, 500, 502,
    503 and 504, with growing random pauses, or as long as the registry asks for, up to 10 s. Redirections are refused:
    credentials go only to the given URL.

    Args:
      url: http or https. Apicurio's has the path /apis/ccompat/v7. `user:password@` in it is used as `auth`.
      auth: `BasicAuth` or `TokenAuth`. It is also sent over plain http to another machine, with a warning in the log.
      ca_file: trusted certificates in PEM; None: those of `requests`, or of its variable REQUESTS_CA_BUNDLE. The
        registry's certificate and name are always checked.
      client_certificate: a PEM file with certificate and key, or two files (certificate, key without a passphrase).
      timeout_s: timeout of a connection attempt, and between two pieces of an answer.
      retries: how often a failed request is retried.
      latest_ttl_s: how long the newest version of a subject is considered the newest.

    Only Avro schemas are supported. A schema that refers to others (Confluent's "references") is refused: register it
    with the referenced definitions written out.
    """

    url: str = field(kw_only=False)
    auth: BasicAuth | TokenAuth | None = None
    ca_file: str | None = None
    client_certificate: str | tuple[str, str] | None = None
    timeout_s: float = 10.0
    retries: int = 3
    latest_ttl_s: float = 300.0
    timing: Timing = field(default=Timing(), repr=False, compare=False)
    _http: Http = field(init=False, repr=False, compare=False)
    _state: _RestState = field(default_factory=_RestState, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        url, credentials = with_credentials_apart(self.url)
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
        given = self.url, self.auth, self.ca_file, self.client_certificate, self.timeout_s, self.retries, self.timing
        object.__setattr__(self, "_http", Http(*given))

    def close(self) -> None:
        """Close connections, and end pauses between tries in other threads with an error. A later call reconnects."""
        self._http.close()

    def register(self, subject: str, schema: str) -> int:
        """Register a schema and return its id. Raises `SchemaRegistryError` if it is invalid or incompatible.

        The schema is sent without white space between its parts, because Apicurio considers the same schema with other
        white space a different one. Apicurio also creates two versions, with one id, if two processes register a schema
        at the same moment, so register before the pipeline starts. Threads of one process take turns.
        """
        state, compact = self._state, json.dumps(parsed_json(schema), separators=(",", ":"))
        path, body = f"/subjects/{escaped(subject)}/versions", json.dumps({"schema": compact}).encode()
        if (known := state.ids.get((subject, compact))) is not None:
            return known
        with state.registering:
            if (known := state.ids.get((subject, compact))) is not None:
                return known
            schema_id = self._http.field(self._http.call("POST", path, body), "id", int)
            state.ids[subject, compact] = schema_id
            state.newest.pop(subject, None)
        return schema_id

    def by_id(self, schema_id: int) -> str:
        """The schema with an id. Raises `UnknownSchema`, for 5 s without a new request."""
        state = self._state
        if (known := state.schemas.get(schema_id)) is not None:
            return known
        if not 0 <= schema_id <= LARGEST_ID:
            raise UnknownSchema(f"{self._http.where}: {schema_id} cannot be an id; ids are from 0 to {LARGEST_ID}")
        now = self.timing.clock()
        if (refused := state.unknown.get(schema_id)) is not None and now < refused[0]:
            raise UnknownSchema(refused[1])
        try:
            answer = self._http.call("GET", f"/schemas/ids/{schema_id}")
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
            raise UnknownSchema(f"{self._http.where}: {subject!r} has no version {version}; they are counted from 1")
        return self._ask_version(subject, str(version))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, ascending, requested each time. Raises `UnknownSchema` for an unknown subject."""
        return sorted(self._list(f"/subjects/{escaped(subject)}/versions", int))

    def subjects(self) -> list[str]:
        """The names of all subjects, sorted, requested each time."""
        return sorted(self._list("/subjects", str))

    def by_fingerprint(self, fingerprint: bytes) -> str:
        """Raises `UnknownSchema`. Cached schemas are not searched, because they differ between workers."""
        require_fingerprint(fingerprint)
        raise UnknownSchema(
            f"{self._http.where}: Confluent's API cannot search for the fingerprint {fingerprint.hex()}. Read Avro's "
            "single-object encoding with a FolderRegistry or a MemoryRegistry, or write Confluent's format"
        )

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
            _LOGGER.warning("version %d of %r is still considered the newest: %s", found.version, subject, error)
        state.newest[subject] = found, clock() + lifetime_s
        return found

    def _ask_version(self, subject: str, version: str) -> RegisteredSchema:
        answer = self._http.call("GET", f"/subjects/{escaped(subject)}/versions/{version}")
        number, schema_id = self._http.field(answer, "version", int), self._http.field(answer, "id", int)
        if version not in ("latest", str(number)):
            self._http.nonsense(f"version {number} of {subject!r} for version {version}")
        schema = self._schema(answer, f"{subject!r} version {number}")
        found = RegisteredSchema(subject, number, schema_id, schema)
        self._state.versions[subject, number] = found
        self._state.schemas.setdefault(schema_id, schema)
        return found

    def _schema(self, answer: Any, what: str) -> str:
        schema = self._http.field(answer, "schema", str)
        if (kind := answer.get("schemaType") or "AVRO") != "AVRO":
            raise SchemaRegistryError(f"{self._http.where}: {what} is of type {cropped(kind)}; only AVRO is supported")
        if references := answer.get("references"):
            names = [str(each.get("name") if isinstance(each, dict) else each) for each in _as_list(references)]
            raise SchemaRegistryError(
                f"{self._http.where}: {what} refers to other schemas ({cropped(', '.join(names))}), which is "
                "not supported: register a version with their definitions written out"
            )
        try:
            parsed_json(schema)
        except LocalError as error:
            raise SchemaRegistryError(f"{self._http.where}: {what}: {error}") from error
        return schema

    def _list(self, path: str, kind: type[T]) -> list[T]:
        answer = self._http.call("GET", path)
        if not isinstance(answer, list) or not all(type(each) is kind for each in answer):
            self._http.nonsense(f"GET {path}: a list of {kind.__name__} is expected")
        return answer


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Schemas of other types than Avro in a registry with Confluent's API: JSON Schema and Protobuf.
#
# A Protobuf schema is asked for, and registered, as its descriptor in base 64 (`format=serialized`), so that nothing
# here parses .proto files.

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class Reference(NamedTuple):
    """Another schema that a schema uses, by its name there."""

    name: str
    subject: str
    version: int


class TypedSchema(NamedTuple):
    """A version of a subject.

    Attributes:
      kind: AVRO, JSON, PROTOBUF, or another one that the registry has.
      schema: the text; of PROTOBUF the FileDescriptorProto in base 64.
    """

    subject: str
    version: int
    id: int
    kind: str
    schema: str
    references: tuple[Reference, ...]


class TypedSubjects:
    """The subjects of a registry, whatever the type of their schemas. Nothing is kept."""

    def __init__(self, registry: RestRegistry) -> None:
        place = registry.url, registry.auth, registry.ca_file, registry.client_certificate
        self._http = Http(*place, registry.timeout_s, registry.retries, registry.timing)

    def version(self, subject: str, version: int | None = None) -> TypedSchema:
        """Returns a version of a subject; None: the newest. Raises `SchemaRegistryError`."""
        path = f"/subjects/{escaped(subject)}/versions/{'latest' if version is None else version}"
        answer = self._call("GET", path)
        if (answer.get("schemaType") or AVRO) == PROTOBUF:
            answer = self._call("GET", f"{path}?format=serialized")
        http = self._http
        return TypedSchema(
            subject,
            http.field(answer, "version", int),
            http.field(answer, "id", int),
            str(answer.get("schemaType") or AVRO),
            http.field(answer, "schema", str),
            tuple(self._reference(each) for each in answer.get("references") or ()),
        )

    def register(self, subject: str, schema: str, kind: str) -> int:
        """Registers a schema without references, unless the subject has it. Returns its id.

        Raises `SchemaRegistryError`.
        """
        body = json.dumps({"schema": schema, "schemaType": kind}).encode()
        answer = self._call("POST", f"/subjects/{escaped(subject)}/versions", body)
        return self._http.field(answer, "id", int)

    def _call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        answer = self._http.call(method, path, body)
        if not isinstance(answer, dict):
            self._http.nonsense(f"{method} {path}: an object is expected")
        return answer

    def _reference(self, given: Any) -> Reference:
        try:
            return Reference(str(given["name"]), str(given["subject"]), int(given["version"]))
        except (KeyError, TypeError, ValueError):
            raise SchemaRegistryError(f"{self._http.where}: a reference to a schema is not valid") from None
