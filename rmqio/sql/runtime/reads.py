"""DoFns that run fragments on batches of records, for one statement or several, and read tables that end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.dead_letters.letters import ELEMENT
from rmqio.errors import LocalError, SerdeError, counted
from rmqio.model import MessageQueue, Record
from rmqio.sql.catalog.connectors import FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.compile.description import Fragment, Mapped, OtherTarget, ToGroups, ToKeys, ToRanks
from rmqio.sql.compile.fragment import compiled, has_variants
from rmqio.sql.compile.shared import compiled_together
from rmqio.sql.errors import SqlError
from rmqio.sql.lookup import sources
from rmqio.sql.lookup.sources import Line
from rmqio.sql.runtime.outputs import Nulls, outputs
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import failure_of_record

# The place of a row, for errors and dead letters: a message of a topic, or a row of a file or a database.


def place_of(record: Record | Line) -> str:
    """Returns the place for a message."""
    if isinstance(record, Line):
        return record.place
    return f"{record.queue}, offset {record.queue_offset}"


def failure_of(record: Record | Line, error: Exception) -> ReadFailure:
    """Returns what becomes a dead letter. A row of a file has no coordinates: the reason names its place."""
    if isinstance(record, Record):
        return failure_of_record(record, error)
    body = record.body if isinstance(record.body, bytes) else json.dumps(record.body, default=str).encode()
    reason = f"{place_of(record)}: {error}"
    return ReadFailure("", "", -1, -1, "", "", "", 0, 0, type(error).__name__, reason, body, kind=ELEMENT)


# Reads tables that end: files, and tables of databases.


def parts_of(table: Table) -> list[str]:
    """Returns what can be read at the same time: the files; a database is one part. Raises `SqlError`."""
    if table.options.connector != FILES:
        return [table.options.of_connector.table_name]
    try:
        return sources.paths_of(table.options.of_connector.path)
    except LocalError as error:
        raise SqlError(f"the table {table.name} cannot be read: {error}") from error


class ReadRowsFn(beam.DoFn):
    """Reads a part of a table as batches, not decoded. Rows of files have places, of which ids are made.

    `names`: the columns that a statement needs.
    """

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        self._table = table
        self._names = names

    def process(self, element: str) -> Iterator[Batch[Line]]:
        options = self._table.options
        if options.connector == FILES:
            chunks = sources.rows_of_file(self._table, element, self._names)
        else:
            chunks = sources.rows_of_database(options.of_connector, self._names)
            for rows in chunks:  # they have no order
                yield Batch(rows)
            return
        version = sources.version_of(element)
        place = MessageQueue(element, version, 0)
        for rows in chunks:
            yield Batch([each._replace(version=version) for each in rows], place, [each.number for each in rows])


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


# The DoFn of statements that read the same table: their fragments as one.


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
