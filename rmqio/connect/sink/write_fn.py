"""The DoFn of `WriteToSink`."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import telemetry
from rmqio.batches import Batch
from rmqio.connect.failures import Refusals, failure_of, refusal
from rmqio.connect.sink.base import BatchSink, RowRefused
from rmqio.connect.sink.buffer import Item
from rmqio.connect.sink.options import Batching, Retry
from rmqio.connect.sink.writer import Writer
from rmqio.errors import LocalError
from rmqio.transforms.parts import Count, Latency, observe_process

FAILED: Final = "failed"
"""The tag of the output for `ReadFailure`s."""
ADVICE: Final = "take the output failed, or give dead_letter_topic="
"""How to continue without rows that are refused."""


class WriteRowsFn(beam.DoFn):
    """Writes each element as a row. The bundle succeeds when all rows are written, or are in the output `failed`.

    Windows: an element is written once, however many windows it is in. Failures keep windows, timestamp and pane.
    """

    def __init__(
        self,
        sink: BatchSink,
        batching: Batching,
        retry: Retry,
        *,
        batches: bool,
        errors_to_output: bool,
        advice: str = ADVICE,
    ) -> None:
        self._sink, self._batching, self._retry = sink, batching, retry
        self._batches, self._errors_to_output, self._advice = batches, errors_to_output, advice
        self._writer: Writer | None = None
        self._pid = 0

    def setup(self) -> None:
        observe_process()
        self._written, self._failures = Count("rows_written"), Count("row_failures")
        self._flushed, self._retries = Count("row_batches_written"), Count("row_write_retries")
        self._latency = Latency("row_write_latency_ms")
        self._connect()

    def _connect(self) -> None:
        sink = copy.deepcopy(self._sink)  # what `open` adds is not pickled with the DoFn
        self._name = sink.name
        self._refusals = Refusals(sink.name)
        self._convert, self._destination, self._size = sink.convert, sink.destination, sink.size
        self._writer = Writer(sink, self._batching, self._retry)
        self._pid = os.getpid()
        telemetry.record("rows_written", (self._name,), 0)  # failures begin at zero, also if the first rows fail
        self._writer.open()

    def start_bundle(self) -> None:
        if self._writer is None or self._pid != os.getpid():  # forked since setup: the connection is the parent's
            self._connect()
        assert self._writer is not None
        self._writer.begin()
        self._origin: Any = WindowedValue(None, 0, None)  # no element has it
        self._refused: dict[Any, tuple[int, Exception]] = {}
        """By destination, how many rows of the bundle, and the first error."""

    # WindowParam would call process() once per window of an element, and each call would write it.
    def process(self, element: Any, value: Any = beam.DoFn.WindowedValueParam) -> Iterator[Any] | None:
        origin = self._origin
        if (
            value.timestamp_micros != origin.timestamp_micros
            or value.windows is not origin.windows
            or value.pane_info is not origin.pane_info
        ):
            origin = self._origin = value.with_value(None)
        if not self._batches:
            self._add(element, None, origin)
        elif isinstance(element, list):
            places: Iterable[Any] = itertools.repeat(None)
            if isinstance(element, Batch) and element.queue is not None:
                places = zip(itertools.repeat(element.queue), element.offsets, strict=False)
            for each, place in zip(element, places, strict=False):
                self._add(each, place, origin)
        else:
            raise LocalError(f"batches=True takes lists, not {type(element).__name__}")
        assert self._writer is not None
        # Beam multiplies the windows of an output by those of the element: with several, failures wait.
        return self._news() if self._writer.has_news and len(origin.windows) == 1 else None

    def finish_bundle(self) -> Iterator[Any] | None:
        """Write the rest. Raises what fails the bundle."""
        assert self._writer is not None
        self._writer.finish()
        found = self._news() if self._writer.has_news else None
        for destination, (count, error) in self._refused.items():
            self._refusals.warn(destination, count, error)
        return found

    def teardown(self) -> None:
        if self._writer is not None and self._pid == os.getpid():
            self._writer.close()
        self._writer = None

    def _add(self, value: Any, place: Any, origin: Any) -> None:
        assert self._writer is not None
        try:
            row = self._convert(value)
            destination, size = self._destination(row), self._size(row)
            hash(destination)
        except Exception as error:  # noqa: BLE001  # a user's callable can raise anything
            self._writer.refuse(Item(None, value, place, origin), error)
            return
        self._writer.add(Item(row, value, place, origin), destination, size)

    def _news(self) -> Iterator[Any] | None:
        """Counts what happened, and returns the failures."""
        assert self._writer is not None
        found = self._writer.take()
        labels = (self._name,)
        if found.batches:
            self._written.add(found.rows, labels)
            self._flushed.add(found.batches, labels)
            self._latency.add(found.seconds * 1000 / found.batches, labels)
        if found.retries:
            self._retries.add(found.retries, labels)
        if not found.refused:
            return None
        self._failures.add(len(found.refused), labels)
        (item, error), count = found.refused[0], len(found.refused)
        if not self._errors_to_output:
            failure = failure_of(item.value, item.place, error)
            raise RowRefused(refusal(self._name, count, failure, error, self._advice)) from error
        for item, error in found.refused:
            destination = None if item.row is None else self._destination(item.row)
            before, first = self._refused.get(destination, (0, error))
            self._refused[destination] = before + 1, first
        return iter(
            [
                TaggedOutput(FAILED, item.origin.with_value(failure_of(item.value, item.place, error)))
                for item, error in found.refused
            ]
        )
