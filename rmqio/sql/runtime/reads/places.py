"""The place of a row, for errors and dead letters: a message of a topic, or a row of a file or a database."""

from __future__ import annotations

import json

from rmqio.dead_letters.letters import ELEMENT
from rmqio.model import Record
from rmqio.sql.lookup.files import Line
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import failure_of_record


def place_of(record: Record | Line) -> str:
    """Returns the place for a message."""
    if isinstance(record, Line):
        return record.place
    return f"{record.queue}, offset {record.queue_offset}"


def failure_of(record: Record | Line, error: Exception) -> ReadFailure:
    """Returns what becomes a dead letter. A row of a file has no coordinates: the reason names its place."""
    if isinstance(record, Record):
        return failure_of_record(record, error)
    body = record.body if isinstance(record.body, bytes) else json.dumps(record.body, default=str).encode()
    reason = f"{place_of(record)}: {error}"
    return ReadFailure("", "", -1, -1, "", "", "", 0, 0, type(error).__name__, reason, body, kind=ELEMENT)
