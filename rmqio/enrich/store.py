"""The folder of a table on this machine: its versions, loading the next one, and when it is removed."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqio.enrich.definition import Table
from rmqio.enrich.sql_source import Query
from rmqio.enrich.table import manifest
from rmqio.enrich.table.building import build
from rmqio.enrich.table.manifest import BadTable, form
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError

if TYPE_CHECKING:
    import pyarrow as pa

_CURRENT: Final = "current.json"
_LOCK: Final = "lock"
_TRIES: Final = 5
_GRACE_S: Final = 60.0
"""A version that was replaced can still be about to be opened for so long."""
_SET: Final = "set cache_dir, or the environment variable XDG_CACHE_HOME or TMPDIR"
_SPARE: Final = 64 << 20
"""Bytes of the disk that a build leaves free."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The current version.

    Attributes:
      version: its name.
      source_version: that of the source; None: unknown.
      checked_at: when its rows were those of the source (Unix s).
      positions: of a topic, the offset of each queue up to which the rows are in it.
    """

    version: str
    source_version: str | None
    checked_at: float
    positions: dict[str, int] = field(default_factory=dict)


class Store:
    """The versions of one table in a folder, which all processes of the machine share.

    Args:
      folder: on a local disk.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # rows can be nobody else's business
        except OSError as error:
            raise LocalError(f"the folder {folder} for tables cannot be created: {error}; set cache_dir") from error

    def pointer(self) -> Pointer | None:
        """Returns which version is current. None: none is, or its file is not whole."""
        try:
            found = Pointer(**json.loads((self.folder / _CURRENT).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        ok = isinstance(found.version, str) and isinstance(found.checked_at, (int, float))
        return found if ok and found.version.isalnum() else None

    def current(self) -> tuple[Pointer, MappedTable] | None:
        """Returns the current version, opened. None: there is none that is whole."""
        for _ in range(_TRIES):
            pointer = self.pointer()
            if pointer is None:
                return None
            try:
                return pointer, self.opened(pointer)
            except BadTable:
                if self.pointer() == pointer:  # not replaced meanwhile
                    return None
        return None

    def opened(self, pointer: Pointer) -> MappedTable:
        """Returns a version. Raises `BadTable`."""
        table = MappedTable(self.folder / pointer.version)
        if table.manifest.version != pointer.version:
            raise BadTable(f"{table.folder} is another table's")
        return table

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the table's lock: one process of the machine builds."""
        with open(self.folder / _LOCK, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def build(
        self,
        batches: Iterable[pa.RecordBatch],
        spec: Spec,
        *,
        seed: int,
        source_version: str | None,
        size: int,
        positions: Callable[[], dict[str, int]] = dict,
    ) -> Pointer:
        """Builds a version and makes it the current one. The lock is held.

        Args:
          size: the bytes that it will have at most, as far as that is known.
          positions: called after the rows were read.
        """
        begun = time.time()
        self._clean()
        self._require_space(size)
        temporary = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        try:
            try:
                made = build(batches, spec, temporary, seed=seed)
            except OSError as error:
                raise LocalError(f"the table cannot be written to {self.folder}: {error}") from error
            self._put(temporary, made.version)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        pointer = Pointer(made.version, source_version, begun, positions())
        self.point(pointer)
        return pointer

    def point(self, pointer: Pointer) -> None:
        """Makes a version the current one, atomically."""
        temporary = self.folder / f"{_CURRENT}.{uuid.uuid4().hex}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(asdict(pointer), file)
            file.flush()
            os.fsync(file.fileno())
        before = self.pointer()
        os.replace(temporary, self.folder / _CURRENT)
        if before is not None and before.version != pointer.version:
            with contextlib.suppress(OSError):
                os.utime(self.folder / before.version)  # its grace begins now
        self._collect(pointer.version)

    def take(self, other: Store, pointer: Pointer) -> None:
        """Copies a version of another folder, and makes it the current one. The lock is held. Raises `BadTable`."""
        source = other.folder / pointer.version
        self._clean()
        made = manifest.read(source)
        self._require_space(made.size)
        temporary = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        try:
            for name in (*manifest.FILES, manifest.MANIFEST):
                shutil.copyfile(source / name, temporary / name)
            manifest.verify(temporary, manifest.read(temporary))
            self._put(temporary, pointer.version)
        except OSError as error:
            raise BadTable(f"{source} cannot be copied: {error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self.point(pointer)

    def _put(self, temporary: Path, version: str) -> None:
        """Gives a whole folder its name. One that is there already has the same content, unless it is not whole."""
        target = self.folder / version
        try:
            manifest.verify(target, manifest.read(target))
            return
        except BadTable:
            shutil.rmtree(target, ignore_errors=True)
        os.rename(temporary, target)
        manifest.note_verified(target)

    def _clean(self) -> None:
        """Removes what builds have left that did not end. The lock is held, so that none is running."""
        for each in self.folder.glob("new-*"):
            shutil.rmtree(each, ignore_errors=True)
        for each in self.folder.glob(f"{_CURRENT}.*"):
            each.unlink(missing_ok=True)

    def _collect(self, current: str) -> None:
        """Removes versions that were replaced a while ago. A mapped version stays until its process lets it go."""
        for each in self.folder.iterdir():
            if not each.is_dir() or each.name == current or each.name.startswith("new-"):
                continue
            with contextlib.suppress(OSError):
                if time.time() - each.stat().st_mtime > _GRACE_S:
                    shutil.rmtree(each, ignore_errors=True)

    def _require_space(self, size: int) -> None:
        pointer = self.pointer()
        if pointer is not None:
            with contextlib.suppress(BadTable):
                size = max(size, manifest.read(self.folder / pointer.version).size)
        needed, free = 2 * size + _SPARE, shutil.disk_usage(self.folder).free
        if free < needed:
            raise LocalError(
                f"the disk of {self.folder} has {free >> 20:,} MB left, and a new version of the table takes up to "
                f"{needed >> 20:,} MB while it is built: free some space, or set cache_dir"
            )


def default_folder() -> Path:
    """Returns the folder for tables without `cache_dir`: in the user's cache; without a home, with temporary files.

    Raises `LocalError` if neither can be written.
    """
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("rmqio")) / "enrich"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    beside = Path(tempfile.gettempdir()) / f"rmqio-{os.getuid()}"
    try:
        beside.mkdir(mode=0o700, exist_ok=True)
        state = os.lstat(beside)
    except OSError as error:
        raise LocalError(f"neither {folder} nor {beside} can be created for tables: {error}; {_SET}") from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise LocalError(f"{folder} cannot be written, and {beside} is another user's: {_SET}")
    return beside / "enrich"


def describe(pointer: Pointer, table: MappedTable) -> dict[str, Any]:
    """Returns what there is to log about a version."""
    made = table.manifest
    return {"version": pointer.version[:12], "rows": made.rows, "bytes": made.size, "null_keys": made.null_keys}


# Folders of tables that belong to one job: they are removed when no process uses them any more.

_USERS: Final = "users"
"""A file that each process which uses the folder has locked, together with the others."""
_UNUSED_S: Final = 3600.0
"""A folder that a killed process has left is kept for so long: a job can be between two stages."""
_held: set[Held] = set()


class Held:
    """A folder that this process uses. It makes the folder, and removes others beside it that nobody uses."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        while True:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.utime(self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._descriptor), os.stat(folder / _USERS)):
                    break
            os.close(self._descriptor)  # another process has removed it meanwhile
        _held.add(self)
        with contextlib.suppress(OSError):
            for each in folder.parent.iterdir():
                if each != folder:
                    _remove_if_left(each)

    def release(self) -> None:
        """Removes the folder if no other process uses it. Idempotent."""
        if self not in _held or self._pid != os.getpid():  # a fork has the lock of its parent
            return
        _held.discard(self)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._descriptor)


def folder_of_jobs() -> Path:
    """Returns the folder that has a folder for each table of a job."""
    return default_folder() / "jobs"


def _remove_if_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / _USERS, os.O_RDWR | os.O_CLOEXEC)
        try:
            if time.time() - os.fstat(descriptor).st_mtime > _UNUSED_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


@atexit.register
def _release_all() -> None:
    for each in list(_held):
        each.release()


# Loads the current rows of a source into its folder, or finds that they are there.

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table with all that decides what is in its files.

    `name`: of the table in messages, if it has one. `of_job`: the folder is removed when nobody uses it any more.
    """

    table: Table
    spec: Spec
    name: str = ""
    of_job: bool = False

    def __post_init__(self) -> None:
        source = self.table.source
        if self.spec.duplicates in ("first", "last") and isinstance(source, Query) and source.partition_on is not None:
            raise LocalError(
                f'duplicates="{self.spec.duplicates}" needs an order, and partition_on reads ranges at once, in any '
                "order: leave one of them out"
            )

    @property
    def title(self) -> str:
        """The beginning of a message about it."""
        return self.name or f"the table {self.table.source.shown}"

    def identity(self) -> str:
        """Returns a text that is the same for the same files.

        Versions of rmqio with other files have other folders: in one, each would build again what the other has built.
        """
        return self.table.identity(self.spec.keys, self.spec.columns, self.spec.duplicates, form())

    @property
    def seed(self) -> int:
        """The first seed of the hash. It follows from the description, so that equal content has one address."""
        return int(self.identity()[:16], 16)

    def store(self) -> Store:
        """Returns its folder on this machine."""
        root = default_folder() if self.table.cache_dir is None else Path(self.table.cache_dir)
        return Store(root / self.identity())

    def shared(self) -> Store | None:
        """Returns its folder that all machines see."""
        return None if self.table.shared_dir is None else Store(Path(self.table.shared_dir) / self.identity())


def load(wanted: Wanted, *, newer_than: float) -> tuple[Pointer, MappedTable]:
    """Returns the table with rows that were the source's after a time (Unix s). The machine's first process builds it.

    Raises `LocalError` if the source cannot be read, or its rows are no table.
    """
    store = wanted.store()
    found = store.current()
    if found is not None and found[0].checked_at > newer_than:
        return found
    with store.locked():
        found = store.current()  # another process has built it meanwhile
        if found is not None and found[0].checked_at > newer_than:
            return found
        asked_at = time.time()
        version = wanted.table.source.version()
        if found is not None and version is not None and found[0].source_version == version:
            pointer = dataclasses.replace(found[0], checked_at=asked_at)
            store.point(pointer)
            return pointer, found[1]
        shared = wanted.shared()
        if shared is None:
            pointer = _build(store, wanted, version)
            return pointer, store.opened(pointer)
        with shared.locked():
            there = shared.pointer()
            is_same = there is not None and version is not None and there.source_version == version
            if there is not None and (is_same or there.checked_at > newer_than):
                if is_same:  # the rows are as old as the answer of the source, and not as the build
                    there = dataclasses.replace(there, checked_at=max(there.checked_at, asked_at))
                try:
                    store.take(shared, there)
                    return there, store.opened(there)
                except BadTable as error:
                    _LOGGER.warning("%s is built again: %s", wanted.table.source.shown, error)
            there = _build(shared, wanted, version)
        store.take(shared, there)
        return there, store.opened(there)


def _build(store: Store, wanted: Wanted, version: str | None) -> Pointer:
    source = wanted.table.source
    begun = time.monotonic()
    batches = _shown(source.batches(wanted.spec.read), source)
    pointer = store.build(batches, wanted.spec, seed=wanted.seed, source_version=version, size=source.size())
    made = store.opened(pointer).manifest
    _LOGGER.info(
        "table %s: %d rows, %d MB, in %.1f s", source.shown, made.rows, made.size >> 20, time.monotonic() - begun
    )
    if not made.rows:
        _LOGGER.warning("table %s: it has no rows", source.shown)
    for count, what in ((made.null_keys, "have a null in their key"), (made.dropped, "have the key of another row")):
        if count:
            _LOGGER.warning("table %s: %d rows are left out, because they %s", source.shown, count, what)
    return pointer


def _shown(batches: Iterable[pa.RecordBatch], source: Any) -> Iterator[pa.RecordBatch]:
    """The batches, with a progress bar if a person looks on."""
    from tqdm import tqdm

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    total = source.rows() if is_terminal else None
    with tqdm(
        total=total,
        desc=f"loading {source.shown}"[:60],
        unit=" rows",
        unit_scale=True,
        disable=not is_terminal,
        delay=1,
    ) as bar:
        for batch in batches:
            yield batch
            bar.update(batch.num_rows)
