"""A reader's pulls as frames: they differ in only three numbers, so the rest is encoded once."""

from __future__ import annotations

import struct

from rmqio.model import MessageFilter, MessageQueue
from rmqio.security import Credentials
from rmqio.wire import requests
from rmqio.wire.codes import RequestCode
from rmqio.wire.frame import encode_frame
from rmqio.wire.sign import signed_header
from rmqio.wire.templates.header import content_with_holes, header_with_holes

_LENGTHS = struct.Struct(">ii")

Pull = tuple[int, int, bool]
"""Offset, number of messages requested, and whether the broker holds the pull until a message arrives."""


class PullTemplate:
    """The frames of pulls of one queue, as `requests.pull` and `encode_frame` build them except for the field order.

    Takes 0.8 us a frame instead of 9: there is one for each 32 messages.

    Raises `LocalError` for a filter that is too large to send.
    """

    def __init__(self, group: str, queue: MessageQueue, *, message_filter: MessageFilter, suspend_ms: int) -> None:
        def template(suspend_ms: int) -> tuple[bytes, bytes]:
            pull = requests.pull(group, queue, 0, max_messages=0, message_filter=message_filter, suspend_ms=suspend_ms)
            encode_frame(pull)  # to check the size; a few digits more do not matter
            header = header_with_holes(pull, {"queueOffset": b'"%d"', "maxMsgNums": b'"%d"'})
            return header, content_with_holes(pull, {"queueOffset": b"%d", "maxMsgNums": b"%d"})

        self.code = int(RequestCode.PULL_MESSAGE)
        self._immediate, self._immediate_content = template(0)
        self._held, self._held_content = template(suspend_ms)

    def frame(
        self, opaque: int, offset: int, max_messages: int, is_held: bool, credentials: Credentials | None = None
    ) -> bytes:
        """Return the bytes to send; the three arguments in the middle are a `Pull`."""
        header = (self._held if is_held else self._immediate) % (opaque, offset, max_messages)
        if credentials is not None:
            content = (self._held_content if is_held else self._immediate_content) % (max_messages, offset)
            header = signed_header(header, content, b"", credentials)
        size = len(header)
        return _LENGTHS.pack(size + 4, size) + header  # the byte above the header's length is 0: JSON
