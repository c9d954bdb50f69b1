"""GroupByKeys whose elements wait in state for the end of their window or for a trigger."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.private import beam_runner_api_pb2, common_urns, create_InputStream
from rmqio.runners.spark.beam.triggers import CountingState, StateCodec, TimedDriver
from rmqio.runners.spark.streaming.state import EVENT, NEVER, PROCESSING, Keys, Notes, Store, Times
from rmqio.runners.spark.worker.shuffling import (
    END_OF_PARTS,
    UNKNOWN_SIZE,
    ElementHeads,
    Row,
    pack,
    split_window_header,
    unpack,
    varint,
    windowed,
)
from rmqio.runners.spark.worker.state import Spool
from rmqio.runners.spark.worker.task import Bundles

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import CombineFn, Windowing
    from apache_beam.transforms.window import BoundedWindow


# Merges the accumulators of a combine that wait in state, because a long window has many micro-batches.

AT_LEAST: Final = 16
"""The number of accumulators that is worth a merge. The transform after the GroupByKey would merge them anyway, but
until then each of them is kept."""


class Merging:
    """Merges encoded accumulators of one CombineFn."""

    def __init__(self, combine_fn: CombineFn, coder: Coder) -> None:
        """Args: the CombineFn, which is set up for as long as the process lives; the coder of accumulators."""
        combine_fn.setup()
        self._combine_fn = combine_fn
        self._impl = coder.get_impl()

    def merged(self, encoded: Sequence[bytes]) -> bytes:
        """Returns one accumulator for all."""
        accumulators = [self._impl.decode_nested(each) for each in encoded]
        found: bytes = self._impl.encode_nested(self._combine_fn.merge_accumulators(accumulators))
        return found

    def merged_runs(self, runs: Sequence[bytes]) -> bytes:
        """Returns one run for all. A run is a count and that many accumulators."""
        accumulators = []
        for run in runs:
            stream = create_InputStream(run)
            accumulators += [self._impl.decode_from_stream(stream, True) for _ in range(stream.read_var_int64())]
        found: bytes = self._impl.encode_nested(self._combine_fn.merge_accumulators(accumulators))
        return varint(1) + found


def merging_of(bundles: Bundles, kv_coder_id: str) -> Merging | None:
    """Returns a `Merging` for a stage that merges the accumulators that a GroupByKey has grouped, else None.

    Args:
      kv_coder_id: the coder of the GroupByKey's input.
    """
    merges = common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn
    transforms = bundles.descriptor.transforms.values()
    found = [each for each in transforms if each.spec.urn == merges]
    (grouped,) = bundles.descriptor.transforms[bundles.input_id].outputs.values()
    readers = [each for each in transforms if grouped in each.inputs.values()]
    if len(readers) != 1 or readers[0] not in found:
        return None  # another transform uses the values
    payload = beam_runner_api_pb2.CombinePayload.FromString(readers[0].spec.payload)
    combine_fn = bundles.combine_fn(payload)
    return Merging(combine_fn, bundles.context.coders.get_by_id(kv_coder_id).value_coder())


# Keeps elements until the end of their window, in a segment for each micro-batch. Joins the segments when it fires.
#
# Segments are neither read nor decoded before that. A stage has an entry with an index of its windows, and an entry
# for each segment of a window.

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


_END: Final = int(MAX_TIMESTAMP.micros)
_LAST_HOLD: Final = int(GlobalWindow().max_timestamp().micros) - 1


class Clock:
    """Processing time as it was planned with the micro-batch, so that it is the same if the micro-batch runs again."""

    def __init__(self) -> None:
        self.micros = 0

    def time(self) -> Timestamp:
        """Returns the time by which triggers set timers."""
        return Timestamp(micros=self.micros)


class Triggered:
    """One GroupByKey in one bucket."""

    def __init__(self, store: Store, stage: int, windowing: Windowing, merging: Merging | None = None) -> None:
        """Args: `merging`: merges the values, if they are accumulators."""
        self._merging = merging
        self._keys = Keys(store, stage)
        self._times = Times(store, stage)
        self._least = NEVER
        self._windowing = windowing
        window_coder = windowing.windowfn.get_window_coder()
        self._window_impl = window_coder.get_impl()
        self._codec = StateCodec(self._window_impl)
        self._heads = ElementHeads(window_coder)
        self._elements = WindowedValueCoder(BytesCoder(), window_coder).get_impl()
        self._clock = Clock()
        self._driver = TimedDriver(windowing, self._clock)
        self._given: dict[bytes, list[bytes]] = {}
        self._lateness = int(windowing.allowed_lateness.micros)

    def add(self, window: bytes, packed: bytes, watermark: int) -> int:
        """Adds elements of a window. Returns how many were dropped because it is over."""
        keys, runs = unpack(packed)
        if self._last(self._window_impl.decode(window)) < watermark:
            return sum(1 for run in runs for _ in self._decoded(run))
        for key, run in zip(keys, runs, strict=True):
            self._given.setdefault(key, []).append(run)
        return 0

    def fire(self, before: int, now: int, clock: int) -> Iterator[bytes]:
        """Yields panes as encoded elements: those of new elements, then those that the watermark and the clock fire."""
        self._clock.micros = clock
        given, self._given = self._given, {}
        due: dict[bytes, list[tuple[bytes, int]]] = {}
        # At the end of time all windows are over, so nothing waits for the clock any more
        for domain, time in ((EVENT, now), (PROCESSING, NEVER - 1 if now >= _END else clock)):
            for key, micros in self._times.due(domain, time):
                due.setdefault(key, []).append((domain, micros))
        for key in {**given, **due}:
            record = self._keys.get(key)
            notes = Notes(record)
            for note in due.get(key, ()):
                notes.came(*note)
            state = self._codec.decode(record[Notes.LAYOUT.size :] if record else b"")
            elements = (element for run in given.get(key, ()) for element in self._decoded(run))
            for pane in self._panes(state, elements, before, now):
                yield self._encoded(key, pane)
            self._note(notes, key, state)
            if self._merging is not None:
                self._merge(state, self._merging)
            kept = self._codec.encode(state)
            self._keys.put(key, notes.head() + kept if kept else None)

    def _panes(
        self, state: CountingState, elements: Iterable[WindowedValue], before: int, now: int
    ) -> Iterator[WindowedValue]:
        clock = Timestamp(micros=self._clock.micros)
        yield from self._driver.panes(state, elements, Timestamp(micros=before), Timestamp(micros=now), clock)
        yield from self._driver.closing(state, lambda window: self._last(window) < now)

    def _merge(self, state: CountingState, merging: Merging) -> None:
        """Merges accumulators if there are many: those of the last pane into one, and those after it into another."""
        for window, values in self._driver.elements(state):
            if len(values) < AT_LEAST:
                continue
            cut = min(state.shown.get(window, 0), len(values)) if self._driver.accumulates else 0
            parts = [part for part in (values[:cut], values[cut:]) if part]
            self._driver.replace_elements(state, window, [merging.merged(part) for part in parts])
            state.shown[window] = 1 if cut else 0

    def _note(self, notes: Notes, key: bytes, state: CountingState) -> None:
        """Notes when the key is next due: at its next timer, or when a window is over."""
        first = {EVENT: NEVER, PROCESSING: NEVER}
        for domain, micros in state.timer_times():
            where = EVENT if domain == TimeDomain.WATERMARK else PROCESSING
            first[where] = min(first[where], micros)
        for window in state.windows:
            # A window is over one microsecond after its last one
            first[EVENT] = min(first[EVENT], self._last(window) + 1)
        held = state.hold()
        # The end of the global window holds nothing back: the watermark passes it only at the end of time
        hold = NEVER if held >= _LAST_HOLD else held
        notes.update(self._times, key, first[EVENT], first[PROCESSING], hold)

    def _last(self, window: BoundedWindow) -> int:
        """Returns the last microsecond at which a window accepts elements: before the end of time, for any lateness."""
        return min(int(window.max_timestamp().micros) + self._lateness, _END - 1)

    def hold(self) -> int:
        """Returns how far the output watermark may advance. Known after `flush`."""
        return self._least

    @property
    def is_pending(self) -> bool:
        """Whether anything waits for the clock."""
        return self._times.waits_for_the_clock()

    def flush(self, watermark: int) -> None:
        """Writes all changes to the bucket's store."""
        self._least = self._times.least_hold(watermark, self._counts)
        self._keys.flush()
        self._times.flush()

    def _counts(self, key: bytes, hold: int) -> bool:
        record = self._keys.get(key)
        return record is not None and Notes(record).hold == hold

    def _decoded(self, run: bytes) -> Iterator[WindowedValue]:
        stream = create_InputStream(run)
        while stream.size() > 0:
            yield self._elements.decode_from_stream(stream, True)

    def _encoded(self, key: bytes, pane: WindowedValue) -> bytes:
        values = list(pane.value)
        head = self._heads(pane.timestamp, pane.windows[0], pane.pane_info)
        run = varint(len(values)) + b"".join(values) if values else b""
        return b"".join([head, key, UNKNOWN_SIZE, run, END_OF_PARTS])
