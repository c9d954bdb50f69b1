"""Compressed files, all of them or an error. Beam takes the rows of a truncated one as all that there are."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Final

from apache_beam.io.filesystem import CompressionTypes

from rmqio.errors import LocalError, SerdeError

_CHUNK: Final = 1 << 16
_GZIP: Final = 16 + zlib.MAX_WBITS
"""The argument of zlib for a header of gzip."""


def decompressed(file: Any, path: str) -> io.BufferedIOBase:
    """Returns the content of an open file, by the end of its name. Its `read` raises `SerdeError` for broken data."""
    kind = CompressionTypes.detect_compression_type(path)
    if kind == CompressionTypes.UNCOMPRESSED:
        return file if isinstance(file, io.BufferedIOBase) else io.BufferedReader(_Plain(file))
    return io.BufferedReader(_Decompressed(file, kind), _CHUNK)


class _Plain(io.RawIOBase):
    """A file that can do no more than `read`."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        found: bytes = self._file.read(size)
        return found


class _Decompressed(_Plain):
    """Several files behind each other are one, as `gzip` and `zstd` have it."""

    def __init__(self, file: Any, kind: str) -> None:
        super().__init__(file)
        self._new, self._errors = _decompressor(kind)
        self._pads = kind == CompressionTypes.GZIP
        self._decompressor = self._new()
        self._left = io.BytesIO()

    def _next(self, size: int) -> bytes:
        while not (found := self._left.read(size)):
            if self._decompressor.eof:
                data = self._behind()
                if not data:
                    return b""
                self._decompressor = self._new()
            else:
                data = self._file.read(_CHUNK)
                if not data:
                    raise SerdeError(
                        "its compressed data ends too early: the file is truncated, or still being written"
                    )
            try:
                self._left = io.BytesIO(self._decompressor.decompress(data))
            except self._errors as error:
                raise SerdeError(f"its compressed data is broken: {error}") from error
        return found

    def _behind(self) -> bytes:
        """The bytes behind the end of a file. After gzip, zeros fill up blocks."""
        data: bytes = self._decompressor.unused_data
        while True:
            data = data.lstrip(b"\0") if self._pads else data
            if data:
                return data
            data = self._file.read(_CHUNK)
            if not data:
                return b""


def _decompressor(kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """Returns a function that makes decompressors, and the errors of broken data."""
    if kind == CompressionTypes.GZIP:
        return lambda: zlib.decompressobj(_GZIP), (zlib.error,)
    if kind == CompressionTypes.DEFLATE:
        return zlib.decompressobj, (zlib.error,)
    if kind == CompressionTypes.BZIP2:
        return bz2.BZ2Decompressor, (OSError, ValueError)
    if kind == CompressionTypes.LZMA:
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    try:
        import zstandard
    except ImportError as error:  # Beam requires it
        raise LocalError("files that end in .zst need zstandard: pip install zstandard") from error
    # As large a window as Beam takes: `zstd --long` writes such files.
    return lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(), (zstandard.ZstdError,)
