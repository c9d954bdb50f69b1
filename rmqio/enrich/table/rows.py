"""Rows on their way into a table: the columns that it needs, with their stored types."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqio.enrich.table.kinds import MAX_KEYS, require_key, stored
from rmqio.errors import LocalError
from rmqio.hints import meant_or_known

# Rows that are valid from a time and until another: both as microseconds since 1970 in UTC.

FROM: Final = "__from"
TO: Final = "__to"
FIRST: Final = -(1 << 63)
LAST: Final = (1 << 63) - 1


def periods(batch: pa.RecordBatch, name: str | None, open_end: int) -> pa.Array:
    """Returns the times of a column; `open_end` for nulls, and if there is no such column."""
    if name is None:
        return pa.array(np.full(batch.num_rows, open_end, np.int64))
    column = batch.column(name)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_null(kind):
        column = column.cast(pa.timestamp("us"))
    elif not pa.types.is_timestamp(kind):
        raise LocalError(f"the column {name} is {kind}; the times of validity are timestamps or dates")
    column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return pc.fill_null(column, open_end)


def until_next(batch: pa.RecordBatch, hashes: Any) -> pa.RecordBatch:
    """Returns rows in the order of their hash and start, each valid until the next one of its key begins."""
    starts = np.asarray(batch.column(FROM))
    ends = np.full(len(starts), LAST, np.int64)
    same = hashes[1:] == hashes[:-1]
    ends[:-1][same] = starts[1:][same]
    return batch.set_column(batch.schema.get_field_index(TO), TO, pa.array(ends))


def require_apart(hashes: Any, starts: Any, ends: Any, shown: Any) -> None:
    """Raises `LocalError` if two rows of one key are valid at one time, or a row ends before it begins.

    The rows are in the order of their hash and their start. `shown`: the function from a position to its key.
    """
    if np.any(ends <= starts):
        place = int(np.flatnonzero(ends <= starts)[0])
        raise LocalError(f"the key {shown(place)} has a row that ends before it begins, or two that begin at once")
    both = (hashes[1:] == hashes[:-1]) & (starts[1:] < ends[:-1])
    if np.any(both):
        place = int(np.flatnonzero(both)[0])
        raise LocalError(
            f"the key {shown(place)} has two rows that are valid at {text_of(int(starts[place + 1]))}: periods of a "
            "key must not overlap"
        )


def text_of(microseconds: int) -> str:
    """Returns a time for a message."""
    if microseconds == FIRST:
        return "the beginning of time"
    try:
        return str(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=microseconds))
    except OverflowError:
        return f"{microseconds} us after 1970"


Key = str | Sequence[str] | Mapping[str, str]
"""Fields of an element that are the table's key; a mapping says for each what the table's column is called."""

DUPLICATES: Final = ("error", "first", "last", "all")
_MANY_BYTES: Final = 32 << 20
_MANY_ROWS: Final = 1 << 18


def key_fields(key: Key) -> dict[str, str]:
    """Returns the columns of the table by the fields of the element. Raises `LocalError` if a field is there twice."""
    if isinstance(key, Mapping):
        return dict(key)
    names = [key] if isinstance(key, str) else list(key)
    if len(set(names)) != len(names):
        raise LocalError(f"key names a field twice: {', '.join(map(str, names))}; name each once")
    return {each: each for each in names}


@dataclass(frozen=True, slots=True)
class Spec:
    """The key, the columns and the rows that are wanted.

    Attributes:
      keys: the columns of the key.
      columns: the columns that a look-up returns; None: all others.
      duplicates: of rows with one key: "error", "first", "last" or "all".
      valid_from, valid_to: the columns with the time from which and before which a row is valid; no `valid_to`: until
        the next row of its key; neither: always.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    duplicates: str = "error"
    valid_from: str | None = None
    valid_to: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.keys) <= MAX_KEYS:
            raise LocalError(f"a key has 1 to {MAX_KEYS} columns, but this one has {len(self.keys)}")
        for name, names in (("key", self.keys), ("columns", self.columns or ())):
            if len(set(names)) != len(names):
                raise LocalError(f"{name} names a column of the table twice: {', '.join(names)}; name each once")
        if self.columns == ():
            raise LocalError("columns is empty: name those that the look-up adds")
        if self.duplicates not in DUPLICATES:
            raise LocalError(f"duplicates is {self.duplicates!r}; it must be one of {', '.join(DUPLICATES)}")
        if self.valid_to is not None and self.valid_from is None:
            raise LocalError("valid_to needs valid_from: name the column with the time from which a row is valid")
        if self.has_times and self.duplicates != "error":
            raise LocalError("a table with valid_from and valid_to has one row at a time: leave duplicates out")

    @property
    def has_times(self) -> bool:
        """Whether a look-up takes a time."""
        return self.valid_from is not None

    @property
    def read(self) -> list[str] | None:
        """The columns that a source has to read; None: all."""
        if self.columns is None:
            return None
        times = [each for each in (self.valid_from, self.valid_to) if each is not None]
        return list(dict.fromkeys([*self.keys, *self.columns, *times]))


class Rows:
    """From batches of a source to those of the table: keys first, then columns, then times."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.columns: tuple[str, ...] = spec.columns or ()
        self.null_keys = 0
        self.coded: tuple[str, ...] = ()
        """Columns of text that are not keys."""
        self._schema: pa.Schema | None = None

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields batches of some size. A source without rows gives one batch without rows."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            made = self._made(batch)
            held.append(made)
            rows, size = rows + made.num_rows, size + made.nbytes
            if size >= _MANY_BYTES or rows >= _MANY_ROWS:
                yield self._joined(held)
                held, rows, size = [], 0, 0
        if self._schema is None:
            raise LocalError("the source of the table has neither rows nor columns")
        yield self._joined(held)

    def key_text(self, batch: pa.RecordBatch, place: int) -> str:
        """Returns the key of a row for a message."""
        return ", ".join(f"{name} = {batch.column(name)[place].as_py()!r}" for name in self.spec.keys)

    def _joined(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        assert self._schema is not None
        table = pa.Table.from_batches(batches, self._schema).combine_chunks()
        columns = [
            pa.concat_arrays(each.chunks) if each.num_chunks else pa.array([], each.type) for each in table.columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._schema is None:
            self._begin(batch.schema)
        names = dict.fromkeys((*self.spec.keys, *self.columns))
        columns = [stored(batch.column(self._place(batch.schema, name))) for name in names]
        named = list(names)
        if self.spec.has_times:
            columns += [periods(batch, self.spec.valid_from, FIRST), periods(batch, self.spec.valid_to, LAST)]
            named += [FROM, TO]
        made = pa.RecordBatch.from_arrays(columns, names=named)
        nulls = [made.column(name) for name in self.spec.keys if made.column(name).null_count]
        if nulls:
            is_null: Any = reduce(pc.or_, [pc.is_null(each) for each in nulls])
            self.null_keys += pc.sum(is_null).as_py()
            made = made.filter(pc.invert(is_null))
        if self._schema is None:
            self._require(made.schema)
            self._schema = pa.schema([pa.field(each.name, each.type) for each in made.schema])
            texts = [each.name for each in made.schema if pa.types.is_string(each.type)]
            self.coded = tuple(each for each in texts if each not in self.spec.keys)
        elif not made.schema.equals(self._schema):
            changed = [each.name for each, old in zip(made.schema, self._schema, strict=True) if each.type != old.type]
            raise LocalError(f"the column {changed[0]} has several types in the files of the table")
        return made

    def _begin(self, schema: pa.Schema) -> None:
        times = [each for each in (self.spec.valid_from, self.spec.valid_to) if each is not None]
        if self.spec.columns is None:
            self.columns = tuple(each for each in schema.names if each not in (*self.spec.keys, *times))
            if not self.columns:
                raise LocalError("the table has no columns besides its key")
        for name in (*self.spec.keys, *self.columns, *times):
            self._place(schema, name)

    @staticmethod
    def _place(schema: pa.Schema, name: str) -> int:
        places = schema.get_all_field_indices(name)
        if len(places) != 1:
            what = "has no column" if not places else "has several columns"
            raise LocalError(f"the table {what} {name}{'' if places else meant_or_known(name, schema.names)}")
        return int(places[0])

    def _require(self, schema: pa.Schema) -> None:
        for name in self.spec.keys:
            require_key(name, schema.field(name).type)
