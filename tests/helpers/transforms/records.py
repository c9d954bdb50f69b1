"""Records as a broker would return them."""

from __future__ import annotations

from rmqio.model import Record


def record_of(body: bytes) -> Record:
    """Returns a record with this body at some place in a queue."""
    return Record("orders", "broker-a", 3, 42, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)
