"""A GroupByKey with triggers over many micro-batches, as the levels of a stream run it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from apache_beam.coders import BytesCoder, IterableCoder, StrUtf8Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.streaming.state import NEVER, Store
from rmqio.runners.spark.streaming.windows import Triggered
from rmqio.runners.spark.worker.shuffling import pack

SECOND = 1_000_000
MIN, MAX = int(MIN_TIMESTAMP.micros), int(MAX_TIMESTAMP.micros)
DISCARDING, ACCUMULATING = AccumulationMode.DISCARDING, AccumulationMode.ACCUMULATING
EARLY_AND_LATE = AfterWatermark(early=AfterCount(2), late=AfterCount(1))
Element = tuple[str, bytes, int]  # key, value, seconds


def windowing_of(windowfn: Any, triggerfn: Any, mode: int = DISCARDING, lateness: int = 0, **more: Any) -> Windowing:
    return Windowing(windowfn, triggerfn, mode, allowed_lateness=lateness, **more)


class Entries(dict[bytes, bytes]):
    """Entries in memory, as they stay between micro-batches."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.pop(key, None)


def assigned(elements: list[Element], windowfn: Any) -> Iterator[tuple[str, WindowedValue]]:
    for key, value, seconds in elements:
        time = Timestamp(seconds)
        for each in windowfn.assign(WindowFn.AssignContext(time)):
            yield key, WindowedValue(value, time, (each,))


Pane = tuple[str, Any, list[bytes], int, Any]  # key, window, values, microseconds, pane info


class Batches:
    """The micro-batches of one GroupByKey. Each one has a new store over the same entries."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self.entries = Entries()
        self.watermark = MIN
        self.late = 0
        self.hold = NEVER
        self.is_pending = False
        self.window_coder = windowing.windowfn.get_window_coder()
        values = TupleCoder((StrUtf8Coder(), IterableCoder(BytesCoder())))
        self.output = WindowedValueCoder(values, self.window_coder).get_impl()

    def rows(self, elements: list[Element]) -> Iterator[tuple[bytes, bytes]]:
        """Yields rows as `WindowElementsWrite` writes them: by window, with the runs of each key."""
        impl = WindowedValueCoder(BytesCoder(), self.window_coder).get_impl()
        found: dict[bytes, dict[bytes, Any]] = {}
        for key, element in assigned(elements, self.windowing.windowfn):
            keys = found.setdefault(self.window_coder.encode(element.windows[0]), {})
            out = keys.setdefault(StrUtf8Coder().get_impl().encode_nested(key), create_OutputStream())
            value = BytesCoder().get_impl().encode_nested(element.value)
            impl.encode_to_stream(element.with_value(value), out, True)
        for name, keys in found.items():
            runs = [out.get() for out in keys.values()]
            yield name, pack(pa.array(list(keys), pa.binary()), pa.array(runs, pa.binary()))

    def kept(self) -> list[bytes]:
        """Returns the names of the entries, without the one that counts keys."""
        return [name for name in self.entries if name[:1] != b"k"]

    def run(self, elements: list[Element], watermark: int, clock: int = 0) -> list[Pane]:
        store = Store(self.entries)
        triggered = Triggered(store, 5, self.windowing)
        for name, packed in self.rows(elements):
            self.late += triggered.add(name, packed, self.watermark)
        encoded = list(triggered.fire(self.watermark, watermark, clock))
        self.watermark = watermark
        triggered.flush(watermark)
        self.hold, self.is_pending = triggered.hold(), triggered.is_pending
        store.flush()
        assert not any(mark in value for value in self.entries.values() for mark in (b"\x80\x04", b"pickle"))
        decoded = map(self.output.decode_nested, encoded)
        return [pane_of(each.value[0], each.with_value(each.value[1])) for each in decoded]


def pane_of(key: str, pane: WindowedValue) -> Pane:
    # the values of a pane have no order, and Beam's elements have milliseconds
    return key, pane.windows[0], sorted(pane.value), int(pane.timestamp.micros) // 1000 * 1000, pane.pane_info
