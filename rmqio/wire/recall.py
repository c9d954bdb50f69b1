"""Recalls a message that waits for its delivery time (RecallMessageProcessor.java, RecallMessageHandle.java)."""

from __future__ import annotations

import base64
import binascii

from rmqio.errors import LocalError
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command

_VERSION = "v1"
_PARTS = 5
"""Version, topic, broker, time, unique id."""


def broker_of(handle: str) -> str:
    """Return the name of the broker of a recall handle. Raises `LocalError` for an invalid handle."""
    try:
        parts = base64.b64decode(handle.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError, AttributeError, ValueError) as error:
        raise LocalError(f"recall handle {handle!r} is invalid: {error}") from error
    if len(parts) != _PARTS or parts[0] != _VERSION:
        raise LocalError(f"recall handle {handle!r} is invalid, or has an unknown version")
    return parts[2]


def recall(group: str, topic: str, handle: str, broker: str) -> Command:
    """Return the request to recall the message of a handle at the handle's broker."""
    ext = {"producerGroup": group, "topic": topic, "recallHandle": handle, "bname": broker}
    return Command(RequestCode.RECALL_MESSAGE, ext)
