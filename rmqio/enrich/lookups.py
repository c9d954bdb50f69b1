"""Look-ups in dimension tables for programs without Beam, such as plain PySpark: what to load, when, and the copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rmqio.enrich.definition import Table
from rmqio.enrich.refresh import Schedule, acquire
from rmqio.enrich.store import Wanted
from rmqio.enrich.table.kinds import layout_of, stored
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.native import address_of
from rmqio.enrich.table.rows import Spec, key_fields
from rmqio.hints import meant_or_known

# Looking up columns of keys: from Arrow to Arrow, without values of Python.

_LEAST_ORDERED: Final = 1_024
_MOST_ORDERED: Final = 1 << 30
"""Keys of a batch that are looked up in the order of memory: fewer are not worth it."""


class Found(NamedTuple):
    """The rows of keys, as columns of the table."""

    columns: list[pa.Array]
    """With nulls where there is no row."""
    is_there: Any
    """For each key, whether it has a row: an array of numpy."""


def found_columns(table: Any, keys: Sequence[pa.Array]) -> Found | None:
    """Looks up columns of keys.

    None: that takes `MappedTable.get`, since C is missing, or does not know the types, or the keys have others than the
    table. A table whose keys have several rows gives the first of each.

    Args:
      table: see `Lease.rows`.
      keys: a column for each column of the table's key, of the same length.
    """
    if not isinstance(table, MappedTable):  # that of a topic, whose newest rows are values
        return None
    copies = table.copies
    if copies is None or table.manifest.has_times:
        return None
    given = []
    held = []  # as long as their addresses are used
    for of_table, column in zip(copies.keys, keys, strict=True):
        try:
            taken = stored(column)
        except pa.ArrowException:
            return None
        layout, size = layout_of(taken.type)
        is_same = taken.type.equals(of_table.kind) or (of_table.is_integer and pa.types.is_integer(taken.type))
        if layout != of_table.layout or not is_same:
            return None
        held.append(taken)
        buffers = [*map(address_of, taken.buffers()[:3]), 0]
        validity = buffers[0] if taken.null_count else 0
        given.append((int(layout), size, taken.offset, validity, buffers[1], buffers[2]))
    count = len(keys[0])
    places = np.empty(count, np.int64)
    order = np.empty(count if _LEAST_ORDERED <= count <= _MOST_ORDERED else 0, np.int32)
    hashes = np.empty(len(order), np.uint64)
    order_at = order.ctypes.data if len(order) else 0
    table.look.places_of(count, given, places.ctypes.data, hashes.ctypes.data, order_at)
    return Found([each.values(table.look, places, order_at) for each in copies.columns], places >= 0)


__all__ = ["Schedule", "Spec", "Table", "Wanted", "acquire", "found_columns", "key_fields", "meant_or_known"]
