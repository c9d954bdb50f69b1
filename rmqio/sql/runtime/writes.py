"""Sinks of a job: ids of their rows, and the transforms that write them."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.typehints import Tuple

from rmqio.dead_letters.letters import ELEMENT, make_letter
from rmqio.errors import RmqioError
from rmqio.model import Message
from rmqio.repeats import LookBack
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.errors import Refusal
from rmqio.sql.formats.delimited import CsvEncoder, CsvOptions
from rmqio.sql.planning.identity import has_groups, has_own_ids, id_position, with_ids
from rmqio.sql.planning.plan import Field, Sink
from rmqio.sql.rows import pack
from rmqio.sql.runtime.relations import in_order
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.secrets import masked_message
from rmqio.sql.types import VARCHAR
from rmqio.transforms import FailedMessage, WriteToRocketMQ
from rmqio.transforms.parts import failed_of

# Writes tables of files, once the input has ended.
#
# Rows are dealt to as many files as `sink.parallelism` says. A file is written under another name first, so that
# nobody reads a part of it, and a repeated attempt writes the same file again. Beam's own sinks need side inputs for
# that, which Flink does not have in streams.

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


# Rows that are refused when they are sent: no message can be as large, or a topic that a row names is not there.

_BEGINNING: Final = 1 << 16
"""Bytes of a body that is too large: a letter with all of it would be refused, too."""
_OF_SIZE: Final = ("MessageIllegal", "LocalError")
_LOGGER: Final = logging.getLogger(__name__)


class RefusedFn(beam.DoFn):
    """Makes dead letters of refused rows, leaves them out, or fails: no offset of a row that is lost may be committed.

    Args:
      on_error: what the tables say from which the rows come.
      statement: the name of the statement.
    """

    def __init__(self, on_error: str, statement: str) -> None:
        self._on_error = on_error
        self._statement = statement
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def process(self, element: FailedMessage) -> Iterator[FailedMessage | Message]:
        reason = f"cannot write to topic {element.topic!r}: {element.error}: {element.reason} ({self._statement})"
        if self._on_error == "fail":
            raise RmqioError(reason)
        self._bad.inc()
        if self._on_error == "dead-letter":
            yield letter_of(element)
        else:
            _LOGGER.warning("a row is left out: %s", reason)


def letter_of(failed: FailedMessage) -> FailedMessage | Message:
    """Returns what becomes the dead letter of a row. It has the keys, also if it has only the beginning of the body."""
    message = failed.message
    if message is None or failed.error not in _OF_SIZE or len(message.body) <= _BEGINNING:
        return failed
    return make_letter(failed_of(failed)._replace(body=message.body[:_BEGINNING], kind=ELEMENT))


# Rows with stable ids on their way to the write: pairs (id, message or body).

Row = tuple[str, Message | bytes]


def id_of_row(row: Row) -> str:
    """Returns the id of the row's message."""
    return row[0]


def message_of_row(row: Row) -> Message:
    """Returns the message of the row."""
    made = row[1]
    return made if isinstance(made, Message) else Message(made)


# Rows of a SELECT that a shell waits for: written to a file descriptor of this process, packed, as they come.

HEAD: Final = struct.Struct(">I")
"""The size of the row that follows."""
_LOCK: Final = threading.Lock()


def write_rows(rows: Any, descriptor: int) -> None:
    """Writes the batches of a PCollection to a file descriptor of this process, on an in-process runner."""
    _ = rows | "Rows for the shell" >> beam.ParDo(WriteRowsFn(descriptor))


class WriteRowsFn(beam.DoFn):
    """Writes rows to a file descriptor. It works on a runner that runs in the process to which it belongs.

    Args:
      descriptor: of a pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def process(self, element: Sequence[tuple[Any, ...]]) -> None:
        packed = [pack(row) for row in element]
        data = b"".join(part for row in packed for part in (HEAD.pack(len(row)), row))
        with _LOCK:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]


def identified(sink: Sink, label: str, run: str, *, is_stream: bool, has_places: bool) -> Sink:
    """Returns the sink with stable ids, if its rows can have them.

    Args:
      label: of the write, which distinguishes its rows from others that come from the same.
      run: names this run of the job.
      is_stream: whether the job does not end.
      has_places: whether all rows that are read have a place.
    """
    if has_own_ids(sink) or not has_places:
        return sink
    # A run that ends can have read something else, which gives groups other rows.
    salt = label if is_stream or not has_groups(sink) else f"{label} {run}"
    found = with_ids(sink, salt, is_stream=is_stream)
    if found is None and sink.table.options.is_exactly_once:
        raise Refusal(
            f"{sink.table.name} is written exactly once, and rows of this statement have no ids that are the same "
            "when they come again: leave 'sink.delivery-guarantee' out",
            sink.span,
        )
    return found or sink


def write(
    sink: Sink, rows: Any, label: str, connection: Connection, run: str, refused: Callable[[Any, str], None]
) -> None:
    """Adds the write of a sink.

    Args:
      run: names this run of the job.
      refused: takes the failures of rows that cannot be sent, and a label.
    """
    if sink.table.options.connector == "blackhole":
        return
    if sink.table.options.connector == "print":
        _ = rows | label.replace("Write", "Print") >> beam.ParDo(PrintFn())
        return
    if sink.table.options.connector == FILES:
        _ = rows | label >> WriteFiles(sink.table, sink.columns, run[:12])
        return
    rows = in_order(sink, rows, label)
    options = sink.table.options
    how: dict[str, Any] = {"producer_group": options.producer_group}
    if options.is_exactly_once:
        how["exactly_once"] = LookBack(group=options.producer_group)
    if id_position(sink.columns) is not None:
        how |= {"id_fn": id_of_row, "serializer": message_of_row}
    written = rows | label >> WriteToRocketMQ(
        options.topic, batches=True, with_sent=False, **how, **connection.of(sink.table)
    )
    refused(written.failed, f"{label}: refused")


class PrintFn(beam.DoFn):
    """Prints rows, each in its line."""

    def __init__(self) -> None:
        self._written = Metrics.counter("rmqio.sql", "messages_sent")

    def process(self, element: Sequence[Any]) -> None:
        self._written.inc(len(element))
        for row in element:
            if isinstance(row, Message) and row.is_tombstone:
                print(f"deleted: {row.keys[0]}", flush=True)
                continue
            body = row.body if isinstance(row, Message) else row
            print(body.decode("utf-8", "replace"), flush=True)
