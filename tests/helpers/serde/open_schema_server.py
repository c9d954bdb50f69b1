"""RocketMQ's schema registry, as much of it as a client uses: what its controller answers, read from its source.

The real one is in no repository of artefacts. Paths, fields, and the status of five digits are those of its
`SchemaController`, `GetSchemaResponse` and `RequestExceptionHandler`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.helpers.serde.registry_server import Answer, Request, answer

PREFIX = "/schema-registry/v1"
_VERSION_BITS = 14


@dataclass
class OpenSchemas:
    """Subjects of the cluster and tenant `default`, each with the versions of its schema."""

    subjects: dict[str, list[str]] = field(default_factory=dict)
    kind: str = "AVRO"

    def register(self, subject: str, schema: str) -> int:
        """Adds a version and returns its record's id."""
        self.subjects.setdefault(subject, []).append(schema)
        return self.record_id(subject, len(self.subjects[subject]))

    def record_id(self, subject: str, version: int) -> int:
        return (list(self.subjects).index(subject) + 100_000_000) << _VERSION_BITS | version

    def handle(self, request: Request) -> Answer:
        head = f"{PREFIX}/cluster/default/tenant/default/"
        if not request.path.startswith(head):
            return answer(404, {"timestamp": "2024-01-31T00:00:00", "status": 404, "error": "Not Found"})
        match [unquote(part) for part in request.path.removeprefix(head).split("/")]:
            case ["subjects"]:
                return answer(200, list(self.subjects))
            case ["subject", subject, "schema"]:
                return self._found(subject, len(self.subjects.get(subject, ())))
            case ["subject", subject, "recordId", record_id, "schema"]:
                return self._found(subject, int(record_id) & (1 << _VERSION_BITS) - 1)
            case ["subject", subject, "schema", "schema"] if request.method == "POST":
                known = list(map(json.loads, self.subjects.get(subject, ())))
                wanted = json.loads(request.body)
                if wanted not in known:
                    return _refused(50001, f"Schema: {subject} not exist")
                return self._found(subject, known.index(wanted) + 1)
        return _refused(50001, "no such request")

    def _found(self, subject: str, version: int) -> Answer:
        versions = self.subjects.get(subject, [])
        if not 1 <= version <= len(versions):
            return _refused(40402, f"Schema: {subject} not found, please check your configuration.")
        found = {
            "subjectFullName": f"default/default/{subject}",
            "schemaFullName": f"default/{subject}",
            "version": version,
            "recordId": self.record_id(subject, version),
            "idl": versions[version - 1],
            "dependency": None,
            "type": self.kind,
        }
        return answer(200, found)


def _refused(code: int, message: str) -> Answer:
    return answer(code, {"status": code, "message": message})


def open_schemas() -> tuple[OpenSchemas, Callable[[Request], Answer]]:
    """Returns an empty registry, and what answers for it."""
    kept = OpenSchemas()
    return kept, kept.handle
