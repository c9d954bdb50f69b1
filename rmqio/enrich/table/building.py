"""Builds a table: rows in the order of their hash, and an index into them. It needs little memory for many rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqio.enrich.table import hashing, manifest
from rmqio.enrich.table.manifest import Manifest
from rmqio.enrich.table.rows import FROM, TO, Rows, Spec, require_apart, until_next
from rmqio.errors import LocalError

# Rows of a table that is being built, in parts by the hash of their key: in memory, or on disk if they are many.

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


_ATTEMPTS: Final = 4
_SEED_STEP: Final = 0x9E3779B97F4A7C15
_LONGEST_BUCKET: Final = 64
_MOST_ROWS: Final = (1 << 32) - 1
_MOST_BYTES: Final = 1 << 31

HashOf = Callable[[list[pa.Array], int], Any]


class Collision(Exception):
    """Two keys have one hash, or too many share a bucket: it takes another seed."""


def build(
    batches: Iterable[pa.RecordBatch],
    spec: Spec,
    folder: Path,
    *,
    seed: int = 0,
    hash_of: HashOf = hashing.hashes_of,
) -> Manifest:
    """Writes a table into an empty folder, and returns its manifest.

    Args:
      batches: the rows. They are read once.
      seed: of the hash; others follow if keys collide.
      hash_of: the hash, for tests of collisions.

    Raises `LocalError` if columns are missing or cannot be keys, or if a key has several rows and must not.
    """
    rows = Rows(spec)
    source = rows.of(batches)
    spool: Spool | None = None
    try:
        for attempt in range(_ATTEMPTS):
            current = (seed + attempt * _SEED_STEP) % (1 << 64)
            before, spool = spool, None
            try:
                spool = _spooled(source, rows, folder, current, hash_of)
            finally:
                if before is not None:
                    before.discard()
            try:
                return _Writer(rows, folder, current, spool).written()
            except Collision:
                source = spool.batches()
        raise LocalError(f"the keys of the table collide with {_ATTEMPTS} seeds of the hash")
    finally:
        if spool is not None:
            spool.discard()


def _spooled(source: Iterator[pa.RecordBatch], rows: Rows, folder: Path, seed: int, hash_of: HashOf) -> Spool:
    spool: Spool | None = None
    try:
        for batch in source:
            hashes = pa.array(hash_of([batch.column(name) for name in rows.spec.keys], seed))
            names = [*batch.schema.names, HASH]
            hashed = pa.RecordBatch.from_arrays([*batch.columns, hashes], names=names)
            if spool is None:
                spool = Spool(hashed.schema, folder, rows.coded)
            spool.add(hashed)
        assert spool is not None  # rows without any are an empty batch
        spool.close()
    except BaseException:
        if spool is not None:
            spool.discard()
        raise
    if spool.rows > _MOST_ROWS:
        spool.discard()
        raise LocalError(f"a table can have at most {_MOST_ROWS:,} rows, but this one has {spool.rows:,}")
    return spool


@dataclass(slots=True)
class _Sorted:
    """Rows of a part in the order of their hash."""

    batch: pa.RecordBatch
    hashes: Any


class _Writer:
    """Writes the files of a table."""

    def __init__(self, rows: Rows, folder: Path, seed: int, spool: Spool) -> None:
        self._rows = rows
        self._spec = rows.spec
        self._folder = folder
        self._seed = seed
        self._spool = spool
        self._bucket_bits = min(32, max(spool.part_bits, spool.rows.bit_length() - 1, 0))
        self._dropped = 0
        self._texts = {name: sorted(texts - {None}) for name, texts in spool.texts.items()}  # type: ignore[type-var]

    def written(self) -> Manifest:
        """Returns the manifest of the table that it has written."""
        counts: list[int] = []
        paths = {name: self._folder / name for name in manifest.FILES}
        starts = np.zeros(1, np.uint32)
        total = 0
        with (
            open(paths[manifest.STARTS], "wb") as starts_file,
            open(paths[manifest.PRINTS], "wb") as prints_file,
            pa.OSFile(str(paths[manifest.ROWS]), "wb") as rows_file,
        ):
            writer: Any = None
            for number, part in enumerate(self._spool.parts()):
                found = self._sorted(part)
                batch = self._coded(found.batch)
                if writer is None:
                    writer = pa.ipc.new_file(rows_file, batch.schema)
                writer.write_batch(batch)
                starts_file.write(starts.astype(np.uint32).tobytes())
                starts = self._ends(found.hashes, number) + np.uint64(total)
                prints = (found.hashes << np.uint64(self._bucket_bits)) >> np.uint64(32)
                prints_file.write(prints.astype(np.uint32).tobytes())
                total += batch.num_rows
                counts.append(batch.num_rows)
            writer.close()
            starts_file.write(starts.astype(np.uint32).tobytes())
        files = {}
        for name, path in paths.items():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            files[name] = (path.stat().st_size, manifest.digest_of(path))
        made = Manifest(
            keys=self._spec.keys,
            columns=self._rows.columns,
            seed=self._seed,
            rows=total,
            null_keys=self._rows.null_keys,
            dropped=self._dropped,
            bucket_bits=self._bucket_bits,
            part_bits=self._spool.part_bits,
            part_rows=tuple(counts),
            has_times=self._spec.has_times,
            files=files,
        )
        return manifest.write(self._folder, made)

    def _sorted(self, part: pa.RecordBatch) -> _Sorted:
        """The rows of a part in the order of their hash, without those that `duplicates` leaves out."""
        hashes = np.asarray(part.column(HASH))
        if self._spec.has_times:
            order = np.lexsort((np.asarray(part.column(FROM)), hashes))
        else:
            order = np.argsort(hashes, kind="stable")
        names = [name for name in part.schema.names if name != HASH]
        batch = pa.RecordBatch.from_arrays([part.column(name) for name in names], names=names)
        for name, column in zip(names, batch.columns, strict=True):
            if column.nbytes >= _MOST_BYTES:
                raise LocalError(f"the column {name} has too many bytes for a table: one part of it has over 2 GB")
        batch, hashes = batch.take(pa.array(order)), hashes[order]
        same = hashes[1:] == hashes[:-1]
        if np.any(same):
            places = np.flatnonzero(same)
            self._require_same_keys(batch, places)
            if not self._spec.has_times:
                return self._deduplicated(batch, hashes, same)
        if self._spec.has_times:
            if self._spec.valid_to is None:
                batch = until_next(batch, hashes)
            starts, ends = np.asarray(batch.column(FROM)), np.asarray(batch.column(TO))
            require_apart(hashes, starts, ends, lambda place: self._rows.key_text(batch, place))
        return _Sorted(batch, hashes)

    def _require_same_keys(self, batch: pa.RecordBatch, places: Any) -> None:
        """Raises `Collision` if rows with one hash have several keys."""
        left, right = pa.array(places), pa.array(places + 1)
        for name in self._spec.keys:
            column = batch.column(name)
            if not pc.all(pc.equal(column.take(left), column.take(right))).as_py():
                raise Collision(name)

    def _deduplicated(self, batch: pa.RecordBatch, hashes: Any, same: Any) -> _Sorted:
        how = self._spec.duplicates
        if how == "error":
            place = int(np.flatnonzero(same)[0])
            raise LocalError(
                f"the key {self._rows.key_text(batch, place)} has several rows: choose which of them to use with "
                'duplicates="first", "last" or "all"'
            )
        if how == "all":
            return _Sorted(batch, hashes)
        kept = np.ones(len(hashes), bool)
        if how == "first":
            kept[1:] = ~same
        else:
            kept[:-1] = ~same
        self._dropped += int(len(kept) - kept.sum())
        return _Sorted(batch.filter(pa.array(kept)), hashes[kept])

    def _coded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with numbers in place of texts, where these are few."""
        if not self._texts:
            return batch
        columns = list(batch.columns)
        for name, texts in self._texts.items():
            place = batch.schema.get_field_index(name)
            values = pa.array(texts, pa.string())
            numbers = pc.index_in(columns[place], value_set=values).cast(pa.int16())
            columns[place] = pa.DictionaryArray.from_arrays(numbers, values)
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _ends(self, hashes: Any, part: int) -> Any:
        """The end of each bucket of a part, counted from the part's first row."""
        bits = self._bucket_bits - self._spool.part_bits
        if self._bucket_bits:
            buckets = (hashes >> np.uint64(64 - self._bucket_bits)).astype(np.int64) - (part << bits)
        else:
            buckets = np.zeros(len(hashes), np.int64)
        if len(hashes) > _LONGEST_BUCKET:
            first = np.ones(len(hashes), bool)
            first[1:] = hashes[1:] != hashes[:-1]
            if np.bincount(buckets[first]).max() > _LONGEST_BUCKET:
                raise Collision("a bucket")
        return np.cumsum(np.bincount(buckets, minlength=1 << bits)).astype(np.uint64)
