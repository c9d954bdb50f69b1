"""The rows of a shuffle: their bytes, and the reading side of a GroupByKey, which turns sorted rows into groups."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from apache_beam.coders import SingletonCoder, WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow, TimestampCombiner, WindowFn
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.runners.spark.beam.private import GlobalWindowCoder, create_InputStream, create_OutputStream
from rmqio.runners.spark.beam.triggers import BoundedDriver
from rmqio.runners.spark.model import Grouping
from rmqio.runners.spark.worker.state import Spool

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp
    from apache_beam.utils.windowed_value import WindowedValue
    from numpy.typing import NDArray

    from rmqio.runners.spark.beam.private import CoderImpl, TimestampCombinerImpl


# The bytes around encoded values: counts, windows, and the parts of Beam's element encoding that grouping writes.

_WINDOW: Final = struct.Struct("<?qI")  # whether there is a timestamp, its microseconds, length of the window
ONLY_FIRING: Final = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
UNKNOWN_SIZE: Final = b"\xff\xff\xff\xff"  # an iterable in counted parts, as in Beam's coder of iterables


def varint(number: int) -> bytes:
    """Returns a number as Beam's variable-length integer. -1 takes ten bytes."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    out = create_OutputStream()
    out.write_var_int64(number)
    return bytes(out.get())


_SMALL: Final = [bytes((number,)) for number in range(0x80)]
END_OF_PARTS: Final = varint(0)
REST_IN_STATE: Final = varint(-1)


def window_header(window: bytes, time: Timestamp | None) -> bytes:
    """Returns the header of a run of a windowed group."""
    return _WINDOW.pack(time is not None, 0 if time is None else time.micros, len(window)) + window


def split_window_header(value: bytes) -> tuple[bytes, Timestamp | None, bytes]:
    """Returns the encoded window, the combined timestamp if one is kept, and the run."""
    timed, micros, length = _WINDOW.unpack_from(value)
    start = _WINDOW.size + length
    return value[_WINDOW.size : start], Timestamp(micros=micros) if timed else None, value[start:]


class ElementHeads:
    """Encodes the timestamp, windows and pane that precede the value of an element."""

    def __init__(self, window_coder: Coder) -> None:
        # The value comes last, and this coder writes nothing for it
        self._encode = WindowedValueCoder(SingletonCoder(None), window_coder).get_impl().encode_nested

    def __call__(self, time: Timestamp, window: BoundedWindow, pane: PaneInfo = ONLY_FIRING) -> bytes:
        encoded: bytes = self._encode(WindowedValue(None, time, (window,), pane))
        return encoded


# Packs many keys with their runs into one value: in Spark and in a state store, a row costs more than its content.
#
# Layout: the number of keys (u32), the length of each key (u32 each), of each run (u32 each), the keys, the runs.

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


# The timestamps of groups, which the writing side combines and the reading side merges.


def timestamp_combiner(windowing: Windowing) -> TimestampCombinerImpl | None:
    """Returns Beam's combiner for the timestamps of a group; None if the window alone determines the timestamp."""
    if windowing.timestamp_combiner == TimestampCombiner.OUTPUT_AT_EOW:
        return None
    return TimestampCombiner.get_impl(windowing.timestamp_combiner, windowing.windowfn)


Row = tuple[bytes, bytes]
_IN_MEMORY_BYTES: Final = 32 << 20  # of one group; the rest goes to the spool
_CHUNK_BYTES: Final = 256 << 10


def by_key(rows: Iterable[Row]) -> Iterator[tuple[bytes, Iterator[bytes]]]:
    """Yields keys, each with the values of its rows, from rows that are sorted by key."""
    for key, group in itertools.groupby(rows, key=_first):
        yield key, map(_second, group)


def chunks(elements: Iterable[bytes]) -> Iterator[bytes]:
    """Joins encoded elements into chunks that are worth handing over."""
    held: list[bytes] = []
    size = 0
    for element in elements:
        held.append(element)
        size += len(element)
        if size >= _CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def grouped(
    rows: Iterable[Row], grouping: Grouping, kv_coder: Coder, windowing: Windowing, spool: Spool
) -> Iterator[bytes]:
    """Returns the encoded elements of a GroupByKey's output, from its rows sorted by key."""
    if grouping is Grouping.GLOBAL:
        return _globally(rows, spool)
    if grouping is Grouping.WINDOWED:
        return windowed(rows, windowing, spool)
    return _triggered(rows, kv_coder, windowing)


def _globally(rows: Iterable[Row], spool: Spool) -> Iterator[bytes]:
    window = GlobalWindow()
    head = ElementHeads(GlobalWindowCoder())(window.max_timestamp(), window)
    for key, runs in by_key(rows):
        yield b"".join([head, key, *_iterable(runs, spool)])


def windowed(rows: Iterable[Row], windowing: Windowing, spool: Spool | None) -> Iterator[bytes]:
    """Yields the elements of a GroupByKey that fires once per window. Without a spool, whole groups stay in memory."""
    window_coder = windowing.windowfn.get_window_coder()
    decode = window_coder.decode
    heads = ElementHeads(window_coder)
    combiner = timestamp_combiner(windowing)
    merging = windowing.windowfn
    windows: dict[bytes, BoundedWindow] = {}  # decoded once each; cleared if there are many
    for key, values in by_key(rows):
        runs: dict[BoundedWindow, Runs] = {}
        for value in values:
            encoded, time, run = split_window_header(value)
            window = windows.get(encoded)
            if window is None:
                if len(windows) > 10_000:
                    windows.clear()
                window = windows[encoded] = decode(encoded)
            of_window = runs.get(window)
            if of_window is None:
                of_window = runs[window] = Runs(spool)
            of_window.append(run)
            if combiner is not None:
                of_window.time = time if of_window.time is None else combiner.combine(of_window.time, time)
        for window, parts in _merged(runs, merging):
            time = combiner.merge(window, [part.time for part in parts]) if combiner else window.max_timestamp()
            all_runs = itertools.chain.from_iterable(parts)
            yield b"".join([heads(time, window), key, *_iterable(all_runs, spool)])


def _triggered(rows: Iterable[Row], kv_coder: Coder, windowing: Windowing) -> Iterator[bytes]:
    driver = BoundedDriver(windowing)
    window_coder = windowing.windowfn.get_window_coder()
    values_impl = WindowedValueCoder(kv_coder.value_coder(), window_coder).get_impl()
    value_impl = kv_coder.value_coder().get_impl()
    heads = ElementHeads(window_coder)
    for key, encoded in by_key(rows):
        for firing in driver.panes(_decoded(encoded, values_impl)):
            out = create_OutputStream()
            count = 0
            for value in firing.value:
                value_impl.encode_to_stream(value, out, True)
                count += 1
            head = heads(firing.timestamp, firing.windows[0], firing.pane_info)
            run = varint(count) + out.get() if count else b""
            yield b"".join([head, key, UNKNOWN_SIZE, run, END_OF_PARTS])


class Runs:
    """The runs of one window. They stay in memory while they are few."""

    __slots__ = ("_held", "_size", "_spool", "_tokens", "time")

    def __init__(self, spool: Spool | None) -> None:
        self._spool = spool
        self._held: list[bytes] = []
        self._size = 0
        self._tokens: list[bytes] = []
        self.time: Timestamp | None = None

    def append(self, run: bytes) -> None:
        self._held.append(run)
        self._size += len(run)
        if self._size > _IN_MEMORY_BYTES and self._spool is not None:
            self._tokens.append(self._spool.store(iter(self._held)))
            self._held, self._size = [], 0

    def __iter__(self) -> Iterator[bytes]:
        for token in self._tokens:
            assert self._spool is not None
            yield from self._spool.runs(token)
        yield from self._held


def _merged(runs: dict[BoundedWindow, Runs], windowfn: WindowFn) -> Iterator[tuple[BoundedWindow, list[Runs]]]:
    """Yields windows with their runs, after the window function has merged the windows."""
    if not windowfn.is_merging():
        for window, of_window in runs.items():
            yield window, [of_window]
        return
    parts = {window: [of_window] for window, of_window in runs.items()}

    class Context(WindowFn.MergeContext):
        def merge(self, to_be_merged: Iterable[BoundedWindow], merge_result: BoundedWindow) -> None:
            together: list[Runs] = []
            for window in to_be_merged:
                together += parts.pop(window, [])
            parts.setdefault(merge_result, []).extend(together)

    windowfn.merge(Context(list(runs)))
    yield from parts.items()


def _iterable(runs: Iterable[bytes], spool: Spool | None) -> list[bytes]:
    """Returns the encoding of an iterable whose values come in counted runs."""
    parts = [UNKNOWN_SIZE]
    size = 0
    runs = iter(runs)
    for run in runs:
        parts.append(run)
        size += len(run)
        if size > _IN_MEMORY_BYTES and spool is not None:
            token = spool.store(runs)
            return [*parts, REST_IN_STATE, varint(len(token)), token]
    parts.append(END_OF_PARTS)
    return parts


def _decoded(encoded: Iterable[bytes], impl: CoderImpl) -> Iterator[WindowedValue]:
    for run in encoded:
        stream = create_InputStream(run)
        while stream.size() > 0:
            yield impl.decode_from_stream(stream, True)


def _first(row: Row) -> bytes:
    return row[0]


def _second(row: Row) -> bytes:
    return row[1]
