"""Looking up without C: slow, and the reference for what `_look_table.c` does."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa

from rmqio.enrich.table import hashing
from rmqio.enrich.table.kinds import Layout

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
        self._seed, self._bucket_bits, self._part_bits = seed, bucket_bits, part_bits
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
