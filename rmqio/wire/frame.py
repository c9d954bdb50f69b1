"""Frames: bytes in, commands out, no I/O (NettyDecoder.java, RemotingCommand.java).

int32 length of what follows | int8 serialization, int24 header length | header | body
"""

from __future__ import annotations

import struct

from rmqio.errors import LocalError, WireError
from rmqio.wire.codes import MAX_FRAME_BYTES, Serialization
from rmqio.wire.command import Command, decode_header, encode_header

_LENGTHS = struct.Struct(">ii")


def encode_frame(command: Command, serialization: Serialization = Serialization.JSON) -> bytes:
    """The bytes to send for a command. Raises `LocalError` when they exceed what a server accepts."""
    header = encode_header(command, serialization)
    length = 4 + len(header) + len(command.body)
    if length > MAX_FRAME_BYTES:
        raise LocalError(f"{command!r} makes a frame of {length} bytes; a server closes the connection above 16 MiB")
    return b"".join((_LENGTHS.pack(length, serialization << 24 | len(header)), header, command.body))


class FrameDecoder:
    """Takes bytes as they come, gives commands as they are complete.

    The first eight bytes are checked before anything is awaited, so a hostile length never makes us buffer more than
    `max_frame_bytes`. After a `WireError` the decoder is dead: close the connection.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes
        self._failure: str | None = None

    def __repr__(self) -> str:
        return f"<FrameDecoder {len(self._buffer)} B buffered{', failed' if self._failure else ''}>"

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Append what a socket gave."""
        self._buffer += data

    def next_command(self) -> Command | None:
        """The next complete command, or None when more bytes are needed. Raises `WireError`."""
        if self._failure is not None:
            raise WireError(self._failure)
        buffer = self._buffer
        if len(buffer) < 8:
            return None
        length, mark = _LENGTHS.unpack_from(buffer)
        header_length = mark & 0xFFFFFF
        try:
            if not 4 <= length <= self._max_frame_bytes:
                raise WireError(f"frame length {length} is not within 4 and {self._max_frame_bytes}")
            if header_length > length - 4:
                raise WireError(f"header length {header_length} exceeds its frame of {length} bytes")
            if len(buffer) < length + 4:
                return None
            header_end = 8 + header_length
            command = decode_header(bytes(buffer[8:header_end]), mark >> 24)
        except WireError as error:
            self._failure = str(error)
            buffer.clear()
            raise
        with memoryview(buffer) as view:
            command.body = bytes(view[header_end : length + 4])
        del buffer[: length + 4]  # cheap: a bytearray keeps an offset to its start
        return command
