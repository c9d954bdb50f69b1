"""A producer's sends as frames: sends to one queue differ in only a few fields, so the rest is encoded once."""

from __future__ import annotations

from json.encoder import encode_basestring as _quoted
from typing import Final

from rmqio.model import Message, MessageQueue
from rmqio.security import Credentials
from rmqio.wire import accelerator, requests
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command
from rmqio.wire.frame import encode_frame, frame_head
from rmqio.wire.properties import encode_properties
from rmqio.wire.sign import signed, signed_header
from rmqio.wire.templates.header import content_with_holes, header_with_holes

_ONE, _BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
_LARGE: Final = 16 * 1024
_usual_properties = accelerator.usual_properties


def properties_text(message: Message, message_id: str) -> str:
    """Return `encode_properties` as text, which a request's header requires."""
    usual = None if _usual_properties is None else _usual_properties(message, message_id)
    return encode_properties(message, message_id=message_id).decode() if usual is None else usual


class SendTemplate:
    """The sends of a producer group to one queue; the queue's name and the group are as the broker knows them."""

    __slots__ = ("contents", "headers")

    def __init__(self, group: str, queue: MessageQueue, *, create_topic: bool = False, topic_queues: int = 4) -> None:
        def send(batch: bool) -> Command:
            return requests.send(
                group, queue, b"", born_ms=0, batch=batch, create_topic=create_topic, topic_queues=topic_queues
            )

        commands = {_ONE: send(False), _BATCH: send(True)}
        holes = {"f": b'"%d"', "g": b'"%d"', "i": b"%b"}
        self.headers = {code: header_with_holes(command, holes) for code, command in commands.items()}
        """By code; filled with opaque, system flag, born time and properties."""
        holes = {"f": b"%d", "g": b"%d", "i": b"%b"}
        self.contents = {code: content_with_holes(command, holes) for code, command in commands.items()}
        """The signed content, filled with the same fields except opaque."""


class SendRequest:
    """One send: equals `requests.send` with `encode_frame`, except for the order of fields.

    Takes 2 us instead of 7, because there can be one for each message.
    """

    __slots__ = ("_born_ms", "_properties", "_sys_flag", "_template", "body", "code")

    def __init__(
        self,
        template: SendTemplate,
        body: bytes,
        properties: str,
        born_ms: int,
        sys_flag: int = 0,
        batch: bool = False,
    ) -> None:
        self._template = template
        self._properties = properties
        self._born_ms = born_ms
        self._sys_flag = sys_flag
        self.body = body
        self.code = _BATCH if batch else _ONE

    def __repr__(self) -> str:
        return f"<request code={self.code} body={len(self.body)} B>"

    def frame(self, opaque: int, credentials: Credentials | None = None) -> bytes:
        """Return the bytes to send. Raises `LocalError` when they exceed the server's limit."""
        return b"".join(self.parts(opaque, credentials))

    def parts(self, opaque: int, credentials: Credentials | None = None) -> tuple[bytes, bytes]:
        """Return the frame in two parts: what is before its body, and the body. Raises as `frame`."""
        properties = _quoted(self._properties).encode("utf-8", "surrogatepass")
        header = self._template.headers[self.code] % (opaque, self._sys_flag, self._born_ms, properties)
        if credentials is not None:
            properties = self._properties.encode("utf-8", "surrogatepass")
            content = self._template.contents[self.code] % (self._sys_flag, self._born_ms, properties)
            header = signed_header(header, content, self.body, credentials)
        return frame_head(header, len(self.body), self), self.body

    def by(self, template: SendTemplate) -> SendRequest:
        """Return the same message or batch for the queue of another template."""
        return SendRequest(template, self.body, self._properties, self._born_ms, self._sys_flag, self.code == _BATCH)


Request = Command | SendRequest
"""Anything that a connection can send."""


def encode_request(request: Request, opaque: int, credentials: Credentials | None = None) -> bytes:
    """Return the bytes to send, signed if there are credentials. Raises `LocalError` above the server's limit."""
    if isinstance(request, SendRequest):
        return request.frame(opaque, credentials)
    request.opaque = opaque
    return encode_frame(request if credentials is None else signed(request, credentials))


def encode_parts(request: Request, opaque: int, credentials: Credentials | None = None) -> tuple[bytes, bytes]:
    """As `encode_request`, in two parts. The second one is empty, unless copying a body would cost more than a part."""
    if isinstance(request, SendRequest) and len(request.body) >= _LARGE:
        return request.parts(opaque, credentials)
    return encode_request(request, opaque, credentials), b""
