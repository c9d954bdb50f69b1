"""Facts of a message beside its content: places, ids, and what it is a dead letter of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rmqio.batches import record_id
from rmqio.cli.messages.printing import Printer
from rmqio.command_line.contents import Item
from rmqio.command_line.output import count, print_json, time_text
from rmqio.command_line.terminal import safe_line
from rmqio.errors import counted
from rmqio.model import DELAY, TIMER_DELIVER_MS, UNIQ_KEY, Record

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
