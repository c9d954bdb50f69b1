"""Schemas in memory, and as files in a folder: for tests, and for programs that bring their schemas along."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

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

# Schemas in memory, for tests and for programs that have their schemas in their source.


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


T = TypeVar("T")

# The characters of a topic's name, and dots. No slash: a subject must not lead out of the folder.
_SUBJECT: Final = re.compile(r"[A-Za-z0-9_%|-][A-Za-z0-9_%|.-]*")
_FILE: Final = re.compile(rf"(?P<subject>{_SUBJECT.pattern})\.v(?P<version>[1-9][0-9]{{0,8}})\.avsc")
_TRIES: Final = 100
_Listing = tuple[tuple[str, int, int], ...]


class _State(ProcessLocal):
    catalog: Catalog | None = None
    listing: _Listing = ()


@dataclass(frozen=True, slots=True, init=False)
class FolderRegistry:
    """The schemas of a folder: version N of a subject is the file `SUBJECT.vN.avsc`. Other files are ignored.

    Ids are derived from the schemas (`content_id`): files that are added, removed or merged do not change the ids of
    other schemas. The ids differ from those that another registry assigns to the same schemas.

    Files are read when they are first needed. The folder is read again when something unknown is requested, and for
    `versions` and `subjects`. The newest version is the one at the last look. Do not change a version once there are
    messages with it.

    Args:
      folder: must exist on every worker.

    Methods raise `SchemaRegistryError`, which names the file: a folder or file cannot be read, a file is not JSON or
    has another form of name, or two schemas have the same id.
    """

    folder: Path
    _state: _State = field(repr=False, compare=False)

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # Absolute, because a worker can run in another directory.
        object.__setattr__(self, "folder", Path(folder).absolute())
        object.__setattr__(self, "_state", _State())

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema. Creates a file for the next version, unless a version of the subject has it.

        The file appears completely or not at all, and two processes never write the same version. Raises `LocalError`
        for a subject that cannot be a file's name.
        """
        if not _SUBJECT.fullmatch(subject):
            raise LocalError(
                f"{subject!r} cannot be a subject in a folder: use letters, digits and _ - % | and, not first, dots"
            )
        normal_form(schema)
        with self._state.lock:
            for _ in range(_TRIES):
                catalog = self._read()
                if (known := catalog.registered(subject, schema)) is not None:
                    return known.id
                entry = RegisteredSchema(subject, catalog.next_version(subject), content_id(schema), schema)
                Catalog((*catalog.entries, entry), self._where)  # refuses an id that another schema has
                if self._write(entry):
                    self._read()
                    return entry.id
                # Another process was first: read what it wrote.
        raise SchemaRegistryError(
            f"{self._where}: {entry.subject}.v{entry.version}.avsc can be neither created nor read"
        )

    def by_id(self, schema_id: int) -> str:
        """The schema with an id. Raises `UnknownSchema`."""
        return self._find(lambda catalog: catalog.by_id(schema_id))

    def by_version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; None: the newest at the last look. Raises `UnknownSchema`."""
        return self._find(lambda catalog: catalog.by_version(subject, version))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, ascending. Raises `UnknownSchema` if the subject does not exist."""
        return self._look().versions(subject)

    def subjects(self) -> list[str]:
        """The names of all subjects, sorted."""
        return self._look().subjects()

    def by_fingerprint(self, fingerprint: bytes) -> str:
        """The schema with a fingerprint; of several, that of the lowest version. Raises `UnknownSchema`."""
        return self._find(lambda catalog: catalog.by_fingerprint(fingerprint))

    @property
    def _where(self) -> str:
        return f"the folder {self.folder}"

    def _find(self, find: Callable[[Catalog], T]) -> T:
        catalog = self._state.catalog or self._look()
        try:
            return find(catalog)
        except UnknownSchema:
            newer = self._look()
            if newer is catalog:
                raise
            return find(newer)

    def _look(self) -> Catalog:
        with self._state.lock:
            return self._read()

    def _read(self) -> Catalog:
        """The folder's current content; the same catalogue if no file was added, removed or written. Needs the lock.

        Files are read again only if they differ: an unknown id in each message must not read the files each time.
        """
        state, listing = self._state, self._listing()
        if state.catalog is None or listing != state.listing:
            entries = [self._entry(name) for name, _, _ in listing]
            entries.sort(key=lambda entry: (entry.version, entry.subject))
            state.catalog = Catalog(entries, self._where)
            state.listing = listing
        return state.catalog

    def _listing(self) -> _Listing:
        found = []
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    if file.name.endswith(".avsc") and not file.name.startswith("."):
                        status = file.stat()
                        found.append((file.name, status.st_mtime_ns, status.st_size))
        except OSError as error:
            raise SchemaRegistryError(
                f"{self._where} of schemas cannot be read: {error.strerror}. It must exist on every worker"
            ) from error
        return tuple(sorted(found))

    def _entry(self, name: str) -> RegisteredSchema:
        match = _FILE.fullmatch(name)
        if match is None:
            raise SchemaRegistryError(
                f"{self.folder / name}: a schema's file is called SUBJECT.vN.avsc with N from 1: rename or move it"
            )
        try:
            schema = (self.folder / name).read_text(encoding="utf-8-sig")
            return RegisteredSchema(match["subject"], int(match["version"]), content_id(schema), schema)
        except OSError as error:
            raise SchemaRegistryError(f"{self.folder / name} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, LocalError) as error:
            why = str(error) if isinstance(error, LocalError) else "it is not UTF-8 text"
            raise SchemaRegistryError(f"{self.folder / name}: {why}") from error

    def _write(self, entry: RegisteredSchema) -> bool:
        """Create the version's file. False: it already exists."""
        target = self.folder / f"{entry.subject}.v{entry.version}.avsc"
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=self.folder)
            try:
                with open(descriptor, "w", encoding="utf-8", newline="") as file:
                    file.write(entry.schema)
                    file.flush()
                    os.fchmod(descriptor, 0o644)  # mkstemp lets only the owner read it
                    os.fsync(descriptor)
                # Unlike a rename, a link does not replace what another process has written.
                os.link(temporary, target)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        except FileExistsError:
            return False
        except OSError as error:
            raise SchemaRegistryError(f"{target} cannot be written: {error.strerror}") from error
        return True
