"""Batches as they are on the wire."""

from __future__ import annotations

from collections.abc import Iterable

from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.wire.batch import BatchBuilder


def encode_batch(messages: Iterable[Message], ids: Iterable[str]) -> bytes:
    """Encode all messages as one batch. Raises LocalError when they do not fit, ValueError when the counts differ."""
    messages = list(messages)
    builder = BatchBuilder()
    if builder.add_all(messages, list(ids)) < len(messages):
        raise LocalError(f"batch is full after {len(builder)} messages and {builder.size} bytes")
    return builder.encode()
