"""What a bucket keeps of one side input of a streaming pipeline: by window, so that windows that are over can go."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from rmqio.runners.spark.beam.private import create_InputStream, create_OutputStream
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.shuffling.packing import pack, unpack

_NAME: Final = struct.Struct(">cII")  # kind, stage, number of the side input
_SEGMENT: Final = struct.Struct(">cIII")
_HEAD: Final = struct.Struct("<Q")  # how often it has changed
_PART: Final = struct.Struct("<Iq")  # number of a segment, the last microsecond of its window
_WHOLE: Final = b""
_NEVER: Final = (1 << 63) - 1


class Kept:
    """One side input in one bucket: segments, and an entry that says of which window each one is."""

    def __init__(self, store: Store, stage: int, number: int, coder: Any, latest: bool) -> None:
        """Args: the coder of whole elements; whether a later element takes the place of an earlier one."""
        self._store = store
        self._stage, self._number = stage, number
        self._coder = coder
        self._latest = latest
        self._entry = _NAME.pack(b"i", stage, number)
        found = store.get(self._entry)
        self.version = _HEAD.unpack_from(found)[0] if found else 0
        windows, parts = unpack(found[_HEAD.size :]) if found else ([], [])
        self._parts = [(window, *_PART.unpack(part)) for window, part in zip(windows, parts, strict=True)]
        self._changed = False

    def add_whole(self, rows: Sequence[bytes]) -> None:
        """Takes encoded elements that are all in one window for good."""
        if rows:
            self._put(_WHOLE, _NEVER, b"".join(rows))

    def add(self, rows: Iterable[bytes]) -> None:
        """Takes encoded elements."""
        impl = self._coder.get_impl()
        by_window: dict[Any, list[Any]] = {}
        for row in rows:
            stream = create_InputStream(row)
            while stream.size() > 0:
                element = impl.decode_from_stream(stream, True)
                for window in element.windows:
                    one = element.with_value(element.value)
                    one.windows = (window,)
                    by_window.setdefault(window, []).append(one)
        for window, elements in by_window.items():
            name = self._coder.window_coder.encode(window)
            if self._latest:
                elements = [max(elements, key=_age)]
                self._drop(lambda part, name=name: part[0] == name)
            out = create_OutputStream()
            for element in elements:
                impl.encode_to_stream(element, out, True)
            self._put(name, int(window.max_timestamp().micros), out.get())

    def expire(self, until: int) -> None:
        """Forgets windows whose last microsecond is before."""
        self._drop(lambda part: part[2] < until)

    def flush(self) -> None:
        """Writes what has changed."""
        if not self._changed:
            return
        windows = pa.array([window for window, _, _ in self._parts], pa.binary())
        parts = pa.array([_PART.pack(number, last) for _, number, last in self._parts], pa.binary())
        self._store.put(self._entry, _HEAD.pack(self.version) + pack(windows, parts))
        self._changed = False

    def load(self) -> list[bytes]:
        """All segments, the oldest first."""
        found = (self._store.get(self._segment(number)) for _, number, _ in self._parts)
        return [segment for segment in found if segment is not None]

    def _put(self, window: bytes, last: int, segment: bytes) -> None:
        number = 1 + max((number for _, number, _ in self._parts), default=-1)
        self._parts.append((window, number, last))
        self._store.put(self._segment(number), segment)
        self._note()

    def _drop(self, is_over: Any) -> None:
        over = [part for part in self._parts if is_over(part)]
        for part in over:
            self._parts.remove(part)
            self._store.put(self._segment(part[1]), None)
            self._note()

    def _note(self) -> None:
        self.version += 1
        self._changed = True

    def _segment(self, number: int) -> bytes:
        return _SEGMENT.pack(b"j", self._stage, self._number, number)


def _age(element: Any) -> tuple[int, int]:
    """What tells the later of two firings: the pane's number, else the time."""
    return element.pane_info.index, int(element.timestamp.micros)
