"""Compression of bodies: what is undone, what is refused, and how much memory it may take."""

from __future__ import annotations

import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rmqio.wire.bodies import (
    LZ4,
    ZLIB,
    ZLIB_OLD,
    ZSTD,
    BodyError,
    BodyTooLarge,
    compress,
    compression_flags,
    decompress,
)
from tests.helpers.own_process import in_own_process

TEXT = b"hello rocketmq " * 50

WAYS = {
    "zlib": (ZLIB, zlib.compress),
    "zlib without type bits": (ZLIB_OLD, zlib.compress),
    "LZ4": (LZ4, lz4.frame.compress),
    "LZ4 without size": (LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
    "LZ4 with checksum": (LZ4, lambda data: lz4.frame.compress(data, content_checksum=True, block_linked=False)),
    "zstd": (ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
    "zstd without size": (ZSTD, lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
    "zstd with checksum": (ZSTD, lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)),
}
each_way = pytest.mark.parametrize(("kind", "way"), WAYS.values(), ids=WAYS)


@pytest.mark.parametrize(
    ("kind", "flags", "prefix"),
    [(ZLIB_OLD, 0x001, "785e"), (LZ4, 0x101, "04224d18"), (ZSTD, 0x201, "28b52ffd"), (ZLIB, 0x301, "785e")],
)
def test_compress_writes_what_java_writes(kind: int, flags: int, prefix: str) -> None:
    compressed = compress(TEXT, kind=kind)
    assert compressed.hex().startswith(prefix)
    assert compression_flags(kind) == flags
    assert decompress(compressed, flags, limit=len(TEXT)) == TEXT


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
@given(data=st.binary(max_size=5000))
def test_compress_and_back(kind: int, data: bytes) -> None:
    assert decompress(compress(data, kind=kind), compression_flags(kind), limit=len(data)) == data


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_unknown_types_are_refused(kind: int) -> None:
    with pytest.raises(BodyError, match=f"unknown compression type {kind}"):
        decompress(TEXT, compression_flags(kind), limit=1000)
    with pytest.raises(BodyError, match=f"unknown compression type {kind}"):
        compress(TEXT, kind=kind)


@each_way
@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 3_000_000])
def test_the_limit_is_exact(kind: int, way: object, size: int) -> None:
    compressed = way(bytes(size))  # type: ignore[operator]
    flags = compression_flags(kind)
    assert decompress(compressed, flags, limit=size) == bytes(size)
    assert decompress(compressed, flags, limit=1 << 24) == bytes(size)
    if size:
        with pytest.raises(BodyTooLarge, match=f"more than {size - 1} bytes"):
            decompress(compressed, flags, limit=size - 1)
        with pytest.raises(BodyTooLarge, match="more than 0 bytes"):
            decompress(compressed, flags, limit=0)


@each_way
def test_a_cut_at_every_byte_is_refused(kind: int, way: object) -> None:
    compressed = way(TEXT)  # type: ignore[operator]
    for length in range(len(compressed)):
        with pytest.raises(BodyError):
            decompress(compressed[:length], compression_flags(kind), limit=1000)


@each_way
@pytest.mark.parametrize("data", [b"", TEXT])
@pytest.mark.parametrize("junk", [b"\x00", b"junk", zlib.compress(b"more")])
def test_bytes_behind_the_end_are_refused(kind: int, way: object, data: bytes, junk: bytes) -> None:
    with pytest.raises(BodyError):
        decompress(way(data) + junk, compression_flags(kind), limit=1000)  # type: ignore[operator]


@each_way
def test_a_second_body_behind_the_first_is_refused(kind: int, way: object) -> None:
    with pytest.raises(BodyError):
        decompress(way(TEXT) * 2, compression_flags(kind), limit=10_000)  # type: ignore[operator]


@each_way
@in_own_process
def test_a_bomb_takes_no_memory(kind: int, way: object) -> None:
    bomb = way(bytes(64 << 20))  # type: ignore[operator]
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decompress(bomb, compression_flags(kind), limit=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * (1 << 20) + 2 * len(bomb)


def test_a_zstd_frame_that_asks_for_a_giant_window_is_refused() -> None:
    # magic, descriptor without size, window byte: 2**(10 + 21) bytes, one empty last block
    frame = bytes.fromhex("28b52ffd") + b"\x00" + bytes([21 << 3]) + b"\x01\x00\x00"
    with pytest.raises(BodyError):
        decompress(frame, compression_flags(ZSTD), limit=1 << 20)


@each_way
@given(data=st.binary(max_size=300))
def test_garbage_gives_nothing_but_body_error(kind: int, way: object, data: bytes) -> None:
    compressed = way(TEXT)  # type: ignore[operator]
    for candidate in (data, compressed[:5] + data, compressed[: len(data)] + data):
        try:
            body = decompress(candidate, compression_flags(kind), limit=1 << 16)
        except BodyError:
            continue
        assert len(body) <= 1 << 16
