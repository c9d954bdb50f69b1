"""The report as one file of HTML, without scripts and without requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from rmqio.audit.report import FAULTS, TITLES, duration, summary, time_text

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
