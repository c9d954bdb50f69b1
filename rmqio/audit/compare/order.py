"""Messages of one queue that are out of order in a queue of the second topic.

Pairs go to files by queue and range of offsets where they are many, so that one range at a time is in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from rmqio.audit.compare.entries import Entries

_PAIR: Final = np.dtype(
    [("to", "<u2"), ("at", "<i8"), ("from", "<u2"), ("offset", "<i8"), ("time", "<i8"), ("came", "<i8")]
)
_RANGE_BITS: Final = 20
"""Offsets of one file: a million."""

Pairs = npt.NDArray[Any]


class Order:
    """Takes pairs in any order, and finds those that are out of order. A context manager, which deletes its files.

    Args:
      most_rows: the number of pairs from which they go to files.
    """

    def __init__(self, most_rows: int, folder: Path | None = None) -> None:
        self._most, self._folder = most_rows, folder
        self._pairs: list[Pairs] = []
        self._waiting = 0
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._names: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._files is not None:
            self._files.cleanup()

    def add(self, sent: Entries, got: Entries) -> None:
        """Add pairs: `got[n]` is what came of `sent[n]`."""
        made = np.empty(len(sent), _PAIR)
        made["to"], made["at"], made["came"] = got["queue"], got["offset"], got["time"]
        made["from"], made["offset"], made["time"] = sent["queue"], sent["offset"], sent["time"]
        self._pairs.append(made)
        self._waiting += len(made)
        if self._waiting >= self._most:
            self._spill()

    def disorder(self) -> Iterator[Pairs]:
        """Yield the pairs that stand behind one with a higher offset of the same queue."""
        if self._files is None:
            runs: Iterator[Pairs] = iter([np.concatenate(self._pairs)] if self._pairs else [])
        else:
            self._spill()
            runs = (np.fromfile(self._path(name), _PAIR) for name in sorted(self._names))
        highest: dict[tuple[int, int], int] = {}
        for pairs in runs:
            pairs = pairs[np.lexsort((pairs["at"], pairs["from"], pairs["to"]))]
            lines = pairs["to"].astype(np.int64) << 16 | pairs["from"]
            bounds = np.flatnonzero(np.diff(lines)) + 1
            for line in np.split(pairs, bounds):
                if not len(line):
                    continue
                key = int(line["to"][0]), int(line["from"][0])
                before = np.maximum.accumulate(np.concatenate(([highest.get(key, -1)], line["offset"])))
                highest[key] = int(before[-1])
                wrong = line[line["offset"] < before[:-1]]
                if len(wrong):
                    yield wrong

    def _spill(self) -> None:
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="rmqio-audit-", dir=self._folder)
        if not self._waiting:
            return
        pairs = np.concatenate(self._pairs)
        self._pairs, self._waiting = [], 0
        pairs = pairs[np.lexsort((pairs["at"], pairs["to"]))]
        ranges = pairs["at"] >> _RANGE_BITS
        cuts = np.flatnonzero(np.diff(pairs["to"].astype(np.int64)) | np.diff(ranges)) + 1
        for part in np.split(pairs, cuts):
            name = int(part["to"][0]), int(part["at"][0]) >> _RANGE_BITS
            self._names.add(name)
            with self._path(name).open("ab") as file:
                part.tofile(file)

    def _path(self, name: tuple[int, int]) -> Path:
        assert self._files is not None
        return Path(self._files.name) / f"{name[0]:05d}-{name[1]:012d}"
