"""Frames: converts bytes to commands, without I/O (NettyDecoder.java, RemotingCommand.java).

int32 length of the rest | int8 serialization, int24 header length | header | body
"""

from __future__ import annotations

import struct

from rmqio.errors import LocalError, WireError
from rmqio.wire.codes import MAX_FRAME_BYTES, Serialization
from rmqio.wire.command import Command, decode_header, encode_header

_LENGTHS = struct.Struct(">ii")
_SMALL = 512
"""Smaller pieces are merged: as an object of its own, a piece of two bytes takes twenty times as much memory."""


def encode_frame(command: Command, serialization: Serialization = Serialization.JSON) -> bytes:
    """Return the bytes to send for a command. Raises `LocalError` when they exceed the server's limit."""
    return make_frame(encode_header(command, serialization), command.body, command, serialization)


def make_frame(header: bytes, body: bytes, request: object, serialization: int = 0) -> bytes:
    """Return the bytes to send; an error names the request. Raises as `encode_frame`."""
    return frame_head(header, len(body), request, serialization) + body


def frame_head(header: bytes, body_size: int, request: object, serialization: int = 0) -> bytes:
    """Return what is before the body of a frame. Raises as `make_frame`."""
    size = len(header)
    length = 4 + size + body_size
    if length > MAX_FRAME_BYTES:
        raise LocalError(f"{request!r} makes a frame of {length} bytes; a server closes the connection above 16 MiB")
    return _LENGTHS.pack(length, serialization << 24 | size) + header


class FrameDecoder:
    """Receives bytes and returns complete commands.

    The first eight bytes are checked first, so that a hostile length never makes us buffer more than `max_frame_bytes`.
    After a `WireError` the decoder is unusable: close the connection.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        # Frames are cut in place: each body is copied once. Only the partial frame at the end of a receive is copied
        # with the next pieces, once, when they complete it.
        self._data = b""
        self._begin = 0
        """Start of the next frame in `_data`."""
        self._pieces: list[bytes | bytearray] = []
        """Pieces that arrived after `_data`; small ones are merged."""
        self._unread = 0
        """Number of bytes that are not part of a command yet."""
        self._wanted = _LENGTHS.size
        """Number of bytes required before checking again."""
        self._max_frame_bytes = max_frame_bytes
        self._failure: str | None = None

    def __repr__(self) -> str:
        return f"<FrameDecoder {self._unread} B buffered{', failed' if self._failure else ''}>"

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes received from a socket."""
        if not isinstance(data, bytes):
            data = bytes(data)
        if self._unread:
            if len(data) >= _SMALL:
                self._pieces.append(data)
            elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
                last += data
            else:
                self._pieces.append(bytearray(data))
        else:
            self._data, self._begin = data, 0
        self._unread += len(data)

    def next_command(self) -> Command | None:
        """Return the next complete command, or None when more bytes are needed. Raises `WireError`."""
        if self._failure is not None:
            raise WireError(self._failure)
        if self._unread < self._wanted:
            return None
        if self._pieces:
            self._join()
        data, begin = self._data, self._begin
        length, mark = _LENGTHS.unpack_from(data, begin)
        header_begin = begin + 8
        header_end = header_begin + (mark & 0xFFFFFF)
        end = begin + 4 + length
        try:
            if not 4 <= length <= self._max_frame_bytes:
                raise WireError(f"frame length {length} is not between 4 and {self._max_frame_bytes}")
            if header_end > end:
                raise WireError(f"header length {mark & 0xFFFFFF} exceeds its frame of {length} bytes")
            if end > len(data):
                self._wanted = 4 + length
                return None
            command = decode_header(data[header_begin:header_end], mark >> 24)
        except WireError as error:
            self._failure = str(error)
            self._clear()
            raise
        command.body = data[header_end:end]
        self._begin = end
        self._unread = len(data) - end
        self._wanted = 8
        if not self._unread:
            self._data, self._begin = b"", 0
        return command

    def _join(self) -> None:
        self._data = b"".join((memoryview(self._data)[self._begin :], *self._pieces))
        self._begin = 0
        self._pieces.clear()

    def _clear(self) -> None:
        self._data, self._begin, self._unread = b"", 0, 0
        self._pieces.clear()
