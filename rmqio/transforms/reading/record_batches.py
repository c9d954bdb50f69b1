"""The output of the splittable DoFn: batches of records of one queue, with their timestamps.

Beam observes the timestamp of each element that a splittable DoFn emits, under a lock, which costs more than decoding a
message. Therefore batches are emitted, and a plain DoFn that is fused after it splits them into records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch, offsets_of
from rmqio.claims.check import ClaimCheck, is_reference, reference_of
from rmqio.claims.store import ClaimStore
from rmqio.errors import SerdeError
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageQueue, Record
from rmqio.serde.base import error_of_record
from rmqio.transforms.failures import ReadFailure, failure_of_corrupt, failure_of_record, failure_of_value
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.reading.restriction import TimestampOf, beam_timestamp, born_time, store_time

# Claim checks in a read: records with references get their bodies before they are decoded.

HELD_BYTES: Final = 64 << 20
"""Bytes of bodies that are fetched together: a batch has up to hundreds of references, however big their objects."""


class ClaimedReads:
    """Gives records with references their bodies. Belongs to one DoFn instance."""

    def __init__(self, check: ClaimCheck) -> None:
        self._check = check
        self._store = ClaimStore(check)
        self._read = Count("claims_read")

    def pieces(self, records: list[Record]) -> Iterator[tuple[int, int]]:
        """Begins and ends of the parts of a batch whose bodies are in memory together. At least one, maybe empty."""
        begin = size = 0
        for position, record in enumerate(records):
            more = self._size(record)
            if size + more > HELD_BYTES and position > begin:
                yield begin, position
                begin, size = position, 0
            size += more
        yield begin, len(records)

    def _size(self, record: Record) -> int:
        try:
            return reference_of(record, self._check.max_bytes).size if is_reference(record) else 0
        except SerdeError:
            return 0  # nothing is fetched

    def resolved(
        self, records: list[Record], stamps: list[int], fail: Callable[[Record, SerdeError], None]
    ) -> tuple[list[Record], list[int]]:
        """The records with their bodies, and their stamps. Records without an object go to `fail`, which can raise.

        Raises `ClaimStoreError`.
        """
        found, errors = self._store.resolve(records)
        for position, error in errors.items():
            fail(records[position], error)
        if errors:
            stamps = [stamp for position, stamp in enumerate(stamps) if position not in errors]
        read = sum(one is not other for one, other in zip(found, _without(records, errors), strict=True))
        if read:
            self._read.add(read, (records[0].topic,))
        return found, stamps


def _without(records: list[Record], errors: dict[int, SerdeError]) -> list[Record]:
    return [each for position, each in enumerate(records) if position not in errors] if errors else records


ERRORS_TAG = "errors"


class RecordBatch(NamedTuple):
    """Records of one queue in order, the Unix milliseconds of each, and the messages that could not be decoded."""

    records: list[Record]
    stamps: list[int]
    failures: list[ReadFailure]


def to_record_batch(fetched: FetchedBatch, timestamp_of: TimestampOf, *, keep_failures: bool) -> RecordBatch:
    """Assign timestamps to a fetched batch. Without `keep_failures`, the first failure is raised, with coordinates."""
    if fetched.corrupt and not keep_failures:
        raise fetched.corrupt[0]
    failures = [failure_of_corrupt(error) for error in fetched.corrupt]
    records = fetched.records
    if timestamp_of is born_time:
        return RecordBatch(records, [record.born_timestamp_ms for record in records], failures)
    if timestamp_of is store_time:
        return RecordBatch(records, [record.store_timestamp_ms for record in records], failures)
    if (many := getattr(timestamp_of, "many", None)) is not None:
        return _stamped_together(records, many, failures, keep_failures=keep_failures)
    stamped: list[Record] = []
    stamps: list[int] = []
    for record in records:
        try:
            stamps.append(int(timestamp_of(record)))
            stamped.append(record)
        except Exception as error:  # a user's function can raise anything; one message must not stop the others
            error = error_of_record(error, timestamp_of)
            if not keep_failures:
                raise located(record, error) from error
            failures.append(failure_of_record(record, error))
    return RecordBatch(stamped, stamps, failures)


def _stamped_together(
    records: list[Record], many: Any, failures: list[ReadFailure], *, keep_failures: bool
) -> RecordBatch:
    """`many` returns the stamps of the records that have one, in order, and errors by position."""
    stamps, errors = many(records)
    for position, error in errors.items():
        if not keep_failures:
            raise located(records[position], error) from error
        failures.append(failure_of_record(records[position], error))
    stamped = [each for position, each in enumerate(records) if position not in errors] if errors else records
    return RecordBatch(stamped, stamps, failures)


class UnbatchFn(beam.DoFn):
    """Splits batches into records, or the deserializer's results. Failures go to `ERRORS_TAG`."""

    def __init__(
        self, deserializer: Any, *, batches: bool, errors_to_output: bool, claim_check: ClaimCheck | None = None
    ) -> None:
        self._deserializer = deserializer
        self._claim_check = claim_check
        self._claims: ClaimedReads | None = None
        self._batches = batches
        self._errors_to_output = errors_to_output
        self._failures = Count("decode_failures")

    def setup(self) -> None:
        observe_process()  # can run in another process than the read

    def process(self, element: RecordBatch, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if self._claim_check is None:
            return self._unbatched(element, list(element.failures), (window,))
        return self._claimed(element, self._claim_check, (window,))

    def _unbatched(self, element: RecordBatch, failures: list[ReadFailure], windows: tuple[Any, ...]) -> Iterator[Any]:
        if self._batches:
            made = self._batch(element, failures)
            if made is not None:
                batch, earliest_ms = made
                yield WindowedValue(batch, beam_timestamp(earliest_ms), windows)
        else:
            # Creating a windowed value from another one is several times cheaper than from a timestamp, and
            # consecutive messages often have the same millisecond.
            records, stamps = element.records, element.stamps
            is_plain = self._deserializer is None
            decoded = zip(records, stamps, strict=True) if is_plain else self._deserialized(records, stamps, failures)
            last_ms = None
            for value, milliseconds in decoded:
                if milliseconds != last_ms:
                    last_ms, template = milliseconds, WindowedValue(None, beam_timestamp(milliseconds), windows)
                yield template.with_value(value)
        if failures:
            self._failures.add(len(failures), (failures[0].topic,))
            for failure in failures:
                stamp_ms = failure.store_timestamp_ms or int(time.time() * 1000)
                yield beam.pvalue.TaggedOutput(ERRORS_TAG, WindowedValue(failure, beam_timestamp(stamp_ms), windows))

    def _claimed(self, element: RecordBatch, check: ClaimCheck, windows: tuple[Any, ...]) -> Iterator[Any]:
        if self._claims is None:
            self._claims = ClaimedReads(check)
        failures = list(element.failures)
        for begin, end in self._claims.pieces(element.records):
            yield from self._unbatched(self._resolved(self._claims, element, begin, end, failures), failures, windows)
            failures = []

    def _resolved(
        self, claims: ClaimedReads, element: RecordBatch, begin: int, end: int, failures: list[ReadFailure]
    ) -> RecordBatch:
        def fail(record: Record, error: SerdeError) -> None:
            failures.append(self._failure(record, error))

        return RecordBatch(*claims.resolved(element.records[begin:end], element.stamps[begin:end], fail), [])

    def _batch(self, element: RecordBatch, failures: list[ReadFailure]) -> tuple[Batch[Any], int] | None:
        """The values with their places, and the earliest timestamp among them; None: no value."""
        records, stamps = element.records, element.stamps
        if not records:
            return None
        queue, offsets = records[0].queue, offsets_of(records)
        if self._deserializer is None:
            return Batch(records, queue, offsets), min(stamps)
        values, positions = [], []
        for value, position in self._deserialized(records, range(len(records)), failures):
            values.append(value)
            positions.append(position)
        if not values:
            return None
        if len(values) < len(records):
            offsets, stamps = [offsets[each] for each in positions], [stamps[each] for each in positions]
        return Batch(values, queue, offsets), min(stamps)

    def _deserialized(
        self, records: list[Record], numbers: Sequence[int], failures: list[ReadFailure]
    ) -> Iterator[tuple[Any, int]]:
        """Yields the value of each record that can be decoded, and the number beside it."""
        many = getattr(self._deserializer, "many", None)
        if many is None:
            yield from self._deserialized_singly(zip(records, numbers, strict=True), failures)
            return
        values, failed = many(records)
        for position, error in failed.items():
            failures.append(self._failure(records[position], error))
        if failed:
            numbers = [number for position, number in enumerate(numbers) if position not in failed]
        yield from zip(values, numbers, strict=True)

    def _deserialized_singly(
        self, pairs: Iterable[tuple[Record, int]], failures: list[ReadFailure]
    ) -> Iterator[tuple[Any, int]]:
        """One value at a time: the garbage collector would repeatedly scan a list of all values of a batch."""
        deserializer = self._deserializer
        for record, number in pairs:
            try:
                value = deserializer(record)
            except Exception as error:  # noqa: BLE001  # a user's function can raise anything
                failures.append(self._failure(record, error))
                continue
            yield value, number

    def _failure(self, record: Record, error: Exception) -> ReadFailure:
        """The failure to emit. Raises the error if nobody takes it, or the record did not cause it."""
        error = error_of_record(error, self._deserializer)
        if not self._errors_to_output:
            self._failures.add(1, (record.topic,))
            raise located(record, error) from error
        return failure_of_record(record, error)


def located(record: Record, error: Exception) -> SerdeError:
    """The error with the record's coordinates, which a user's function need not name."""
    return located_at(record.queue, record.queue_offset, error)


def located_at(queue: MessageQueue, queue_offset: int, error: Exception) -> SerdeError:
    """The error with the coordinates of what it is about."""
    if isinstance(error, SerdeError) and str(queue) in str(error):
        return error
    what = str(error) if isinstance(error, SerdeError) else f"{type(error).__name__}: {error}"
    return SerdeError(f"{queue}, offset {queue_offset}: {what}")


# The failures of members of a batch, with the coordinates that are known.


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
