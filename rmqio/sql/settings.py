"""SET: what statements after it obey."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from rmqio.sql.errors import Refusal, nearest
from rmqio.sql.syntax.nodes import Option

_UNITS_MS: Final = {
    "ms": 1, "millisecond": 1, "milliseconds": 1, "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "min": 60_000, "m": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000, "hour": 3_600_000,
    "hours": 3_600_000, "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
TTL: Final = "table.exec.state.ttl"
NAME: Final = "pipeline.name"
_KNOWN: Final = (TTL, NAME)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a script.

    Attributes:
      ttl_ms: how long a join without a bound keeps a row; 0: it was not said.
      name: the job's name.
    """

    ttl_ms: int = 0
    name: str = ""

    def with_option(self, option: Option) -> Settings:
        """Returns the settings after a SET. Raises `Refusal` for what is unknown or not valid."""
        key = option.key.lower()
        if key == TTL:
            return replace(self, ttl_ms=_duration_ms(option))
        if key == NAME:
            return replace(self, name=option.value)
        raise Refusal(f"there is no setting {option.key!r}{nearest(key, _KNOWN)}", option.span)

    def without(self, key: str | None) -> Settings:
        """Returns the settings after a RESET."""
        if key is None:
            return Settings()
        return replace(self, **({"ttl_ms": 0} if key.lower() == TTL else {"name": ""}))


def _duration_ms(option: Option) -> int:
    found = re.fullmatch(r"\s*([0-9]{1,12})\s*([a-z]*)\s*", option.value.lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise Refusal(f"{option.value!r} is not a time; one is '1 h'", option.value_span)
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]
