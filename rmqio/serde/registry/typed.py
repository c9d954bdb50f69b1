"""Schemas of other types than Avro in a registry with Confluent's API: JSON Schema and Protobuf.

A Protobuf schema is asked for, and registered, as its descriptor in base 64 (`format=serialized`), so that nothing here
parses .proto files.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from rmqio.serde.registry.base import SchemaRegistryError
from rmqio.serde.registry.http import Http, escaped
from rmqio.serde.registry.rest import RestRegistry

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
