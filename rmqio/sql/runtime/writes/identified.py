"""Rows with stable ids on their way to the write: pairs (id, message or body)."""

from __future__ import annotations

from rmqio.model import Message

Row = tuple[str, Message | bytes]


def id_of_row(row: Row) -> str:
    """Returns the id of the row's message."""
    return row[0]


def message_of_row(row: Row) -> Message:
    """Returns the message of the row."""
    made = row[1]
    return made if isinstance(made, Message) else Message(made)
