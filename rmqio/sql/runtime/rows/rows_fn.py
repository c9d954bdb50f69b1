"""Rows of a SELECT that a shell waits for: written to a file descriptor of this process, packed, as they come."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from typing import Any, Final

import apache_beam as beam

from rmqio.sql.rows import pack

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
