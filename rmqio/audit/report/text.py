"""The report on a terminal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

from rmqio.command_line.terminal import safe_line

_MOST_LINES: Final = 20
TITLES: Final = {
    "in_dead_letters": "dead letters",
    "lost": "lost",
    "doubled": "doubled",
    "late": "late",
    "out_of_order": "out of order",
    "foreign": "of no message there",
    "pending": "on their way",
}
FAULTS: Final = {
    "lost": "lost",
    "dead_letters": "dead letters",
    "lost_or_dead_letters": "lost or dead letters",
    "doubled": "doubled",
}
"""What the faults between two hops count."""


def lines(report: dict[str, Any], *, most: int = _MOST_LINES) -> Iterator[str]:
    """Yield the lines of a report."""
    yield summary(report)
    for key in ("sent", "arrived"):
        yield f"  {key:<20}{report[key]:>14,}"
    for kind, title in TITLES.items():
        if report[kind] or kind in ("lost", "doubled"):
            yield f"  {title:<20}{report[kind]:>14,}"
    if report["arrived"]:
        delay = report["delay_ms"]
        yield (
            f"  delay: half within {duration(delay['half_within'])}, "
            f"99 % within {duration(delay['99_percent_within'])}, "
            f"at most {duration(delay['max'])}"
        )
    hops = [hop for hop in report["hops"] if hop["hop"] is not None]
    if hops:
        yield ""
        yield "hops:"
        for hop in hops:
            delay_text = f"   {duration(hop['mean_delay_ms'])} after the one before" if "mean_delay_ms" in hop else ""
            yield f"  {safe_line(hop['hop']):<20}{hop['count']:>14,}{delay_text}"
    if report["faults"]:
        yield ""
        yield "where it happened:"
        yield from _edges(report["faults"])
    for kind in ("lost", "doubled"):
        ranges = report["ranges"].get(kind, [])
        if ranges:
            yield ""
            yield f"{kind}:"
            yield from _some([_range(each) for each in ranges], most)
    for kind in ("late", "out_of_order", "foreign"):
        messages = report["messages"].get(kind, [])
        if messages:
            yield ""
            yield f"{TITLES[kind]}:"
            yield from _some([_message(each) for each in messages], min(most, 5))
    if report["notes"]:
        yield ""
        yield from (f"note: {safe_line(note)}" for note in report["notes"])


def summary(report: dict[str, Any]) -> str:
    """Return the one line that says whether all is there."""
    wrong = {"unidentified": "without identity", **TITLES}
    found = ", ".join(f"{count:,} {wrong[kind]}" for kind, count in report["wrong"].items())
    verdict = found or "nothing lost or doubled"
    return safe_line(f"{report['from_topic']} -> {report['to_topic']} by {report['by']}: {verdict}")


def duration(ms: float) -> str:
    """Return a duration in the unit that fits."""
    ms = round(ms)
    if abs(ms) < 1_000:
        return f"{ms} ms"
    seconds = ms / 1_000
    if abs(seconds) < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if abs(seconds) < 6_000 else f"{seconds / 3_600:.0f} h"


def time_text(ms: int) -> str:
    """Return a time as ISO 8601, which `--from` takes."""
    try:
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _edges(faults: list[dict[str, Any]]) -> Iterator[str]:
    """Yield for each pair of hops what happened between them, in all blocks."""
    counts: dict[str, dict[str, int]] = {}
    for fault in faults:
        found = counts.setdefault(fault["where"], dict.fromkeys(FAULTS, 0))
        for kind in FAULTS:
            found[kind] += fault[kind]
    for where, found in counts.items():
        shown = ", ".join(f"{count:,} {FAULTS[kind]}" for kind, count in found.items() if count)
        yield safe_line(f"  {where}   {shown}")


def _some(found: list[str], most: int) -> Iterator[str]:
    yield from found[:most]
    if len(found) > most:
        yield f"  ... and {len(found) - most:,} more lines, which --json and --html have"


def _range(each: dict[str, Any]) -> str:
    first, last = each["first_offset"], each["last_offset"]
    offsets = f"{first}" if first == last else f"{first} to {last}"
    where = f"   {each['where']}" if each["where"] else ""
    return safe_line(f"  {each['queue']} @ {offsets}   {each['count']:,}{where}")


def _message(each: dict[str, Any]) -> str:
    text = f"  {each['queue']} @ {each['offset']}"
    if "to_queue" in each:
        text += f" -> {each['to_queue']} @ {each['to_offset']}   {duration(each['delay_ms'])}"
    if "message_id" in each:
        text += f"   id {each['message_id']}"
    return safe_line(text + (f"   {each['where']}" if "where" in each else ""))
