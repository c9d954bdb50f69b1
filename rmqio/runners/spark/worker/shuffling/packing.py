"""Packs many keys with their runs into one value: in Spark and in a state store, a row costs more than its content.

Layout: the number of keys (u32), the length of each key (u32 each), of each run (u32 each), the keys, the runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COUNT: Final = struct.Struct("<I")


def pack(keys: pa.Array, runs: pa.Array) -> bytes:
    """Packs two binary arrays of the same length into bytes."""
    key_lengths, key_data = _parts(keys)
    run_lengths, run_data = _parts(runs)
    return b"".join([_COUNT.pack(len(keys)), key_lengths, run_lengths, key_data, run_data])


def unpack(packed: bytes) -> tuple[list[bytes], list[bytes]]:
    """Returns the keys, and the run of each key."""
    (count,) = _COUNT.unpack_from(packed)
    at = _COUNT.size + 8 * count
    lengths = np.frombuffer(packed, dtype="<u4", offset=_COUNT.size, count=2 * count)
    keys, at = _array(packed, at, lengths[:count])
    runs, _ = _array(packed, at, lengths[count:])
    return keys, runs


def parted(places: NDArray[np.int64], keys: pa.Array, runs: pa.Array) -> Iterator[tuple[int, pa.Array, pa.Array]]:
    """Yields each place with its keys and runs. `places` has an integer for each key."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for part in np.split(order, cuts):
        if len(part):
            at = pa.array(part)
            yield int(places[part[0]]), keys.take(at), runs.take(at)


def _parts(array: pa.Array) -> tuple[bytes, bytes]:
    """Returns the lengths of the values, and the joined values."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    joined = b"" if data is None or not len(offsets) else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return np.diff(offsets).astype("<u4").tobytes(), bytes(joined)


def _array(packed: bytes, at: int, lengths: NDArray[np.uint32]) -> tuple[list[bytes], int]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    size = int(offsets[-1])
    data = pa.py_buffer(packed).slice(at, size)
    array = pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), data])
    return array.to_pylist(), at + size
