"""A blocking remoting client for single requests: health checks and topic administration of the local broker.

It is deliberately independent of `rmqio.client`: the code that starts the broker must not depend on the code under
test.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

UPDATE_AND_CREATE_TOPIC: Final = 17
UPDATE_BROKER_CONFIG: Final = 25
GET_ROUTEINFO_BY_TOPIC: Final = 105
GET_BROKER_CLUSTER_INFO: Final = 106
DELETE_TOPIC_IN_BROKER: Final = 215
DELETE_TOPIC_IN_NAMESRV: Final = 216
GET_TOPIC_CONFIG: Final = 351

SUCCESS: Final = 0
TOPIC_NOT_EXIST: Final = 17

_VERSION_5_5_0: Final = 513
_MAX_FRAME: Final = 16 * 1024 * 1024
_opaque = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its code, the server's remark and the body."""

    code: int
    remark: str
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON. Some answers have integer keys (broker ids), which is invalid JSON: fixed here."""
        return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', self.body) or b"{}")


def call(
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    credentials: tuple[str, str] | None = None,
    timeout_s: float = 3.0,
) -> Answer:
    """Send one request over a new connection and wait for its answer.

    Raises OSError when the peer cannot be reached, closes the connection or does not answer within `timeout_s` (a
    stopped process accepts connections but never answers), and ValueError when it does not speak the protocol.
    """
    opaque = next(_opaque)
    ext = dict(fields or {})
    if credentials is not None:
        ext["AccessKey"], secret = credentials
        signed = "".join(ext[key] for key in sorted(ext)).encode() + body
        ext["Signature"] = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha1).digest()).decode()
    head = {
        "code": code,
        "language": "PYTHON",
        "version": _VERSION_5_5_0,
        "opaque": opaque,
        "flag": 0,
        "extFields": ext,
    }
    header = json.dumps(head).encode()
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        while True:
            answer, received = _read_frame(connection, deadline)
            # A server also sends its own requests on our socket, and their opaque can equal ours: check the flag.
            if answer["flag"] & 1 and answer["opaque"] == opaque:
                return Answer(answer["code"], answer.get("remark") or "", received)


def _read_frame(connection: socket.socket, deadline: float) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack(">i", _read(connection, 4, deadline))
    if not 4 <= size <= _MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes: this is not RocketMQ's remoting protocol")
    frame = _read(connection, size, deadline)
    header_size = int.from_bytes(frame[1:4], "big")
    return json.loads(frame[4 : 4 + header_size]), frame[4 + header_size :]


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        # Never 0: this would make the socket non-blocking.
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the peer closed the connection without an answer")
        data += chunk
    return bytes(data)
