"""`rmqio rules run`: the messages of a topic that match rules, as they come. Nothing is consumed."""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from rmqio.command_line.cluster import (
    Item,
    Range,
    for_all,
    items_of,
    place_in_time,
    queue_client,
    queues_of,
    resolve,
    short,
)
from rmqio.command_line.output import COLUMNS, INTERRUPTED, cut, note, print_json, safe_line, time_text
from rmqio.errors import OffsetOutOfRange, RmqioError, counted
from rmqio.interfaces import QueueClient, QueueReader
from rmqio.model import MessageFilter, Record
from rmqio.rules.alerts import json_value
from rmqio.rules.command.check import ruleset_of
from rmqio.rules.engine import Hit, Matcher, compile_rules, compile_usable
from rmqio.rules.ruleset import RuleSet

_WAIT_MS: Final = 1_000
_BATCH: Final = 512
_DISCOVERY_ROUNDS: Final = 10


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns the exit status."""
    printer = _Matches(ruleset_of(arguments), arguments)
    try:
        with queue_client(arguments, pull_depth=4, rides_out_outages=True) as client:
            _follow(client, arguments, printer)
    except KeyboardInterrupt:  # the usual end
        sys.stdout.flush()
        return INTERRUPTED
    finally:
        printer.note_broken()
    return 0


def _follow(client: QueueClient, arguments: argparse.Namespace, printer: _Matches) -> None:
    everything = MessageFilter()
    queues = queues_of(client, arguments.topic)
    bounds = for_all(lambda queue: (resolve(client, queue, arguments.begin), client.max_offset(queue)), queues)
    ranges = [Range(client, queue, begin, end, everything) for queue, (begin, end) in zip(queues, bounds, strict=True)]
    stored = heapq.merge(*ranges, key=place_in_time)
    while some := list(islice(stored, _BATCH)):
        if printer.print(some):
            return
    if arguments.to_end:
        return
    note(f"following {counted(len(queues), 'queue')} of topic {arguments.topic}, Ctrl-C ends it")
    readers = [
        client.open_reader(queue, max(begin, end), message_filter=everything)
        for queue, (begin, end) in zip(queues, bounds, strict=True)
    ]
    rounds = 0
    while True:
        client.wait(readers, _WAIT_MS)
        items = sorted((item for reader in readers for item in _polled(reader)), key=place_in_time)
        if printer.print(items):
            return
        rounds += 1
        if rounds % _DISCOVERY_ROUNDS == 0:
            try:
                new = sorted(set(client.queues(arguments.topic)) - {reader.queue for reader in readers})
            except RmqioError:  # a restarting broker is missing for a moment
                continue
            for queue in new:
                readers.append(client.open_reader(queue, client.min_offset(queue), message_filter=everything))


def _polled(reader: QueueReader) -> list[Item]:
    try:
        fetched = reader.poll()
    except OffsetOutOfRange as error:
        if error.minimum == error.maximum == 0 or error.wanted > error.maximum:
            raise
        note(f"queue {short(reader.queue)}: offsets {error.wanted} to {error.minimum - 1} were deleted by retention")
        reader.seek(error.minimum)
        return []
    return items_of(reader.queue, fetched) if fetched is not None else []


class _Matches:
    """Prints matches, by rules that are read again when they change."""

    def __init__(self, rules: RuleSet, arguments: argparse.Namespace) -> None:
        self._rules, self._as_json, self._left = rules, arguments.json, arguments.number
        self._refresh_s = arguments.refresh_s
        self._signature = rules.signature()
        self._skips = arguments.on_bad_rule == "skip"
        self._matcher = self._compiled()
        if correlations := (rules.usable().correlations if self._skips else rules.correlations()):
            note(
                f"{counted(len(correlations), 'correlation rule')} left out, such as {correlations[0].id}: "
                "this command matches single messages"
            )
        self._rules = rules.after_start()
        self._next_look = time.monotonic() + self._refresh_s
        self._reported = ""
        self._broken = 0

    def _compiled(self) -> Matcher:
        if not self._skips:
            return compile_rules(self._rules.load())
        matcher, problems = compile_usable(self._rules)
        for each in problems:
            note(f"left out: {each}")
        return matcher

    def note_broken(self) -> None:
        """Says how many messages are not events."""
        if self._broken:
            note(f"{counted(self._broken, 'message')} did not decode, or had no JSON object as its body")

    def print(self, items: Sequence[Item]) -> bool:
        """Prints what matches. Returns whether it was enough."""
        self._refresh()
        records = [(item, item.content) for item in items if isinstance(item.content, Record)]
        self._broken += len(items) - len(records)
        results = self._matcher.match_many([record.body for _, record in records]) if records else []
        for (item, record), hits in zip(records, results, strict=True):
            if not isinstance(hits, list):
                self._broken += 1
                continue
            for hit in hits:
                if self._as_json:
                    print_json(_document(item, record, hit))
                else:
                    print("\n".join(_lines(item, hit)))
                if self._left is not None:
                    self._left -= 1
                    if self._left == 0:
                        sys.stdout.flush()
                        return True
        sys.stdout.flush()
        return False

    def _refresh(self) -> None:
        if time.monotonic() < self._next_look:
            return
        try:
            signature = self._rules.signature()
            if signature != self._signature:
                self._matcher = self._compiled()
                self._signature = signature
                note(f"the rules have changed: {counted(len(self._matcher.rules), 'rule')}")
        except RmqioError as error:
            if str(error) != self._reported:
                note(f"the rules stay as they were: {error}")
                self._reported = str(error)
        self._next_look = time.monotonic() + self._refresh_s


def _lines(item: Item, hit: Hit) -> Iterable[str]:
    rule = hit.rule
    place = f"{time_text(item.time_ms, timespec='seconds')}  {short(item.queue)}@{item.offset}"
    yield safe_line(f"{place}  {rule.level}")
    yield cut(safe_line(f"  {rule.title or rule.id}"), COLUMNS)
    for name, condition, value in hit.atoms:
        yield cut(safe_line(f"    {name or 'any text'} {condition}: {value}"), COLUMNS)


def _document(item: Item, record: Record, hit: Hit) -> dict[str, Any]:
    rule = hit.rule
    return {
        "rule": rule.id, "title": rule.title, "level": rule.level, "tags": list(rule.tags),
        "topic": item.queue.topic, "broker": item.queue.broker, "queue_id": item.queue.queue_id,
        "queue_offset": item.offset, "store_timestamp_ms": item.time_ms,
        "atoms": [{"field": name, "condition": text, "value": json_value(value)} for name, text, value in hit.atoms],
        "body": record.body.decode("utf-8", "replace"),
    }  # fmt: skip
