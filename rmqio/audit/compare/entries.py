"""The messages of a topic as rows of numbers, kept in memory, or in files of a part of the hashes each."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Entries = npt.NDArray[Any]
"""Rows of `ENTRY`."""

ENTRY: Final = np.dtype([("id", "<u8"), ("queue", "<u2"), ("offset", "<i8"), ("time", "<i8")])
"""The hash of the identity, the number of the queue, the offset, and the store time in Unix milliseconds."""
PARTS: Final = 256
"""The files of a topic that does not fit into memory: one for each value of the hash's first byte."""
_MAX_QUEUES: Final = 1 << 16


def entries_of(hashes: Sequence[bytes], queue: int, offsets: Sequence[int], times: Sequence[int]) -> Entries:
    """Return rows of one queue."""
    made = np.empty(len(hashes), ENTRY)
    made["id"] = np.frombuffer(b"".join(hashes), ">u8")
    made["queue"], made["offset"], made["time"] = queue, offsets, times
    return made


class Spool:
    """Rows of a topic. A context manager, which deletes its files.

    Args:
      most_rows: the number of rows from which they go to files.
      folder: where the files are; None: the system's folder for temporary files.
    """

    def __init__(self, most_rows: int, folder: Path | None = None) -> None:
        self._most, self._folder = most_rows, folder
        self._rows: list[Entries] = []
        self._waiting = 0
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self.queues: list[Any] = []
        """The queues, by their number."""
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._files is not None:
            self._files.cleanup()

    @property
    def is_on_disk(self) -> bool:
        return self._files is not None

    def number_of(self, queue: Any) -> int:
        """Return the number of a queue, a new one if it is new."""
        if queue not in self.queues:
            if len(self.queues) >= _MAX_QUEUES:
                raise OverflowError(f"more than {_MAX_QUEUES} queues")
            self.queues.append(queue)
        return self.queues.index(queue)

    def add(self, rows: Entries) -> None:
        self._rows.append(rows)
        self._waiting += len(rows)
        self.count += len(rows)
        if self._waiting >= self._most:
            self._spill()

    def all(self) -> Entries:
        """Return all rows. Only for one that is in memory."""
        self._rows = [joined(self._rows)]
        return self._rows[0]

    def keep(self, rows: Entries) -> None:
        """Replace the rows by others. Only for one that is in memory."""
        self._rows, self._waiting, self.count = [rows], len(rows), len(rows)

    def part(self, number: int) -> Entries:
        """Return the rows whose hash begins with this byte."""
        if self._files is None:
            rows = self.all()
            found: Entries = rows[rows["id"] >> np.uint64(56) == number]
            return found
        self._spill()
        path = self._path(number)
        return np.fromfile(path, ENTRY) if path.exists() else np.empty(0, ENTRY)

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="rmqio-audit-", dir=self._folder)
        rows, self._rows, self._waiting = self.all(), [], 0
        if not len(rows):
            return
        firsts = (rows["id"] >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(firsts, kind="stable")
        rows, firsts = rows[order], firsts[order]
        bounds = np.searchsorted(firsts, np.arange(PARTS + 1))
        for number in range(PARTS):
            if bounds[number] < bounds[number + 1]:
                with self._path(number).open("ab") as file:
                    rows[bounds[number] : bounds[number + 1]].tofile(file)

    def _path(self, number: int) -> Path:
        assert self._files is not None
        return Path(self._files.name) / f"{number:02x}"


def joined(rows: Sequence[Entries]) -> Entries:
    """Return the rows in one array."""
    return rows[0] if len(rows) == 1 else np.concatenate(rows) if rows else np.empty(0, ENTRY)


def parts_of(*spools: Spool) -> Any:
    """Yield the rows of all spools, for a part of the hashes at a time: all at once if all of them are in memory."""
    if not any(each.is_on_disk for each in spools):
        yield tuple(each.all() for each in spools)
        return
    for number in range(PARTS):
        yield tuple(each.part(number) for each in spools)


def contained(spool: Spool, hashes: Sequence[bytes]) -> int:
    """Return how many of the hashes a spool has."""
    wanted = np.frombuffer(b"".join(hashes), ">u8").astype("<u8")
    return sum(int(np.isin(wanted, rows["id"]).sum()) for (rows,) in parts_of(spool))
