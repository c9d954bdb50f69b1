"""A compacted topic as a table: the newest row of each key, read from the start and kept up to date.

New rows are in memory until they are many; then they and the files become new files, which say up to which offsets they
go: another process, or the next start, goes on there.
"""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqio.enrich.following import Follower
from rmqio.enrich.sources import Topic, arrow_type
from rmqio.enrich.store import Pointer, Store, Wanted
from rmqio.enrich.table.kinds import cut_at, require_key, shown_fraction, stored
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError, SerdeError
from rmqio.interfaces import FetchedBatch
from rmqio.model import KEYS, MessageQueue, Record
from rmqio.serde.base import error_of_record
from rmqio.serde.strict_json import json_value

# From messages of a topic to rows with the types of a table, and deletions.


class Change(NamedTuple):
    """A row that replaces another one, or None if it is deleted."""

    key: Any
    row: tuple[Any, ...] | None
    queue: str
    offset: int


class BadRow(SerdeError):
    """A message that is not a row."""


class _CutError(ValueError):
    """A float for a column of integers, which Arrow would cut."""


class Decoding:
    """Makes changes of records. `schema`: the columns of the key and those of the table."""

    def __init__(self, wanted: Wanted) -> None:
        source = wanted.table.source
        assert isinstance(source, Topic)
        types = dict(source.types)
        self.keys = wanted.spec.keys
        columns = wanted.spec.columns
        if columns is None:
            columns = tuple(name for name in types if name not in self.keys)
        if not columns:
            raise LocalError(f"the columns of {source.shown} are unknown: name them with columns or types")
        self.columns = columns
        names = dict.fromkeys((*self.keys, *columns))
        self.kinds = {name: arrow_type(types.get(name, "string"), name) for name in names}
        for name in self.keys:
            require_key(name, stored(pa.array([], self.kinds[name])).type)
        self.schema = pa.schema(list(self.kinds.items()))
        self._deserializer = source.deserializer

    def changes(self, records: Sequence[Record]) -> Iterator[Change | BadRow]:
        """Yields a change for each record in order, or what is wrong with it."""
        values: list[Any] = [self._value(record) for record in records]
        rows = [each for each in values if isinstance(each, dict)]
        try:
            typed: list[Any] = self._typed(rows)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
            typed = [self._one(each) for each in rows]
        made = iter(typed)
        for record, value in zip(records, values, strict=True):
            found = next(made) if isinstance(value, dict) else value
            yield self._change(record, found)

    def _value(self, record: Record) -> Any:
        """A dict, None for a deletion, or what is wrong."""
        if not record.body:
            return None
        try:
            found = json_value(record.body) if self._deserializer is None else self._deserializer(record)
        except Exception as error:  # noqa: BLE001  # a user's function can raise anything
            return BadRow(str(error_of_record(error, self._deserializer)))
        if not isinstance(found, dict):
            found = found._asdict() if hasattr(found, "_asdict") else found
        return found if isinstance(found, dict) else BadRow(f"it is {type(found).__name__}, and no object")

    def _typed(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        columns = [stored(_array([row.get(name) for row in rows], kind)) for name, kind in self.kinds.items()]
        return [
            dict(zip(self.kinds, each, strict=True)) for each in zip(*(c.to_pylist() for c in columns), strict=True)
        ]

    def _one(self, row: dict[str, Any]) -> Any:
        for name, kind in self.kinds.items():
            try:
                _array([row.get(name)], kind)
            except _CutError as error:
                return BadRow(f"its field {name} is {error}: send an integer, or declare another type")
            except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
                return BadRow(f"its field {name} is {type(row.get(name)).__name__}, and no {kind}")
        return self._typed([row])[0]

    def _change(self, record: Record, found: Any) -> Change | BadRow:
        queue = f"{record.broker}/{record.queue_id}"
        if isinstance(found, BadRow):
            return found
        if found is None:
            try:
                return Change(self._key_of_text(record), None, queue, record.queue_offset)
            except BadRow as error:
                return error
        parts = [found[name] for name in self.keys]
        if None in parts:
            return BadRow(f"its {self.keys[parts.index(None)]}, a part of the key, is null")
        key = parts[0] if len(parts) == 1 else tuple(parts)
        return Change(key, tuple(found[name] for name in self.columns), queue, record.queue_offset)

    def _key_of_text(self, record: Record) -> Any:
        text, *_ = (record.get_property(KEYS) or "").split(" ")
        if not text:
            raise BadRow("it has no body, so it deletes a row, but it has no key: send it with the row's key")
        parts = [text] if len(self.keys) == 1 else text.split("_")
        if len(parts) != len(self.keys):
            raise BadRow(f"it deletes a row, and its key {text!r} does not have {len(self.keys)} parts")
        try:
            found = [
                _array([each], self.kinds[name], is_text=True)[0].as_py()
                for each, name in zip(parts, self.keys, strict=True)
            ]
        except (pa.ArrowException, ValueError) as error:
            raise BadRow(f"it deletes a row, and its key {text!r} is of another type: {error}") from error
        return found[0] if len(found) == 1 else tuple(found)


def _array(values: list[Any], kind: pa.DataType, *, is_text: bool = False) -> pa.Array:
    """The values as an array. JSON has no dates and times: text stands for them, as for decimals. `is_text`: always."""
    if pa.types.is_decimal(kind):
        values = [Decimal(repr(each)) if isinstance(each, float) else each for each in values]  # with all digits
    if (place := cut_at(values, kind)) is not None:
        raise _CutError(f"{shown_fraction(values[place])}, which {kind} would cut")
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError):
        is_simple = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
        if (is_simple and not is_text) or not all(each is None or isinstance(each, str) for each in values):
            raise
        return pa.array(values, pa.string()).cast(kind)


def unescaped(key: Any) -> Iterator[Any]:
    """Yields what a key can stand for: first as `INSERT INTO` of SQL encodes it, then as it is.

    SQL percent-encodes white space, `%` and, in a key of several columns, `_`; `%00` is empty text. Other writers do
    not, so a text that looks encoded can also mean itself.
    """
    if isinstance(key, tuple):
        yield from itertools.product(*map(_readings, key))
    else:
        yield from _readings(key)


def _readings(part: Any) -> Iterable[Any]:
    if not isinstance(part, str) or "%" not in part:
        return (part,)
    return ("" if part == "%00" else unquote(part), part)


# Rows of a table in files, and those that replace them.


class LiveRows:
    """See `MappedTable`. The thread that reads changes `delta` by single stores, so that a look-up needs no lock."""

    def __init__(self, base: MappedTable, delta: dict[Any, Change]) -> None:
        self.base, self.delta = base, delta
        self.columns = base.columns
        self.key_types = base.key_types
        self.type_of = base.type_of

    def get(self, keys: list[Any], times: list[int] | None = None, *, many: bool = False) -> list[Any]:
        found = self.base.get(keys, times, many=many)
        delta = self.delta
        if delta:
            for place, key in enumerate(keys):
                if found[place] is not NotImplemented and (change := delta.get(key)) is not None:
                    found[place] = _shown(change, many)
        return found

    def get_one(self, key: Any, time: int | None = None, *, many: bool = False) -> Any:
        found = self.base.get_one(key, time, many=many)
        if found is not NotImplemented and (change := self.delta.get(key)) is not None:
            return _shown(change, many)
        return found


def _shown(change: Change, many: bool) -> Any:
    return change.row if change.row is None or not many else [change.row]


def merged(base: MappedTable, changes: list[Change], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table with changes."""
    names = base.manifest.keys
    changed = {each.key for each in changes}
    for batch in base.batches():
        if len(names) == 1:
            column = batch.column(names[0])
            keep = pc.invert(pc.is_in(column, value_set=pa.array(list(changed), column.type)))
        else:
            keys = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            keep = pa.array(np.fromiter((each not in changed for each in keys), bool, batch.num_rows))
        kept = batch.filter(keep)
        columns = [kept.column(each.name) for each in schema]
        decoded = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in columns]
        yield pa.RecordBatch.from_arrays(decoded, names=schema.names)
    rows = [_fields(each, names, base.columns) for each in changes if each.row is not None]
    yield pa.RecordBatch.from_arrays(
        [pa.array([row[f.name] for row in rows], f.type) for f in schema], names=schema.names
    )


def _fields(change: Change, keys: tuple[str, ...], columns: tuple[str, ...]) -> dict[str, Any]:
    assert change.row is not None
    parts = (change.key,) if len(keys) == 1 else change.key
    return {**dict(zip(columns, change.row, strict=True)), **dict(zip(keys, parts, strict=True))}


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
