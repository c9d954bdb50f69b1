"""DoFns that run a fragment on batches of records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics

from rmqio.batches import Batch
from rmqio.errors import SerdeError
from rmqio.model import Record
from rmqio.sql.compile.fragment import Fragment, Mapped, ToGroups, ToKeys, compiled
from rmqio.sql.runtime.outputs import outputs
from rmqio.transforms.read_failures import failure_of_record

ERRORS: Final = "errors"
_LOGGER: Final = logging.getLogger(__name__)


class FragmentFn(beam.DoFn):
    """Runs a fragment on each batch. A row that fails fails alone, by the option `on-error` of the table.

    Args:
      fragment: from a table, to messages or to keys.
      label: what distinguishes messages of these records from others of the same records.
      on_error: `fail` raises, `skip` counts and logs, `dead-letter` emits a `ReadFailure` to `ERRORS`.
      side: for rows with keys, which input of the join they are.
    """

    def __init__(self, fragment: Fragment, label: str, on_error: str, side: int = 0) -> None:
        self._fragment = fragment
        self._label = label
        self._on_error = on_error
        self._side = side
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def setup(self) -> None:
        self._run = compiled(self._fragment)

    def process(self, element: Batch[Record], timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        mapped = self._run(element)
        if mapped.failed:
            yield from self._failed(element, mapped)
        if not mapped.values:
            return
        target = self._fragment.target
        if isinstance(target, (ToKeys, ToGroups)):
            yield from outputs(target, mapped.values, self._side, timestamp.micros)
        else:
            yield element.with_values(mapped.values, mapped.positions, step=self._label)

    def _failed(self, batch: Batch[Record], mapped: Mapped) -> Iterator[Any]:
        self._bad.inc(len(mapped.failed))
        for position, error in mapped.failed.items():
            record = batch[position]
            if self._on_error == "dead-letter":
                yield beam.pvalue.TaggedOutput(ERRORS, failure_of_record(record, error))
            elif self._on_error == "fail":
                raise SerdeError(f"{record.queue}, offset {record.queue_offset}: {error}") from error
        if self._on_error == "skip":
            position, error = next(iter(mapped.failed.items()))
            _LOGGER.warning("%d rows left out, the first at %s, offset %d: %s", len(mapped.failed),
                            batch[position].queue, batch[position].queue_offset, error)  # fmt: skip
