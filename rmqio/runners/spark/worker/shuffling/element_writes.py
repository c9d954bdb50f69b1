"""Writes of encoded elements, for a reader that needs no keys: in order, or redistributed over the partitions."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from rmqio.runners.spark.beam.private import create_OutputStream
from rmqio.runners.spark.worker.shuffling.write_operation import WriteOperation

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.utils.windowed_value import WindowedValue

_CHUNK_BYTES: Final = 128 << 10
# Up to these limits, a dealt output is held back and dealt evenly. Hashes spread more elements evenly enough.
_DEAL_BYTES: Final = 1 << 20
_DEAL_ELEMENTS: Final = 4_096


class PlainWrite(WriteOperation):
    """Writes chunks of encoded elements, in order."""

    def __init__(self, *args: Any, coder: Coder) -> None:
        super().__init__(*args)
        self._encode = coder.get_impl().encode_to_stream
        self._stream = create_OutputStream()

    def process(self, element: WindowedValue) -> None:
        stream = self._stream
        self._encode(element, stream, True)
        if stream.size() >= _CHUNK_BYTES:
            self._flush()

    def finish(self) -> None:
        super().finish()
        self._flush()

    def _flush(self) -> None:
        if self._stream.size():
            self._rows.write(self._channel, 0, None, self._stream.get())
            self._stream = create_OutputStream()


class DealtWrite(WriteOperation):
    """Writes chunks for each partition, spread evenly.

    Few elements are sorted and dealt in turn. Many elements are dealt by their hashes. Both depend only on the elements
    and not on their order, so a task that Spark runs again deals the same way. With round robin, rows would be lost or
    duplicated.
    """

    def __init__(self, *args: Any, coder: Coder, buckets: int) -> None:
        super().__init__(*args)
        self._encode = coder.get_impl().encode_nested
        self._buckets = buckets
        self._held: list[bytes] | None = []
        self._held_bytes = 0
        self._chunks: list[list[bytes]] = [[] for _ in range(buckets)]
        self._sizes = [0] * buckets

    def process(self, element: WindowedValue) -> None:
        encoded = self._encode(element)
        if self._held is None:
            self._deal(zlib.crc32(encoded) % self._buckets, encoded)
            return
        self._held.append(encoded)
        self._held_bytes += len(encoded)
        if self._held_bytes > _DEAL_BYTES or len(self._held) > _DEAL_ELEMENTS:
            held, self._held = self._held, None
            for each in held:
                self._deal(zlib.crc32(each) % self._buckets, each)

    def finish(self) -> None:
        super().finish()
        if self._held:
            self._held.sort()
            first = zlib.crc32(self._held[0])  # so that not all tasks with one element choose partition 0
            for at, encoded in enumerate(self._held, first):
                self._deal(at % self._buckets, encoded)
        self._held, self._held_bytes = [], 0
        for bucket in range(self._buckets):
            self._flush(bucket)

    def _deal(self, bucket: int, encoded: bytes) -> None:
        self._chunks[bucket].append(encoded)
        self._sizes[bucket] += len(encoded)
        if self._sizes[bucket] >= _CHUNK_BYTES:
            self._flush(bucket)

    def _flush(self, bucket: int) -> None:
        if self._chunks[bucket]:
            self._rows.write(self._channel, bucket, None, b"".join(self._chunks[bucket]))
            self._chunks[bucket] = []
            self._sizes[bucket] = 0
