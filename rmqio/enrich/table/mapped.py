"""A table in mapped memory, and looking up in it: with C, and slowly without."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqio.enrich.table import hashing, manifest, native
from rmqio.enrich.table.kinds import WRONG, Layout, converter_of, encoder_of, layout_of, name_of
from rmqio.enrich.table.manifest import BadTable, Manifest
from rmqio.enrich.table.native import Copies, copies_of
from rmqio.enrich.table.rows import FROM, TO
from rmqio.errors import LocalError
from rmqio.hints import meant_or_known

# Looking up without C: slow, and the reference for what `_look_table.c` does.

Column = tuple[int, int, Any, list[tuple[int, int, int]]]


class PlainTable:
    """Takes what `_look.Table` takes: the addresses of buffers that the owner keeps."""

    def __init__(
        self,
        owner: Any,
        seed: int,
        bucket_bits: int,
        part_bits: int,
        starts: int,
        prints: int,
        firsts: list[int],
        keys: list[Column],
        columns: list[Column],
        times: list[Column],
    ) -> None:
        self._owner = owner
        self._seed, self._bucket_bits = seed, bucket_bits
        self._starts = _numbers(starts, (1 << bucket_bits) + 1)
        self._prints = _numbers(prints, firsts[-1])
        self._firsts, self._keys, self._columns, self._times = firsts, keys, columns, times

    def get(self, keys: list[Any], times: list[int] | None, many: bool) -> list[Any]:
        """See `MappedTable.get`."""
        if (times is not None) != bool(self._times) or (times is not None and len(times) != len(keys)):
            raise ValueError("a table with rows by time needs a time for each key, and another one takes none")
        return [self.get_one(key, None if times is None else times[place], many) for place, key in enumerate(keys)]

    def get_one(self, key: Any, time: int | None, many: bool) -> Any:
        """See `MappedTable.get_one`."""
        if (time is not None) != bool(self._times):
            raise ValueError("a table with rows by time needs a time, and another one takes none")
        parts = (key,) if len(self._keys) == 1 else key
        if key is None:
            return None
        if type(parts) is not tuple or len(parts) != len(self._keys):
            return NotImplemented
        taken = [_taken(part, column) for part, column in zip(parts, self._keys, strict=True)]
        if any(each is NotImplemented for each in taken):
            return NotImplemented
        if any(each is None for each in taken):
            return None
        rows = self._rows(taken)
        if time is not None:
            rows = [row for row in rows if self._is_valid(row, time)]
        if not rows:
            return None
        return [self._row(each) for each in rows] if many else self._row(rows[0])

    def _rows(self, parts: list[Any]) -> list[int]:
        arrays = [pa.array([each], _word_type(each)) for each in parts]
        hashed = int(hashing.hashes_of(arrays, self._seed)[0])
        bucket = hashed >> (64 - self._bucket_bits) if self._bucket_bits else 0
        print_ = (hashed << self._bucket_bits) % (1 << 64) >> 32
        first, last = int(self._starts[bucket]), int(self._starts[bucket + 1])
        return [row for row in range(first, last) if int(self._prints[row]) == print_ and self._is_key(row, parts)]

    def _place(self, row: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._firsts, row, side="right")) - 1
        return part, row - self._firsts[part]

    def _is_key(self, row: int, parts: list[Any]) -> bool:
        part, local = self._place(row)
        return all(_raw(column, part, local) == wanted for column, wanted in zip(self._keys, parts, strict=True))

    def _is_valid(self, row: int, time: int) -> bool:
        part, local = self._place(row)
        start, end = (_raw(each, part, local) for each in self._times)
        return bool(start <= time < end)

    def _row(self, row: int) -> tuple[Any, ...]:
        part, local = self._place(row)
        return tuple(_value(column, part, local) for column in self._columns)


class NoRows:
    """A table whose key has no type, since its source has no rows: no key has another type than the table's."""

    def __init__(self, *arguments: Any) -> None:
        del arguments

    def get(self, keys: list[Any], times: list[int] | None, many: bool) -> list[Any]:
        """See `MappedTable.get`."""
        return [None] * len(keys)

    def get_one(self, key: Any, time: int | None, many: bool) -> Any:
        """See `MappedTable.get_one`."""
        return None


def _word_type(value: Any) -> pa.DataType:
    if not isinstance(value, int):
        return pa.binary()
    return pa.int64() if value < 1 << 63 else pa.uint64()


def _taken(value: Any, column: Column) -> Any:
    """A part of a key as the table has it: bytes or a number. None: no row has it; NotImplemented: another type."""
    layout, size = column[0], column[1]
    if value is None:
        return None
    if layout == Layout.TEXTS:
        if not isinstance(value, str):
            return NotImplemented
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None
    if layout in (Layout.BYTES, Layout.FIXED):
        if not isinstance(value, bytes):
            return NotImplemented
        return None if layout == Layout.FIXED and len(value) != size else value
    if layout == Layout.BITS:
        return int(value) if isinstance(value, bool) else NotImplemented
    if isinstance(value, bool) or not isinstance(value, int):
        return NotImplemented
    least, end = (0, 1 << 64) if layout == Layout.UNSIGNED else (-(1 << 63), 1 << 63)
    return value if least <= value < end else None


def _value(column: Column, part: int, row: int) -> Any:
    layout, _, extra, pieces = column
    if layout == Layout.OTHERS:
        return extra(part, row)
    validity = pieces[part][0]
    if validity and not ctypes.string_at(validity + (row >> 3), 1)[0] >> (row & 7) & 1:
        return None
    found = _raw(column, part, row)
    if layout == Layout.TEXTS:
        return found.decode()
    if layout == Layout.BITS:
        return bool(found)
    if layout == Layout.CODES:
        return extra[found]
    return found if extra is None else extra(found)


def _raw(column: Column, part: int, row: int) -> Any:
    layout, size, _, pieces = column
    _, values, data = pieces[part]
    if layout in (Layout.TEXTS, Layout.BYTES):
        start, end = np.frombuffer(ctypes.string_at(values + 4 * row, 8), np.int32).tolist()
        return ctypes.string_at(data + start, end - start) if end > start else b""
    if layout == Layout.FIXED:
        return ctypes.string_at(values + size * row, size)
    if layout == Layout.BITS:
        return ctypes.string_at(values + (row >> 3), 1)[0] >> (row & 7) & 1
    raw = ctypes.string_at(values + size * row, size)
    if layout == Layout.FLOATS:
        return float(np.frombuffer(raw, np.float32 if size == 4 else np.float64)[0])
    return int.from_bytes(raw, "little", signed=layout != Layout.UNSIGNED)


def _numbers(address: int, count: int) -> Any:
    if not count:
        return np.zeros(0, np.uint32)
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint32)), (count,))


Row = tuple[Any, ...]


class MappedTable:
    """Rows by key. Threads and processes share its memory, and it stays whole when its folder is removed.

    A look-up returns for each key a row, which is a tuple of `columns`; None: there is none, or a part of the key is
    None; `NotImplemented`: a part of the key has another type than the table's. With `many`, it returns lists of rows.

    Raises `BadTable` if the folder is not whole.
    """

    def __init__(self, folder: Path, *, verify: bool = True, plain: bool = False) -> None:
        self.folder = folder
        self.manifest: Final[Manifest] = manifest.read(folder)
        if verify:
            manifest.verify(folder, self.manifest)
        try:
            self._batches, self._buffers = _mapped(folder, self.manifest)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadTable(f"{folder} cannot be mapped: {error}") from error
        self.schema: Final = self._batches[0].schema
        self.columns: Final = self.manifest.columns
        kinds = [self.schema.field(name).type for name in self.manifest.keys]
        self.key_types: Final = tuple(map(name_of, kinds))
        encoders = [encoder_of(each) for each in kinds]
        self._encoders = encoders if any(each is not None for each in encoders) else None
        self._make: Any = PlainTable if plain or native.new_table is None else native.new_table
        if any(map(pa.types.is_null, kinds)):
            self._make = NoRows
        self.look: Any = self._make(*self._arguments())
        """The table of C, or that of Python."""

    def __len__(self) -> int:
        return self.manifest.rows

    def __repr__(self) -> str:
        return f"MappedTable({str(self.folder)!r}, {self.manifest.rows:,} rows, key {', '.join(self.manifest.keys)})"

    def get(self, keys: list[Any], times: list[int] | None = None, *, many: bool = False) -> list[Any]:
        """Looks up keys: values, or tuples of them if the key has several columns.

        `times`: microseconds since 1970 for each, if the table has rows by time.
        """
        if self._encoders is not None:
            keys = [self._encoded(each) for each in keys]
        return self.look.get(keys, times, many)  # type: ignore[no-any-return]

    def get_one(self, key: Any, time: int | None = None, *, many: bool = False) -> Any:
        """Looks up one key."""
        if self._encoders is not None:
            key = self._encoded(key)
        return self.look.get_one(key, time, many)

    def select(self, columns: Sequence[str]) -> MappedTable:
        """Returns the table with some of its columns, on the same memory."""
        for name in columns:
            if name not in self.columns:
                raise LocalError(f"the table has no column {name}{meant_or_known(name, self.columns)}")
        found = object.__new__(MappedTable)
        found.__dict__.update(self.__dict__)
        found.__dict__.pop("copies", None)
        found.columns = tuple(columns)  # type: ignore[misc]
        found.look = self._make(*found._arguments())
        return found

    def type_of(self, name: str) -> pa.DataType:
        """Returns the type of a column, as it was before it was stored with numbers."""
        kind = self.schema.field(name).type
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    @cached_property
    def copies(self) -> Copies | None:
        """How columns of values are made of columns of keys; None: without C, they are not."""
        if type(self.look) in (PlainTable, NoRows):
            return None
        return copies_of(self.schema, self._batches[0], self.manifest.keys, self.columns)

    def rows(self) -> Iterator[tuple[Any, Row]]:
        """Yields all keys and rows, in the order of the table."""
        for batch in self._batches:
            keys = [batch.column(name).to_pylist() for name in self.manifest.keys]
            columns = [batch.column(name).to_pylist() for name in self.columns]
            yield from zip(
                zip(*keys, strict=True) if len(keys) > 1 else keys[0], zip(*columns, strict=True), strict=True
            )

    def batches(self) -> list[pa.RecordBatch]:
        """Returns all rows as Arrow's batches, on the mapped memory."""
        return self._batches

    def _encoded(self, key: Any) -> Any:
        assert self._encoders is not None
        if len(self._encoders) == 1:
            (encoder,) = self._encoders
            assert encoder is not None
            return encoder(key)
        if not isinstance(key, tuple) or len(key) != len(self._encoders):
            return None if key is None else WRONG
        return tuple(
            value if encoder is None else encoder(value) for value, encoder in zip(key, self._encoders, strict=True)
        )

    def _arguments(self) -> tuple[Any, ...]:
        made = self.manifest
        firsts = [0]
        for count in made.part_rows:
            firsts.append(firsts[-1] + count)
        times = [self._column(each) for each in (FROM, TO)] if made.has_times else []
        starts, prints = (each.address for each in self._buffers)
        return (
            (self._batches, self._buffers), made.seed, made.bucket_bits, made.part_bits, starts, prints, firsts,
            [self._column(name) for name in made.keys], [self._column(name) for name in self.columns], times,
        )  # fmt: skip

    def _column(self, name: str) -> tuple[int, int, Any, list[tuple[int, int, int]]]:
        kind = self.schema.field(name).type
        layout, size = layout_of(kind)
        extra: Any = converter_of(kind)
        if layout is Layout.CODES:
            extra = self._batches[0].column(name).dictionary.to_pylist()
        elif layout is Layout.OTHERS:
            extra = _Others([batch.column(name) for batch in self._batches])
        pieces = []
        for batch in self._batches:
            column = batch.column(name)
            buffers = [0, 0, 0] if layout is Layout.OTHERS else [*map(native.address_of, column.buffers()[:3]), 0]
            if not column.null_count:
                buffers[0] = 0
            pieces.append((buffers[0], buffers[1], buffers[2]))
        return int(layout), size, extra, pieces


class _Others:
    """Values of types that only Arrow knows, such as lists and structs."""

    def __init__(self, columns: list[pa.Array]) -> None:
        self._columns = columns

    def __call__(self, part: int, row: int) -> Any:
        return self._columns[part][row].as_py()


def _mapped(folder: Path, made: Manifest) -> tuple[list[pa.RecordBatch], list[pa.Buffer]]:
    buffers = []
    for name in (manifest.STARTS, manifest.PRINTS):
        with pa.memory_map(str(folder / name)) as file:
            buffers.append(file.read_buffer())
    if buffers[0].size != 4 * ((1 << made.bucket_bits) + 1) or buffers[1].size != 4 * made.rows:
        raise BadTable(f"{folder}: its index does not fit its rows")
    file = pa.memory_map(str(folder / manifest.ROWS))
    reader = pa.ipc.open_file(file)
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    if [batch.num_rows for batch in batches] != list(made.part_rows) or len(batches) != 1 << made.part_bits:
        raise BadTable(f"{folder}: its rows differ from its manifest. Delete the folder, and load the table again")
    return batches, buffers
