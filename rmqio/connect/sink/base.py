"""`BatchSink`: what a sink must say, for users to extend. It knows no Beam."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rmqio.connect.rows import size_of, to_row
from rmqio.errors import LocalError, RmqioError, SerdeError


class Verdict(enum.Enum):
    """The meaning of an error of `BatchSink.write`."""

    RETRY = "retry"
    """The system is away, busy, or has aborted the work: the same batch can succeed later."""
    ROWS = "rows"
    """Rows of the batch are at fault, and none was written: the batch is halved until they stand alone."""
    FAIL = "fail"
    """The set-up is at fault, so that no row can be written: the bundle fails, and nothing is dropped."""


class RowRefused(RmqioError):
    """The system refuses a row for good. In `BatchSink.write`, its verdict is ROWS."""


class PerhapsRefused(RowRefused):
    """As `RowRefused`, or the set-up refuses all rows: that it does if it has many of them, and no row is written."""


class SinkFailed(RmqioError):
    """A sink could not write, and gave up. It fails the bundle; the runner runs the bundle again."""


class Written(NamedTuple):
    """The result of a write in which some rows failed. Both map the position of a row in the batch to its error."""

    refused: Mapping[int, Exception] = {}
    """Rows that can never be written."""
    again: Mapping[int, Exception] = {}
    """Rows to be written again, after a wait."""


class BatchSink:
    """A place where batches of rows go. Extend it, and give it to `WriteToSink`.

    A sink is pickled to the workers: keep options in `__init__`, and open connections in `open`. The calls for one
    copy never overlap, but they can come from different threads.
    """

    name = "sink"
    """Its name in messages and metrics. It must hold no secret."""

    def open(self) -> None:
        """Connect. Called once in each worker before the first write, and again if it raises a retriable error."""

    def close(self) -> None:
        """Disconnect. Called at the end, also after errors."""

    def convert(self, element: Any) -> Any:
        """Returns the row of an element; by default a dict, see `rmqio.connect.rows`. Any error refuses the element."""
        return to_row(element)

    def destination(self, row: Any) -> Hashable:
        """Returns where the row goes, such as the name of a table. Each destination has batches of its own."""
        return None

    def size(self, row: Any) -> int:
        """Returns about how many bytes the row takes."""
        return size_of(row)

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        """Writes a batch, and returns when it is safe. A batch can come again, whole or in parts: use keys.

        None: all rows are written. An exception means that none has to be; `judge` decides what follows.
        """
        raise NotImplementedError

    def judge(self, error: Exception) -> Verdict:
        """Returns what an error of `open` or `write` means. By default, what looks like the network is retried."""
        if isinstance(error, (RowRefused, SerdeError)):
            return Verdict.ROWS
        if isinstance(error, LocalError):
            return Verdict.FAIL
        is_retriable = isinstance(error, OSError) or (isinstance(error, RmqioError) and error.retriable)
        return Verdict.RETRY if is_retriable else Verdict.FAIL
