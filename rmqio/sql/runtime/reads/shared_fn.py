"""The DoFn of statements that read the same table: their fragments as one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.errors import SerdeError, counted
from rmqio.model import Record
from rmqio.sql.compile.description import Fragment, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.shared import compiled_together
from rmqio.sql.runtime.reads.fragment_fn import ERRORS, sent
from rmqio.sql.runtime.rows.nulls import Nulls
from rmqio.sql.runtime.rows.outputs import outputs
from rmqio.transforms.parts import failure_of_record

_MOST_GROUPS: Final = 100_000
"""Groups of a bundle in memory, of all fragments."""
_LOGGER: Final = logging.getLogger(__name__)


class SharedFragmentFn(beam.DoFn):
    """Runs fragments of one table on each batch, and emits the results of each to its output: "0", "1" ...

    A row that fails for one of them does not fail for the others, and is one bad row however many it fails for.

    Args:
      fragments: from the table.
      labels: what distinguishes the messages of each from others of the same records.
      sides: for rows with keys, which input of the join they are.
      on_error: as of `FragmentFn`.
    """

    def __init__(self, fragments: Sequence[Fragment], labels: Sequence[str], sides: Sequence[int], on_error: str):
        self._fragments = fragments
        self._labels = labels
        self._sides = sides
        self._on_error = on_error
        self._nulls = Nulls()
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def setup(self) -> None:
        self._run = compiled_together(self._fragments)
        self._grouped = [i for i, each in enumerate(self._fragments) if isinstance(each.target, ToGroups)]

    def start_bundle(self) -> None:
        self._groups: list[dict[Any, Any]] = [{} for _ in self._fragments]
        self._earliest_us: int | None = None

    def process(self, element: Batch[Record], timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        results = self._run(element, self._groups)
        failed: dict[int, Exception] = {}
        for each in results:
            if each.nulls:
                self._nulls.made(each.nulls)
            if each.failed:
                failed = {**each.failed, **failed}
        if failed:
            yield from self._failures(element, failed)
        for number, (fragment, mapped) in enumerate(zip(self._fragments, results, strict=True)):
            if not mapped.values or isinstance(fragment.target, ToGroups):
                continue
            if isinstance(fragment.target, (ToKeys, ToRanks)):
                for each in outputs(fragment.target, mapped.values, self._sides[number], timestamp.micros):
                    yield beam.pvalue.TaggedOutput(str(number), each)
            else:
                rows = sent(element, fragment, mapped, self._labels[number])
                yield beam.pvalue.TaggedOutput(str(number), rows)
        if self._grouped:
            if self._earliest_us is None or timestamp.micros < self._earliest_us:
                self._earliest_us = timestamp.micros
            if sum(map(len, self._groups)) > _MOST_GROUPS:
                for tag, row in self._flushed():
                    yield beam.pvalue.TaggedOutput(tag, row)

    def finish_bundle(self) -> Iterator[Any]:
        if self._earliest_us is None:
            return
        earliest_us = self._earliest_us
        for number, each in self._flushed():
            stamped = isinstance(each, TimestampedValue)
            value, at = (each.value, each.timestamp) if stamped else (each, Timestamp(micros=earliest_us))
            yield beam.pvalue.TaggedOutput(number, WindowedValue(value, at, (GlobalWindow(),)))

    def _flushed(self) -> Iterator[tuple[str, Any]]:
        """The groups of the bundle so far: a key comes once, and not once per batch."""
        assert self._earliest_us is not None
        earliest_us, self._earliest_us = self._earliest_us, None
        for number in self._grouped:
            groups = self._groups[number]
            if groups:
                target = self._fragments[number].target
                for each in outputs(target, list(groups.items()), self._sides[number], earliest_us):
                    yield str(number), each
                groups.clear()

    def _failures(self, batch: Batch[Record], failed: dict[int, Exception]) -> Iterator[Any]:
        self._bad.inc(len(failed))
        for position, error in sorted(failed.items()):
            record = batch[position]
            if self._on_error == "dead-letter":
                yield beam.pvalue.TaggedOutput(ERRORS, failure_of_record(record, error))
            elif self._on_error == "fail":
                raise SerdeError(f"{record.queue}, offset {record.queue_offset}: {error}") from error
        if self._on_error in ("skip", "null"):
            position, error = min(failed.items())
            _LOGGER.warning("%s left out, the first at %s, offset %d: %s", counted(len(failed), "row"),
                            batch[position].queue, batch[position].queue_offset, error)  # fmt: skip
