"""Writes tables of files, once the input has ended.

Rows are dealt to as many files as `sink.parallelism` says. A file is written under another name first, so that nobody
reads a part of it, and a repeated attempt writes the same file again. Beam's own sinks need side inputs for that, which
Flink does not have in streams.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.typehints import Tuple

from rmqio.errors import RmqioError
from rmqio.model import Message
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.formats.csv import CsvEncoder, CsvOptions
from rmqio.sql.formats.options import FormatOptions
from rmqio.sql.planning.plan import Field
from rmqio.sql.secrets import masked_message
from rmqio.sql.types import VARCHAR

_SUFFIXES: Final = {"key-value": "txt", "raw": "txt"}


class WriteFiles(beam.PTransform):
    """Writes batches of bodies into files of a folder: `part-<job>-00000.json`.

    Args:
      table: the table; its path is a folder.
      columns: the columns of the rows, for a first line that names them.
      job: what distinguishes the files from those of other jobs.
    """

    def __init__(self, table: Table, columns: tuple[Column, ...], job: str) -> None:
        super().__init__()
        self._table, self._columns, self._job = table, columns, job

    def expand(self, batches: Any) -> Any:
        shards = self._table.options.of_connector.shards
        return (
            batches
            | "Deal" >> beam.Map(_dealt, shards).with_output_types(Tuple[int, list[bytes]])
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(WriteFileFn(self._table, self._columns, self._job)).with_output_types(str)
        )


def _dealt(batch: list[Any], shards: int) -> tuple[int, list[bytes]]:
    bodies = [each.body if isinstance(each, Message) else each for each in batch]
    return zlib.crc32(bodies[0]) % shards, bodies  # the same when it is computed again


class WriteFileFn(beam.DoFn):
    """Writes the rows of one file. The output is its path."""

    def __init__(self, table: Table, columns: tuple[Column, ...], job: str) -> None:
        self._table, self._columns, self._job = table, columns, job
        self._written = Metrics.counter("rmqio.sql", "messages_sent")

    def process(self, element: tuple[int, Iterable[list[bytes]]]) -> Iterator[str]:
        shard, batches = element
        options = self._table.options
        folder = options.of_connector.path.rstrip("/")
        suffix = _SUFFIXES.get(options.format, options.format)
        path = FileSystems.join(folder, f"part-{self._job}-{shard:05d}.{suffix}")
        try:
            count = self._write(path, FileSystems.join(folder, f".{uuid.uuid4().hex}.tmp"), batches)
        except OSError as error:  # as if the disk is full; Beam's errors are some, too
            raise RmqioError(masked_message(f"{path} cannot be written: {error.strerror or error}")) from error
        self._written.inc(count)
        yield path

    def _write(self, path: str, begun: str, batches: Iterable[list[bytes]]) -> int:
        count = 0
        file = FileSystems.create(begun)
        try:
            if self._table.options.of_connector.skips_first_line:
                file.write(self._first_line() + b"\n")
            for bodies in batches:
                for body in bodies:
                    file.write(body + b"\n")
                count += len(bodies)
            file.close()
        except BaseException:
            with contextlib.suppress(OSError):  # on a full disk, closing writes again
                file.close()
            FileSystems.delete([begun])
            raise
        if FileSystems.exists(path):  # of an attempt before
            FileSystems.delete([path])
        FileSystems.rename([begun], [path])
        return count

    def _first_line(self) -> bytes:
        names = [each.name for each in self._columns if each.is_physical]
        encoder = CsvEncoder(
            [Field(each, VARCHAR) for each in names], CsvOptions.of(FormatOptions(self._table.options.of_format))
        )
        scope = {**encoder.constants, **{f"n{i}": each for i, each in enumerate(names)}}
        return bytes(eval(encoder.source([f"n{i}" for i in range(len(names))]), scope))
