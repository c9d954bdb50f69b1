"""Looking up columns of keys: from Arrow to Arrow, without values of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rmqio.enrich.table.kinds import Layout, layout_of, stored
from rmqio.enrich.table.mapped import MappedTable

_LEAST_ORDERED: Final = 1_024
_MOST_ORDERED: Final = 1 << 30
"""Keys of a batch that are looked up in the order of memory: fewer are not worth it."""


class Found(NamedTuple):
    """The rows of keys, as columns of the table."""

    columns: list[pa.Array]
    """With nulls where there is no row."""
    is_there: Any
    """For each key, whether it has a row: an array of numpy."""


def found(table: Any, keys: Sequence[pa.Array]) -> Found | None:
    """Looks up columns of keys.

    None: that takes `MappedTable.get`, since C is missing, or does not know the types, or the keys have others than the
    table. A table whose keys have several rows gives the first of each.

    Args:
      table: see `Lease.rows`.
      keys: a column for each column of the table's key, of the same length.
    """
    if not isinstance(table, MappedTable):  # that of a topic, whose newest rows are values
        return None
    places_of = getattr(table.look, "places_of", None)
    kinds = [table.schema.field(name).type for name in table.columns]
    if places_of is None or table.manifest.has_times or any(layout_of(each)[0] is Layout.OTHERS for each in kinds):
        return None
    given = []
    held = []  # as long as their addresses are used
    for name, column in zip(table.manifest.keys, keys, strict=True):
        kind = table.schema.field(name).type
        try:
            taken = stored(column)
        except pa.ArrowException:
            return None
        layout, size = layout_of(taken.type)
        is_integer = pa.types.is_integer(taken.type) and pa.types.is_integer(kind)
        if layout != layout_of(kind)[0] or not (taken.type.equals(kind) or is_integer):
            return None
        held.append(taken)
        buffers = [*map(_address, taken.buffers()[:3]), 0]
        validity = buffers[0] if taken.null_count else 0
        given.append((int(layout), size, taken.offset, validity, buffers[1], buffers[2]))
    count = len(keys[0])
    places = np.empty(count, np.int64)
    order = np.empty(count if _LEAST_ORDERED <= count <= _MOST_ORDERED else 0, np.int32)
    hashes = np.empty(len(order), np.uint64)
    order_at = order.ctypes.data if len(order) else 0
    places_of(count, given, places.ctypes.data, hashes.ctypes.data, order_at)
    return Found([_values(table, number, places, order_at) for number in range(len(table.columns))], places >= 0)


def _values(table: MappedTable, number: int, places: Any, order_at: int) -> pa.Array:
    """The values of a column at places that C has found; -1: null."""
    name = table.columns[number]
    kind = table.schema.field(name).type
    layout, size = layout_of(kind)
    count = len(places)
    has_texts = layout in (Layout.TEXTS, Layout.BYTES)
    bitmap_bytes = -(-count // 8)
    value_bytes = bitmap_bytes if layout is Layout.BITS else 4 * (count + 1) if has_texts else size * count
    values = np.zeros(value_bytes, np.uint8)
    validity = np.zeros(bitmap_bytes, np.uint8)
    total = table.look.values_of(number, count, places.ctypes.data, order_at, values.ctypes.data, validity.ctypes.data)
    buffers = [pa.py_buffer(validity), pa.py_buffer(values)]
    if has_texts:
        data = np.empty(total, np.uint8)
        table.look.texts_of(number, count, places.ctypes.data, order_at, values.ctypes.data, data.ctypes.data)
        buffers.append(pa.py_buffer(data))
    if layout is not Layout.CODES:
        return pa.Array.from_buffers(kind, count, buffers)
    codes = pa.Array.from_buffers(kind.index_type, count, buffers)
    return table.batches()[0].column(name).dictionary.take(codes)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
