"""A compacted topic as a table: the newest row of each key, read from the start and kept up to date.

A thread reads all queues. A message replaces the row with its primary key; a message without a body deletes it, and its
first key says which one, as `INSERT INTO` writes it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError
from rmqio.interfaces import FetchedBatch, QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.sql.compile.casts import text_of
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import SqlError
from rmqio.sql.lookup.definition import Dimension
from rmqio.sql.lookup.table import Row, key_maker
from rmqio.sql.planning.plan import Field
from rmqio.sql.runtime.writes.messages import row_key

_WAIT_MS: Final = 200
_ROUTE_S: Final = 15.0
"""How often new queues are looked for."""
_STOP_S: Final = 5.0
_PAUSE_S: Final = 2.0
"""The time between an error of a broker and the next try."""
_LOG_S: Final = 60.0
_LOGGER: Final = logging.getLogger(__name__)


class TopicTable:
    """See `LookupTable` and `Live`. The dimension's table has a primary key."""

    def __init__(self, dimension: Dimension) -> None:
        self._dimension = dimension
        self._rows = _UpsertRows(dimension)
        self._positions: dict[MessageQueue, int] = {}
        self._logged: dict[str, float] = {}
        """When it was logged that a broker does not answer. The queues of others go on."""
        self._ends: dict[MessageQueue, int] | None = None
        """Ends of the queues at the start; None: the table is as new as they were."""
        self._is_ready = threading.Event()
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"read {dimension.table.name}", daemon=True)

    def start(self) -> None:
        """Reads what the topic holds now. Raises `RmqioError` if that is not possible."""
        self._ends = {}
        self._thread.start()
        self._is_ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """See `Live.stop`."""
        self._stopped.set()
        self._thread.join(_STOP_S)

    def get(self, key: Any) -> Sequence[Row]:
        """See `LookupTable.get`. Raises `SqlError` if a row that came meanwhile is bad."""
        if self._error is not None:
            raise SqlError(f"the dimension table {self._dimension.table.name} cannot be kept up to date: {self._error}")
        return self._rows.get(key)

    def rows(self) -> Iterator[Row]:
        """See `LookupTable.rows`."""
        return self._rows.rows()

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read_for_ever()
        except Exception as error:  # noqa: BLE001  # whoever looks up gets it
            self._error = error
        finally:
            self._is_ready.set()

    def _read_for_ever(self) -> None:
        assert self._dimension.factory is not None
        client = self._dimension.factory.queue_client()
        try:
            while not self._stopped.is_set():
                try:
                    self._read(client)
                except RmqioError as error:
                    if not self._is_ready.is_set() or isinstance(error, LocalError):
                        raise
                    _LOGGER.warning("dimension %s: %s", self._dimension.table.name, error)
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
                    self._open(client, readers)
                    next_look = time.monotonic() + _ROUTE_S
                for queue, reader in list(readers.items()):
                    try:
                        self._poll(client, queue, reader)
                    except RmqioError as error:
                        self._note_away(queue.broker, error)
                        readers.pop(queue).close()
                if self._ends is not None and all(self._positions[each] >= end for each, end in self._ends.items()):
                    self._ends = None
                    self._is_ready.set()
                if readers:
                    client.wait(readers.values(), _WAIT_MS)
                else:
                    self._stopped.wait(_PAUSE_S)
                    next_look = 0.0
        finally:
            for reader in readers.values():
                reader.close()

    def _open(self, client: QueueClient, readers: dict[MessageQueue, QueueReader]) -> None:
        options = self._dimension.table.options
        wanted = MessageFilter(options.sql or options.tag or "*", sql=options.sql is not None)
        tried: set[str] = set()
        for queue in client.queues(options.topic or "", refresh=True):
            if queue in readers or queue.broker in tried:
                continue
            try:
                if queue not in self._positions:
                    self._positions[queue] = client.min_offset(queue)
                if self._ends is not None:
                    self._ends[queue] = client.max_offset(queue)
                readers[queue] = client.open_reader(queue, self._positions[queue], message_filter=wanted)
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
            _LOGGER.warning("dimension %s: rows of %s stay as they are: %s", self._dimension.table.name, broker, error)

    def _poll(self, client: QueueClient, queue: MessageQueue, reader: QueueReader) -> None:
        try:
            fetched = reader.poll()
        except OffsetOutOfRange as error:  # retention was faster, or the topic was created anew
            start = client.min_offset(queue)
            _LOGGER.warning("dimension %s: %s; it goes on at %d", self._dimension.table.name, error, start)
            self._positions[queue] = start
            reader.seek(start)
            return
        if fetched is not None:
            self._take(fetched)
            self._positions[queue] = fetched.next_offset

    def _take(self, fetched: FetchedBatch) -> None:
        for corrupt in fetched.corrupt:
            self._rows.refuse(str(corrupt), corrupt)
        tags = MessageFilter(self._dimension.table.options.tag or "*").tag_set  # the broker compares only hashes
        self._rows.update([each for each in fetched.records if not tags or each.tags in tags])


class _UpsertRows:
    """The newest row of each primary key, and the rows by the key of the look-up. One thread changes them."""

    def __init__(self, dimension: Dimension) -> None:
        table = dimension.table
        columns = list(dimension.columns)
        for name in table.primary_key:
            column = table.column(name)
            assert column is not None
            if column not in columns:
                columns.append(column)
        fields = tuple(Field(each.name, each.type) for each in columns)
        self._decode = compiled(Fragment(FromTable(table, tuple(columns)), (), ToRows(), dimension.zone))
        self._compute = compiled(Fragment(FromRows(fields), dimension.steps, ToRows(), dimension.zone))
        names = [each.name for each in columns]
        self._primary = [(names.index(each), text_of(fields[names.index(each)].type)) for each in table.primary_key]
        kinds = [dimension.fields[each].type for each in dimension.keys]
        self._key_of = key_maker(kinds, dimension.keys)
        self._name, self._skips = table.name, table.options.on_error == "skip"
        self._by_primary: dict[str, Row] = {}
        self._by_key: dict[Any, Any] = {}

    def get(self, key: Any) -> Sequence[Row]:
        found = self._by_key.get(key)
        if found is None:
            return ()
        return found if type(found) is list else (found,)

    def rows(self) -> Iterator[Row]:
        return iter(list(self._by_primary.values()))

    def update(self, records: Sequence[Record]) -> None:
        """Takes messages in order. Raises `LocalError` for a bad row, unless the table skips them."""
        decoded = self._decode([each for each in records if each.body])
        computed = self._compute(decoded.values)
        rows: dict[int, tuple[Row, Row | None]] = {}
        by_position = dict(zip(computed.positions, computed.values, strict=True))
        for number, (place, given) in enumerate(zip(decoded.positions, decoded.values, strict=True)):
            error = computed.failed.get(number)
            if error is None:
                rows[place] = given, by_position.get(number)
            else:
                decoded.failed[place] = error
        number = 0
        for record in records:
            if not record.body:
                self._delete(record)
                continue
            if number in decoded.failed:
                self.refuse(f"{record.queue}, offset {record.queue_offset}: {decoded.failed[number]}")
            else:
                given, row = rows[number]
                self._put(record, given, row)
            number += 1

    def refuse(self, reason: str, cause: Exception | None = None) -> None:
        """Raises `LocalError`, unless the table skips what is bad."""
        if not self._skips:
            raise LocalError(reason) from cause
        _LOGGER.warning("dimension %s: a row is left out: %s", self._name, reason)

    def _delete(self, record: Record) -> None:
        if not record.keys:
            self.refuse(f"{record.queue}, offset {record.queue_offset}: a message without a body deletes a row, and "
                        "this one has no key that says which")  # fmt: skip
            return
        self._replace(record.keys[0], None)

    def _put(self, record: Record, given: Row, row: Row | None) -> None:
        if any(given[place] is None for place, _ in self._primary):
            self.refuse(f"{record.queue}, offset {record.queue_offset}: a column of the PRIMARY KEY is NULL")
            return
        self._replace(row_key(tuple(text(given[place]) for place, text in self._primary)), row)

    def _replace(self, primary: str, row: Row | None) -> None:
        """Each change is one store into a dict, so that threads that look up see the old rows or the new ones."""
        old = self._by_primary.pop(primary, None)
        if row is not None:
            self._by_primary[primary] = row
        old_key = None if old is None else self._key_of(old)
        new_key = None if row is None else self._key_of(row)
        if old_key is not None and old_key != new_key:
            self._store(old_key, [each for each in self.get(old_key) if each is not old])
        if new_key is not None:
            others = [each for each in self.get(new_key) if each is not old]
            self._store(new_key, sorted([*others, row], key=repr) if others else [row])

    def _store(self, key: Any, rows: list[Any]) -> None:
        if not rows:
            self._by_key.pop(key, None)
        else:
            self._by_key[key] = rows if len(rows) > 1 else rows[0]
