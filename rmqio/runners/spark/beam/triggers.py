"""Beam's triggers and the driver that runs them, with corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from apache_beam.transforms import trigger
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterWatermark,
    GeneralTriggerDriver,
    InMemoryUnmergedState,
    MergeableStateAdapter,
)
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from rmqio.runners.spark.beam.trigger_state import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp

    from rmqio.runners.spark.beam.trigger_state import CountingState

__all__ = ["ALWAYS", "NO_TRIGGER", "BoundedDriver", "TimedDriver", "open_when_merged"]

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
