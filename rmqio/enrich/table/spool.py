"""Rows of a table that is being built, in parts by the hash of their key: in memory, or on disk if they are many."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

PART_BITS: Final = 6
"""The parts of a table on disk: one is sorted in memory, and is a record batch of the table's file."""
IN_MEMORY: Final = 64 << 20
"""Bytes that stay in memory."""
_MOST_TEXTS: Final = 4096
"""A column of text with at most so many values is stored as their numbers."""
HASH: Final = "__hash"


class Spool:
    """Takes batches of rows with a column `HASH`, and gives them back part by part, each in the order of its rows."""

    def __init__(self, schema: pa.Schema, folder: Path, coded: tuple[str, ...]) -> None:
        self._schema = schema
        self._folder = folder
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._writers: list[Any] = []
        self._files: list[Any] = []
        self.rows = 0
        self.texts: dict[str, set[str | None]] = {name: set() for name in coded}
        """The values of columns with few of them."""

    @property
    def part_bits(self) -> int:
        """The number of bits of the hash that say the part."""
        return PART_BITS if self._files else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes a batch."""
        self.rows += batch.num_rows
        for name in list(self.texts):
            found = batch.column(name).dictionary_encode().dictionary
            texts = self.texts[name]
            if len(found) > _MOST_TEXTS or len(texts) > _MOST_TEXTS:
                del self.texts[name]
            else:
                texts.update(found.to_pylist())
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes > IN_MEMORY:
            self._write()

    def close(self) -> None:
        """Ends the writing."""
        self.texts = {name: texts for name, texts in self.texts.items() if len(texts) <= _MOST_TEXTS}
        if self._writers:
            self._write()
            self._end()

    def parts(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each part in order. It can be called again."""
        if not self._files:
            yield _joined(self._held, self._schema)
            return
        for number in range(1 << PART_BITS):
            with pa.OSFile(str(self._path(number))) as file, pa.ipc.open_stream(file) as reader:
                batches = list(reader)
            yield _joined(batches, self._schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows without their hash, some at a time, those of one key in order."""
        schema = pa.schema([each for each in self._schema if each.name != HASH])
        for part in self.parts():
            yield pa.RecordBatch.from_arrays([part.column(name) for name in schema.names], schema=schema)

    def discard(self) -> None:
        """Closes the files and removes them. Idempotent."""
        self._held = []
        self._end()
        for number in range(1 << PART_BITS):
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{id(self)}-{number}"

    def _end(self) -> None:
        for each in [*self._writers, *self._files]:
            with contextlib.suppress(pa.ArrowException, OSError):
                each.close()
        self._writers = []
        self._held_bytes = 0

    def _write(self) -> None:
        if not self._writers:
            for number in range(1 << PART_BITS):
                file = pa.OSFile(str(self._path(number)), "wb")
                self._files.append(file)
                self._writers.append(pa.ipc.new_stream(file, self._schema))
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        batch = _joined(held, self._schema)
        parts = (np.asarray(batch.column(HASH)) >> np.uint64(64 - PART_BITS)).astype(np.uint8)
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=1 << PART_BITS))
        batch = batch.take(pa.array(order))
        start = 0
        for writer, end in zip(self._writers, ends, strict=True):
            if end > start:
                writer.write_batch(batch.slice(start, end - start))
            start = int(end)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([each.column(place) for each in batches]) for place in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
