"""The output of the splittable DoFn: batches of records of one queue, with their timestamps.

Beam observes the timestamp of each element that a splittable DoFn emits, under a lock, which costs more than decoding a
message. Therefore batches are emitted, and a plain DoFn that is fused after it splits them into records.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.errors import RmqioError, SerdeError
from rmqio.interfaces import FetchedBatch
from rmqio.model import Record
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.read_failures import ReadFailure, failure_of_corrupt, failure_of_record
from rmqio.transforms.reading.watermark import TimestampOf, beam_timestamp, born_time, store_time

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
    stamped: list[Record] = []
    stamps: list[int] = []
    for record in records:
        try:
            stamps.append(int(timestamp_of(record)))
            stamped.append(record)
        except Exception as error:  # a user's function can raise anything; one message must not stop the others
            require_of_record(error)
            if not keep_failures:
                raise located(record, error) from error
            failures.append(failure_of_record(record, error))
    return RecordBatch(stamped, stamps, failures)


class UnbatchFn(beam.DoFn):
    """Splits batches into records, or the deserializer's results. Failures go to `ERRORS_TAG`."""

    def __init__(self, deserializer: Any, *, batches: bool, errors_to_output: bool) -> None:
        self._deserializer = deserializer
        self._batches = batches
        self._errors_to_output = errors_to_output
        self._failures = Count("decode_failures")

    def setup(self) -> None:
        observe_process()  # can run in another process than the read

    def process(self, element: RecordBatch, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        windows = (window,)
        failures = list(element.failures)
        pairs = zip(element.records, element.stamps, strict=True)
        decoded = pairs if self._deserializer is None else self._deserialized(pairs, failures)
        if self._batches:
            values, stamps = [], []
            for value, milliseconds in decoded:
                values.append(value)
                stamps.append(milliseconds)
            if values:
                yield WindowedValue(values, beam_timestamp(min(stamps)), windows)
        else:
            # Creating a windowed value from another one is several times cheaper than from a timestamp, and
            # consecutive messages often have the same millisecond.
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

    def _deserialized(
        self, pairs: Iterable[tuple[Record, int]], failures: list[ReadFailure]
    ) -> Iterator[tuple[Any, int]]:
        """Yields one value at a time: the garbage collector would repeatedly scan a list of all values of a batch."""
        deserializer = self._deserializer
        for record, milliseconds in pairs:
            try:
                value = deserializer(record)
            except Exception as error:
                require_of_record(error)
                if not self._errors_to_output:
                    self._failures.add(1, (record.topic,))
                    raise located(record, error) from error
                failures.append(failure_of_record(record, error))
                continue
            yield value, milliseconds


def require_of_record(error: Exception) -> None:
    """Raises an error that the record did not cause, e.g. a registry that is down: good records are no dead letters."""
    if isinstance(error, RmqioError) and not isinstance(error, SerdeError):
        raise error


def located(record: Record, error: Exception) -> SerdeError:
    """The error with the record's coordinates, which a user's function need not name."""
    if isinstance(error, SerdeError) and str(record.queue) in str(error):
        return error
    what = str(error) if isinstance(error, SerdeError) else f"{type(error).__name__}: {error}"
    return SerdeError(f"{record.queue}, offset {record.queue_offset}: {what}")
