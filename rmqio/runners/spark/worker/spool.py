"""Keeps runs of encoded values on disk if there are too many for memory. They can be read any number of times."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from rmqio.runners.spark.beam.private import CoderImpl, create_InputStream

_LENGTH: Final = struct.Struct("<Q")
# A run may be long. It is decoded from the file as a whole, so a group needs memory for one run, but not for all.


class Spool:
    """A temporary file with lists of runs. A token names a list and is valid until `clear`. For a single thread."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._lists: dict[bytes, tuple[int, int]] = {}
        self._end = 0

    @property
    def used(self) -> bool:
        """Whether anything was stored since the last `clear`."""
        return bool(self._lists)

    def store(self, runs: Iterator[bytes]) -> bytes:
        """Writes runs, each a varint count and that many encoded values, and returns the token for reading them."""
        file = self._opened()
        start = self._end
        file.seek(start)
        for run in runs:
            file.write(_LENGTH.pack(len(run)))
            file.write(run)
        file.flush()
        self._end = file.tell()
        token = b"spool-%d" % start
        self._lists[token] = (start, self._end)
        return token

    def runs(self, token: bytes) -> Iterator[bytes]:
        """Yields the runs of a list, reading one at a time. Several calls may read at the same time."""
        at, end = self._lists[token]
        descriptor = self._opened().fileno()
        while at < end:
            (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
            at += _LENGTH.size
            yield _read_fully(descriptor, length, at)
            at += length

    def read(self, token: bytes, coder: CoderImpl) -> Iterator[object]:
        """Yields the values of a list. Each is decoded when it is requested."""
        for run in self.runs(token):
            stream = create_InputStream(run)
            for _ in range(stream.read_var_int64()):
                yield coder.decode_from_stream(stream, True)

    def clear(self) -> None:
        """Forgets all lists and frees their disk space."""
        self._lists.clear()
        self._end = 0
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Removes the file."""
        self._lists.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> BinaryIO:
        if self._file is None:
            # Spark spills to SPARK_LOCAL_DIRS, so there is room
            folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
            self._file = tempfile.TemporaryFile(prefix="rmqio-group-", dir=folder)  # noqa: SIM115
        return self._file


def _read_fully(descriptor: int, length: int, offset: int) -> bytes:
    """Reads `length` bytes in several steps if necessary: on Linux, `pread` returns at most 2 GiB at a time."""
    parts = []
    while length:
        part = os.pread(descriptor, length, offset)
        if not part:
            raise EOFError(
                f"The temporary file of a spooled group ends at byte {offset}, {length} bytes too early. Check the "
                "disk of SPARK_LOCAL_DIRS or, if that is not set, of the temporary folder"
            )
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
