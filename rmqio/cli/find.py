"""`rmqio find`: messages by id, key, offset, time or content, with all that is known of them."""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rmqio.batches import record_id
from rmqio.cli.peek import add_body_options, printer_of
from rmqio.cli.printing import Printer
from rmqio.command_line.arguments import (
    QueueName,
    parse_bytes_regex,
    parse_count,
    parse_from,
    parse_offset,
    parse_queue,
    parse_selector,
    parse_some,
    parse_time,
    parse_topic,
)
from rmqio.command_line.cluster import (
    Item,
    Range,
    for_all,
    open_admin,
    place_in_time,
    queue_client,
    queues_of,
    resolve,
    short,
)
from rmqio.command_line.output import CommandFailed, count, note, print_json, safe_line, time_text
from rmqio.command_line.parser import new_command
from rmqio.errors import LocalError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import DELAY, TIMER_DELIVER_MS, UNIQ_KEY, MessageFilter, MessageQueue, Record
from rmqio.start import TIME_HELP, Position

if TYPE_CHECKING:
    from rmqio.client.admin import MessageQueries


# Facts of a message beside its content: places, ids, and what it is a dead letter of.

_COMPRESSED: Final = 0x1
_TRANSACTIONS: Final = {0x4: "prepared", 0x8: "committed", 0xC: "rolled back"}


def item_of(record: Record) -> Item:
    """Return the message as commands print it."""
    return Item(record.store_timestamp_ms, record.queue, record.queue_offset, record)


def show(record: Record, printer: Printer) -> None:
    """Print a message with all that is known of it."""
    if printer.as_json:
        print_json(printer.fields(item_of(record)) | fields(record))
        return
    lines = list(printer.lines(item_of(record)))
    at = next(number for number, line in enumerate(lines) if line.startswith("  body"))
    print("\n".join([*lines[:at], *_lines(record), *lines[at:]]), end="\n\n")


def fields(record: Record) -> dict[str, Any]:
    """Return it for a script."""
    origin = origin_of(record)
    return {
        "unique_id": record.get_property(UNIQ_KEY),
        "offset_message_id": record.offset_message_id,
        "id_of_a_copy": record_id(record),
        "store_host": record.store_host,
        "commit_log_offset": record.commit_log_offset,
        "stored_bytes": record.stored_size,
        "body_crc": record.body_crc,
        "sys_flag": record.sys_flag,
        "is_compressed": bool(record.sys_flag & _COMPRESSED),
        "transaction": _TRANSACTIONS.get(record.sys_flag & 0xC),
        "dead_letter_of": origin,
    }


def origin_of(record: Record) -> dict[str, Any] | None:
    """Return what a dead letter is about; None if the message is not one."""
    from rmqio.dead_letters import letters

    properties = record.properties
    if letters.ERROR not in properties:
        return None
    found = letters.read_letter(record)
    parts = properties.get(letters.ORIGIN, "").rsplit("/", 3)
    # The property is text that any producer can write.
    is_place = len(parts) == 4 and all(each.isascii() and each.isdigit() for each in parts[2:])
    return {
        **(dict(zip(("topic", "broker", "queue_id", "queue_offset"), parts, strict=True)) if is_place else {}),
        "goes_back_to": found.topic or None,
        "error": found.error,
        "reason": found.reason,
        "why_not": found.why_not or None,
    }


def _lines(record: Record) -> Iterator[str]:
    yield f"  offset id {record.offset_message_id}"
    yield f"  a copy of it would have the id {record_id(record)}"
    kind = ["compressed"] if record.sys_flag & _COMPRESSED else []
    kind += [f"transaction {state}"] if (state := _TRANSACTIONS.get(record.sys_flag & 0xC)) else []
    yield (
        f"  stored    {counted(record.stored_size, 'byte')} at {count(record.commit_log_offset)} of the commit log of "
        f"{record.store_host}{''.join(f', {each}' for each in kind)}"
    )
    due = record.get_property(TIMER_DELIVER_MS)
    if due is not None and due.isascii() and due.isdigit():
        yield f"  delivered at {time_text(int(due))}, as its producer asked for"
    elif (level := record.get_property(DELAY)) is not None:
        yield f"  delivered after the delay of level {safe_line(level)}"
    origin = origin_of(record)
    if origin is not None:
        place = "an unknown place"
        if "topic" in origin:
            place = f"{origin['topic']} {origin['broker']}:{origin['queue_id']} @ {origin['queue_offset']}"
        yield f"  dead letter of {safe_line(place)}: {safe_line(origin['error'])}: {safe_line(origin['reason'])}"


FOUND: Final = 0
NOT_FOUND: Final = 1
_MORE: Final = f"""\
--id and --key ask the brokers' index. --grep reads every message of the range.
{TIME_HELP}.

exit status: 0 found, 1 not found or failed, 2 wrong usage, 130 interrupted

examples:
  rmqio find orders --id 7F000001A1B218B4AAC2123456780000
  rmqio find orders --key order-17
  rmqio find orders --queue broker-a:3 --offset 17
  rmqio find orders --grep '"customer": *"c42"' --from 2h -n 3"""


def add_commands(commands: Any) -> None:
    """Add `find`."""
    parser = new_command(commands, "find", _find, "find messages, with everything known about them", more=_MORE)
    parser.add_argument("topic", type=parse_topic, metavar="TOPIC")
    add_place(parser)
    add = parser.add_argument
    add("--key", type=parse_some, metavar="KEY", help="messages with this business key")
    add("--at", type=parse_time, metavar="TIME", help="the first messages stored at or after a time")
    add("--grep", type=parse_bytes_regex, metavar="REGEX", help="messages whose body matches, in the range")
    add(
        "--sql",
        type=parse_selector,
        metavar="EXPRESSION",
        help="messages whose properties match (SQL92), if the broker permits it",
    )
    add(
        "--from",
        dest="begin",
        type=parse_from,
        metavar="WHERE",
        help="start of the range: earliest (default) or a TIME",
    )
    add("--to", dest="end", type=parse_from, metavar="WHERE", help="end of the range: latest (default) or a TIME")
    add("-n", dest="number", type=parse_count, default=10, metavar="N", help="show at most N messages; default: 10")
    add_body_options(parser)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options that name one message."""
    add = parser.add_argument
    add(
        "--id",
        dest="message_id",
        type=parse_some,
        metavar="ID",
        help="unique id (UNIQ_KEY), or the broker's own id (offset id)",
    )
    add("--queue", type=parse_queue, metavar="BROKER:ID", help="the queue of --offset")
    add("--offset", type=parse_offset, metavar="N", help="the message at this offset of one queue")


def _find(arguments: argparse.Namespace) -> int:
    found, arguments.away = 0, False
    printer = printer_of(arguments)
    _require_one_way(arguments)
    with queue_client(arguments) as client:
        for record in _records(client, arguments):
            show(record, printer)
            found += 1
    if not found:
        note(f"no such message in topic {arguments.topic}{' on the brokers that answered' if arguments.away else ''}")
    return FOUND if found else NOT_FOUND


def _require_one_way(arguments: argparse.Namespace) -> None:
    ways = {
        "--id": arguments.message_id,
        "--key": arguments.key,
        "--offset": arguments.offset,
        "--at": arguments.at,
        "--grep or --sql": arguments.sql if arguments.grep is None else arguments.grep,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "nothing says which message"
        raise LocalError(f"{what}: give one of {', '.join(ways)}")
    if arguments.queue is not None and arguments.offset is None and given != ["--grep or --sql"]:
        raise LocalError("--queue can be used only with --offset, --grep and --sql")
    if given[0] not in ("--grep or --sql", "--key") and (arguments.begin or arguments.end):
        raise LocalError(f"--from and --to can be used only with --key, --grep and --sql, not with {given[0]}")


def _records(client: QueueClient, arguments: argparse.Namespace) -> Iterator[Record]:
    topic = arguments.topic
    if arguments.message_id is not None:
        yield from _by_id(client, arguments)
    elif arguments.offset is not None:
        yield from at_offset(client, topic, arguments.queue, arguments.offset)
    elif arguments.key is not None:
        yield from _by_key(client, arguments)
    elif arguments.at is not None:
        yield from islice(
            _range(client, queues_of(client, topic), Position("time", arguments.at), None), arguments.number
        )
    else:
        queues = queues_of(client, topic, [arguments.queue] if arguments.queue is not None else [])
        begin = arguments.begin or Position("earliest")
        message_filter = MessageFilter(arguments.sql, sql=True) if arguments.sql else MessageFilter()
        there = _range(client, queues, begin, arguments.end, message_filter)
        pattern = arguments.grep
        yield from islice(
            (record for record in there if pattern is None or pattern.search(record.body)), arguments.number
        )


def by_id(queries: MessageQueries, topic: str, message_id: str) -> list[Record]:
    """Return the messages with an id: a unique one, else a broker's own."""
    found = queries.by_unique_id(topic, message_id)
    if found:
        return found
    try:
        return queries.by_offset_id(topic, message_id)
    except LocalError:  # it was meant as a unique id
        return []


def note_silent(queries: MessageQueries) -> bool:
    """Say which brokers did not answer. Returns whether the messages of one are missing."""
    for name, reason in sorted(queries.away.items()):
        note(f"broker {name} does not answer, its messages are not looked at: {reason}")
    for name, reason in sorted(queries.from_replica.items()):
        note(f"the replica of broker {name} answers, which may lack the newest messages: {reason}")
    return bool(queries.away)


def at_offset(client: QueueClient, topic: str, queue: QueueName | None, offset: int) -> Iterator[Record]:
    """Yield the message at an offset. Raises `CommandFailed` for an offset that the queue does not have."""
    queues = queues_of(client, topic, [queue] if queue is not None else [])
    if len(queues) > 1:
        raise LocalError(
            f"--offset {offset}: an offset is of one queue, and topic {topic!r} has {len(queues)}; add --queue, e.g. "
            f"--queue {short(queues[0])}"
        )
    begin = resolve(client, queues[0], Position("offset", offset))
    if begin == (end := client.max_offset(queues[0])):  # its end, where a read would wait for the next message
        low = client.min_offset(queues[0])
        held = f"it holds {low} to {end - 1}" if end > low else "it is empty"
        raise CommandFailed(f"queue {short(queues[0])} of topic {topic!r} has no offset {offset}: {held}")
    yield from (
        item.content
        for item in Range(client, queues[0], begin, begin + 1, MessageFilter())
        if isinstance(item.content, Record)
    )


def _by_id(client: QueueClient, arguments: argparse.Namespace) -> list[Record]:
    from rmqio.client.admin import MessageQueries

    queues_of(client, arguments.topic)
    with open_admin(arguments) as admin:
        queries = MessageQueries(admin)
        found = by_id(queries, arguments.topic, arguments.message_id)
    arguments.away = note_silent(queries)
    return found


def _by_key(client: QueueClient, arguments: argparse.Namespace) -> list[Record]:
    from rmqio.client.admin import MOST, MessageQueries

    queues_of(client, arguments.topic)
    times = {
        name: _time(position, option)
        for name, position, option in (("begin_ms", arguments.begin, "--from"), ("end_ms", arguments.end, "--to"))
        if position is not None and (position.kind, option) not in (("earliest", "--from"), ("latest", "--to"))
    }
    with open_admin(arguments) as admin:
        queries = MessageQueries(admin)
        found = queries.by_key(arguments.topic, arguments.key, **times)
    arguments.away = note_silent(queries)
    if queries.may_have_more:
        note(f"a broker tells {MOST} messages with a key; there can be older ones: give --to")
    return found[-arguments.number :]


def _time(position: Position, option: str) -> int:
    if position.kind != "time":
        raise LocalError(f"{option} must be a TIME if --key is given")
    return position.value


def _range(
    client: QueueClient,
    queues: Sequence[MessageQueue],
    begin: Position,
    end: Position | None,
    message_filter: MessageFilter | None = None,
) -> Iterator[Record]:
    """Messages in order of time."""
    end = end or Position("latest")
    bounds = for_all(lambda queue: (resolve(client, queue, begin), resolve(client, queue, end)), queues)
    ranges = [
        Range(client, queue, low, high, message_filter or MessageFilter())
        for queue, (low, high) in zip(queues, bounds, strict=True)
    ]
    for item in heapq.merge(*ranges, key=place_in_time):
        if isinstance(item.content, Record):
            yield item.content
        else:
            note(f"queue {short(item.queue)}, offset {item.offset} cannot be decoded: {item.content.reason}")
