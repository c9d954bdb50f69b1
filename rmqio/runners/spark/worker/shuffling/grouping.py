"""The reading side of a GroupByKey: turns rows sorted by key into encoded elements KV<K, Iterable<V>>.

Values are not decoded, unless a trigger decides when a group fires: their runs are copied into the encoding of the
iterable. A group that is too large for memory goes to a spool. Its element then holds a token that Beam's coder
resolves through the state API.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from apache_beam.coders import WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow, WindowFn

from rmqio.runners.spark.beam.private import GlobalWindowCoder, create_InputStream, create_OutputStream
from rmqio.runners.spark.beam.triggers import BoundedDriver
from rmqio.runners.spark.model import Grouping
from rmqio.runners.spark.worker.shuffling.framing import (
    END_OF_PARTS,
    REST_IN_STATE,
    UNKNOWN_SIZE,
    ElementHeads,
    split_window_header,
    varint,
)
from rmqio.runners.spark.worker.shuffling.timestamps import timestamp_combiner
from rmqio.runners.spark.worker.spool import Spool

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp
    from apache_beam.utils.windowed_value import WindowedValue

    from rmqio.runners.spark.beam.private import CoderImpl

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
