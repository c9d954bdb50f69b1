"""`DropDuplicates`: what an at-least-once writer has stored twice comes out once."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.deduplicate import DeduplicatePerKey
from apache_beam.typehints import Tuple
from apache_beam.utils.timestamp import Duration

from rmqio.errors import LocalError
from rmqio.model import Record


class DropDuplicates(beam.PTransform):
    """Drop records whose unique id came before, within some time.

    `WriteToRocketMQ` gives a message that it sends again the id of the first try, so between two rmqio ends this makes
    at least once effectively once. Java's producers do the same for their own retries.

    Args:
      within_ms: for how long an id is remembered after its first record, by the runner's clock (milliseconds). State is
        one flag per id: choose as long as a writer may take to repeat itself, not longer.

    Elements are `Record`s; order is not kept. It needs a shuffle and state: the in-process runner gives its output of
    an endless read only when that ends. Raises `LocalError` when it is built.
    """

    def __init__(self, *, within_ms: int = 600_000) -> None:
        super().__init__()
        if not isinstance(within_ms, int) or isinstance(within_ms, bool) or within_ms < 1:
            raise LocalError(f"within_ms is {within_ms!r}; it must be a whole number of at least 1")
        self._within_ms = within_ms

    def expand(self, records: Any) -> Any:
        return (
            records
            | "By id" >> beam.Map(_with_id).with_output_types(Tuple[str, Record])
            | "First of each id" >> DeduplicatePerKey(processing_time_duration=Duration(micros=self._within_ms * 1000))
            | "Records" >> beam.Map(_without_id).with_output_types(Record)
        )


def _with_id(record: Record) -> tuple[str, Record]:
    return record.message_id, record


def _without_id(keyed: tuple[str, Record]) -> Record:
    return keyed[1]
