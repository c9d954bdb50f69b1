"""Messages that send records again."""

from __future__ import annotations

from typing import Final

from rmqio.model import KEYS, SHARDING_KEY, TAGS, Message, Record
from rmqio.wire import accelerator
from rmqio.wire.properties import user_properties

_copies_of_usual: Final = accelerator.copies_of_usual
_NO_PROPERTIES: Final = Message(b"-").properties


def copy_of(record: Record) -> Message:
    """The message to send a record again: body, tags, keys, sharding key and user properties.

    Properties that RocketMQ added are dropped. The topic is dropped, too, so that by default a copy does not go back to
    where it came from. A delay is not kept, because it has passed.
    """
    properties = record.properties
    return Message(
        record.body,
        tags=properties.get(TAGS) or None,
        keys=properties.get(KEYS) or (),
        properties=user_properties(properties) or _NO_PROPERTIES,
        sharding_key=properties.get(SHARDING_KEY) or None,
    )


def copies_of(records: list[Record]) -> list[Message]:
    """As `copy_of` for each record, with the C code where it was built."""
    if _copies_of_usual is None:
        return list(map(copy_of, records))
    copies = _copies_of_usual(records, 0)
    while len(copies) < len(records):
        copies.append(copy_of(records[len(copies)]))
        copies += _copies_of_usual(records, len(copies))
    return copies
