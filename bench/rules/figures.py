"""Figures, and what measures them: microseconds of CPU a message."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.rules.sides import Run

BATCH = 512


class Figure(NamedTuple):
    """The microseconds of CPU a message: the median of the repeats, the least and the most."""

    case: str
    rules: int
    side: str
    values: str
    median: float
    least: float
    most: float
    target: int = 0
    """Messages a second."""

    @property
    def rate(self) -> float:
        return 1e6 / self.median

    @property
    def met(self) -> bool | None:
        return self.rate >= self.target if self.target else None


def figure_of(case: str, rules: int, side: str, values: str, found: Sequence[float], target: int = 0) -> Figure:
    """Returns the figure of repeats, and prints it."""
    figure = Figure(case, rules, side, values, statistics.median(found), min(found), max(found), target)
    verdict = "" if figure.met is None else f"  target {target:,}: {'met' if figure.met else 'MISSED'}"
    print(f"  {side:<18} {values:<10} {figure.median:9.2f} us ({figure.least:.2f} to {figure.most:.2f}) "
          f"{figure.rate:12,.0f}/s{verdict}", flush=True)  # fmt: skip
    return figure


def measured(run: Run, bodies: Sequence[bytes], repeats: int, fresh: Callable[[], Run] | None = None) -> list[float]:
    """Microseconds of CPU a message of each repeat. `fresh`: a new side for each, outside of the time."""
    found = []
    for _ in range(repeats):
        side = run if fresh is None else fresh()
        begun = time.process_time()
        for at in range(0, len(bodies), BATCH):
            side(bodies[at : at + BATCH])
        found.append((time.process_time() - begun) * 1e6 / len(bodies))
    return found
