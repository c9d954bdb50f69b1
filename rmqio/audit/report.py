"""The report of an audit: as text, as JSON, and as a page of HTML."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from rmqio.audit.checking import Result
from rmqio.audit.findings import Place
from rmqio.audit.hops import SINK, SOURCE, Candidate, Edge, Fault
from rmqio.audit.sketch import NO_QUEUE
from rmqio.command_line.output import safe_line
from rmqio.dead_letters.letters import read_ranges
from rmqio.errors import RmqioError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue

# The report as plain values, for JSON, the page and the terminal.

_SHOWN_KINDS: Final = ("lost", "doubled", "late", "out_of_order", "foreign", "pending")


def document(result: Result, most: int, ids: dict[tuple[MessageQueue, int], dict[str, Any]]) -> dict[str, Any]:
    """Return the report.

    Args:
      most: the most messages of each kind to name.
      ids: of messages that are still there, by place.
    """
    request, findings = result.request, result.findings
    total = findings.total
    return {
        "from_topic": request.from_topic,
        "to_topic": request.to_topic,
        "dead_letter_topic": request.dead_letter_topic,
        "audit_topic": request.audit_topic,
        "by": result.identity.name,
        "checked_ms": result.checked_ms,
        "is_good": not result.wrong,
        "wrong": result.wrong,
        **total.as_dict(),
        "unidentified": result.source.unidentified + result.sink.unidentified,
        "late_ms": request.late_ms,
        "delay_ms": {
            "half_within": findings.delay_within(0.5),
            "99_percent_within": findings.delay_within(0.99),
            "max": total.max_delay_ms,
        },
        "from_queues": [{"queue": name_of(queue), **counts.as_dict()} for queue, counts in _sorted(findings.sources)],
        "to_queues": [
            {"topic": queue.topic, "queue": name_of(queue), **counts.as_dict()}
            for queue, counts in _sorted(findings.sinks)
        ],
        "windows": [
            {"start_ms": start, **counts.as_dict()} for start, counts in sorted(findings.windows.items())
        ],
        "window_ms": request.window_ms,
        "hops": _hops(result),
        "faults": [_fault(result, fault) for fault in result.faults],
        "ranges": {
            kind: _ranges(result, findings.places[kind], most) for kind in ("lost", "doubled") if findings.places[kind]
        },
        "messages": {
            kind: [_message(result, place, ids) for place in findings.first(kind, most)]
            for kind in _SHOWN_KINDS
            if findings.places[kind]
        },
        "notes": [*result.notes, *_notes(result)],
    }  # fmt: skip


def name_of(queue: MessageQueue) -> str:
    """Return a queue as `--queue` takes it; empty for none."""
    return "" if queue == NO_QUEUE else f"{queue.broker}:{queue.queue_id}"


def edge_text(result: Result, edge: Edge) -> str:
    """Return an edge in words."""
    names = {SOURCE: f"topic {result.request.from_topic}", SINK: f"topic {result.request.to_topic}"}
    before = " and ".join(names.get(name, repr(name)) for name in edge.before)
    return f"between {before} and {names.get(edge.hop, repr(edge.hop))}"


def where(result: Result, place: Place) -> str:
    """Return between which hops something happened to a message; empty if it is not known."""
    if place.kind in ("lost", "doubled"):
        return " or ".join(edge_text(result, edge) for edge in result.edge_of(place))
    if place.kind == "late" and (edge := result.slowest_edge(place)) is not None:
        return edge_text(result, edge)
    return ""


def _hops(result: Result) -> list[dict[str, Any]]:
    found = []
    for name, passed in result.hops.items():
        edge = next(edge for edge in result.edges if edge.hop == name)
        found.append(
            {
                "hop": name,
                "after": [each for each in edge.before if each != SOURCE],
                "counts": "ids" if passed.by_id else "places",
                "count": passed.count,
                "runs": len(passed.runs),
                "windows": [{"start_ms": start, "count": n} for start, n in sorted(passed.windows.items())],
                **_delay(result, edge),
            }
        )
    for edge in result.edges:
        if edge.hop == SINK:
            found.append({"hop": None, "after": list(edge.before), **_delay(result, edge)})
    return found


def _delay(result: Result, edge: Edge) -> dict[str, Any]:
    delays = [delay for _, delay in result.delays.get(edge, ())]
    if not delays:
        return {}
    return {"mean_delay_ms": round(sum(delays) / len(delays)), "max_block_delay_ms": round(max(delays))}


def _fault(result: Result, fault: Fault) -> dict[str, Any]:
    queue, offsets = fault.unit.queue, fault.unit.offsets
    return {
        "where": edge_text(result, fault.edge),
        "after": [name for name in fault.edge.before if name != SOURCE],
        "before": None if fault.edge.hop == SINK else fault.edge.hop,
        "queue": name_of(queue),
        "first_offset": None if queue == NO_QUEUE else max(offsets.start, result.source.begins.get(queue, 0)),
        "last_offset": None if queue == NO_QUEUE else min(offsets.stop, result.source.ends.get(queue, 0)) - 1,
        "lost": fault.lost,
        "dead_letters": fault.letters,
        "lost_or_dead_letters": fault.unclear,
        "doubled": fault.doubled,
        "lost_messages": _places(fault.lost_messages),
        "dead_letter_messages": _places(fault.letter_messages),
        "doubled_messages": _places(fault.doubled_messages),
    }


def _places(messages: Iterable[Candidate]) -> list[dict[str, Any]]:
    return [{"queue": name_of(each.queue), "offset": each.offset} for each in messages]


def _message(result: Result, place: Place, ids: dict[tuple[MessageQueue, int], dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": place.queue.topic,
        "queue": name_of(place.queue),
        "offset": place.offset,
        "store_timestamp_ms": place.time_ms,
        **ids.get((place.queue, place.offset), {}),
    }
    if place.to_queue is not None:
        found |= {
            "to_queue": name_of(place.to_queue),
            "to_offset": place.to_offset,
            "delay_ms": place.delay_ms,
        }
    if text := where(result, place):
        found["where"] = text
    return found


def _ranges(result: Result, places: Collection[Place], most: int) -> list[dict[str, Any]]:
    """Runs of consecutive offsets that share a place of loss."""
    found: list[dict[str, Any]] = []
    for place in sorted(places, key=lambda each: (each.queue, each.offset)):
        text = where(result, place)
        name = name_of(place.queue)
        last = found[-1] if found else None
        if (
            last is not None
            and (last["queue"], last["where"]) == (name, text)
            and last["last_offset"] >= place.offset - 1
        ):
            last["last_offset"] = place.offset
            last["count"] += 1
            continue
        if len(found) >= most:
            break
        found.append(
            {"queue": name, "first_offset": place.offset, "last_offset": place.offset, "count": 1, "where": text}
        )
    return found


def _sorted(counts: dict[MessageQueue, Any]) -> Sequence[tuple[MessageQueue, Any]]:
    return sorted(counts.items())


def _notes(result: Result) -> Iterable[str]:
    source, sink = result.source, result.sink
    if result.units_left_out:
        yield (
            f"between hops, {counted(result.units_left_out, 'block')} of offsets could not be compared: not wholly in "
            "the range, or with messages that are younger than --grace"
        )
    for side in (source, sink):
        what = f"cannot be identified by {result.identity.name}, or cannot be decoded"
        if side.unidentified:
            yield f"{counted(side.unidentified, 'message')} of {side.topic} {what}"
        if named := sum(map(len, side.in_letters.values())):
            yield f"{counted(named, 'message')} of {side.topic} that dead letters name {what}"
        if side.skipped:
            yield f"retention has deleted {counted(side.skipped, 'message')} of {side.topic} during the read"
    is_whole = result.request.start.kind == "earliest"
    if is_whole and source.left_out:
        deleted = counted(source.left_out, "message")
        yield f"retention has deleted {deleted} of {source.topic}: what came of them is not known"
    if is_whole and any(sink.begins.values()):
        yield f"retention has deleted messages of {sink.topic}: what they were counts as lost"
    if result.findings.total.foreign and not result.foreign_is_wrong:
        yield (
            f"{source.topic} was not read from its first message on to its end, so messages of {sink.topic} can be of "
            "others"
        )


# Looks up the ids of messages at places: rows have only their hashes.

_TOGETHER: Final = 32
"""Offsets that one pull can have."""


def ids_at(
    client: QueueClient, places: Iterable[tuple[MessageQueue, int]]
) -> dict[tuple[MessageQueue, int], dict[str, Any]]:
    """Return id and keys of the messages that are still there."""
    by_queue: dict[MessageQueue, list[int]] = {}
    for queue, offset in sorted(set(places)):
        by_queue.setdefault(queue, []).append(offset)
    found: dict[tuple[MessageQueue, int], dict[str, Any]] = {}
    for queue, offsets in by_queue.items():
        while offsets:
            first = offsets[0]
            some = [each for each in offsets if each < first + _TOGETHER]
            offsets = offsets[len(some) :]
            wanted = set(some)
            try:
                parts = list(read_ranges(client, {queue: range(first, some[-1] + 1)}))
            except RmqioError:  # the queue is gone meanwhile; the place alone is still right
                continue
            for record in (record for part in parts for record in part.records):
                if record.queue_offset in wanted:
                    found[queue, record.queue_offset] = {"message_id": record.message_id, "keys": list(record.keys)}
    return found


# The report on a terminal.

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
            yield from _some([_text_message(each) for each in messages], min(most, 5))
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


def _text_message(each: dict[str, Any]) -> str:
    text = f"  {each['queue']} @ {each['offset']}"
    if "to_queue" in each:
        text += f" -> {each['to_queue']} @ {each['to_offset']}   {duration(each['delay_ms'])}"
    if "message_id" in each:
        text += f"   id {each['message_id']}"
    return safe_line(text + (f"   {each['where']}" if "where" in each else ""))
