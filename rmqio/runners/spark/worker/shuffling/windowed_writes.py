"""Writes of runs by key and window: for a GroupByKey that fires once per window, and for what waits in state."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.worker.shuffling.framing import varint, window_header
from rmqio.runners.spark.worker.shuffling.keyed_writes import FLUSH_BYTES, FLUSH_ELEMENTS, RunWrite
from rmqio.runners.spark.worker.shuffling.packing import pack, parted
from rmqio.runners.spark.worker.shuffling.timestamps import timestamp_combiner

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp
    from numpy.typing import NDArray

    from rmqio.runners.spark.beam.private import create_OutputStream


class WindowedWrite(RunWrite):
    """Writes for a GroupByKey that fires once per window: a run by key and window, with its combined timestamp."""

    def __init__(self, *args: object, kv_coder: Coder, windowing: Windowing, buckets: int) -> None:
        super().__init__(*args, kv_coder=kv_coder, buckets=buckets)
        self._encode = kv_coder.value_coder().get_impl().encode_to_stream
        self._encode_window = windowing.windowfn.get_window_coder().encode
        self._combiner = timestamp_combiner(windowing)

    def _clear(self) -> None:
        super()._clear()
        self._by_window: dict[BoundedWindow, dict[int, int]] = {}
        self._groups: list[tuple[int, BoundedWindow]] = []  # number of the key, and window; by number of the group
        self._times: list[Timestamp | None] = []

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        number = self._number(key)
        combiner = self._combiner
        for window in element.windows:
            table = self._by_window.get(window)
            if table is None:
                table = self._by_window[window] = {}
            group = table.get(number)
            if group is None:
                group = table[number] = len(self._groups)
                self._groups.append((number, window))
                self._times.append(combiner and combiner.assign_output_time(window, element.timestamp))
            elif combiner is not None:
                time = combiner.assign_output_time(window, element.timestamp)
                self._times[group] = combiner.combine(self._times[group], time)
            self._numbers.append(group)
            self._encode(value, self._stream, True)
            self._ends.append(self._stream.size())
        if self._stream.size() >= FLUSH_BYTES or len(self._ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _flush(self) -> None:
        self._keys = [self._keys[number] for number, _ in self._groups]
        super()._flush()

    def _heads(self, counts: NDArray[np.intp]) -> list[bytes] | None:
        windows = {window: self._encode_window(window) for window in self._by_window}
        return [
            window_header(windows[window], time) + varint(count)
            for (_, window), time, count in zip(self._groups, self._times, counts.tolist(), strict=True)
        ]


class WindowsWrite(WindowedWrite):
    """Does the same in streaming: writes a row for each bucket and window.

    The key of the row is the window, and its value holds all keys and runs. Elements that wait for their window
    therefore stay in state as they arrived, and are not examined before the window fires.
    """

    def _put(self, keys: list[bytes], runs: pa.Array) -> None:
        numbers = {window: number for number, window in enumerate(self._by_window)}
        encoded = [self._encode_window(window) for window in self._by_window]
        buckets = self._buckets
        places = np.array(
            [
                numbers[group[1]] * buckets + zlib.crc32(key) % buckets
                for group, key in zip(self._groups, keys, strict=True)
            ]
        )
        for place, part_keys, part_runs in parted(places, pa.array(keys, pa.binary()), runs):
            window, bucket = divmod(place, buckets)
            self._rows.write(self._channel, bucket, encoded[window], pack(part_keys, part_runs))


class WindowElementsWrite(WindowsWrite):
    """Does the same with runs of whole elements, each in one window."""

    def __init__(
        self,
        *args: object,
        kv_coder: Coder,
        windowing: Windowing,
        buckets: int,
        encode: Callable[[WindowedValue, create_OutputStream, bool], None],
        opaque: bool,
    ) -> None:
        """Args: `encode` encodes whole elements; `opaque`: their values are encoded values without keys."""
        super().__init__(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
        self._encode_value = kv_coder.value_coder().get_impl().encode_nested
        self._encode = encode
        self._opaque = opaque

    def process(self, element: WindowedValue) -> None:
        key, value = element.value
        number = self._number(key)
        whole = self._encode_value(value) if self._opaque else element.value
        for window in element.windows:
            table = self._by_window.get(window)
            if table is None:
                table = self._by_window[window] = {}
            group = table.get(number)
            if group is None:
                group = table[number] = len(self._groups)
                self._groups.append((number, window))
            self._numbers.append(group)
            one = WindowedValue(whole, element.timestamp, (window,), element.pane_info)
            self._encode(one, self._stream, True)
            self._ends.append(self._stream.size())
        if self._stream.size() >= FLUSH_BYTES or len(self._ends) >= FLUSH_ELEMENTS:
            self._flush()

    def _heads(self, counts: NDArray[np.intp]) -> None:
        return None
