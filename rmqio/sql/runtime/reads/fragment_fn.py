"""DoFns that run a fragment on batches of records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.errors import SerdeError, counted
from rmqio.model import Record
from rmqio.sql.compile.description import Fragment, Mapped, OtherTarget, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.fragment import compiled, has_variants
from rmqio.sql.runtime.reads.places import failure_of, place_of
from rmqio.sql.runtime.rows.nulls import Nulls
from rmqio.sql.runtime.rows.outputs import outputs

ERRORS: Final = "errors"
_MOST_GROUPS: Final = 100_000
"""Groups of a bundle in memory, a few hundred bytes each."""
_LOGGER: Final = logging.getLogger(__name__)


def sent(batch: Batch[Record], fragment: Fragment, mapped: Mapped, label: str) -> Batch[Any]:
    """Returns the messages of a batch, with what their ids are made of."""
    if not has_variants(fragment):
        return batch.with_values(mapped.values, mapped.positions, step=label)
    variants, values = zip(*mapped.values, strict=True)
    return batch.with_values(values, mapped.positions, step=label, variants=variants)


class FragmentFn(beam.DoFn):
    """Runs a fragment on each batch. A row that fails fails alone, by the option `on-error` of the table.

    Args:
      fragment: from a table, to messages or to keys.
      label: what distinguishes messages of these records from others of the same records.
      on_error: `fail` raises, `skip` and `null` count and log, `dead-letter` emits a `ReadFailure` to `ERRORS`.
      side: for rows with keys, which input of the join they are.
    """

    def __init__(self, fragment: Fragment, label: str, on_error: str, side: int = 0) -> None:
        self._fragment = fragment
        self._label = label
        self._on_error = on_error
        self._side = side
        self._nulls = Nulls()
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def setup(self) -> None:
        self._run = compiled(self._fragment)

    def start_bundle(self) -> None:
        self._groups: dict[Any, Any] = {}
        self._earliest_us: int | None = None

    def process(self, element: Batch[Record], timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        target = self._fragment.target
        if isinstance(target, ToGroups):
            mapped = self._run(element, self._groups)
            if self._earliest_us is None or timestamp.micros < self._earliest_us:
                self._earliest_us = timestamp.micros
            if len(self._groups) > _MOST_GROUPS:
                yield from self._flushed(target)
        else:
            mapped = self._run(element)
        if mapped.nulls:
            self._nulls.made(mapped.nulls)
        if mapped.failed:
            yield from self._failed(element, mapped)
        if not mapped.values:
            return
        if isinstance(target, (ToKeys, ToRanks)):
            yield from outputs(target, mapped.values, self._side, timestamp.micros)
        elif isinstance(target, OtherTarget):
            yield from target.stamped(mapped.values)
        else:
            yield sent(element, self._fragment, mapped, self._label)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        target = self._fragment.target
        if not isinstance(target, ToGroups) or not self._groups:
            return
        earliest_us = self._earliest_us
        for each in self._flushed(target):
            stamped = isinstance(each, TimestampedValue)
            value, at = (each.value, each.timestamp) if stamped else (each, Timestamp(micros=earliest_us))
            yield WindowedValue(value, at, (GlobalWindow(),))

    def _flushed(self, target: ToGroups) -> list[Any]:
        """The groups of the bundle so far: a key comes once, and not once per batch."""
        assert self._earliest_us is not None
        found = list(outputs(target, list(self._groups.items()), self._side, self._earliest_us))
        self._groups.clear()
        self._earliest_us = None
        return found

    def _failed(self, batch: Batch[Record], mapped: Mapped) -> Iterator[Any]:
        self._bad.inc(len(mapped.failed))
        for position, error in mapped.failed.items():
            record = batch[position]
            if self._on_error == "dead-letter":
                yield beam.pvalue.TaggedOutput(ERRORS, failure_of(record, error))
            elif self._on_error == "fail":
                raise SerdeError(f"{place_of(record)}: {error}") from error
        if self._on_error in ("skip", "null"):
            position, error = next(iter(mapped.failed.items()))
            _LOGGER.warning(
                "%s left out, the first at %s: %s",
                counted(len(mapped.failed), "row"),
                place_of(batch[position]),
                error,
            )
