"""Stores one side input of a streaming pipeline in a bucket, by window, so that expired windows can be dropped."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rmqio.runners.spark.beam.private import create_InputStream, create_OutputStream
from rmqio.runners.spark.streaming.state.keys import NEVER
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.shuffling.packing import pack, unpack

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.windowed_value import WindowedValue

Part = tuple[bytes, int, int]  # window, number of the segment, the last microsecond of the window
_NAME: Final = struct.Struct(">cII")  # kind, stage, number of the side input
_SEGMENT: Final = struct.Struct(">cIII")
_HEAD: Final = struct.Struct("<Q")  # how often it has changed
_PART: Final = struct.Struct("<Iq")  # number of a segment, the last microsecond of its window
_WHOLE: Final = b""


class Kept:
    """One side input in one bucket: segments, and an entry with the window of each segment."""

    def __init__(self, store: Store, stage: int, number: int, coder: Coder, latest: bool) -> None:
        """Args: `coder`: the coder of whole elements. `latest`: whether a later element replaces an earlier one."""
        self._store = store
        self._stage, self._number = stage, number
        self._coder = coder
        self._latest = latest
        self._entry = _NAME.pack(b"i", stage, number)
        found = store.get(self._entry)
        self.version = _HEAD.unpack_from(found)[0] if found else 0
        windows, parts = unpack(found[_HEAD.size :]) if found else ([], [])
        self._parts: list[Part] = [(window, *_PART.unpack(part)) for window, part in zip(windows, parts, strict=True)]
        self._changed = False

    def add_whole(self, rows: Sequence[bytes]) -> None:
        """Adds encoded elements that are all in one window, which never expires."""
        if rows:
            self._put(_WHOLE, NEVER, b"".join(rows))

    def add(self, rows: Iterable[bytes]) -> None:
        """Adds encoded elements."""
        impl = self._coder.get_impl()
        by_window: dict[BoundedWindow, list[WindowedValue]] = {}
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
        """Drops the windows whose last microsecond is before `until`."""
        self._drop(lambda part: part[2] < until)

    def flush(self) -> None:
        """Writes the changes to the bucket's store."""
        if not self._changed:
            return
        windows = pa.array([window for window, _, _ in self._parts], pa.binary())
        parts = pa.array([_PART.pack(number, last) for _, number, last in self._parts], pa.binary())
        self._store.put(self._entry, _HEAD.pack(self.version) + pack(windows, parts))
        self._changed = False

    def load(self) -> list[bytes]:
        """Returns all segments, the oldest first."""
        found = (self._store.get(self._segment(number)) for _, number, _ in self._parts)
        return [segment for segment in found if segment is not None]

    def _put(self, window: bytes, last: int, segment: bytes) -> None:
        number = 1 + max((number for _, number, _ in self._parts), default=-1)
        self._parts.append((window, number, last))
        self._store.put(self._segment(number), segment)
        self._note()

    def _drop(self, is_over: Callable[..., bool]) -> None:
        """Drops the parts for which `is_over` returns True."""
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


def _age(element: WindowedValue) -> tuple[int, int]:
    """Returns a sort key for firings: the pane's number, then the timestamp."""
    return element.pane_info.index, int(element.timestamp.micros)
