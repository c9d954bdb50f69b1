"""Hashes of keys: 64 bits, seeded, the same on all machines and in all versions of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqio.enrich.table import native
from rmqio.enrich.table.kinds import Layout, layout_of

NAME: Final = "rmqio-mix-2"
"""The name of the hash in a manifest. It changes with each change of the hash."""
_WORD: Final = np.uint64(0xD6E8FEB86659FD93)
_LAST_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_LAST_2: Final = np.uint64(0xC4CEB9FE1A85EC53)

Hashes = Any
"""An array of numpy, of unsigned integers of 64 bits."""


def hashes_of(columns: Sequence[pa.Array], seed: int) -> Hashes:
    """Returns the hashes of keys, whose parts are columns of stored types without nulls."""
    hashes = np.full(len(columns[0]), seed, np.uint64)
    for column in columns:
        mixed(hashes, column)
    return finished(hashes)


def mixed(hashes: Hashes, column: pa.Array) -> None:
    """Mixes a column into the hashes."""
    if not len(column):  # perhaps of nulls, which has no buffers
        return
    if native.hash_column is None:
        _mix(hashes, column)
        return
    layout, size = layout_of(column.type)
    buffers = column.buffers()
    values, data = native.address_of(buffers[1]), native.address_of(buffers[2]) if len(buffers) > 2 else 0
    native.hash_column(hashes, layout, size, len(column), values, data, column.offset)


def finished(hashes: Hashes) -> Hashes:
    """Returns the hashes with their last step done, in place."""
    if native.hash_last is None:
        hashes *= _LAST_1
        hashes ^= hashes >> np.uint64(29)
        hashes *= _LAST_2
        hashes ^= hashes >> np.uint64(32)
    else:
        native.hash_last(hashes)
    return hashes


# ---- the same without C ---------------------------------------------------------------------------------------------


def _mix(hashes: Hashes, column: pa.Array) -> None:
    layout, size = layout_of(column.type)
    starts: Any
    if layout in (Layout.TEXTS, Layout.BYTES):
        _, offsets, data = column.buffers()
        starts = (
            np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1] if len(column) else []
        )
        sizes = np.diff(starts)
        _mix_bytes(hashes, np.asarray(starts[:-1], np.int64), sizes, b"" if data is None else data)
    elif layout is Layout.FIXED:
        starts = (np.arange(len(column), dtype=np.int64) + column.offset) * size
        _mix_bytes(hashes, starts, np.full(len(column), size, np.int64), column.buffers()[1] or b"")
    else:
        kind = pa.int32() if pa.types.is_date32(column.type) else column.type
        numbers = column.cast(kind) if layout is Layout.INTS else column
        if layout is Layout.BITS:
            numbers = column.cast(pa.uint8())
        words = numbers.to_numpy(zero_copy_only=False)
        words = words.astype(np.int64).view(np.uint64) if layout is Layout.INTS else words.astype(np.uint64)
        _mix_words(hashes, slice(None), words)


def _mix_bytes(hashes: Hashes, starts: Any, sizes: Any, data: Any) -> None:
    _mix_words(hashes, slice(None), sizes.astype(np.uint64))  # an empty text, too, changes the hash
    padded = np.concatenate([np.frombuffer(data, np.uint8), np.zeros(8, np.uint8)])
    views = np.lib.stride_tricks.sliding_window_view(padded, 8)
    done = 0
    left = np.flatnonzero(sizes > 0)
    while len(left):
        words = np.ascontiguousarray(views[starts[left] + done]).view("<u8").reshape(-1)
        rest = sizes[left] - done
        short = rest < 8
        words[short] &= (np.uint64(1) << (rest[short].astype(np.uint64) * np.uint64(8))) - np.uint64(1)
        _mix_words(hashes, left, words)
        done += 8
        left = left[rest > 8]


def _mix_words(hashes: Hashes, places: Any, words: Any) -> None:
    mixed_in = (hashes[places] ^ words) * _WORD
    hashes[places] = mixed_in ^ (mixed_in >> np.uint64(32))
