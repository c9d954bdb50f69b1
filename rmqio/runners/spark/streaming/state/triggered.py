"""A GroupByKey whose windows merge, allow lateness, or fire by a trigger. Runs Beam's own trigger driver on kept state.

The driver uses windows, times and counts, but never values, which stay encoded in state and in transit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.runners.spark.beam.private import create_InputStream
from rmqio.runners.spark.beam.trigger_state import CountingState, StateCodec
from rmqio.runners.spark.beam.triggers import TimedDriver
from rmqio.runners.spark.streaming.state.keys import EVENT, NEVER, PROCESSING, Keys, Notes, Times
from rmqio.runners.spark.streaming.state.merging import AT_LEAST, Merging
from rmqio.runners.spark.streaming.state.store import Store
from rmqio.runners.spark.worker.shuffling.framing import END_OF_PARTS, UNKNOWN_SIZE, ElementHeads, varint
from rmqio.runners.spark.worker.shuffling.packing import unpack

if TYPE_CHECKING:
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow

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
