"""Writes of runs by key, for a GroupByKey in the global window or a DoFn with state: one row for a key and its run."""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqio.runners.spark.beam.private import create_OutputStream
from rmqio.runners.spark.worker.rows import ROW_SCHEMA
from rmqio.runners.spark.worker.shuffling.framing import varint
from rmqio.runners.spark.worker.shuffling.write_operation import WriteOperation

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.utils.windowed_value import WindowedValue
    from numpy.typing import NDArray

FLUSH_BYTES: Final = 8 << 20
FLUSH_ELEMENTS: Final = 200_000
# Types whose equal values have equal encodings, so that the value itself can be looked up. float and bool are not among
# them, because their values can be equal to an int.
_PLAIN_KEYS: Final = frozenset({str, bytes, int})


class RunWrite(WriteOperation):
    """Writes runs of encoded values by key: what elements of the same key have in common goes into one row.

    A table gives each key (or key and window) a number. Numbers and encoded values are collected in the order of the
    elements. When the table is flushed, Arrow sorts them by number. An element therefore costs one lookup and one
    encoding.
    """

    def __init__(self, *args: Any, kv_coder: Coder, buckets: int) -> None:
        super().__init__(*args)
        self._encode_key = kv_coder.key_coder().get_impl().encode_nested
        self._buckets = buckets
        self._clear()

    def _clear(self) -> None:
        self._stream = create_OutputStream()
        self._ends = array("q")
        self._numbers = array("i")
        self._keys: list[bytes] = []  # encoded, by number
        self._plain: dict[object, int] = {}
        self._encoded: dict[bytes, int] = {}

    def _number(self, key: object) -> int:
        """Returns the number of a key in the table. Adds a new key."""
        if type(key) in _PLAIN_KEYS:
            number = self._plain.get(key)
            if number is None:
                number = self._plain[key] = len(self._keys)
                self._keys.append(self._encode_key(key))
            return number
        encoded = self._encode_key(key)
        number = self._encoded.get(encoded)
        if number is None:
            number = self._encoded[encoded] = len(self._keys)
            self._keys.append(encoded)
        return number

    def finish(self) -> None:
        super().finish()
        self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> list[bytes] | None:
        """Returns the header of each run; None if runs have no headers."""
        raise NotImplementedError

    def _flush(self) -> None:
        if not self._ends:
            self._clear()  # an element that is in no window has left its key here
            return
        numbers = np.frombuffer(self._numbers, dtype=np.int32)
        elements = len(numbers)
        offsets = np.zeros(elements + 1, dtype=np.int32)
        offsets[1:] = np.frombuffer(self._ends, dtype=np.int64)
        runs = _binary(offsets, pa.py_buffer(self._stream.get()))
        keys = self._keys
        counts = np.bincount(numbers, minlength=len(keys))
        if elements > len(keys):
            runs = runs.take(pa.array(np.argsort(numbers, kind="stable")))
            ends = np.frombuffer(runs.buffers()[1], dtype=np.int32)[: elements + 1]
            starts = np.zeros(len(keys) + 1, dtype=np.int64)
            np.cumsum(counts, out=starts[1:])
            runs = _binary(np.ascontiguousarray(ends[starts]), runs.buffers()[2])
        heads = self._heads(counts)
        if heads is not None:
            runs = pc.binary_join_element_wise(pa.array(heads, pa.binary()), runs, pa.scalar(b"", pa.binary()))
        self._put(keys, runs)
        self._clear()

    def _put(self, keys: list[bytes], runs: pa.Array) -> None:
        buckets = self._buckets
        self._rows.put(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(len(keys), self._channel, dtype=np.int32)),
                    pa.array([zlib.crc32(key) % buckets for key in keys], pa.int32()),
                    pa.array(keys, pa.binary()),
                    runs,
                ],
                schema=ROW_SCHEMA,
            )
        )


class GlobalWrite(RunWrite):
    """Writes for a GroupByKey in the global window that fires once: neither windows nor timestamps matter."""

    def __init__(self, *args: object, kv_coder: Coder, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = kv_coder.value_coder().get_impl().encode_to_stream

    def process(self, element: WindowedValue) -> None:
        self.handle(element, element.value)

    def handle(self, element: WindowedValue, value: tuple[object, object]) -> None:
        key, each = value
        # `_number` is inlined, because this runs for each element
        number = self._plain.get(key) if type(key) in _PLAIN_KEYS else None
        self._numbers.append(self._number(key) if number is None else number)
        stream = self._stream
        self._encode(each, stream, True)
        ends = self._ends
        ends.append(size := stream.size())
        if size >= FLUSH_BYTES or len(ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> list[bytes]:
        return [varint(count) for count in counts.tolist()]


class WholeWrite(RunWrite):
    """Writes whole elements by key for a DoFn with state or timers; without the key, for a triggered GroupByKey."""

    def __init__(self, *args: object, kv_coder: Coder, coder: Coder, only_value: bool, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = coder.get_impl().encode_to_stream
        self._only_value = only_value

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        self._numbers.append(self._number(key))
        self._encode(element.with_value(value) if self._only_value else element, self._stream, True)
        self._ends.append(self._stream.size())
        if self._stream.size() >= FLUSH_BYTES or len(self._ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> None:
        return None


def _binary(offsets: NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])
