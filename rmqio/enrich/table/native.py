"""The C extension that looks up keys, if it was built, and how it copies the values of a column to Arrow's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rmqio.enrich.table.kinds import Layout, layout_of
from rmqio.loading import extension

# The C extension that looks up keys, if it was built and is not disabled (docs/install.md).


_module: Final = extension("rmqio.enrich.table._look")
hash_column: Final[Callable[..., None] | None] = getattr(_module, "hash_column", None)
"""Takes hashes, layout, size, length, the addresses of values and data, and the offset; mixes the column into them."""
hash_last: Final[Callable[[Any], None] | None] = getattr(_module, "hash_last", None)
"""Makes hashes final."""
sizes_of_codes: Final[Any] = getattr(_module, "sizes_of_codes", None)
"""Takes codes with their validity and the offsets of a dictionary; writes the offsets of their texts."""
texts_of_codes: Final[Any] = getattr(_module, "texts_of_codes", None)
"""Takes codes, the dictionary, and offsets; writes the texts."""
new_table: Final[Callable[..., Any] | None] = getattr(_module, "Table", None)
"""Takes owner, seed, bits of buckets and parts, addresses of starts and fingerprints, first rows, and columns."""


def address_of(buffer: pa.Buffer | None) -> int:
    """Returns where a buffer begins; 0: there is none."""
    return 0 if buffer is None else int(buffer.address)


class Keys(NamedTuple):
    """The type of a column of keys."""

    kind: pa.DataType
    layout: Layout
    is_integer: bool


class Copies(NamedTuple):
    """The parts of a table that a look-up of columns needs."""

    keys: list[Keys]
    columns: list[Copied]


class Copied:
    """A column whose values are copied."""

    def __init__(self, number: int, kind: pa.DataType, column: pa.Array) -> None:
        self._number = number
        self._layout, self._size = layout_of(kind)
        self._has_texts = self._layout in (Layout.TEXTS, Layout.BYTES)
        self._kind = kind
        self._dictionary: pa.Array = column.dictionary if self._layout is Layout.CODES else None
        self._texts = 0  # where the offsets of the dictionary's texts are; 0: Arrow takes its values
        if self._dictionary is not None and layout_of(kind.value_type)[0] in (Layout.TEXTS, Layout.BYTES):
            _, offsets, data = self._dictionary.buffers()
            if not self._dictionary.null_count and offsets is not None:
                self._texts = offsets.address + 4 * self._dictionary.offset
                self._data = 0 if data is None else data.address

    def values(self, look: Any, places: Any, order_at: int) -> pa.Array:
        """Returns the values at places that C has found; -1: null."""
        count = len(places)
        bitmap_bytes = -(-count // 8)
        if self._layout is Layout.BITS:
            value_bytes = bitmap_bytes
        else:
            value_bytes = 4 * (count + 1) if self._has_texts else self._size * count
        values = np.zeros(value_bytes, np.uint8)
        validity = np.zeros(bitmap_bytes, np.uint8)
        values_at, validity_at = values.ctypes.data, validity.ctypes.data
        starts = np.empty(count if self._has_texts else 0, np.int64)
        total = look.values_of(
            self._number, count, places.ctypes.data, order_at, values_at, validity_at, starts.ctypes.data
        )
        if self._texts:
            return self._decoded(count, values, validity)
        buffers = [pa.py_buffer(validity), pa.py_buffer(values)]
        if self._has_texts:
            data = np.empty(total, np.uint8)
            look.texts_of(count, order_at, starts.ctypes.data, values_at, data.ctypes.data)
            buffers.append(pa.py_buffer(data))
        if self._dictionary is None:
            return pa.Array.from_buffers(self._kind, count, buffers)
        return self._dictionary.take(pa.Array.from_buffers(self._kind.index_type, count, buffers))

    def _decoded(self, count: int, codes: Any, validity: Any) -> pa.Array:
        """Returns the texts of codes. Arrow's `take` does the same, in more time."""
        offsets = np.zeros(count + 1, np.int32)
        codes_at, offsets_at, length = codes.ctypes.data, offsets.ctypes.data, len(self._dictionary)
        total = sizes_of_codes(count, self._size, codes_at, validity.ctypes.data, length, self._texts, offsets_at)
        data = np.empty(total, np.uint8)
        texts_of_codes(count, self._size, codes_at, self._texts, self._data, offsets_at, data.ctypes.data)
        buffers = [pa.py_buffer(each) for each in (validity, offsets, data)]
        return pa.Array.from_buffers(self._kind.value_type, count, buffers)


def copies_of(schema: pa.Schema, batch: pa.RecordBatch, keys: Sequence[str], columns: Sequence[str]) -> Copies | None:
    """Returns what looking up columns needs. None: there is no C, or it does not know a type."""
    kinds = [schema.field(name).type for name in columns]
    if sizes_of_codes is None or any(layout_of(kind)[0] is Layout.OTHERS for kind in kinds):
        return None
    of_keys = [schema.field(name).type for name in keys]
    return Copies(
        [Keys(kind, layout_of(kind)[0], pa.types.is_integer(kind)) for kind in of_keys],
        [
            Copied(number, kind, batch.column(name))
            for number, (name, kind) in enumerate(zip(columns, kinds, strict=True))
        ],
    )
