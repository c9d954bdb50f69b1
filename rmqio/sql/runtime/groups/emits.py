"""When Beam gives the row of a group: triggers for EMIT, and for groups without a window."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.utils.timestamp import Duration

from rmqio.sql.planning.plan import Emit

UPDATES_S: Final = 1
"""How often a group that changes is written again, in seconds."""


def of_groups() -> dict[str, Any]:
    """Returns the arguments of `WindowInto` for groups without a window, of an input without end."""
    return {
        "trigger": Repeatedly(AfterProcessingTime(UPDATES_S)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
    }


def of_windows(emit: Emit) -> dict[str, Any]:
    """Returns the arguments of `WindowInto` for windows whose rows are given several times."""
    return {
        "trigger": AfterWatermark(early=_after(emit.early_ms), late=_after(emit.late_ms)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
        "allowed_lateness": Duration(micros=emit.lateness_ms * 1000),
    }


def _after(delay_ms: int | None) -> Any:
    if delay_ms is None:
        return None
    return AfterProcessingTime(delay_ms // 1000) if delay_ms else AfterCount(1)
