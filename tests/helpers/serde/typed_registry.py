"""A schema registry with Confluent's API that has JSON Schemas and Protobuf beside Avro."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.helpers.serde.registry_server import Answer, Request, answer


@dataclass
class TypedSchemas:
    """Subjects of a server. `handle` answers a request. A PROTOBUF schema is the base 64 of its descriptor."""

    subjects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    count: int = 0

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Returns the schema's id; one that is there keeps it."""
        versions = self.subjects.setdefault(subject, [])
        for each in versions:
            if (each["schema"], each["schemaType"]) == (schema, kind):
                return int(each["id"])
        self.count += 1
        versions.append({"subject": subject, "version": len(versions) + 1, "id": self.count, "schema": schema,
                         "schemaType": kind, "references": list(references)})  # fmt: skip
        return self.count

    def handle(self, request: Request) -> Answer:
        """Answers as the real one: `schemaType` is absent for AVRO, Protobuf is text unless asked for otherwise."""
        url = urlsplit(request.path)
        is_serialized = parse_qs(url.query).get("format") == ["serialized"]
        match [unquote(each) for each in url.path.split("/")[1:]]:
            case ["subjects"]:
                return answer(200, sorted(self.subjects))
            case ["subjects", subject, "versions"] if request.method == "POST":
                given = json.loads(request.body)
                return answer(200, {"id": self.register(subject, given["schema"], given.get("schemaType", "AVRO"))})
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                found = dict(self.subjects[subject][-1 if version == "latest" else int(version) - 1])
                if found["schemaType"] == "AVRO":
                    del found["schemaType"]
                elif found["schemaType"] == "PROTOBUF" and not is_serialized:
                    found["schema"] = 'syntax = "proto3";'
                return answer(200, found)
        return answer(404, {"error_code": 40401, "message": "not found"})
