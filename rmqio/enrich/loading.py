"""Loads the current rows of a source into its folder, or finds that they are there."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqio.enrich.definition import Table
from rmqio.enrich.sources.sql import Query
from rmqio.enrich.store import Pointer, Store, default_folder
from rmqio.enrich.table.manifest import BadTable, form
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError

if TYPE_CHECKING:
    import pyarrow as pa

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
