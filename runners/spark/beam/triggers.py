"""Beam's trigger driver and the state that it keeps for a key, with three corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from apache_beam.transforms import trigger
from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.trigger import (
    AfterWatermark,
    GeneralTriggerDriver,
    InMemoryUnmergedState,
    MergeableStateAdapter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from apache_beam.transforms.core import Windowing
    from apache_beam.transforms.window import BoundedWindow
    from apache_beam.utils.timestamp import Timestamp
    from apache_beam.utils.windowed_value import WindowedValue

__all__ = [
    "ALWAYS",
    "NO_TRIGGER",
    "CountingState",
    "GeneralTriggerDriver",
    "InMemoryUnmergedState",
    "MergeableStateAdapter",
    "TimedDriver",
    "forget",
    "open_when_merged",
]

ALWAYS: Final = trigger.Always()
NO_TRIGGER: Final = trigger._Never()


class _OpenWhenMerged(AfterWatermark):
    """`AfterWatermark(late=...)` whose window is open again when it merges with another one.

    Beam's Python code takes the merged window for a late one if any of its parts was, even if the watermark has not
    reached its end: it would have early panes and none on time. By Beam's model, and its Java code, it has not fired,
    since the element that makes windows merge has a window of its own in which nothing has fired.
    """

    def on_merge(
        self, to_be_merged: Iterable[BoundedWindow], merge_result: BoundedWindow, context: trigger.TriggerContext
    ) -> None:
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


class CountingState(InMemoryUnmergedState):
    """Beam's state, but with one number per count. Beam's list of ones would grow with each pane of a key."""

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
