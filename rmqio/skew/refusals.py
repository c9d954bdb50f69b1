"""In which windows and with which triggers two phases give what one gives."""

from __future__ import annotations

from typing import Any

from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from rmqio.errors import LocalError

_INSTEAD = "use CombinePerKey here"


def needs_discarding(windowing: Any) -> bool:
    """Return whether the first phase must discard what it has fired, although the input accumulates.

    Raises `LocalError` where the results could differ from those of one phase:
    - windows that merge: parts of a key would merge by themselves, into other windows;
    - triggers on counts, which would count parts; and those that end, after which a part is lost and its key is not;
    - panes that accumulate, in windows that cannot be assigned again.
    """
    windowfn, trigger = windowing.windowfn, windowing.triggerfn
    if windowfn.is_merging():
        raise LocalError(
            f"SaltedCombinePerKey in {type(windowfn).__name__}: these windows merge by key, and the parts of a key "
            f"would merge into other windows; {_INSTEAD}"
        )
    if not _is_the_same(trigger):
        raise LocalError(
            f"SaltedCombinePerKey with the trigger {trigger!r}: in two phases it would fire for other elements than in "
            f"one. DefaultTrigger, AfterWatermark and Repeatedly(AfterProcessingTime) are the same; {_INSTEAD}"
        )
    if windowing.accumulation_mode != AccumulationMode.ACCUMULATING or _fires_once(windowing):
        return False
    if type(windowfn) not in (FixedWindows, GlobalWindows):
        raise LocalError(
            f"SaltedCombinePerKey in {type(windowfn).__name__} with panes that accumulate: the first phase must "
            f"discard, for which elements need windows again, and these would become others. Discard, or {_INSTEAD}"
        )
    return True


def _is_the_same(trigger: Any) -> bool:
    if isinstance(trigger, AfterWatermark):
        late = trigger.late
        one_by_one = isinstance(late, Repeatedly) and late.underlying == AfterCount(1)
        return (trigger.early is None or _is_by_clock(trigger.early)) and (
            late is None or one_by_one or _is_by_clock(late)
        )
    return isinstance(trigger, DefaultTrigger) or _is_by_clock(trigger)


def _is_by_clock(trigger: Any) -> bool:
    return isinstance(trigger, Repeatedly) and isinstance(trigger.underlying, AfterProcessingTime)


def _fires_once(windowing: Any) -> bool:
    trigger = windowing.triggerfn
    is_plain = isinstance(trigger, DefaultTrigger) or (
        isinstance(trigger, AfterWatermark) and trigger.early is None and trigger.late is None
    )
    return is_plain and not windowing.allowed_lateness
