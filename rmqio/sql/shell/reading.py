"""Reads topics for a SELECT with a plain client, and without committing anything: rows come as they are stored.

The messages that a topic holds come in the order of their store time, later ones as they arrive.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rmqio.errors import OffsetOutOfRange, RmqioError
from rmqio.interfaces import FetchedBatch, OffsetLookup, QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Mapped
from rmqio.sql.compile.emitter import placed
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import SqlError
from rmqio.sql.shell.plans import Bounds, Branch
from rmqio.start import resolve_all, unread

Row = tuple[Any, ...]
_WAIT_MS: Final = 100
_DISCOVERY_ROUNDS: Final = 100
"""The number of waits after which new queues are looked for."""
_MOST_WAITING: Final = 5_000
"""Rows of a queue that wait for older ones of another queue."""


class _Item(NamedTuple):
    """A row, or why there is none, with its place in time."""

    time_ms: int
    queue: MessageQueue
    offset: int
    number: int
    row: Row | None
    error: Exception | None = None
    is_fatal: bool = False
    """Whether the error ends the query."""


class RowReader:
    """The rows of the parts of a SELECT that need no runner.

    Args:
      parts: what is computed of which table.
      bounds: where tables begin and end.
      clients: gives the client for a table.
      note: takes remarks about what was left out.
    """

    def __init__(
        self,
        parts: Sequence[Branch],
        bounds: Bounds,
        clients: Callable[[Table], QueueClient],
        note: Callable[[str], object],
    ) -> None:
        self._constants = [each.fragment for each in parts if each.table is None]
        by_table: dict[int, tuple[Table, list[Branch]]] = {}
        for each in parts:
            if each.table is not None:
                by_table.setdefault(id(each.table), (each.table, []))[1].append(each)
        self._tables = [
            _TableReader(table, [compiled(each.fragment) for each in found], bounds, clients(table), note)
            for table, found in by_table.values()
        ]
        self._note = note

    def rows(self) -> Generator[list[Row], None, None]:
        """Yields rows as they come; also an empty list when none has come for a while. Raises `SqlError`."""
        for number, fragment in enumerate(self._constants, 1):
            mapped = compiled(fragment)([()])
            for error in mapped.failed.values():
                raise SqlError(str(placed(error, number, len(self._constants))))
            yield list(mapped.values)
        left_out = 0
        try:
            for each in self._tables:
                each.open()
            while pending := [each for each in self._tables if not each.is_done()]:
                for each in pending:
                    each.fetch(_WAIT_MS // len(pending))
                found = []
                failed = None
                for item in heapq.merge(*[each.take() for each in pending], key=_order):
                    if item.row is not None:
                        found.append(item.row)
                        continue
                    if item.is_fatal:
                        failed = item
                        break
                    if left_out == 0:
                        self._note(f"left out: {_place(item)}: {item.error}")
                    left_out += 1
                yield found
                if failed is not None:
                    raise SqlError(f"{_place(failed)}: {failed.error}; 'on-error' = 'skip' would leave it out")
        finally:
            for each in self._tables:
                each.close()
            if left_out > 1:
                self._note(f"{left_out:,} bad rows were left out")


def _order(item: _Item) -> tuple[Any, ...]:
    return item[:4]


def _place(item: _Item) -> str:
    return f"{item.queue}, offset {item.offset}"


class _TableReader:
    """The rows of one table."""

    def __init__(
        self,
        table: Table,
        fragments: Sequence[Callable[..., Mapped]],
        bounds: Bounds,
        client: QueueClient,
        note: Callable[[str], object],
    ) -> None:
        options = table.options
        self._table, self._fragments, self._bounds, self._client, self._note = table, fragments, bounds, client, note
        self._filter = MessageFilter(options.sql, sql=True) if options.sql else MessageFilter(options.tag or "*")
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._waiting: dict[MessageQueue, deque[_Item]] = {}
        self._known: set[MessageQueue] = set()
        self._ends: dict[MessageQueue, int] = {}
        """The ends of queues that have one."""
        self._stored: dict[MessageQueue, int] = {}
        """The ends of queues when they were found: the messages before come in order of time."""
        self._rounds = 0

    def open(self) -> None:
        topic, group = self._table.options.topic or "", self._table.options.group
        queues = list(self._client.queues(topic, refresh=True))
        start, stop = self._bounds.start_of(self._table), self._bounds.stop_of(self._table)
        if stop is not None and start.may_begin_at_end:

            def begins_at_end(queue: MessageQueue, lookup: OffsetLookup) -> bool:
                return start.begins_at_end(queue, lookup, group)

            why = unread(
                topic,
                queues,
                self._client,
                begins_at_end=begins_at_end,
                stop=stop.resolve,
                group=group if start.needs_group else None,
                advice="SET 'scan.startup.mode' = 'earliest-offset'",
            )
            if why:
                self._note(why)
        self._open(queues, is_first=True)

    def _open(self, queues: list[MessageQueue], *, is_first: bool) -> None:
        group = self._table.options.group
        start, stop = self._bounds.start_of(self._table), self._bounds.stop_of(self._table)

        def resolve(queue: MessageQueue, lookup: OffsetLookup) -> tuple[int, int | None, int]:
            end = lookup.max_offset(queue)
            begin = start.resolve(queue, lookup, group=group, on_out_of_range="earliest")
            if not is_first:
                begin = lookup.min_offset(queue)
            return begin, stop.resolve(queue, lookup) if stop is not None else None, end

        found: Mapping[MessageQueue, tuple[int, int | None, int] | RmqioError] = resolve_all(
            queues, self._client, resolve
        )
        for queue, answer in found.items():
            if isinstance(answer, RmqioError):
                raise answer
            begin, stop_at, end = answer
            self._known.add(queue)
            self._stored[queue] = end
            if stop_at is not None:
                self._ends[queue] = stop_at
                if begin >= stop_at:
                    continue
            self._waiting[queue] = deque()
            self._readers[queue] = self._client.open_reader(queue, begin, message_filter=self._filter)

    def is_done(self) -> bool:
        """Whether everything was read and taken. A table without an end is never done."""
        return self._bounds.stop_of(self._table) is not None and not self._readers and not any(self._waiting.values())

    def fetch(self, timeout_ms: int) -> None:
        """Waits for messages, and computes their rows."""
        free = [each for queue, each in self._readers.items() if len(self._waiting[queue]) < _MOST_WAITING]
        if free:
            self._client.wait(free, timeout_ms)
        for reader in free:
            self._poll(reader)
        self._rounds += 1
        if self._rounds % _DISCOVERY_ROUNDS == 0 and self._bounds.stop_of(self._table) is None:
            now = set(self._client.queues(self._table.options.topic or ""))
            if new := sorted(now - self._known):
                self._open(new, is_first=False)

    def _poll(self, reader: QueueReader) -> None:
        queue = reader.queue
        try:
            fetched = reader.poll()
        except OffsetOutOfRange as error:
            if error.minimum == error.maximum == 0 or error.wanted > error.maximum:
                raise SqlError(f"{queue}: the topic was deleted, recreated or truncated") from error
            self._note(f"{queue}: offsets {error.wanted} to {error.minimum - 1} were deleted by retention")
            reader.seek(error.minimum)
            return
        if fetched is not None:
            self._add(queue, fetched)
        end = self._ends.get(queue)
        if end is not None and (reader.position >= end or (fetched is None and reader.is_at_end)):
            self._readers.pop(queue).close()

    def _add(self, queue: MessageQueue, fetched: FetchedBatch) -> None:
        end = self._ends.get(queue)
        records = [each for each in fetched.records if end is None or each.queue_offset < end]
        last_ms = records[0].store_timestamp_ms if records else 0
        items: list[_Item] = []
        for corrupt in fetched.corrupt:
            if end is None or corrupt.queue_offset < end:
                items.append(self._failed(last_ms, queue, corrupt.queue_offset, 0, corrupt))
        for number, fragment in enumerate(self._fragments):
            mapped = fragment(records)
            for row, at in zip(mapped.values, mapped.positions, strict=True):
                record = records[at]
                items.append(_Item(record.store_timestamp_ms, queue, record.queue_offset, number, row))
            for at, error in mapped.failed.items():
                record = records[at]
                items.append(self._failed(record.store_timestamp_ms, queue, record.queue_offset, number, error))
        self._waiting[queue].extend(sorted(items, key=lambda each: (each.offset, each.number)))

    def _failed(self, time_ms: int, queue: MessageQueue, offset: int, number: int, error: Exception) -> _Item:
        is_fatal = self._table.options.on_error == "fail"
        return _Item(time_ms, queue, offset, number, None, error, is_fatal)

    def take(self) -> Iterator[_Item]:
        """Yields the rows that can be printed: none that a message can precede which the topic held at the start."""
        while True:
            first: _Item | None = None
            for queue, waiting in self._waiting.items():
                if waiting:
                    first = waiting[0] if first is None else min(first, waiting[0])
                elif (reader := self._readers.get(queue)) and reader.position < self._stored[queue]:
                    return
            if first is None:
                return
            self._waiting[first.queue].popleft()
            yield first

    def close(self) -> None:
        for each in self._readers.values():
            each.close()
        self._readers.clear()
