"""Records as a broker would hand them out."""

from __future__ import annotations

from rmqio.model import Record


def record_of(body: bytes) -> Record:
    """With this body, and somewhere in a queue."""
    return Record("orders", "broker-a", 3, 42, body, 0, 0, b"", 0, 0, 0, 0, 0, b"", b"", 0, 0)
