"""`rmqio audit`: the report on standard output, progress on standard error."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rmqio.audit.arguments import to_request
from rmqio.audit.checking import Checker, Request, Result, audit
from rmqio.audit.compare.findings import Counts
from rmqio.audit.report.document import document
from rmqio.audit.report.naming import ids_at
from rmqio.audit.report.page import page
from rmqio.audit.report.text import TITLES, lines, summary
from rmqio.client.factory import RemotingClientFactory
from rmqio.command_line.arguments import client_options
from rmqio.command_line.connect import require_topics
from rmqio.command_line.output import one_line
from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory, QueueClient
from rmqio.model import MessageQueue
from rmqio.start import StartFrom

_SHOWN: Final = ("lost", "doubled", "late", "out_of_order", "pending")


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
            print(json.dumps(report), flush=True)
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
    forgotten = Counts()
    with Checker(client, replace(request, most_rows=1 << 62), lambda text: None, is_live=True) as checker:
        while True:
            began = time.monotonic()
            try:
                checker.read()
            except RmqioError as error:
                if not error.retriable:
                    raise
                _say(f"{one_line(str(error))}; it goes on where it was in {found.every // 1000} s")
                time.sleep(found.every / 1000)
                continue
            result = checker.result()
            before_ms = result.checked_ms - found.keep
            hint = "  (nothing has arrived by id or place: see --by)" if checker.is_unsure else ""
            lost = result.findings.total.lost + forgotten.lost
            print(_line(result, forgotten) + (hint if lost else ""), flush=True)
            if found.html is not None:
                _write(found.html, report_of(client, result, found.limit))
            _settle(result, before_ms, forgotten)
            checker.forget(before_ms)
            time.sleep(max(0.0, found.every / 1000 - (time.monotonic() - began)))


def _settle(result: Result, before_ms: int, into: Counts) -> None:
    """Add what is about to be forgotten."""
    rows = result.source.spool.all()
    into.sent += int((rows["time"] < before_ms).sum())
    for kind in _SHOWN:
        old = sum(place.time_ms < before_ms for place in result.findings.places[kind])
        setattr(into, kind, getattr(into, kind) + old)


def _line(result: Result, forgotten: Counts) -> str:
    total = result.findings.total
    shown = [f"{time.strftime('%H:%M:%S')}  sent {total.sent + forgotten.sent:,}"]
    shown += [
        f"{TITLES[kind]} {getattr(total, kind) + (getattr(forgotten, kind) if kind != 'pending' else 0):,}"
        for kind in _SHOWN
    ]
    if unidentified := result.source.unidentified + result.sink.unidentified:
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
