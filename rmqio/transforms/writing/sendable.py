"""A check of what the broker would never take, for transforms that can still say which element it came from."""

from __future__ import annotations

from rmqio.model import Message
from rmqio.topics import validate_topic
from rmqio.wire.properties import encode_properties


def check_sendable(message: Message) -> None:
    """Raises `LocalError` if a topic's name, a delay or a property of a message cannot be sent."""
    if message.topic is not None:
        validate_topic(message.topic)
    encode_properties(message, message_id=None)
