"""Beam's trigger driver, and the state that it keeps for a key."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.transforms import trigger
from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.trigger import GeneralTriggerDriver, InMemoryUnmergedState, MergeableStateAdapter

__all__ = [
    "ALWAYS",
    "NEVER",
    "CountingState",
    "GeneralTriggerDriver",
    "InMemoryUnmergedState",
    "MergeableStateAdapter",
    "TimedDriver",
    "forget",
]

ALWAYS: Final = trigger.Always()
NEVER: Final = trigger._Never()


class TimedDriver(GeneralTriggerDriver):
    """Beam's, which takes the time of a timer for the watermark, also where that is processing time."""

    watermark: Any = None

    def _output(self, window: Any, finished: bool, state: Any, output_watermark: Any, maybe_ontime: bool) -> Any:
        return super()._output(
            window, finished, state, output_watermark if maybe_ontime else self.watermark, maybe_ontime
        )


class CountingState(InMemoryUnmergedState):
    """Beam's, which keeps a count as a list of ones: that of the panes of a key would grow as long as it fires."""

    def add_state(self, window: Any, tag: Any, value: Any) -> None:
        if _is_count(tag):
            values = self.state[window][tag.tag]
            values[:] = [sum(values) + 1]
        else:
            super().add_state(window, tag, value)

    def get_state(self, window: Any, tag: Any) -> Any:
        return sum(self.state[window][tag.tag]) if _is_count(tag) else super().get_state(window, tag)


def _is_count(tag: Any) -> bool:
    """Also of a tag that Beam has wrapped another CombineFn around, with the methods of the first one."""
    create = getattr(getattr(tag, "combine_fn", None), "create_accumulator", None)
    return isinstance(getattr(create, "__self__", None), CountCombineFn)


def forget(of_windows: MergeableStateAdapter, window: Any) -> None:
    """Drops state and timers of a window that is over; `of_windows`: the adapter of a key's state."""
    state = of_windows.raw_state
    for window_id in of_windows.window_ids.pop(window):
        state.state.pop(window_id, None)
        state.timers.pop(window_id, None)
    of_windows._persist_window_ids()
