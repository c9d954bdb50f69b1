"""`rmqio audit`: compares two topics, and shows the result as text, as JSON or as a page."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqio.audit.checking import Checker, Request, Result, audit
from rmqio.audit.findings import Counts
from rmqio.audit.identity import KINDS, parse_identity
from rmqio.audit.report import FAULTS, TITLES, document, duration, ids_at, lines, summary, time_text
from rmqio.client.factory import RemotingClientFactory
from rmqio.command_line.arguments import (
    as_argument,
    client_options,
    parse_topic,
    start_parser,
    stop_parser,
    whole_number,
)
from rmqio.command_line.cluster import require_topics
from rmqio.command_line.output import one_line, print_json
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory, QueueClient
from rmqio.model import MessageQueue
from rmqio.start import DURATION, SECONDS, TIME_HELP, StartFrom

# Plots over time as inline SVG: bars by window, with what is wrong on a scale of its own.

_WIDTH: Final = 960
_LEFT: Final = 64
_RIGHT: Final = 8
_HEIGHT: Final = 110
_GAP: Final = 34
_MOST_BARS: Final = 240


class Series(NamedTuple):
    """A stacked part of the bars."""

    key: str
    title: str


class Panel(NamedTuple):
    """A plot of its own scale."""

    title: str
    series: Sequence[Series]
    text: Callable[[float], str]


def svg(
    windows: Sequence[dict[str, Any]], window_ms: int, panels: Sequence[Panel], time_text: Callable[[int], str]
) -> str:
    """Return panels above each other with one axis of time. A colour is that of the class `s-KEY`."""
    bars = merged(windows, window_ms)
    if not bars:
        return ""
    begin, end = int(bars[0]["start_ms"]), int(bars[-1]["end_ms"])
    inner = _WIDTH - _LEFT - _RIGHT
    height = len(panels) * (_HEIGHT + _GAP) + 20

    def x(ms: float) -> float:
        return _LEFT + inner * (ms - begin) / float(end - begin)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="messages by window of store time">']
    for number, panel in enumerate(panels):
        top = number * (_HEIGHT + _GAP) + 22
        bottom = top + _HEIGHT
        most = max(sum(bar.get(each.key, 0) for each in panel.series) for bar in bars) or 2
        most += most % 2  # the label of the half is a whole number
        parts.append(f'<text class="title" x="{_LEFT}" y="{top - 8}">{escape(panel.title)}</text>')
        if len(panel.series) > 1:
            for place, each in enumerate(panel.series):
                left = _WIDTH - _RIGHT - 120 * (len(panel.series) - place)
                parts.append(f'<rect class="s-{each.key}" x="{left}" y="{top - 17}" width="10" height="10"/>')
                parts.append(f'<text x="{left + 15}" y="{top - 8}">{escape(each.title)}</text>')
        for share in (0, 0.5, 1):
            y = bottom - _HEIGHT * share
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(panel.text(most * share))}</text>'
            )
        for bar in bars:
            begins, ends = x(bar["start_ms"]), x(bar["end_ms"])
            width = max(ends - begins - (1 if ends - begins > 4 else 0), 0.8)
            at = float(bottom)
            for each in panel.series:
                value = bar.get(each.key, 0)
                if not value:
                    continue
                size = max(_HEIGHT * value / most, 1.0)
                at -= size
                told = f"{time_text(bar['start_ms'])}: {each.title} {panel.text(value)}"
                parts.append(
                    f'<rect class="s-{each.key}" x="{begins:.1f}" y="{at:.1f}" width="{width:.1f}" height="{size:.1f}">'
                    f"<title>{escape(told)}</title></rect>"
                )
    bottom = height - 8
    for at, anchor in ((begin, "start"), ((begin + end) // 2, "middle"), (end, "end")):
        parts.append(f'<text x="{x(at):.1f}" y="{bottom}" text-anchor="{anchor}">{escape(time_text(at))}</text>')
    return "".join([*parts, "</svg>"])


def merged(windows: Sequence[dict[str, Any]], window_ms: int) -> list[dict[str, Any]]:
    """Return at most as many windows as can be told apart: longer ones, whose counts are the sums."""
    if not windows:
        return []
    begin, end = windows[0]["start_ms"], windows[-1]["start_ms"] + window_ms
    length = -(-(end - begin) // window_ms // _MOST_BARS) * window_ms or window_ms
    length = max(length, window_ms)
    found: dict[int, dict[str, Any]] = {}
    for window in windows:
        start = begin + (window["start_ms"] - begin) // length * length
        bar = found.setdefault(start, {"start_ms": start, "end_ms": start + length})
        for key, value in window.items():
            if key == "start_ms":
                continue
            is_delay = key.endswith("_delay_ms")
            bar[key] = max(bar.get(key, 0), value) if is_delay else bar.get(key, 0) + value
    return [found[start] for start in sorted(found)]


_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #d8dde6; --page: #fff; --good: #2e7d4f;
  --arrived: #4878a8; --lost: #c62f3b; --doubled: #d9822b; --late: #b59a1e; --pending: #9aa4b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --soft: #98a2b3; --line: #38414f; --page: #161b22;
  --good: #5cb884; --arrived: #6f9fd0; --lost: #ef6a72; --doubled: #eda55c; --late: #d8bf4a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  padding: 1.5rem 1rem; max-width: 62rem; }
h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--lost); }
.figures { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 1rem 0; }
.figures b { display: block; font-size: 1.4rem; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; } th, td { text-align: left;
  padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; } th { font-weight: 600; }
td.n, th.n { text-align: right; } td.text { white-space: normal; }
svg { width: 100%; min-width: 40rem; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
svg .title { fill: var(--ink); font-weight: 600; } svg .tick { text-anchor: end; } svg .grid { stroke: var(--line); }
.s-on_time { fill: var(--arrived); } .s-lost { fill: var(--lost); } .s-doubled { fill: var(--doubled); }
.s-late { fill: var(--late); } .s-pending { fill: var(--pending); } .s-max_delay_ms { fill: var(--arrived); }
"""
_KEYS: Final = ("arrived", "in_dead_letters", "lost", "doubled", "late", "pending")
_ALWAYS: Final = ("sent", "lost", "doubled")
"""Figures that are shown if they are 0, too."""


def page(report: dict[str, Any]) -> str:
    """Return the page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit: {_t(report['from_topic'])} to {_t(report['to_topic'])}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(_body(report))}</body></html>\n"
    )


def _body(report: dict[str, Any]) -> Iterator[str]:
    so_far = report.get("so_far", {})
    wrong = report["wrong"] | {kind: so_far[kind] for kind in ("lost", "doubled", "unidentified") if so_far.get(kind)}
    yield f'<h1 class="{"bad" if wrong else "good"}">{_t(summary(report | {"wrong": wrong}))}</h1>'
    more = [f"checked {time_text(report['checked_ms'])}"]
    more += [f"dead letters in {report['dead_letter_topic']}"] if report["dead_letter_topic"] else []
    more += [f"hops in {report['audit_topic']}"] if report["audit_topic"] else []
    yield f'<p class="soft">{_t("; ".join(more))}</p>'
    if so_far:
        yield "<h2>Since the audit began</h2>"
        yield _figures([(TITLES.get(kind, kind), n) for kind, n in so_far.items() if n or kind in _ALWAYS])
        yield f"<h2>Watched now: what was stored in the last {duration(report['keep_ms'])}</h2>"
    figures = [("sent", report["sent"]), ("arrived", report["arrived"])]
    figures += [(title, report[kind]) for kind, title in TITLES.items() if report[kind] or kind in _ALWAYS]
    yield _figures(figures)
    if report["arrived"]:
        delay = report["delay_ms"]
        yield (
            f"<p>Delay: half within {duration(delay['half_within'])}, "
            f"99 % within {duration(delay['99_percent_within'])}, "
            f"at most {duration(delay['max'])}. Late is over {duration(report['late_ms'])}.</p>"
        )
    yield from (f'<p class="soft">Note: {_t(note)}.</p>' for note in report["notes"])
    yield f'<h2>Over time</h2><div class="wide">{_plot(report)}</div>'
    if report["hops"]:
        yield "<h2>Hops</h2>" + _table(
            ("hop", "after", ">elements", ">runs", ">mean delay", ">longest delay of a block"),
            [
                (
                    hop["hop"] or f"topic {report['to_topic']}",
                    ", ".join(hop["after"]) or f"topic {report['from_topic']}",
                    hop.get("count"),
                    hop.get("runs"),
                    duration(hop["mean_delay_ms"]) if "mean_delay_ms" in hop else "",
                    duration(hop["max_block_delay_ms"]) if "max_block_delay_ms" in hop else "",
                )
                for hop in report["hops"]
            ],
        )
    if report["faults"]:
        yield "<h2>Where it happened</h2>" + _table(
            ("where", "queue", ">first offset", ">last offset", *(f">{title}" for title in FAULTS.values())),
            [
                tuple(each[name] for name in ("where", "queue", "first_offset", "last_offset", *FAULTS))
                for each in report["faults"]
            ],
        )
    for kind, ranges in report["ranges"].items():
        yield f"<h2>Offsets: {_t(TITLES[kind])}</h2>" + _table(
            ("queue", ">first offset", ">last offset", ">messages", "where"),
            [
                (each["queue"], each["first_offset"], each["last_offset"], each["count"], each["where"])
                for each in ranges
            ],
        )
    for kind, messages in report["messages"].items():
        yield f"<h2>Messages: {_t(TITLES[kind])}</h2>" + _table(
            ("queue", ">offset", "stored", "id", "keys", "came to", ">delay", "where"),
            [
                (
                    each["queue"],
                    each["offset"],
                    time_text(each["store_timestamp_ms"]),
                    each.get("message_id", ""),
                    " ".join(each.get("keys", ())),
                    f"{each['to_queue']} @ {each['to_offset']}" if "to_queue" in each else "",
                    duration(each["delay_ms"]) if "to_queue" in each else "",
                    each.get("where", ""),
                )
                for each in messages
            ],
        )
    for title, key in ((f"Queues of {report['from_topic']}", "from_queues"), ("Queues it came to", "to_queues")):
        yield f"<h2>{_t(title)}</h2>" + _queues(report[key], with_topic=key == "to_queues")


def _figures(figures: Sequence[tuple[str, int]]) -> str:
    return '<div class="figures">' + "".join(f"<div>{_t(name)}<b>{n:,}</b></div>" for name, n in figures) + "</div>"


def _plot(report: dict[str, Any]) -> str:
    windows = [{**window, "on_time": window["arrived"] - window["late"]} for window in report["windows"]]
    wrong = [Series(kind, TITLES[kind]) for kind in ("lost", "doubled", "pending") if report[kind]]
    arrived = [Series("on_time", "arrived"), *([Series("late", "late")] if report["late"] else [])]
    panels = [Panel("Arrived, by store time of the first topic", arrived, _count)]
    if wrong:
        panels.append(Panel("Wrong: " + ", ".join(each.title for each in wrong), wrong, _count))
    panels.append(Panel("Longest delay", [Series("max_delay_ms", "longest delay")], duration))
    return svg(windows, report["window_ms"], panels, lambda ms: time_text(ms).replace(".000Z", "Z"))


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _queues(queues: Sequence[dict[str, Any]], *, with_topic: bool) -> str:
    of_sink = ("arrived", "in_dead_letters", "doubled", "foreign", "late", "out_of_order")
    names = of_sink if with_topic else ("sent", *_KEYS)
    first = ("topic", "queue") if with_topic else ("queue",)
    titles = [*first, *(f">{TITLES.get(name, name)}" for name in names)]
    return _table(titles, [[each[name] for name in (*first, *names)] for each in queues])


def _table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def cell(tag: str, title: str, value: Any) -> str:
        is_count = isinstance(value, int) and not title.endswith("offset")  # an offset is to be copied
        shown = "" if value is None else f"{value:,}" if is_count else str(value)
        kind = "n" if title.startswith(">") else "text" if title == "where" else ""
        return f'<{tag} class="{kind}">{_t(shown)}</{tag}>'

    head = "".join(cell("th", title, title.lstrip(">")) for title in titles)
    body = "".join(
        "<tr>" + "".join(cell("td", title, value) for title, value in zip(titles, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _t(text: str) -> str:
    return escape(text.encode("utf-8", "backslashreplace").decode())


# `rmqio audit`: the report on standard output, progress on standard error.

# The command line of `rmqio audit`.

_ROWS_OF_MB: Final = 10_000
"""Rows of 26 bytes, of both topics, beside copies of them while they are sorted."""

_DESCRIPTION: Final = """\
Compare two topics: find messages of the first that are missing in the second, are there twice, or arrived late or out
of order. With the sketches of the transform Audit, also show between which steps of the pipeline this happened."""

_EPILOG: Final = f"""\
{TIME_HELP}.

exit status: 0 nothing is lost or doubled, 1 something is, or the audit failed, 2 wrong usage, 130 interrupted

examples:
  %(prog)s --from_topic orders --to_topic orders-copy
  %(prog)s --from_topic orders --to_topic bills --by field:order_id
  %(prog)s --from_topic orders --to_topic bills --audit_topic hops --live"""


def add_options(parser: Parser) -> None:
    """Add the description, and all options but those of the connection."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG + ("\n\n" + parser.epilog if parser.epilog else "")
    add = parser.add_argument
    add("--from_topic", type=parse_topic, required=True, metavar="TOPIC", help="the topic that the messages came from")
    add("--to_topic", type=parse_topic, required=True, metavar="TOPIC", help="the topic that they were written to")
    add(
        "--dead_letter_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="messages that are in this topic as dead letters count as arrived",
    )
    add("--audit_topic", type=parse_topic, metavar="TOPIC", help="the topic of the pipeline's Audit transforms")
    add(
        "--by",
        type=_identity,
        default="auto",
        metavar="WHAT",
        help=f"what identifies a message in both topics: {', '.join(KINDS)}; default: auto, which is id or place",
    )
    add("--steps", action="append", default=[], metavar="TEXT", help="labels of transforms: '/Parse'; repeatable;"
        " --audit_topic has those before the last Audit, too")  # fmt: skip
    add("--from", "--start", dest="start", type=start_parser("earliest", "latest", "timestamp:TIME"), metavar="WHERE",
        help="earliest (default), latest, or a TIME")  # fmt: skip
    add("--to", "--stop", dest="stop", type=stop_parser("latest", "timestamp:TIME"), metavar="WHERE",
        help="latest (default: the current end) or a TIME; of the first topic")  # fmt: skip
    add("--window", type=_some_time, default=60_000, metavar="TIME", help="length of a window, e.g. 10s; default: 1m")
    add(
        "--late",
        type=_duration,
        default=60_000,
        metavar="TIME",
        help="messages that arrive later than this are late; default: 1m",
    )
    add("--grace", type=_duration, metavar="TIME", help="younger messages are on their way; default: 0s, live 1m")
    add("--limit", type=whole_number("number", 0), default=100, metavar="N", help="messages to name; default: 100")
    add("--json", action="store_true", help="print the report as one line of JSON; with --live, a line each time")
    add("--html", type=_page, metavar="FILE", help="write the report as a page, too")
    add("--live", action="store_true", help="continue until Ctrl-C, and print a line of figures each time")
    add("--every", type=_some_time, default=10_000, metavar="TIME", help="with --live: how often; default: 10s")
    add("--keep", type=_duration, default=3_600_000, metavar="TIME", help="with --live: how long a message is watched;"
        " default: 1h")  # fmt: skip
    add(
        "--memory_mb",
        type=whole_number("number", 16),
        default=512,
        metavar="N",
        help="memory limit; beyond it, messages go to temporary files; default: 512",
    )


def to_request(found: argparse.Namespace) -> Request:
    """Check what argparse cannot. Raises `LocalError`, naming the option."""
    topics = {
        "--from_topic": found.from_topic,
        "--to_topic": found.to_topic,
        "--dead_letter_topic": found.dead_letter_topic,
        "--audit_topic": found.audit_topic,
    }
    seen: dict[str, str] = {}
    for option, topic in topics.items():
        if topic is not None and topic in seen:
            raise LocalError(f"{option} {topic} is {seen[topic]}, too: name another topic")
        if topic is not None:
            seen[topic] = option
    if found.live and found.stop is not None:
        raise LocalError("--live runs until Ctrl-C; remove --to")
    grace_ms = found.grace if found.grace is not None else 60_000 if found.live else 0
    if found.live and found.keep <= grace_ms + found.late:
        raise LocalError("--keep must be longer than --grace and --late together")
    given = {name: getattr(found, name) for name in ("start", "stop") if getattr(found, name) is not None}
    return Request(
        found.from_topic,
        found.to_topic,
        found.dead_letter_topic,
        found.audit_topic,
        tuple(found.steps),
        by=found.by,
        window_ms=found.window,
        late_ms=found.late,
        grace_ms=grace_ms,
        most_rows=found.memory_mb * _ROWS_OF_MB,
        **given,
    )


def _identity(text: str) -> str:
    if text != "auto":
        with as_argument():
            parse_identity(text)
    return text


def _page(text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: permission denied")
    return path


def _duration(text: str) -> int:
    found = DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration like 30s, 10m, 2h")
    return int(found[1]) * SECONDS[found[2]] * 1_000


def _some_time(text: str) -> int:
    found = _duration(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} must be longer than zero, e.g. 10s")
    return found


_SHOWN: Final = ("lost", "doubled", "late", "out_of_order", "pending")
_LABELS: Final = "what looks lost may have arrived with another label: see --steps"


def run(found: argparse.Namespace, *, client_factory: ClientFactory | None = None) -> int:
    """Run a parsed command line and return the exit status: 0 nothing is wrong, 1 something is."""
    try:
        request = to_request(found)
        factory = client_factory or RemotingClientFactory(client_options(found))
    except LocalError as error:
        found.parser.error(str(error))
    with contextlib.closing(factory.queue_client()) as client:
        require_topics(
            client,
            {
                "--from_topic": request.from_topic,
                "--to_topic": request.to_topic,
                "--dead_letter_topic": request.dead_letter_topic,
                "--audit_topic": request.audit_topic,
            },
        )
        if found.live:
            return _live(client, request, found)
        result = audit(client, request, _say if sys.stderr.isatty() else lambda text: None)
        report = report_of(client, result, found.limit)
        if found.json:
            print_json(report)
        else:
            print("\n".join(lines(report)), flush=True)
        _write(found.html, report)
        return int(bool(result.wrong))


def report_of(client: QueueClient, result: Result, limit: int) -> dict[str, Any]:
    """Return the report, with the ids of the messages that it names."""
    named: list[tuple[MessageQueue, int]] = []
    for kind in result.findings.places:
        named += [(place.queue, place.offset) for place in result.findings.first(kind, limit)]
    return document(result, limit, ids_at(client, named))


def _live(client: QueueClient, request: Request, found: argparse.Namespace) -> int:
    """Audit again and again what is not older than `--keep`; Ctrl-C ends it, with status 130 as elsewhere."""
    if request.start.kind == "latest":  # of both topics, which are read one after the other
        request = replace(request, start=StartFrom.timestamp(int(time.time() * 1000)))
    forgotten, is_doubted = Counts(), False
    with Checker(client, replace(request, most_rows=1 << 62), lambda text: None, is_live=True) as checker:
        while True:
            began = time.monotonic()
            try:
                checker.read()
            except RmqioError as error:
                if not error.retriable:
                    raise
                _say(f"{one_line(str(error))}; it continues where it stopped in {found.every // 1000} s")
                time.sleep(found.every / 1000)
                continue
            before_ms = checker.checked_ms - found.keep
            result = checker.result(before_ms)
            so_far = _so_far(result, forgotten)
            hint = _LABELS if result.doubt or is_doubted else ""
            if checker.is_unsure and so_far["lost"]:
                hint = "nothing has arrived by id or place: see --by"
            report: dict[str, Any] = {}
            if found.json or found.html is not None:
                report = report_of(client, result, found.limit)
                notes = [*report["notes"], *([hint] if hint else [])]
                report |= {"notes": notes, "so_far": so_far, "keep_ms": found.keep}
            if found.json:
                print_json(report)
                sys.stdout.flush()
            else:
                print(_line(so_far) + (f"  ({hint})" if hint else ""), flush=True)
            _write(found.html, report)
            is_doubted |= bool(result.doubt and result.findings.old.lost)
            _settle(result.findings.old, forgotten)
            checker.forget(before_ms)
            time.sleep(max(0.0, found.every / 1000 - (time.monotonic() - began)))


def _settle(old: Counts, into: Counts) -> None:
    """Add what is about to be forgotten."""
    for kind in ("sent", *_SHOWN):
        setattr(into, kind, getattr(into, kind) + getattr(old, kind))


def _so_far(result: Result, forgotten: Counts) -> dict[str, int]:
    """Return the counts with those of messages that are no longer watched."""
    total = result.findings.total
    found = {kind: getattr(total, kind) + getattr(forgotten, kind) for kind in ("sent", *_SHOWN)}
    return {**found, "unidentified": result.source.unidentified + result.sink.unidentified}


def _line(so_far: dict[str, int]) -> str:
    shown = [f"{time.strftime('%H:%M:%S')}  sent {so_far['sent']:,}"]
    shown += [f"{TITLES[kind]} {so_far[kind]:,}" for kind in _SHOWN]
    if unidentified := so_far["unidentified"]:
        shown.append(f"without identity {unidentified:,}")
    return "  ".join(shown)


def _write(path: Path | None, report: dict[str, Any]) -> None:
    if path is None:
        return
    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise LocalError(f"--html {path}: {error.strerror}") from error


def _say(text: str) -> None:
    print(f"rmqio audit: {text}", file=sys.stderr, flush=True)


__all__ = ["report_of", "run", "summary"]
