"""`BatchSink`: what a sink must say, for users to extend, and how its rows are gathered and tried. It knows no Beam."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmqio.connect.rows import size_of, to_row
from rmqio.errors import LocalError, RmqioError, SerdeError

# How rows are gathered, and how often a write is tried.


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """When a batch is written. The end of a bundle writes all that is left.

    Args:
      max_rows: rows of a batch.
      max_bytes: about so many bytes of a batch. A larger row is a batch of its own.
      max_wait_s: a row waits at most so long, if the bundle lasts: a stream on the Direct runner is one bundle. None:
        as long as the bundle.
      max_total_bytes: about so many bytes wait, over all destinations. When there are more, the largest batch is
        written.
    """

    max_rows: int = 500
    max_bytes: int = 1 << 20
    max_wait_s: float | None = 1.0
    max_total_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "max_total_bytes"):
            _require_count("Batching", name, getattr(self, name))
        if self.max_wait_s is not None:
            _require_seconds("Batching", "max_wait_s", self.max_wait_s)
        if self.max_total_bytes < self.max_bytes:
            raise LocalError(
                f"Batching.max_total_bytes is {self.max_total_bytes}, and max_bytes {self.max_bytes}: no batch could "
                "become that large; lower max_bytes"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a write that failed is tried again: after waits that double, each between half of it and all of it.

    Args:
      first_wait_s, max_wait_s: the first wait, and the longest.
      give_up_after_s: the bundle fails after so long, and the runner decides what follows.
    """

    first_wait_s: float = 0.1
    max_wait_s: float = 10.0
    give_up_after_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("first_wait_s", "max_wait_s"):
            _require_seconds("Retry", name, getattr(self, name))
        if not isinstance(self.give_up_after_s, (int, float)) or self.give_up_after_s < 0:
            raise LocalError(f"Retry.give_up_after_s is {self.give_up_after_s!r}; it must be seconds, 0 for no retry")


def _require_count(kind: str, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LocalError(f"{kind}.{name} is {value!r}; it must be a whole number of at least 1")


def _require_seconds(kind: str, name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise LocalError(f"{kind}.{name} is {value!r}; it must be seconds, more than 0")


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
