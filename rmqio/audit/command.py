"""`rmqio audit`: the report on standard output, progress on standard error."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rmqio.audit.checking import Checker, Request, Result, audit
from rmqio.audit.findings import Counts
from rmqio.audit.identity import KINDS, parse_identity
from rmqio.audit.page import page
from rmqio.audit.report import TITLES, document, ids_at, lines, summary
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
