"""Runs of encoded values that are too many for memory, on disk, readable any number of times."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from rmqio.runners.spark.beam.private import CoderImpl, create_InputStream

_LENGTH: Final = struct.Struct("<Q")
# A run may be long: it is decoded from the file as a whole, so a group costs memory for one run, not for all.


class Spool:
    """A temporary file of lists of runs. A token names a list; it is valid until `clear`. For one thread."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._lists: dict[bytes, tuple[int, int]] = {}
        self._end = 0

    @property
    def used(self) -> bool:
        """Whether anything was put in since the last `clear`."""
        return bool(self._lists)

    def store(self, runs: Iterator[bytes]) -> bytes:
        """Writes the runs, each a varint count and that many encoded values, and returns the token for reading them."""
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
        """The runs of a list, read one at a time. Several readings may go on side by side."""
        at, end = self._lists[token]
        descriptor = self._opened().fileno()
        while at < end:
            (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
            at += _LENGTH.size
            yield _read_fully(descriptor, length, at)
            at += length

    def read(self, token: bytes, coder: CoderImpl) -> Iterator[object]:
        """The values of a list, decoded as they are asked for."""
        for run in self.runs(token):
            stream = create_InputStream(run)
            for _ in range(stream.read_var_int64()):
                yield coder.decode_from_stream(stream, True)

    def clear(self) -> None:
        """Forgets all lists and gives their disk space back."""
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
            # SPARK_LOCAL_DIRS is where Spark spills, so where there is room
            folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
            self._file = tempfile.TemporaryFile(prefix="rmqio-group-", dir=folder)  # noqa: SIM115
        return self._file


def _read_fully(descriptor: int, length: int, offset: int) -> bytes:
    """`pread` returns at most 2 GiB at a time on Linux."""
    parts = []
    while length:
        part = os.pread(descriptor, length, offset)
        if not part:
            raise EOFError(f"a spooled group ended at byte {offset}, {length} bytes early")
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
