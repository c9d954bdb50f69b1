"""Collects the rows that leave a task into Arrow batches, and hands these from the bundle's thread to Spark's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import pyarrow as pa

from rmqio.runners.spark.errors import TaskFailure

ROW_SCHEMA: Final = pa.schema(
    [("channel", pa.int32()), ("bucket", pa.int32()), ("key", pa.binary()), ("value", pa.binary())]
)
BATCH_BYTES: Final = 1 << 20
_BATCH_ROWS: Final = 10_000
_DEPTH: Final = 4  # batches that wait for Spark; when full, the bundle waits, so that memory is bounded
_END: Final = object()


class Abandoned(BaseException):
    """Spark no longer reads this task's rows. Not an Exception, so that a user's DoFn does not swallow it."""


class RowQueue:
    """Passes Arrow batches from a bundle's thread to the task's thread. If it is full, the bundle waits."""

    def __init__(self) -> None:
        self._batches: queue.Queue[pa.RecordBatch | object] = queue.Queue(_DEPTH)
        self._abandoned = threading.Event()

    def put(self, batch: pa.RecordBatch) -> None:
        """Adds a batch. Raises `Abandoned` once `abandon` has been called."""
        while not self._abandoned.is_set():
            try:
                self._batches.put(batch, timeout=1.0)
            except queue.Full:
                continue
            return
        raise Abandoned

    def end(self) -> None:
        """Tells the reader that no more batches come."""
        with _ignored_abandoned():
            self.put(_END)

    def abandon(self) -> None:
        """Tells the writer that nobody reads any more."""
        self._abandoned.set()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._batches.get()) is not _END:
            yield batch


class _ignored_abandoned:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is Abandoned


def threaded(work: Callable[[RowQueue], None], name: str) -> Iterator[pa.RecordBatch]:
    """Runs `work` in a thread of its own and yields what it puts. While Spark takes some rows, `work` makes the next.

    Args:
      name: what `work` runs, for the name of the thread and for failures.

    Raises:
      TaskFailure: `work` raised an error, which the failure describes.
    """
    rows = RowQueue()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work(rows)
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001  raised again in the task's own thread
            failure.append(error)
        finally:
            rows.end()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield from rows
    finally:
        rows.abandon()
        thread.join()
    if failure:
        raise TaskFailure(failure[0], name) from None


class Batches(Protocol):
    """A receiver of Arrow batches."""

    def put(self, batch: pa.RecordBatch) -> None: ...


class RowWriter:
    """Collects single rows of all outputs into batches."""

    def __init__(self, rows: Batches) -> None:
        self.reset(rows)

    def reset(self, rows: Batches) -> None:
        """Begins anew with this receiver. Drops the rows that were collected."""
        self._rows = rows
        self._columns: tuple[list[int], list[int], list[bytes | None], list[bytes]] = ([], [], [], [])
        self._bytes = 0

    def write(self, channel: int, bucket: int, key: bytes | None, value: bytes) -> None:
        channels, buckets, keys, values = self._columns
        channels.append(channel)
        buckets.append(bucket)
        keys.append(key)
        values.append(value)
        self._bytes += len(value) + (len(key) if key is not None else 0)
        if self._bytes >= BATCH_BYTES or len(values) >= _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hands over the collected rows as a batch."""
        if self._columns[0]:
            arrays = [pa.array(column, field.type) for column, field in zip(self._columns, ROW_SCHEMA, strict=True)]
            self._columns = ([], [], [], [])
            self._bytes = 0
            self._rows.put(pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA))

    def put(self, batch: pa.RecordBatch) -> None:
        """Hands over a batch that was made elsewhere."""
        self._rows.put(batch)
