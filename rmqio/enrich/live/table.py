"""A compacted topic as a table: the newest row of each key, read from the start and kept up to date.

New rows are in memory until they are many; then they and the files become new files, which say up to which offsets they
go: another process, or the next start, goes on there.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from rmqio.enrich.live.decoding import BadRow, Change, Decoding, unescaped
from rmqio.enrich.live.following import Follower
from rmqio.enrich.live.rows import LiveRows, merged
from rmqio.enrich.loading import Wanted
from rmqio.enrich.sources.topic import Topic
from rmqio.enrich.store import Pointer, Store
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageQueue

_LOGGER: Final = logging.getLogger(__name__)


class LiveTable:
    """See `Live` and `Taker`.

    `compact_at`: the changes in memory that become files, if they are a quarter of the rows there.
    """

    def __init__(self, wanted: Wanted, *, compact_at: int = 100_000) -> None:
        source = wanted.table.source
        assert isinstance(source, Topic)
        self._source: Topic = source
        self._compact_at = compact_at
        self._decoding = Decoding(wanted)
        self._spec = Spec(wanted.spec.keys, self._decoding.columns)
        self._seed = wanted.seed
        self._store: Store = wanted.store()
        self._lock = threading.Lock()
        """It guards changes: a compaction takes them and their positions as of one moment."""
        self._covered: dict[str, int] = {}
        """Up to which offset of each queue the files go."""
        self._rows: LiveRows | None = None
        self._next: LiveRows | None = None
        """The rows of a topic that was created anew, until they are whole."""
        self._epoch: str | None = None
        """Tells the files of a topic from those of the one that was created anew: offsets do not."""
        self._compacting: threading.Thread | None = None
        self._follower = Follower(source.topic, f"table of {source.shown}", source.factory, self)

    def start(self) -> None:
        """See `Live.start`."""
        self._follower.start()

    def stop(self) -> None:
        """See `Live.stop`."""
        self._follower.stop()

    def now(self) -> tuple[LiveRows, float]:
        """See `Live.now`."""
        error = self._follower.error
        if error is not None:
            raise LocalError(f"the table of {self._source.shown} cannot be kept up to date: {error}") from error
        assert self._rows is not None
        return self._rows, self._follower.fresh_at

    # ---- files ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """See `Taker.begin`. Opens the files, or makes those of a table without rows."""
        with self._store.locked():
            found = self._store.current()
            if found is None:
                found = self._empty(None)
        pointer, base = found
        self._epoch = pointer.source_version
        self._covered = dict(pointer.positions)
        self._rows = LiveRows(base, {})

    def begin_anew(self) -> None:
        """See `Taker.begin_anew`. Takes the files of a process that has begun anew before."""
        with self._store.locked():
            pointer = self._store.pointer()
            is_first = pointer is None or pointer.source_version == self._epoch
            found = None if is_first else self._store.current()
            pointer, base = found or self._empty(uuid.uuid4().hex)
            with self._lock:
                self._epoch = pointer.source_version
                self._covered = dict(pointer.positions)
                self._next = LiveRows(base, {})

    def _empty(self, epoch: str | None) -> tuple[Pointer, MappedTable]:
        """Makes the files of a table without rows. The store's lock is held."""
        schema = self._decoding.schema
        empty = pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
        self._store.build([empty], self._spec, seed=self._seed, source_version=epoch, size=0)
        found = self._store.current()
        assert found is not None
        return found

    @property
    def _taken(self) -> LiveRows:
        """The rows that messages change."""
        found = self._next or self._rows
        assert found is not None
        return found

    def _compact(self) -> None:
        try:
            with self._store.locked():
                pointer = self._store.pointer()
                if pointer is not None and pointer.source_version != self._epoch:
                    return  # the topic was created anew, and another process has noticed it first
                self._adopt()
                self._write()
        except Exception as error:  # noqa: BLE001  # rows stay in memory; the next one tries again
            _LOGGER.warning("table of %s: its changes stay in memory: %s", self._source.shown, error)

    def _adopt(self) -> None:
        """Takes the files of another process of the machine, if they go further. The store's lock is held."""
        pointer = self._store.pointer()
        if pointer is None or pointer.positions == self._covered:
            return
        if any(pointer.positions.get(queue, -1) < offset for queue, offset in self._covered.items()):
            return
        self._swap(self._store.opened(pointer), pointer.positions)

    def _write(self) -> None:
        with self._lock:
            rows = self._taken
            # The follower's positions are not ahead of the changes, and a change that comes again is the same.
            ahead = {_name(each): offset for each, offset in self._follower.positions.copy().items()}
            base, changes = rows.base, list(rows.delta.values())
            positions = {**self._covered, **ahead}
        if not changes:
            return
        pointer = self._store.build(
            merged(base, changes, self._decoding.schema), self._spec, seed=self._seed, source_version=self._epoch,
            size=base.manifest.size, positions=lambda: positions,
        )  # fmt: skip
        self._swap(self._store.opened(pointer), positions)

    def _swap(self, base: MappedTable, covered: dict[str, int]) -> None:
        """Looks up in other files, and drops the changes that are in them."""
        with self._lock:
            delta = self._taken.delta
            kept = {key: each for key, each in delta.items() if each.offset >= covered.get(each.queue, 0)}
            self._covered = dict(covered)
            if self._next is not None:
                self._next = LiveRows(base, kept)
            else:
                self._rows = LiveRows(base, kept)

    # ---- messages ---------------------------------------------------------------------------------------------------

    def first(self, queue: MessageQueue, oldest: int) -> int:
        """See `Taker.first`."""
        return max(oldest, self._covered.get(_name(queue), 0))

    def require_known(self, ends: Mapping[MessageQueue, int]) -> None:
        """See `Taker.require_known`: the files say which queues there were, and up to where."""
        for queue, end in ends.items():
            covered = self._covered.get(_name(queue), 0)
            if covered > end:  # the topic was created anew
                raise LocalError(
                    f"{queue} ends at {end}, but the table's files have its rows up to {covered}: the topic was "
                    f"created again; remove {self._store.folder}"
                )
        missing = sorted(self._covered.keys() - {_name(each) for each in ends})
        if missing:
            raise LocalError(
                f"the table's files have rows of {', '.join(missing)}, which the route of the topic does not name: "
                f"its broker is unavailable; if it is gone for good, remove {self._store.folder}"
            )
        if self._source.queues is not None and len(ends) < self._source.queues:
            raise LocalError(
                f"the route of the topic names {len(ends)} queues, and the table wants {self._source.queues}: a broker "
                "is down"
            )

    def rest(self, *, is_loading: bool) -> None:
        """See `Taker.rest`. Compacts if there are many changes."""
        if self._next is not None and not is_loading:
            with self._lock:
                self._rows, self._next = self._next, None
        rows = self._taken
        if len(rows.delta) < max(self._compact_at, len(rows.base) // 4):
            return
        if is_loading:  # nobody looks up yet, and memory must not grow with the topic
            self._compact()
        elif self._compacting is None or not self._compacting.is_alive():
            name = f"compact {self._source.topic}"
            self._compacting = threading.Thread(target=self._compact, name=name, daemon=True)
            self._compacting.start()

    def take(self, queue: MessageQueue, fetched: FetchedBatch) -> None:
        """See `Taker.take`."""
        for corrupt in fetched.corrupt:
            self._refuse(str(corrupt))
        changes = []
        for record, change in zip(fetched.records, self._decoding.changes(fetched.records), strict=True):
            if isinstance(change, BadRow):
                self._refuse(f"{queue}, offset {record.queue_offset}: {change}")
            else:
                changes.append(change)
        with self._lock:
            rows, covered = self._taken, self._covered.get(_name(queue), 0)
            for change in changes:
                if change.offset >= covered:  # else files of another process have it, and perhaps a newer one
                    rows.delta[self._deleted(rows, change) if change.row is None else change.key] = change

    @staticmethod
    def _deleted(rows: LiveRows, change: Change) -> Any:
        for key in unescaped(change.key):
            if rows.get_one(key) not in (None, NotImplemented):
                return key
        return change.key

    def _refuse(self, reason: str) -> None:
        """Raises `LocalError`, unless the table skips what is bad."""
        if self._source.on_bad_row == "error":
            raise LocalError(f'{reason}; on_bad_row="skip" leaves such messages out')
        _LOGGER.warning("table of %s: a message is left out: %s", self._source.shown, reason)


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker}/{queue.queue_id}"
