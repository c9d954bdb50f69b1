"""A compacted topic as a table: the newest row of each key, read from the start and kept up to date.

A thread reads all queues. New rows are in memory until they are many; then they and the files become new files, which
say up to which offsets they go: another process, or the next start, goes on there.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

import pyarrow as pa

from rmqio.enrich.live.decoding import BadRow, Change, Decoding, unescaped
from rmqio.enrich.live.rows import LiveRows, merged
from rmqio.enrich.loading import Wanted
from rmqio.enrich.sources.topic import Topic
from rmqio.enrich.store import Store
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError
from rmqio.interfaces import FetchedBatch, QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue

_WAIT_MS: Final = 200
_ROUTE_S: Final = 15.0
"""The time between looks for new queues."""
_STOP_S: Final = 5.0
_PAUSE_S: Final = 2.0
"""The time between an error of a broker and the next try."""
_LOG_S: Final = 60.0
_LOGGER: Final = logging.getLogger(__name__)


class LiveTable:
    """See `Live`. `compact_at`: the changes in memory that become files, if they are a quarter of the rows there."""

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
        """It guards changes and positions: a compaction takes both as of one moment."""
        self._positions: dict[MessageQueue, int] = {}
        self._covered: dict[str, int] = {}
        """Up to which offset of each queue the files go."""
        self._ends: dict[MessageQueue, int] | None = {}
        """Ends of the queues at the start; None: the table is as new as they were."""
        self._logged: dict[str, float] = {}
        self._fresh_at = 0.0
        self._error: Exception | None = None
        self._rows: LiveRows | None = None
        self._is_ready, self._stopped = threading.Event(), threading.Event()
        self._compacting: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name=f"read {source.topic}", daemon=True)

    def start(self) -> None:
        """Reads what the topic holds now. Raises `RmqioError` if that is not possible."""
        self._thread.start()
        self._is_ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """See `Live.stop`."""
        self._stopped.set()
        self._thread.join(_STOP_S)

    def now(self) -> tuple[LiveRows, float]:
        """See `Live.now`."""
        if self._error is not None:
            raise LocalError(
                f"the table of {self._source.shown} cannot be kept up to date: {self._error}"
            ) from self._error
        assert self._rows is not None
        return self._rows, self._fresh_at

    # ---- files ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Opens the files, or makes those of a table without rows."""
        with self._store.locked():
            found = self._store.current()
            if found is None:
                empty = pa.RecordBatch.from_arrays(
                    [pa.array([], e.type) for e in self._decoding.schema], schema=self._decoding.schema
                )
                self._store.build([empty], self._spec, seed=self._seed, source_version=None, size=0)
                found = self._store.current()
                assert found is not None
        pointer, base = found
        self._covered = dict(pointer.positions)
        self._rows = LiveRows(base, {})

    def _compact(self) -> None:
        try:
            with self._store.locked():
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
            assert self._rows is not None
            base, changes = self._rows.base, list(self._rows.delta.values())
            positions = {**self._covered, **{_name(each): offset for each, offset in self._positions.items()}}
        if not changes:
            return
        pointer = self._store.build(
            merged(base, changes, self._decoding.schema), self._spec, seed=self._seed, source_version=None,
            size=base.manifest.size, positions=lambda: positions,
        )  # fmt: skip
        self._swap(self._store.opened(pointer), positions)

    def _swap(self, base: MappedTable, covered: dict[str, int]) -> None:
        """Looks up in other files, and drops the changes that are in them."""
        with self._lock:
            assert self._rows is not None
            kept = {key: each for key, each in self._rows.delta.items() if each.offset >= covered.get(each.queue, 0)}
            self._covered = dict(covered)
            self._rows = LiveRows(base, kept)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._open()
            self._read_for_ever()
        except Exception as error:  # noqa: BLE001  # whoever looks up gets it
            self._error = error
        finally:
            self._is_ready.set()

    def _read_for_ever(self) -> None:
        client = self._source.factory.queue_client()
        try:
            while not self._stopped.is_set():
                try:
                    self._read(client)
                except RmqioError as error:
                    if not self._is_ready.is_set() or isinstance(error, LocalError):
                        raise
                    _LOGGER.warning("table of %s: %s", self._source.shown, error)
                    self._stopped.wait(_PAUSE_S)
        finally:
            client.close()

    def _read(self, client: QueueClient) -> None:
        """Reads until it is stopped. Raises `RmqioError` if a broker fails, and can be called again then."""
        readers: dict[MessageQueue, QueueReader] = {}
        next_look = 0.0
        try:
            while not self._stopped.is_set():
                if time.monotonic() >= next_look:
                    self._open_readers(client, readers)
                    next_look = time.monotonic() + _ROUTE_S
                is_fresh = bool(readers)
                for queue, reader in list(readers.items()):
                    try:
                        is_fresh &= self._poll(client, queue, reader) or reader.is_at_end
                    except RmqioError as error:
                        self._note_away(queue.broker, error)
                        readers.pop(queue).close()
                        is_fresh = False
                if is_fresh:
                    self._fresh_at = time.time()
                if self._ends is not None and all(self._positions[each] >= end for each, end in self._ends.items()):
                    self._ends = None
                    self._fresh_at = time.time()
                    self._is_ready.set()
                self._compact_if_many()
                if readers:
                    client.wait(readers.values(), _WAIT_MS)
                else:
                    self._stopped.wait(_PAUSE_S)
                    next_look = 0.0
        finally:
            for reader in readers.values():
                reader.close()

    def _compact_if_many(self) -> None:
        assert self._rows is not None
        if len(self._rows.delta) < max(self._compact_at, len(self._rows.base) // 4):
            return
        if self._ends is not None:  # nobody looks up yet, and memory must not grow with the topic
            self._compact()
        elif self._compacting is None or not self._compacting.is_alive():
            name = f"compact {self._source.topic}"
            self._compacting = threading.Thread(target=self._compact, name=name, daemon=True)
            self._compacting.start()

    def _open_readers(self, client: QueueClient, readers: dict[MessageQueue, QueueReader]) -> None:
        tried: set[str] = set()
        for queue in client.queues(self._source.topic, refresh=True):
            if queue in readers or queue.broker in tried:
                continue
            try:
                if queue not in self._positions:
                    oldest = client.min_offset(queue)
                    self._positions[queue] = max(oldest, self._covered.get(_name(queue), 0))
                if self._ends is not None:
                    self._ends[queue] = client.max_offset(queue)
                    if self._positions[queue] > self._ends[queue]:  # the topic was created anew
                        raise LocalError(
                            f"{queue} ends at {self._ends[queue]}, but the table's files have its rows up to "
                            f"{self._positions[queue]}: it is another topic now; remove {self._store.folder}"
                        )
                readers[queue] = client.open_reader(queue, self._positions[queue], message_filter=MessageFilter("*"))
            except RmqioError as error:
                tried.add(queue.broker)
                self._note_away(queue.broker, error)

    def _note_away(self, broker: str, error: RmqioError) -> None:
        """Logs that a broker does not answer, now and then. Raises the error at the start, or if it will stay."""
        if not self._is_ready.is_set() or isinstance(error, LocalError):
            raise error
        now = time.monotonic()
        if now - self._logged.get(broker, -_LOG_S) >= _LOG_S:
            self._logged[broker] = now
            _LOGGER.warning("table of %s: rows of %s stay as they are: %s", self._source.shown, broker, error)

    def _poll(self, client: QueueClient, queue: MessageQueue, reader: QueueReader) -> bool:
        try:
            fetched = reader.poll()
        except OffsetOutOfRange as error:  # retention was faster
            start = client.min_offset(queue)
            _LOGGER.warning("table of %s: %s; it goes on at %d", self._source.shown, error, start)
            with self._lock:
                self._positions[queue] = start
            reader.seek(start)
            return False
        if fetched is None:
            return False
        self._take(queue, fetched)
        return fetched.next_offset >= fetched.max_offset

    def _take(self, queue: MessageQueue, fetched: FetchedBatch) -> None:
        for corrupt in fetched.corrupt:
            self._refuse(str(corrupt))
        changes = []
        for record, change in zip(fetched.records, self._decoding.changes(fetched.records), strict=True):
            if isinstance(change, BadRow):
                self._refuse(f"{queue}, offset {record.queue_offset}: {change}")
            else:
                changes.append(change)
        with self._lock:
            assert self._rows is not None
            rows, covered = self._rows, self._covered.get(_name(queue), 0)
            for change in changes:
                if change.offset >= covered:  # else files of another process have it, and perhaps a newer one
                    rows.delta[self._deleted(rows, change) if change.row is None else change.key] = change
            self._positions[queue] = fetched.next_offset

    @staticmethod
    def _deleted(rows: LiveRows, change: Change) -> Any:
        if rows.get_one(change.key) in (None, NotImplemented) and rows.get_one(unescaped(change.key)) is not None:
            return unescaped(change.key)
        return change.key

    def _refuse(self, reason: str) -> None:
        """Raises `LocalError`, unless the table skips what is bad."""
        if self._source.on_bad_row == "error":
            raise LocalError(f'{reason}; on_bad_row="skip" leaves such messages out')
        _LOGGER.warning("table of %s: a message is left out: %s", self._source.shown, reason)


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker}/{queue.queue_id}"
