"""Message bodies: compression according to the system flag, and bounded decompression.

A 4 MiB zlib body can hold 4 GiB, and the broker stores any type bits that a producer sets, unchecked. So the limit
applies before memory is allocated, and every failure is a `BodyError`.
"""

from __future__ import annotations

import zlib
from typing import Final

import lz4.frame
import zstandard

COMPRESSED: Final = 0x1
"""System flag: the body is compressed, with the type in `COMPRESSION_TYPE_MASK`."""
COMPRESSION_TYPE_MASK: Final = 0x700
COMPRESSION_TYPE_SHIFT: Final = 8

ZLIB_OLD: Final = 0
"""No type bits: zlib, from producers older than these bits."""
LZ4: Final = 1
ZSTD: Final = 2
ZLIB: Final = 3
KINDS: Final = {"zlib": ZLIB, "lz4": LZ4, "zstd": ZSTD}
"""Compressions by the names that users specify."""

_LZ4_FIRST_OUTPUT: Final = 64 * 1024
_ZSTD_MAX_RATIO: Final = 128 * 1024 // 4
"""The smallest zstd block takes four bytes and produces the largest output: 128 KiB of one value."""
_ZSTD_USUAL_WINDOW: Final = 8 * 1024 * 1024
"""The window that decoders must support, according to RFC 8878; a frame can request gigabytes."""


class BodyError(ValueError):
    """Bytes inside a message that do not decode. `stored` converts it to a `CorruptMessage`."""


class BodyTooLarge(BodyError):
    """The output is larger than allowed."""


def compression_flags(kind: int) -> int:
    """Return the system flag bits of a body compressed with `kind`."""
    return COMPRESSED | kind << COMPRESSION_TYPE_SHIFT


def compress(data: bytes, *, kind: int = ZLIB, level: int = 5) -> bytes:
    """Compress a body; the message's system flag then needs `compression_flags(kind)`. LZ4 ignores the level."""
    if kind in (ZLIB, ZLIB_OLD):
        return zlib.compress(data, level)
    if kind == LZ4:
        compressed: bytes = lz4.frame.compress(data)
        return compressed
    if kind == ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(data)
    raise BodyError(f"unknown compression type {kind}")


def decompress(data: bytes, sys_flag: int, *, limit: int) -> bytes:
    """Decompress according to `sys_flag`, without checking the flag's `COMPRESSED` bit.

    Raises:
      BodyError: unknown type, invalid or incomplete data, or bytes after the end.
      BodyTooLarge: more than `limit` bytes of output. They are not allocated.
    """
    kind = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
    if kind in (ZLIB, ZLIB_OLD):
        return _decompress_zlib(data, limit)
    if kind == LZ4:
        return _decompress_lz4(data, limit)
    if kind == ZSTD:
        return _decompress_zstd(data, limit)
    raise BodyError(f"unknown compression type {kind}")


def _too_large(kind: str, limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"{kind} body decompresses to more than {limit} bytes")


def _decompress_zlib(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise BodyError(f"zlib body does not decompress: {error}") from error
    if len(body) > limit:
        raise _too_large("zlib", limit)
    if not stream.eof:
        raise BodyError("zlib body is incomplete")
    if stream.unused_data:
        raise BodyError(f"zlib body has {len(stream.unused_data)} bytes after its end")
    return body


def _decompress_lz4(data: bytes, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    # The decompressor allocates its output limit at once, so the first limit is small.
    step = max(_LZ4_FIRST_OUTPUT, 4 * len(data))
    pending = data
    while not stream.eof and size <= limit:
        try:
            part = stream.decompress(pending, max_length=min(step, limit + 1 - size))
        except (RuntimeError, EOFError, ValueError) as error:
            raise BodyError(f"LZ4 body does not decompress: {error}") from error
        if not part and stream.needs_input:
            break
        parts.append(part)
        size += len(part)
        step *= 2
        pending = b""
    if size > limit:
        raise _too_large("LZ4", limit)
    if not stream.eof:
        raise BodyError("LZ4 body is incomplete")
    if stream.unused_data:
        raise BodyError(f"LZ4 body has {len(stream.unused_data)} bytes after its end")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(data: bytes, limit: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=max(limit, _ZSTD_USUAL_WINDOW))
    try:
        declared = zstandard.frame_content_size(data)
        if declared > limit:
            raise _too_large("zstd", limit)
        if declared > 0:
            return decompressor.decompress(data, allow_extra_data=False)
        # Written as a stream, as Java does. This decompressor returns all output of its input, so the input is fed in
        # steps whose output can hardly exceed the limit.
        stream = decompressor.decompressobj()
        parts: list[bytes] = []
        position = size = 0
        while position < len(data) and not stream.eof:
            step = max(1, (limit - size) // _ZSTD_MAX_RATIO)
            part = stream.decompress(data[position : position + step])
            position += step
            size += len(part)
            if size > limit:
                raise _too_large("zstd", limit)
            parts.append(part)
    except zstandard.ZstdError as error:
        raise BodyError(f"zstd body does not decompress: {error}") from error
    if not stream.eof:
        raise BodyError("zstd body is incomplete")
    if extra := len(stream.unused_data) + len(data[position:]):
        raise BodyError(f"zstd body has {extra} bytes after its end")
    return b"".join(parts)
