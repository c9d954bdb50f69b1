"""EMIT, and the settings that mean the same: when the rows of windows are given besides at their ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from rmqio.sql.errors import Refusal
from rmqio.sql.syntax.statements import Option

_EARLY: Final = "table.exec.emit.early-fire."
_LATE: Final = "table.exec.emit.late-fire."
LATENESS: Final = "table.exec.emit.allow-lateness"
SETTINGS: Final = (*(f"{phase}{what}" for phase in (_EARLY, _LATE) for what in ("enabled", "delay")), LATENESS)


@dataclass(frozen=True, slots=True)
class EmitSettings:
    """Settings of SET. Delays are in milliseconds; None: it was not said.

    Attributes:
      early_enabled, late_enabled: whether windows give rows before and after the watermark.
      early_ms, late_ms: with which delay after the first new row.
      lateness_ms: how long after the watermark rows still count.
    """

    early_enabled: bool = False
    early_ms: int | None = None
    late_enabled: bool = False
    late_ms: int | None = None
    lateness_ms: int = 0

    def with_option(self, option: Option, duration_ms: int | None) -> EmitSettings:
        """Returns the settings after a SET. `duration_ms`: its value as a duration, but for switches."""
        key = option.key.lower()
        if key == LATENESS:
            return replace(self, lateness_ms=duration_ms or 0)
        is_early = key.startswith(_EARLY)
        if key.endswith("delay"):
            return replace(self, early_ms=duration_ms) if is_early else replace(self, late_ms=duration_ms)
        if option.value.lower() not in ("true", "false"):
            raise Refusal(f"{option.value!r} is neither 'true' nor 'false'", option.value_span)
        is_on = option.value.lower() == "true"
        return replace(self, early_enabled=is_on) if is_early else replace(self, late_enabled=is_on)

    def without(self, key: str) -> EmitSettings:
        """Returns the settings after a RESET of one of them."""
        if key == LATENESS:
            return replace(self, lateness_ms=0)
        is_early = key.startswith(_EARLY)
        if key.endswith("delay"):
            return replace(self, early_ms=None) if is_early else replace(self, late_ms=None)
        return replace(self, early_enabled=False) if is_early else replace(self, late_enabled=False)


def is_switch(key: str) -> bool:
    """Returns whether the value of a setting is 'true' or 'false'."""
    return key.endswith("enabled")
