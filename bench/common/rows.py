"""Results: the figures of one case, and whether they meet their target."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeats, summed up."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, pattern: str = "{:,.0f}") -> str:
        """Median and, in parentheses, minimum..maximum."""
        if self.low == self.high:
            return pattern.format(self.median)
        return f"{pattern.format(self.median)} ({pattern.format(self.low)}..{pattern.format(self.high)})"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: rates of both sides and their ratio, or one figure against a limit."""

    case: str
    size: int
    ours: Spread
    unit: str
    target: str
    met: bool | None
    """None: there is no target; the figure is for information."""
    peer: Spread | None = None
    ratio: Spread | None = None
    note: str = ""

    @classmethod
    def ratio_of(
        cls, case: str, size: int, ours: Sequence[float], peer: Sequence[float], target: float | None, note: str = ""
    ) -> Row:
        """Rates by repeat. The ratio is that of the medians; its spread, that of the ratios of each repeat."""
        ratios = [a / b for a, b in zip(ours, peer, strict=True)]
        ratio = Spread(statistics.median(ours) / statistics.median(peer), min(ratios), max(ratios))
        return cls(
            case=case,
            size=size,
            ours=Spread.of(ours),
            unit="msg/s",
            target="" if target is None else f">= {target:g}",
            met=None if target is None else ratio.median >= target,
            peer=Spread.of(peer),
            ratio=ratio,
            note=note,
        )

    @classmethod
    def limit_of(
        cls, case: str, size: int, values: Sequence[float], unit: str, limit: float | None, note: str = ""
    ) -> Row:
        """A figure that must not exceed a limit; the largest of the values counts."""
        return cls(
            case=case,
            size=size,
            ours=Spread.of(values),
            unit=unit,
            target="" if limit is None else f"< {limit:g} {unit}",
            met=None if limit is None else max(values) < limit,
            note=note,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
