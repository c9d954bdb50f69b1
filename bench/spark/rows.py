"""Results: the seconds of every side of one case, and whether ours is as much faster as it has to be."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.common.rows import Spread
from bench.common.tally import UnequalWork
from bench.spark.settings import OURS, Case


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    case: Case
    what: str
    """The amount of work of a run."""
    seconds: Mapping[str, Sequence[float]]
    """The times of each side, by repeat; sides that are neither ours nor a peer are for information."""
    peers: Sequence[str]

    @property
    def best_peer(self) -> str:
        """The peer with the smallest median, which is the one that ours is measured against."""
        return min(self.peers, key=lambda peer: statistics.median(self.seconds[peer]))

    @property
    def ratio(self) -> Spread:
        """The speed relative to the best peer: of the medians; its spread, that of the ratios of each repeat."""
        ours, peer = self.seconds[OURS], self.seconds[self.best_peer]
        ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
        return Spread(statistics.median(peer) / statistics.median(ours), min(ratios), max(ratios))

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.ratio.median >= self.case.target

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "what": self.what,
            "seconds": {side: list(seconds) for side, seconds in self.seconds.items()},
            "peer": self.best_peer,
            "ratio": self.ratio.median,
            "ratio_low": self.ratio.low,
            "ratio_high": self.ratio.high,
            "target": self.case.target,
            "met": self.met,
        }


def require_result(case: Case, side: str, result: Any, expected: Any) -> None:
    """Raise `UnequalWork` unless a side's result is the one that must come out."""
    if result != expected:
        raise UnequalWork(f"{case.name}: {side} has the result {result}, which should be {expected}")
