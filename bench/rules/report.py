"""The figures of rules as Markdown."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.common.report import machine, put_between
from bench.rules.figures import Figure

BEGIN: Final = "<!-- figures: written by python -m bench.rules --markdown -->"
END: Final = "<!-- end of figures -->"
_HEAD: Final = ("| side | values | us a message | messages/s | target |", "|---|---|--:|--:|---|")
_TITLES: Final = {
    "few": "41 rules, 300 bytes", "sigma": "3,780 rules, 1.6 KB", "thousand": "1,000 rules, 1.6 KB",
    "hostile": "Hostile patterns, lines of 10 KB",
}  # fmt: skip


def kept(
    path: Path, names: Sequence[str], figures: list[Figure], topics: list[dict[str, Any]]
) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Returns the figures with those of other cases that a file has: a long run can be cut into cases."""
    if not path.exists():
        return figures, topics
    old = json.loads(path.read_text("utf-8"))
    before = [Figure(**each) for each in old["figures"] if each["case"] not in names]
    return [*before, *figures], topics or old["topics"]


def write(path: Path, figures: Sequence[Figure], topics: Sequence[dict[str, Any]]) -> None:
    """Replaces what stands between the two marks of an existing file, or makes a file of it."""
    put_between(path, BEGIN, END, text(figures, topics))


def text(figures: Sequence[Figure], topics: Sequence[dict[str, Any]]) -> str:
    """Returns the tables as Markdown."""
    lines = lines_of([each for each in figures if each.case == "growth"])
    now = machine()
    made = [
        f"Machine: {now['cores']} cores, {now['memory_gb']} GB, {now['system']} {now['architecture']}, "
        f"Python {now['python']}, load average {os.getloadavg()[1]:.1f}.",
        "",
    ]
    for name, title in _TITLES.items():
        mine = [each for each in figures if each.case == name]
        if mine:
            made += [f"### {title}", "", *_HEAD, *(_row(each) for each in mine), ""]
    if lines:
        made += ["### Cost by the number of rules", ""]
        counts = sorted({int(x) for points in lines.values() for x, _ in points})
        made += [f"| us a message with | {' | '.join(f'{each:,} rules' for each in counts)} |"]
        made += ["|---|" + "--:|" * len(counts)]
        for side, points in lines.items():
            by_count = {int(x): f"{y:,.1f}" for x, y in points}
            made += [f"| {side} | {' | '.join(by_count.get(each, '') for each in counts)} |"]
        for side in ("rmqio, warm", "rmqio, distinct"):
            if side in lines:
                made += ["", f"{side}: {growth_text(lines[side])}."]
        made += [""]
    if topics:
        made += ["### Topic to topic", ""]
        made += [f"{topics[0]['messages']:,} messages of about 300 bytes, {topics[0]['hits']:,} hits.", ""]
        made += _table_of_topics(topics)
    return "\n".join(made) + "\n"


def lines_of(figures: Sequence[Figure]) -> dict[str, list[tuple[float, float]]]:
    """Returns the points of each side with values, in order of rules."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in sorted(figures, key=lambda figure: figure.rules):
        shown = f"{each.side}, {each.values}" if each.side == "rmqio" else each.side
        if each.side != "decode alone" and shown != "rmqio, cold":
            lines.setdefault(shown, []).append((each.rules, each.median))
    return {name: points for name, points in lines.items() if len(points) > 1}


def growth_text(points: Sequence[tuple[float, float]]) -> str:
    """How the cost grew over the whole range."""
    (first, low), (last, high) = points[0], points[-1]
    return f"{last / first:,.0f} times the rules cost {high / low:.1f} times as much"


def _row(figure: Figure) -> str:
    spread = f"{figure.median:,.2f} ({figure.least:,.2f} to {figure.most:,.2f})"
    verdict = "" if figure.met is None else f"{figure.target:,}: {'met' if figure.met else '**missed**'}"
    return f"| {figure.side} | {figure.values} | {spread} | {figure.rate:,.0f} | {verdict} |"


def _table_of_topics(topics: Sequence[dict[str, Any]]) -> list[str]:
    from bench.rules.topics import rows  # with Beam

    head, *cells = rows(list(topics))
    return [f"| {' | '.join(head)} |", "|---|--:|--:|--:|--:|---|", *(f"| {' | '.join(each)} |" for each in cells), ""]
