"""`rmqio peek` and `rmqio tail`: show messages without consuming them."""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from rmqio.cli.printing import STYLES, Printer, avro_reader
from rmqio.command_line.arguments import (
    checked,
    parse_count,
    parse_from,
    parse_offset,
    parse_queue,
    parse_selector,
    parse_size,
    parse_topic,
)
from rmqio.command_line.cluster import (
    Item,
    Range,
    for_all,
    items_of,
    newest,
    place_in_time,
    queue_client,
    queues_of,
    resolve,
    short,
)
from rmqio.command_line.output import INTERRUPTED, CommandFailed, note
from rmqio.command_line.parser import new_command
from rmqio.errors import LocalError, OffsetOutOfRange, RmqioError, counted
from rmqio.interfaces import QueueClient, QueueReader
from rmqio.model import MessageFilter, MessageQueue
from rmqio.start import TIME_HELP, Position

_TAIL_WAIT_MS: Final = 1_000
_DISCOVERY_ROUNDS: Final = 10
"""The number of waits after which tail looks for new queues; the route itself is looked up every 30 s."""

_PEEK_MORE = f"""\
Messages are in the order in which the brokers stored them.
{TIME_HELP}.

examples:
  rmqio peek orders                              # the newest ten
  rmqio peek orders -n 3 --from 2h --tags 'paid || sent'
  rmqio peek orders --queue broker-a:3 --offset 17 -n 1 --max_bytes 0
  rmqio peek orders --json | jq -r .body"""

_TAIL_MORE = f"""\
{TIME_HELP}.
Ctrl-C ends it with exit status 130.

examples:
  rmqio tail orders
  rmqio tail orders --from 10m --sql "amount > 100"
  rmqio tail orders --json | jq -c .properties"""


def add_commands(commands: Any) -> None:
    """Add `peek` and `tail`."""
    peek = new_command(commands, "peek", _peek, "show some messages of a topic", more=_PEEK_MORE)
    peek.add_argument("topic", type=parse_topic, metavar="TOPIC")
    peek.add_argument(
        "-n", dest="number", type=parse_count, default=10, metavar="N", help="show at most N messages; default: 10"
    )
    where = peek.add_mutually_exclusive_group()
    where.add_argument("--offset", type=parse_offset, metavar="N", help="start at this offset of one queue")
    where.add_argument(
        "--from",
        "--start",
        dest="begin",
        type=parse_from,
        default=Position("latest"),
        metavar="WHERE",
        help="earliest, a TIME, or latest (default): the newest messages",
    )
    _add_common(peek)

    tail = new_command(commands, "tail", _tail, "show messages as they arrive", more=_TAIL_MORE)
    tail.add_argument("topic", type=parse_topic, metavar="TOPIC")
    tail.add_argument("-n", dest="number", type=parse_count, metavar="N", help="end after N messages")
    tail.add_argument(
        "--from",
        "--start",
        dest="begin",
        type=parse_from,
        default=Position("latest"),
        metavar="WHERE",
        help="latest (default): only new messages; earliest or a TIME: first the messages stored from there on",
    )
    _add_common(tail)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--queue",
        dest="queues",
        type=parse_queue,
        action="append",
        default=[],
        metavar="BROKER:ID",
        help="only this queue; repeatable",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--tags",
        type=checked(MessageFilter.of_tags),
        metavar="TAGS",
        help="only messages with one of these tags: 'a || b'",
    )
    choice.add_argument(
        "--sql", type=parse_selector, metavar="EXPRESSION", help="SQL92 filter on properties, if the broker permits it"
    )
    add_body_options(parser)


def add_body_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to show messages."""
    add = parser.add_argument
    add("--body", choices=STYLES, default="auto", help="how to show bodies; auto: by their content")
    add(
        "--max_bytes",
        type=parse_size,
        metavar="N",
        help="show at most N bytes of a body; 0: all; default: 1000, with --json all",
    )
    add("--avro_schema", metavar="FILE", help="bodies are Avro, written with the schema in this .avsc file")
    add("--json", action="store_true", help="print one JSON document per message, on a line")


def printer_of(arguments: argparse.Namespace) -> Printer:
    """Return the printer that the options of `add_body_options` ask for."""
    max_bytes = arguments.max_bytes if arguments.max_bytes is not None else 0 if arguments.json else 1_000
    avro = avro_reader(arguments.avro_schema) if arguments.avro_schema else None
    return Printer(arguments.json, arguments.body, max_bytes, avro)


def _filter(arguments: argparse.Namespace) -> MessageFilter:
    if arguments.sql:
        return MessageFilter(arguments.sql, sql=True)
    return MessageFilter.of_tags(arguments.tags)


# ---- peek -----------------------------------------------------------------------------------------------------------


def _peek(arguments: argparse.Namespace) -> int:
    printer, message_filter = printer_of(arguments), _filter(arguments)
    with queue_client(arguments, pull_batch=min(arguments.number, 32)) as client:
        queues = queues_of(client, arguments.topic, arguments.queues)
        begin = arguments.begin
        if arguments.offset is not None:
            begin = Position("offset", arguments.offset)
            if len(queues) > 1:
                raise LocalError(
                    f"--offset {arguments.offset}: an offset is of one queue, and topic {arguments.topic!r} has"
                    f" {len(queues)}; add --queue, e.g. --queue {short(queues[0])}"
                )
        found = 0
        for item in _messages(client, queues, begin, arguments.number, message_filter):
            printer.print(item)
            found += 1
    if not found:
        note(f"no message{'' if message_filter.is_all else ' that passes the filter'} there")
    return 0


def _messages(
    client: QueueClient, queues: Sequence[MessageQueue], begin: Position, number: int, message_filter: MessageFilter
) -> Iterable[Item]:
    if begin.kind == "latest":
        if message_filter.is_all:
            ends = for_all(lambda queue: (client.min_offset(queue), client.max_offset(queue)), queues)
            ranges = [
                Range(client, queue, max(low, end - number), end, message_filter)
                for queue, (low, end) in zip(queues, ends, strict=True)
            ]
            return deque(heapq.merge(*ranges, key=place_in_time), maxlen=number)
        parts = for_all(lambda queue: newest(client, queue, number, message_filter), queues)
        return sorted((item for part in parts for item in part), key=place_in_time)[-number:]
    bounds = for_all(lambda queue: (resolve(client, queue, begin), client.max_offset(queue)), queues)
    ranges = [Range(client, queue, low, end, message_filter) for queue, (low, end) in zip(queues, bounds, strict=True)]
    return islice(heapq.merge(*ranges, key=place_in_time), number)


# ---- tail -----------------------------------------------------------------------------------------------------------


def _tail(arguments: argparse.Namespace) -> int:
    printer, message_filter = printer_of(arguments), _filter(arguments)
    try:
        with queue_client(arguments, pull_depth=4, rides_out_outages=True) as client:
            _follow(client, arguments, printer, message_filter)
    except KeyboardInterrupt:  # the usual end
        sys.stdout.flush()
        return INTERRUPTED
    return 0


def _follow(
    client: QueueClient, arguments: argparse.Namespace, printer: Printer, message_filter: MessageFilter
) -> None:
    def open_reader(queue: MessageQueue, offset: int) -> QueueReader:
        return client.open_reader(queue, offset, message_filter=message_filter)

    queues = queues_of(client, arguments.topic, arguments.queues)
    left = arguments.number
    bounds = for_all(lambda queue: (resolve(client, queue, arguments.begin), client.max_offset(queue)), queues)
    note(f"following {counted(len(queues), 'queue')} of topic {arguments.topic}, Ctrl-C ends it")
    # Stored messages come in order of time; new ones as they arrive.
    ranges = [
        Range(client, queue, begin, end, message_filter) for queue, (begin, end) in zip(queues, bounds, strict=True)
    ]
    for item in heapq.merge(*ranges, key=place_in_time):
        printer.print(item)
        if left is not None:
            left -= 1
            if left == 0:
                return
    readers = [open_reader(queue, max(begin, end)) for queue, (begin, end) in zip(queues, bounds, strict=True)]
    rounds = 0
    while True:
        client.wait(readers, _TAIL_WAIT_MS)
        items = sorted((item for reader in readers for item in _polled(reader)), key=place_in_time)
        for item in items[:left]:
            printer.print(item)
        sys.stdout.flush()
        if left is not None:
            left -= len(items[:left])
            if left == 0:
                return
        rounds += 1
        if not arguments.queues and rounds % _DISCOVERY_ROUNDS == 0:
            for queue in _new_queues(client, arguments.topic, {reader.queue for reader in readers}):
                note(f"found new queue {short(queue)}")
                readers.append(open_reader(queue, client.min_offset(queue)))


def _new_queues(client: QueueClient, topic: str, known: set[MessageQueue]) -> list[MessageQueue]:
    try:
        return sorted(set(client.queues(topic)) - known)
    except RmqioError:  # a restarting broker is missing for a moment; the readers report one that does not come back
        return []


def _polled(reader: QueueReader) -> list[Item]:
    try:
        fetched = reader.poll()
    except OffsetOutOfRange as error:
        if error.minimum == error.maximum == 0 or error.wanted > error.maximum:
            raise CommandFailed(f"queue {short(reader.queue)}: topic deleted, recreated or truncated") from error
        note(f"queue {short(reader.queue)}: offsets {error.wanted} to {error.minimum - 1} were deleted by retention")
        reader.seek(error.minimum)
        return []
    return items_of(reader.queue, fetched) if fetched is not None else []
