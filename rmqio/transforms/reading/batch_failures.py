"""The failures of members of a batch, with the coordinates that are known."""

from __future__ import annotations

from typing import Any

from rmqio.batches import Batch
from rmqio.model import Record
from rmqio.transforms.failures.read_failures import ReadFailure, failure_of_record, failure_of_value
from rmqio.transforms.reading.record_batches import located, located_at


def located_member(batch: Batch[Any], position: int, error: Exception) -> Exception:
    """The error with the coordinates of a member, if they are known."""
    value = batch[position]
    if isinstance(value, Record):
        return located(value, error)
    return error if batch.queue is None else located_at(batch.queue, batch.offsets[position], error)


def failure_of_member(batch: Batch[Any], position: int, error: Exception) -> ReadFailure:
    """The failure of a member. Without a place, its coordinates are empty."""
    value = batch[position]
    if isinstance(value, Record):
        return failure_of_record(value, error)
    offset = -1 if batch.queue is None else batch.offsets[position]
    return failure_of_value(value, batch.queue, offset, error)
