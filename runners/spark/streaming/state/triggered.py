"""A GroupByKey whose windows merge, allow lateness, or fire by a trigger. Runs Beam's own trigger driver on kept state.

The driver uses windows, times and counts, but never values, which stay encoded in state and in transit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.private import create_InputStream, create_OutputStream
from rmqio.runners.spark.beam.triggers import CountingState, MergeableStateAdapter, TimedDriver, forget
from rmqio.runners.spark.streaming.state.keys import EVENT, NEVER, PROCESSING, Keys, Notes, Times
from rmqio.runners.spark.streaming.state.merging import AT_LEAST, Merging
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.shuffling.framing import END_OF_PARTS, UNKNOWN_SIZE, ElementHeads, varint
from rmqio.runners.spark.worker.shuffling.grouping import closing
from rmqio.runners.spark.worker.shuffling.packing import unpack

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow

_DOMAINS: Final = (TimeDomain.WATERMARK, TimeDomain.REAL_TIME)
_BYTES, _MICROS, _NUMBERS = 0, 1, 2
_SHOWN: Final = "shown"
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
            state = self._loaded(record[Notes.LAYOUT.size :] if record else b"")
            elements = (element for run in given.get(key, ()) for element in self._decoded(run))
            for pane in self._panes(state, elements, before, now):
                yield self._encoded(key, pane)
            self._note(notes, key, state)
            if self._merging is not None:
                self._merge(state, self._merging)
            kept = self._dumped(state)
            self._keys.put(key, notes.head() + kept if kept else None)

    def _panes(
        self, state: CountingState, elements: Iterable[WindowedValue], before: int, now: int
    ) -> Iterator[WindowedValue]:
        driver, watermark, shown = self._driver, Timestamp(micros=now), state.global_state.setdefault(_SHOWN, {})
        driver.watermark = late = Timestamp(micros=before)
        for pane in driver.process_elements(state, elements, late, late):
            shown[pane.windows[0]] = len(pane.value)
            yield pane
        driver.watermark = watermark
        while True:
            clock = Timestamp(micros=self._clock.micros)
            timers, _ = state.get_timers(clear=True, watermark=watermark, processing_time=clock)
            if not timers:
                break
            for window_id, (name, domain, time, _) in sorted(timers, key=lambda each: each[1][2]):
                if window_id not in _ids(state):
                    continue  # merged away
                for pane in driver.process_timer(window_id, name, domain, time, state, watermark):
                    shown[pane.windows[0]] = len(pane.value)
                    yield pane
        of_windows = MergeableStateAdapter(state)
        for window in of_windows.known_windows():
            if self._last(window) < now:
                yield from closing(driver, of_windows, window, shown.pop(window, 0))
                forget(of_windows, window)

    def _merge(self, state: CountingState, merging: Merging) -> None:
        """Merges accumulators if there are many: those of the last pane into one, and those after it into another."""
        shown = state.global_state.get(_SHOWN, {})
        for window, ids in state.global_state.get("window_ids", {}).items():
            if len(ids) > 1:
                continue  # of merged windows: Beam's driver combines them
            values = state.state[ids[0]].get(self._driver.ELEMENTS.tag, ())
            if len(values) < AT_LEAST:
                continue
            accumulates = self._driver.accumulation_mode == AccumulationMode.ACCUMULATING
            cut = min(shown.get(window, 0), len(values)) if accumulates else 0
            parts = [part for part in (values[:cut], values[cut:]) if part]
            state.state[ids[0]][self._driver.ELEMENTS.tag] = [merging.merged(part) for part in parts]
            shown[window] = 1 if cut else 0

    def _note(self, notes: Notes, key: bytes, state: CountingState) -> None:
        """Notes when the key is next due: at its next timer, or when a window is over."""
        first = {EVENT: NEVER, PROCESSING: NEVER}
        for timers in state.timers.values():
            for (_, domain, _), time in timers.items():
                where = EVENT if domain == TimeDomain.WATERMARK else PROCESSING
                first[where] = min(first[where], int(time.micros))
        for window in state.global_state.get("window_ids", ()):
            # A window is over one microsecond after its last one
            first[EVENT] = min(first[EVENT], self._last(window) + 1)
        held = int(state.get_earliest_hold().micros)
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

    # ---- the driver's state as bytes -----------------------------------------------------------------------------

    def _dumped(self, state: CountingState) -> bytes:
        """Returns the encoded state; empty if there is nothing to keep."""
        windows = state.global_state.get("window_ids", {})
        if not windows and not state.timers:
            return b""
        shown = state.global_state.get(_SHOWN, {})
        out = create_OutputStream()
        out.write_var_int64(len(windows))
        for window, ids in windows.items():
            out.write(self._window_impl.encode_nested(window), True)
            out.write_var_int64(shown.get(window, 0))
            _write_numbers(out, ids)
        out.write_var_int64(len(state.state))
        for window_id, tags in state.state.items():
            out.write_var_int64(window_id)
            out.write_var_int64(len(tags))
            for tag, values in tags.items():
                out.write(tag.encode(), True)
                _write_values(out, values)
        out.write_var_int64(len(state.timers))
        for window_id, timers in state.timers.items():
            out.write_var_int64(window_id)
            out.write_var_int64(len(timers))
            for (name, domain, tag), time in timers.items():
                out.write(name.encode(), True)
                out.write_var_int64(_DOMAINS.index(domain))
                out.write(tag.encode(), True)
                out.write_var_int64(int(time.micros))
        return bytes(out.get())

    def _loaded(self, data: bytes) -> CountingState:
        state = CountingState()
        if not data:
            return state
        stream = create_InputStream(data)
        windows: dict[BoundedWindow, list[int]] = {}
        shown: dict[BoundedWindow, int] = {}
        for _ in range(stream.read_var_int64()):
            window = self._window_impl.decode_nested(stream.read_all(True))
            shown[window] = stream.read_var_int64()
            windows[window] = _read_numbers(stream)
        state.global_state = {"window_ids": windows, _SHOWN: shown}
        for _ in range(stream.read_var_int64()):
            tags = state.state[stream.read_var_int64()]
            for _ in range(stream.read_var_int64()):
                tag = stream.read_all(True).decode()
                tags[tag] = _read_values(stream)
        for _ in range(stream.read_var_int64()):
            timers = state.timers[stream.read_var_int64()]
            for _ in range(stream.read_var_int64()):
                name = stream.read_all(True).decode()
                domain = _DOMAINS[stream.read_var_int64()]
                tag = stream.read_all(True).decode()
                timers[name, domain, tag] = Timestamp(micros=stream.read_var_int64())
        return state


def _ids(state: CountingState) -> set[int]:
    return {each for ids in state.global_state.get("window_ids", {}).values() for each in ids}


def _write_values(out: create_OutputStream, values: list[Any]) -> None:
    """Writes a state's values, which are all bytes, all Timestamps, or all ints."""
    if values and isinstance(values[0], bytes):
        out.write_var_int64(_BYTES)
        out.write_var_int64(len(values))
        for value in values:
            out.write(value, True)
    elif values and isinstance(values[0], Timestamp):
        out.write_var_int64(_MICROS)
        _write_numbers(out, [int(value.micros) for value in values])
    else:
        out.write_var_int64(_NUMBERS)
        _write_numbers(out, values)


def _read_values(stream: create_InputStream) -> list[bytes] | list[Timestamp] | list[int]:
    kind = stream.read_var_int64()
    if kind == _BYTES:
        return [stream.read_all(True) for _ in range(stream.read_var_int64())]
    numbers = _read_numbers(stream)
    return [Timestamp(micros=number) for number in numbers] if kind == _MICROS else numbers


def _write_numbers(out: create_OutputStream, numbers: Iterable[int]) -> None:
    """Writes equal neighbours once, with their count."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][0] == number:
            groups[-1][1] += 1
        else:
            groups.append([int(number), 1])
    out.write_var_int64(len(groups))
    for number, count in groups:
        out.write_var_int64(number)
        out.write_var_int64(count)


def _read_numbers(stream: create_InputStream) -> list[int]:
    found: list[int] = []
    for _ in range(stream.read_var_int64()):
        number = stream.read_var_int64()
        found += [number] * stream.read_var_int64()
    return found
