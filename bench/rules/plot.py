"""The cost of rules as a picture: microseconds a message by the number of rules, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.rules.figures import Figure
from docs.tools.svg import Picture

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 530, 50, 350
_COLOURS: Final = ("#2f73b8", "#3f9b58", "#de6c2c", "#7d5bbf", "#b8324f", "#7b8794", "#a0791a")
_APART: Final = 17
"""Pixels between the names of two lines."""

Points = Sequence[tuple[float, float]]


def lines_of(figures: Sequence[Figure]) -> dict[str, list[tuple[float, float]]]:
    """Returns the points of each side with values, in order of rules."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in sorted(figures, key=lambda figure: figure.rules):
        shown = f"{each.side}, {each.values}" if each.side == "rmqio" else each.side
        if each.side != "decode alone" and shown != "rmqio, cold":
            lines.setdefault(shown, []).append((each.rules, each.median))
    return {name: points for name, points in lines.items() if len(points) > 1}


def growth_text(points: Points) -> str:
    """How the cost grew over the whole range."""
    (first, low), (last, high) = points[0], points[-1]
    return f"{last / first:,.0f} times the rules cost {high / low:.1f} times as much"


def draw(path: Path, lines: Mapping[str, Points]) -> None:
    """Writes the picture."""
    ours = next((points for name, points in lines.items() if name == "rmqio, distinct"), next(iter(lines.values())))
    title = "Microseconds of CPU a message, by the number of rules"
    picture = Picture(_WIDTH, _HEIGHT, title, f"With rmqio, {growth_text(ours)}.")
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    across, down = (_decades(min(xs), max(xs)), _decades(min(ys), max(ys)))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (_RIGHT - _LEFT) * (math.log10(x) - across[0]) / (across[1] - across[0]),
            _BOTTOM - (_BOTTOM - _TOP) * (math.log10(y) - down[0]) / (down[1] - down[0]),
        )

    picture.text(20, 28, title, "title", "start")
    for power in range(down[0], down[1] + 1):
        _, y = place(10.0 ** across[0], 10.0**power)
        picture.line((_LEFT, y), (_RIGHT, y))
        picture.small(_LEFT - 8, y + 4, f"{10.0**power:,g}", "end")
    for power in range(across[0], across[1] + 1):
        x, _ = place(10.0**power, 10.0 ** down[0])
        picture.line((x, _TOP), (x, _BOTTOM))
        picture.small(x, _BOTTOM + 20, f"{10**power:,}")
    picture.small((_LEFT + _RIGHT) / 2, _BOTTOM + 44, "rules")
    names = []
    for (name, points), colour in zip(lines.items(), _COLOURS, strict=False):
        placed = [place(x, y) for x, y in points]
        picture.line(*placed, colour=colour)
        names.append((placed[-1][1], name, colour))
    for y, name, colour in _spread(names):
        picture.line((_RIGHT + 8, y - 4), (_RIGHT + 22, y - 4), colour=colour)
        picture.small(_RIGHT + 28, y, name, "start")
    path.write_text(str(picture), encoding="utf-8")


def _decades(least: float, most: float) -> tuple[int, int]:
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return low, max(high, low + 1)


def _spread(names: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """The names beside the ends of their lines, none over another."""
    found: list[tuple[float, str, str]] = []
    for y, name, colour in sorted(names):
        found.append((max(y + 4, found[-1][0] + _APART) if found else y + 4, name, colour))
    return found
