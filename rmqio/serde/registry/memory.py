"""Schemas in memory, for tests and for programs that have their schemas in their source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqio.errors import LocalError
from rmqio.serde.registry.base import (
    ProcessLocal,
    RegisteredSchema,
    SchemaRegistryError,
    UnknownSchema,
    content_id,
    fingerprint,
    normal_form,
    require_fingerprint,
)


class Catalog:
    """An immutable, searchable set of registered schemas. Threads can share it.

    Args:
      entries: the schemas, in the order of registration.
      where: the registry's name in messages.

    Raises `SchemaRegistryError` if two different schemas have the same id.
    """

    def __init__(self, entries: Iterable[RegisteredSchema], where: str) -> None:
        self.entries: Final = tuple(entries)
        self._where = where
        self._by_id: dict[int, RegisteredSchema] = {}
        self._subjects: dict[str, dict[int, RegisteredSchema]] = {}
        self._registered: dict[tuple[str, str], RegisteredSchema] = {}
        self._by_fingerprint: dict[bytes, str] | None = None
        for entry in self.entries:
            first, form = self._by_id.setdefault(entry.id, entry), normal_form(entry.schema)
            if normal_form(first.schema) != form:
                raise SchemaRegistryError(
                    f"{where}: {first.subject!r} version {first.version} and {entry.subject!r} version {entry.version} "
                    f"are different schemas with the same id {entry.id}: change the 'doc' of the newer one"
                )
            self._subjects.setdefault(entry.subject, {})[entry.version] = entry
            self._registered.setdefault((entry.subject, form), entry)

    def registered(self, subject: str, schema: str) -> RegisteredSchema | None:
        """The version of a subject that already has this schema."""
        return self._registered.get((subject, normal_form(schema)))

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, ()), default=0) + 1

    def by_id(self, schema_id: int) -> str:
        try:
            return self._by_id[schema_id].schema
        except KeyError:
            raise UnknownSchema(f"{self._where}: no schema with the id {schema_id}") from None

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema:
        known = self._versions(subject)
        version = max(known) if version is None else version
        try:
            return known[version]
        except KeyError:
            raise UnknownSchema(
                f"{self._where}: {subject!r} has no version {version}; it has {', '.join(map(str, sorted(known)))}"
            ) from None

    def versions(self, subject: str) -> list[int]:
        return sorted(self._versions(subject))

    def subjects(self) -> list[str]:
        return sorted(self._subjects)

    def by_fingerprint(self, wanted: bytes) -> str:
        require_fingerprint(wanted)
        if self._by_fingerprint is None:
            # Two threads can both create it, with the same result.
            made: dict[bytes, str] = {}
            for entry in self.entries:
                made.setdefault(self._fingerprint(entry), entry.schema)
            self._by_fingerprint = made
        try:
            return self._by_fingerprint[wanted]
        except KeyError:
            raise UnknownSchema(f"{self._where}: no schema with the fingerprint {wanted.hex()}") from None

    def _versions(self, subject: str) -> dict[int, RegisteredSchema]:
        try:
            return self._subjects[subject]
        except KeyError:
            names = ", ".join(map(repr, self.subjects()[:20])) or "none"
            raise UnknownSchema(f"{self._where}: no subject {subject!r}; the subjects are: {names}") from None

    def _fingerprint(self, entry: RegisteredSchema) -> bytes:
        try:
            return fingerprint(entry.schema)
        except LocalError as error:
            raise SchemaRegistryError(f"{self._where}: {entry.subject!r} version {entry.version}: {error}") from error


class MemoryRegistry:
    """A registry in the memory of one process. Two registries with the same content are equal.

    A pickled registry contains its schemas. A schema that is registered in a copy stays in that copy, so register
    before the pipeline is built. Ids are derived from the schemas (`content_id`): an id means the same in every copy.
    """

    def __init__(self) -> None:
        self._state = ProcessLocal()
        self._catalog = Catalog((), _WHERE)  # replaced as a whole, so that readers need no lock

    def __repr__(self) -> str:
        return f"<MemoryRegistry of {len(self._catalog.entries)} schemas>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryRegistry) and self._catalog.entries == other._catalog.entries

    __hash__ = None  # type: ignore[assignment] # it changes

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self._catalog.entries,)

    def register(self, subject: str, schema: str) -> int:
        """Register a schema and return its id. Raises `LocalError`; `SchemaRegistryError` if another one has the id."""
        if not subject:
            raise LocalError("a subject's name cannot be empty")
        with self._state.lock:
            entry = self._catalog.registered(subject, schema)
            if entry is None:
                version = self._catalog.next_version(subject)
                entry = RegisteredSchema(subject, version, content_id(schema), schema)
                self._catalog = Catalog((*self._catalog.entries, entry), _WHERE)
            return entry.id

    def by_id(self, schema_id: int) -> str:
        """The schema with an id. Raises `UnknownSchema`."""
        return self._catalog.by_id(schema_id)

    def by_version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; None: the newest. Raises `UnknownSchema`."""
        return self._catalog.by_version(subject, version)

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, ascending. Raises `UnknownSchema` if the subject does not exist."""
        return self._catalog.versions(subject)

    def subjects(self) -> list[str]:
        """The names of all subjects, sorted."""
        return self._catalog.subjects()

    def by_fingerprint(self, fingerprint: bytes) -> str:
        """The schema with a fingerprint; of several, the one registered first. Raises `UnknownSchema`."""
        return self._catalog.by_fingerprint(fingerprint)


_WHERE: Final = "the registry in memory (each worker has its own copy)"


def _rebuild(entries: tuple[RegisteredSchema, ...]) -> MemoryRegistry:
    registry = MemoryRegistry()
    registry._catalog = Catalog(entries, _WHERE)
    return registry
