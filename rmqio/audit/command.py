"""`rmqio audit`: the report on standard output, progress on standard error."""

from __future__ import annotations

import argparse
import contextlib
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
from rmqio.command_line.output import one_line, print_json
from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory, QueueClient
from rmqio.model import MessageQueue
from rmqio.start import StartFrom

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
