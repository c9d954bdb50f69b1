"""Elements that are not events, as failures with the coordinates that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqio.batches import Batch
from rmqio.errors import SerdeError
from rmqio.model import Record
from rmqio.rules.match.decode import failure_text
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import failure_of_record, failure_of_value


def failure_of(element: Any, error: Exception) -> ReadFailure:
    """Returns the failure of an element."""
    return _failure(element, None, -1, error)


def failure_in(batch: Sequence[Any], position: int, error: Exception) -> ReadFailure:
    """Returns the failure of a member of a batch."""
    if isinstance(batch, Batch) and batch.queue is not None:
        return _failure(batch[position], batch.queue, batch.offsets[position], error)
    return _failure(batch[position], None, -1, error)


def _failure(value: Any, queue: Any, offset: int, error: Exception) -> ReadFailure:
    reason = SerdeError(failure_text(error))
    if isinstance(value, Record):
        return failure_of_record(value, reason)
    failure = failure_of_value(value, queue, offset, reason)
    return failure._replace(body=value, kind="") if isinstance(value, bytes) else failure
