"""Keeps elements until the end of their window, in a segment for each micro-batch. Joins the segments when it fires.

Segments are neither read nor decoded before that. A stage has an entry with an index of its windows, and an entry for
each segment of a window.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rmqio.runners.spark.streaming.state.merging import AT_LEAST, Merging
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.shuffling.framing import split_window_header
from rmqio.runners.spark.worker.shuffling.grouping import Row, windowed
from rmqio.runners.spark.worker.shuffling.packing import pack, unpack
from rmqio.runners.spark.worker.spool import Spool

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing

_NUMBERS: Final = struct.Struct(
    "<qII"
)  # the last microsecond of the window, the number of its first segment, and their count
_STAGE: Final = struct.Struct(">cI")
_SEGMENT: Final = struct.Struct(">cII")


class Windows:
    """The windows of one GroupByKey in one bucket. Each fires once, when the watermark has passed it."""

    def __init__(self, store: Store, stage: int, windowing: Windowing, merging: Merging | None = None) -> None:
        """Args: `merging`: merges the values, if they are accumulators."""
        self._merging = merging
        self._store = store
        self._windowing = windowing
        self._index = _STAGE.pack(b"w", stage)
        self._stage = stage
        self._decode = windowing.windowfn.get_window_coder().decode
        self._pending: dict[bytes, list[int]] = {}
        self._changed = False
        if found := store.get(self._index):
            for window, numbers in zip(*unpack(found), strict=True):
                self._pending[window] = list(_NUMBERS.unpack(numbers))

    def add(self, window: bytes, packed: bytes, watermark: int) -> int:
        """Adds a segment. Returns how many of its elements were dropped because their window is over."""
        numbers = self._pending.get(window)
        if numbers is None:
            end = int(self._decode(window).max_timestamp().micros)
            if end < watermark:
                return _elements(packed)
            numbers = self._pending[window] = [end, 0, 0]
        self._store.put(self._segment(window, numbers[1] + numbers[2]), packed)
        numbers[2] += 1
        self._changed = True
        if self._merging is not None and numbers[2] >= AT_LEAST:
            self._merge(window, numbers, self._merging)
        return 0

    def _merge(self, window: bytes, numbers: list[int], merging: Merging) -> None:
        """Merges all segments of a window into one."""
        _, first, count = numbers
        names = [self._segment(window, first + at) for at in range(count)]
        runs: dict[bytes, list[bytes]] = {}
        for key, run in _merged([segment for name in names if (segment := self._store.get(name)) is not None]):
            runs.setdefault(key, []).append(run)
        for name in names[1:]:
            self._store.put(name, None)
        whole = [_joined(some, merging) for some in runs.values()]
        self._store.put(names[0], pack(pa.array(list(runs), pa.binary()), pa.array(whole, pa.binary())))
        numbers[2] = 1

    def fire(self, watermark: int, spool: Spool | None) -> Iterator[bytes]:
        """Yields the groups of windows that the watermark has passed, as encoded elements, in the order of windows."""
        due = sorted((numbers[0], window) for window, numbers in self._pending.items() if numbers[0] < watermark)
        for _, window in due:
            _, first, count = self._pending.pop(window)
            self._changed = True
            names = [self._segment(window, first + at) for at in range(count)]
            segments = [segment for name in names if (segment := self._store.get(name)) is not None]
            for name in names:
                self._store.put(name, None)
            yield from windowed(_merged(segments), self._windowing, spool)

    def flush(self) -> None:
        """Writes the index if it has changed."""
        if self._changed:
            windows = list(self._pending)
            numbers = [_NUMBERS.pack(*self._pending[window]) for window in windows]
            packed = pack(pa.array(windows, pa.binary()), pa.array(numbers, pa.binary()))
            self._store.put(self._index, packed if windows else None)

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def _segment(self, window: bytes, number: int) -> bytes:
        return _SEGMENT.pack(b"s", self._stage, number) + window


def _merged(segments: Iterable[bytes]) -> Iterator[Row]:
    """Returns the rows of all segments, sorted by key."""
    keys: list[bytes] = []
    runs: list[bytes] = []
    for segment in segments:
        some, their_runs = unpack(segment)
        keys += some
        runs += their_runs
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return zip(map(keys.__getitem__, order), map(runs.__getitem__, order), strict=True)


def _joined(runs: list[bytes], merging: Merging) -> bytes:
    """Joins the runs of one key and window into one, after the header that they share."""
    if len(runs) == 1:
        return runs[0]
    parts = [split_window_header(run)[2] for run in runs]
    return runs[0][: len(runs[0]) - len(parts[0])] + merging.merged_runs(parts)


def _elements(packed: bytes) -> int:
    """Returns the number of elements in a segment."""
    _, runs = unpack(packed)
    return sum(map(_count, runs))


def _count(run: bytes) -> int:
    _, _, counted = split_window_header(run)
    number = 0
    for shift, byte in zip(itertools.count(0, 7), counted, strict=False):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return number
