"""Beam's triggers and the driver that runs them, with corrections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from apache_beam.transforms import trigger
from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterWatermark,
    GeneralTriggerDriver,
    InMemoryUnmergedState,
    MergeableStateAdapter,
)
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.runners.spark.beam.private import create_InputStream, create_OutputStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from apache_beam.transforms import trigger
    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp

    from rmqio.runners.spark.beam.private import CoderImpl


# The state that Beam's trigger driver keeps for a key, with one correction, and its encoding.

_DOMAINS: Final = (TimeDomain.WATERMARK, TimeDomain.REAL_TIME)
_BYTES, _MICROS, _NUMBERS = 0, 1, 2


class CountingState(InMemoryUnmergedState):
    """Beam's state, but with one number per count. Beam's list of ones would grow with each pane of a key."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[BoundedWindow, int] = {}
        """The number of elements in the last pane of each window."""

    @property
    def windows(self) -> Mapping[BoundedWindow, Sequence[int]]:
        """The windows that are not over. Each has the numbers of the entries that hold its state."""
        found: Mapping[BoundedWindow, Sequence[int]] = self.global_state.get(MergeableStateAdapter.WINDOW_IDS.tag, {})
        return found

    def has_entry(self, window_id: int) -> bool:
        """Returns whether the entry is that of a window: it is not if the window has been merged into another one."""
        return any(window_id in ids for ids in self.windows.values())

    def timer_times(self) -> Iterator[tuple[str, int]]:
        """Yields the time domain and the microsecond of each timer."""
        for timers in self.timers.values():
            for (_, domain, _), time in timers.items():
                yield domain, int(time.micros)

    def hold(self) -> int:
        """Returns the microsecond at which the elements hold back the watermark; the end of time if none does."""
        return int(self.get_earliest_hold().micros)

    def add_state(self, window: BoundedWindow, tag: trigger._StateTag, value: object) -> None:
        if _is_count(tag):
            values = self.state[window][tag.tag]
            values[:] = [sum(values) + 1]
        else:
            super().add_state(window, tag, value)

    def get_state(self, window: BoundedWindow, tag: trigger._StateTag) -> object:
        return sum(self.state[window][tag.tag]) if _is_count(tag) else super().get_state(window, tag)


def _is_count(tag: trigger._StateTag) -> bool:
    """Returns whether a tag counts. Beam may have wrapped its CombineFn in one that has the methods of the first."""
    create = getattr(getattr(tag, "combine_fn", None), "create_accumulator", None)
    return isinstance(getattr(create, "__self__", None), CountCombineFn)


def forget(of_windows: MergeableStateAdapter, window: BoundedWindow) -> None:
    """Drops the state and timers of a window that is over. `of_windows` is the adapter of a key's state."""
    state = of_windows.raw_state
    for window_id in of_windows.window_ids.pop(window):
        state.state.pop(window_id, None)
        state.timers.pop(window_id, None)
    of_windows._persist_window_ids()


class StateCodec:
    """Encodes the state. `window_impl` encodes its windows; its elements are bytes."""

    def __init__(self, window_impl: CoderImpl) -> None:
        self._window_impl = window_impl

    def encode(self, state: CountingState) -> bytes:
        """Returns the encoded state; empty if there is nothing to keep."""
        windows = state.windows
        if not windows and not state.timers:
            return b""
        out = create_OutputStream()
        out.write_var_int64(len(windows))
        for window, ids in windows.items():
            out.write(self._window_impl.encode_nested(window), True)
            out.write_var_int64(state.shown.get(window, 0))
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

    def decode(self, data: bytes) -> CountingState:
        """Returns the state; a new one if there is no data."""
        state = CountingState()
        if not data:
            return state
        stream = create_InputStream(data)
        windows: dict[BoundedWindow, list[int]] = {}
        for _ in range(stream.read_var_int64()):
            window = self._window_impl.decode_nested(stream.read_all(True))
            state.shown[window] = stream.read_var_int64()
            windows[window] = _read_numbers(stream)
        state.global_state = {MergeableStateAdapter.WINDOW_IDS.tag: windows}
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


ALWAYS: Final = trigger.Always()
NO_TRIGGER: Final = trigger._Never()


class _OpenWhenMerged(AfterWatermark):
    """`AfterWatermark(late=...)` whose window is open again when it merges with one that the watermark has not passed.

    Beam's Python code takes the merged window for a late one if any of its parts was, even if the watermark has not
    reached its end: it would have early panes and none on time. By Beam's model, and its Java code, it has not fired,
    since the element that makes windows merge has a window of its own in which nothing has fired. A window that the
    watermark has passed stays late: late elements that merge into it are counted by the trigger for late ones.
    """

    watermark: Timestamp = MIN_TIMESTAMP

    def on_merge(
        self, to_be_merged: Iterable[BoundedWindow], merge_result: BoundedWindow, context: trigger.TriggerContext
    ) -> None:
        if self.watermark < merge_result.end:
            context.clear_state(self.LATE_TAG)
            self.late.reset(merge_result, trigger.NestedContext(context, "late"))
        super().on_merge(to_be_merged, merge_result, context)


def open_when_merged(chosen: trigger.TriggerFn) -> trigger.TriggerFn:
    """Returns the trigger with Beam's semantics for windows that merge after one of them has fired."""
    if type(chosen) is AfterWatermark and chosen.late:
        return _OpenWhenMerged(chosen.early, chosen.late)
    return chosen


class TimedDriver(GeneralTriggerDriver):
    """Beam's driver with the real watermark: Beam takes the time of a timer for it, even a processing time."""

    watermark: Timestamp | None = None

    def __init__(self, windowing: Windowing, clock: object) -> None:
        super().__init__(windowing, clock)
        self.trigger_fn: trigger.TriggerFn = open_when_merged(self.trigger_fn)

    def _output(
        self,
        window: BoundedWindow,
        finished: bool,
        state: trigger.SimpleState,
        output_watermark: Timestamp,
        maybe_ontime: bool,
    ) -> WindowedValue:
        return super()._output(
            window, finished, state, output_watermark if maybe_ontime else self.watermark, maybe_ontime
        )

    def panes(
        self,
        state: CountingState,
        elements: Iterable[WindowedValue],
        before: Timestamp,
        watermark: Timestamp,
        clock: Timestamp,
    ) -> Iterator[WindowedValue]:
        """Yields the panes of new elements, then those of timers. The watermark advances from `before` in between."""
        self.watermark = before
        if isinstance(self.trigger_fn, _OpenWhenMerged):
            self.trigger_fn.watermark = before
        yield from _noted(self.process_elements(state, elements, before, before), state.shown)
        self.watermark = watermark
        while timers := state.get_timers(clear=True, watermark=watermark, processing_time=clock)[0]:
            for window_id, (name, domain, time, _) in sorted(timers, key=lambda each: each[1][2]):
                if state.has_entry(window_id):  # else its window was merged away
                    fired = self.process_timer(window_id, name, domain, time, state, watermark)
                    yield from _noted(fired, state.shown)

    def closing(self, state: CountingState, is_over: Callable[[BoundedWindow], bool]) -> Iterator[WindowedValue]:
        """Yields what windows that are over still have to emit, and drops their state and timers."""
        of_windows = MergeableStateAdapter(state)
        for window in of_windows.known_windows():
            if is_over(window):
                yield from _last_pane(self, of_windows, window, state.shown.pop(window, 0))
                forget(of_windows, window)

    @property
    def accumulates(self) -> bool:
        """Whether a pane has the elements of the panes before it, too."""
        return _accumulates(self)

    def elements(self, state: CountingState) -> Iterator[tuple[BoundedWindow, Sequence[bytes]]]:
        """Yields windows with their elements, but for merged windows: Beam's driver combines them."""
        for window, ids in state.windows.items():
            if len(ids) == 1:
                yield window, state.state[ids[0]].get(self.ELEMENTS.tag, ())

    def replace_elements(self, state: CountingState, window: BoundedWindow, elements: list[bytes]) -> None:
        """Replaces the elements of a window that `elements` yields."""
        (window_id,) = state.windows[window]
        state.state[window_id][self.ELEMENTS.tag] = elements


class BoundedDriver(GeneralTriggerDriver):
    """Beam's driver for groups of bounded data."""

    def __init__(self, windowing: Windowing) -> None:
        super().__init__(windowing, _StandingClock())

    def panes(self, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """Yields the panes of one key.

        First all elements arrive, then the watermark advances to the end of time, then windows close. Beam's driver
        lacks the last step, so elements that a trigger never fired (because of a count that is not reached, or a delay
        in processing time) would be lost. A window that closes emits what it still has, as in Beam's other runners.
        """
        state = InMemoryUnmergedState()
        shown: dict[BoundedWindow, int] = {}
        yield from _noted(self.process_elements(state, values, MIN_TIMESTAMP, MIN_TIMESTAMP), shown)
        while due := state.get_timers(clear=True, watermark=MAX_TIMESTAMP, processing_time=float("-inf"))[0]:
            for window_id, (name, domain, time, _) in due:
                yield from _noted(self.process_timer(window_id, name, domain, time, state), shown)
        of_windows = MergeableStateAdapter(state)
        for window in of_windows.known_windows():
            yield from _last_pane(self, of_windows, window, shown.get(window, 0))


class _StandingClock:
    """A clock for bounded data: processing time does not pass while a group is processed."""

    def time(self) -> float:
        return 0.0


def _noted(panes: Iterable[WindowedValue], shown: dict[BoundedWindow, int]) -> Iterator[WindowedValue]:
    for pane in panes:
        shown[pane.windows[0]] = len(pane.value)
        yield pane


def _accumulates(driver: GeneralTriggerDriver) -> bool:
    return bool(driver.accumulation_mode == AccumulationMode.ACCUMULATING)


def _last_pane(
    driver: GeneralTriggerDriver, of_windows: MergeableStateAdapter, window: BoundedWindow, shown: int
) -> Iterator[WindowedValue]:
    """Yields what a window that closes still has to emit. `shown`: the number of elements in its last pane."""
    if of_windows.get_state(window, driver.TOMBSTONE):
        return
    left = of_windows.get_state(window, driver.ELEMENTS)
    if len(left) > (shown if _accumulates(driver) else 0):
        index = of_windows.get_state(window, driver.INDEX)
        late = of_windows.get_state(window, driver.NONSPECULATIVE_INDEX)
        timing = PaneInfoTiming.LATE if late else PaneInfoTiming.ON_TIME
        hold = of_windows.get_state(window, driver.WATERMARK_HOLD)
        time = window.max_timestamp() if hold is None else hold
        yield WindowedValue(left, time, (window,), PaneInfo(index == 0, True, timing, index, late))
