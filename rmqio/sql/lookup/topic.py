"""A compacted topic as a table: the newest row of each key, read from the start and kept up to date.

A message replaces the row with its primary key; a message without a body deletes it, and its first key says which one,
as `INSERT INTO` writes it. Rows are in memory: they are looked up by any column, and `rmqio.enrich.live` by the primary
key only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqio.enrich.following import Follower
from rmqio.errors import LocalError
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageFilter, MessageQueue, Record
from rmqio.sql.casts import key_text_of
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.compile.look_ups import Dimension, Row, key_maker
from rmqio.sql.compile.messages import row_key
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.plan import Field

_LOGGER: Final = logging.getLogger(__name__)


class TopicTable:
    """See `Live` and `Taker` of `rmqio.enrich`. The dimension's table has a primary key."""

    def __init__(self, dimension: Dimension) -> None:
        assert dimension.factory is not None
        options = dimension.table.options
        self._dimension = dimension
        self._rows = _UpsertRows(dimension)
        self._next: _UpsertRows | None = None
        self._tags = MessageFilter(options.tag or "*").tag_set  # the broker compares only hashes
        wanted = MessageFilter(options.sql or options.tag or "*", sql=options.sql is not None)
        title = f"dimension {dimension.table.name}"
        self._follower = Follower(options.topic or "", title, dimension.factory, self, wanted)

    def start(self) -> None:
        """See `Live.start`."""
        self._follower.start()

    def stop(self) -> None:
        """See `Live.stop`."""
        self._follower.stop()

    def now(self) -> tuple[TopicTable, float]:
        """See `Live.now`."""
        return self, self._follower.fresh_at

    def get(self, key: Any) -> Sequence[Row]:
        """Returns the rows of a key. Raises `SqlError` if a row that came meanwhile is bad."""
        error = self._follower.error
        if error is not None:
            raise SqlError(f"the dimension table {self._dimension.table.name} cannot be kept up to date: {error}")
        return self._rows.get(key)

    # ---- messages ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """See `Taker.begin`."""

    def begin_anew(self) -> None:
        """See `Taker.begin_anew`."""
        self._next = _UpsertRows(self._dimension)

    def first(self, queue: MessageQueue, oldest: int) -> int:
        """See `Taker.first`."""
        return oldest

    def require_known(self, ends: Mapping[MessageQueue, int]) -> None:
        """See `Taker.require_known`: nothing says how many queues there are."""

    def take(self, queue: MessageQueue, fetched: FetchedBatch) -> None:
        """See `Taker.take`."""
        rows = self._next or self._rows
        for corrupt in fetched.corrupt:
            rows.refuse(str(corrupt), corrupt)
        rows.update([each for each in fetched.records if not self._tags or each.tags in self._tags])

    def rest(self, *, is_loading: bool) -> None:
        """See `Taker.rest`."""
        if self._next is not None and not is_loading:
            self._rows, self._next = self._next, None


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
        self._primary = [(names.index(each), key_text_of(fields[names.index(each)].type)) for each in table.primary_key]
        kinds = [dimension.fields[each].type for each in dimension.keys]
        self._key_of = key_maker(kinds, dimension.keys)
        self._name, self._skips = table.name, table.options.on_error == "skip"
        self._by_primary: dict[str, Row] = {}
        self._by_key: dict[Any, Any] = {}

    def get(self, key: Any) -> Sequence[Row]:
        found = self._by_key.get(key)
        if found is None:
            return ()
        return found.in_order() if type(found) is _Several else (found,)

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
        """Threads that look up a key see its old rows or the new ones."""
        old = self._by_primary.pop(primary, None)
        if row is not None:
            self._by_primary[primary] = row
        old_key = None if old is None else self._key_of(old)
        new_key = None if row is None else self._key_of(row)
        if old_key is not None and old_key == new_key:
            self._change(new_key, old, row)
            return
        if old_key is not None:
            self._change(old_key, old, None)
        if new_key is not None:
            self._change(new_key, None, row)

    def _change(self, key: Any, old: Row | None, new: Row | None) -> None:
        """Puts a row in the place of another one; None: there is none."""
        found = self._by_key.get(key)
        if type(found) is _Several:
            left = found.change(old, new)
            if left is not None:
                self._by_key[key] = left
        elif found is not None and old is None:
            self._by_key[key] = _Several(found, new)
        elif new is not None:
            self._by_key[key] = new
        else:
            self._by_key.pop(key, None)


class _Several:
    """The rows of a key, if there are several. They are ordered when somebody looks them up, and not with each row."""

    def __init__(self, *rows: Any) -> None:
        self._rows = {id(each): each for each in rows}
        self._ordered: list[Row] | None = None
        self._lock = threading.Lock()

    def change(self, old: Row | None, new: Row | None) -> Row | None:
        """Puts a row in the place of another one. Returns the row that is left, if it is the only one."""
        with self._lock:
            if old is not None:
                del self._rows[id(old)]
            if new is not None:
                self._rows[id(new)] = new
            self._ordered = None
            return next(iter(self._rows.values())) if len(self._rows) == 1 else None

    def in_order(self) -> list[Row]:
        """Returns the rows in an order that does not depend on how they came."""
        with self._lock:
            if self._ordered is None:
                self._ordered = sorted(self._rows.values(), key=repr)
            return self._ordered
