"""`WriteToSink`: writes elements to a `BatchSink`, and gives those that it refuses as failures."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import telemetry
from rmqio.batches import Batch
from rmqio.connect.delivery import Item, Writer
from rmqio.connect.outage import EVERY_S
from rmqio.connect.rows import to_json
from rmqio.connect.sink import Batching, BatchSink, Retry, RowRefused
from rmqio.errors import LocalError, SerdeError, counted
from rmqio.interfaces import ClientFactory
from rmqio.logs import event
from rmqio.model import Message, MessageQueue, Record
from rmqio.security import Security
from rmqio.serde.strict_json import JsonEncoder
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import (
    Count,
    HandlesFailures,
    Latency,
    failure_of_record,
    failure_of_value,
    observe_process,
)

# Failures of elements that a sink refuses: the whole element, where it comes from, and the warning in the log.

_LOGGER = logging.getLogger("rmqio.connect")


class Refusals:
    """The warnings of one writer: for each destination one at once, and at most one more each 30 s.

    `clock` is for tests.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._told: dict[Hashable, tuple[float, int]] = {}
        """By destination, when it was told, and how many rows were refused since."""

    def warn(self, destination: Hashable, count: int, first: Exception) -> None:
        """Logs how many rows go to the failures, with those that were not told."""
        now = self._clock()
        told, more = self._told.get(destination, (now - EVERY_S, 0))
        if now - told < EVERY_S:
            self._told[destination] = told, more + count
            return
        if len(self._told) > 1_000:
            self._told.clear()
        self._told[destination] = now, 0
        warn_refused(self._name, destination, more + count, first)


def warn_refused(name: str, destination: Hashable, count: int, first: Exception) -> None:
    """Logs how many rows go to the failures. None: rows without a destination, or a sink that has only one."""
    where = "" if destination is None else f" for {destination}"
    text = "%s refuses %s%s; the first: %s: %s"
    _LOGGER.warning(text, name, counted(count, "row"), where, type(first).__name__, first, extra=event(count=count))


def refusal(name: str, count: int, first: ReadFailure, error: Exception, advice: str) -> str:
    """Returns the text of an error for rows that a sink refuses, with the place of the first one if it is known."""
    text = f"{error}" if isinstance(error, RowRefused) else f"{type(error).__name__}: {error}"
    text = text.removeprefix(f"{name}: ")
    where = f" ({first.topic}/{first.broker}/{first.queue_id}, offset {first.queue_offset})" if first.topic else ""
    return f"{name} refuses {counted(count, 'row')}; the first{where}: {text}; to continue without such rows, {advice}"


def failure_of(value: Any, place: tuple[MessageQueue, int] | None, error: Exception) -> ReadFailure:
    """Returns the failure of an element, or of a value of a batch, whose place may be known."""
    if isinstance(value, Record):
        return failure_of_record(value, error)
    if (own := getattr(value, "to_failure", None)) is not None:
        found: ReadFailure = own(error)
        return found
    queue, offset = place or (None, -1)
    failure = failure_of_value(value, queue, offset, error)
    if isinstance(value, Message):
        return failure._replace(
            body=value.body,
            keys=" ".join(value.keys),
            tags=value.tags or "",
            sharding_key=value.sharding_key or "",
            properties=tuple(sorted(value.properties.items())),
        )
    return failure._replace(body=_whole(value) or failure.body)


def _whole(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    try:
        return to_json(value).encode("utf-8", "backslashreplace")
    except SerdeError:
        # A value that has no JSON, such as NaN: as much of it as Python can write.
        return _AS_POSSIBLE.encode(value).encode("utf-8", "backslashreplace")


_AS_POSSIBLE: Final = JsonEncoder(default=repr, allow_nan=True, skipkeys=True)


# The DoFn of `WriteToSink`.

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


class WriteToSinkResult(NamedTuple):
    """The output of `WriteToSink`."""

    failed: PCollection[ReadFailure] | None
    """One failure for each element that can never be written, with its window and timestamp. None unless they are
    taken: see `on_failure`."""


class WriteToSink(HandlesFailures):
    """Writes each element as a row, in batches.

    Delivery: at least once. A bundle succeeds only when the sink has taken all of its rows. While the system is away,
    a batch is tried again, then the bundle fails, and the runner runs it again. A sink that writes by key stores such
    rows once.

    A row that the system refuses fails the bundle, unless failures are taken: by `on_failure="output"`,
    `dead_letter_topic` or `with_error_handler`. Then it goes there alone, and the other rows of its batch are written.

    Order: rows for one destination are written in the order in which the bundle has them.

    Args:
      sink: where the rows go.
      batching: when a batch is written.
      retry: how often.
      batches: elements are lists of rows, such as those of `ReadFromRocketMQ(batches=True)`.
      on_failure: "fail": a refused row fails the bundle; "output": it goes to the output `failed`.
      dead_letter_topic: refused rows are written there, with error, and coordinates and body if they are known.
      name_server, security, client_factory: for the dead-letter topic, as in `WriteToRocketMQ`.

    Elements: those that the sink's `convert` takes; by default dicts, `beam.Row`s, NamedTuples, dataclasses, and
    objects of JSON: bytes, text, `Record`s and `Message`s.

    Raises `LocalError` when it is built.
    """

    advice = ADVICE
    """How to continue without refused rows, at the end of their error: a command line has other means."""

    def __init__(
        self,
        sink: BatchSink,
        *,
        batching: Batching | None = None,
        retry: Retry | None = None,
        batches: bool = False,
        on_failure: str = "fail",
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        for name, given, kind in (
            ("sink", sink, BatchSink),
            ("batching", batching or Batching(), Batching),
            ("retry", retry or Retry(), Retry),
        ):
            if not isinstance(given, kind):
                raise LocalError(f"{name} is {given!r}; it must be a rmqio.connect.{kind.__name__}")
        if on_failure not in ("fail", "output"):
            raise LocalError(f'on_failure is {on_failure!r}; it must be "fail" or "output"')
        self._sink = sink
        self._batching, self._retry = batching or Batching(), retry or Retry()
        self._batches, self._on_failure = batches, on_failure

    def expand(self, rows: Any) -> WriteToSinkResult:
        handled = self._on_failure == "output" or self.takes_failures
        writing = WriteRowsFn(
            self._sink, self._batching, self._retry,
            batches=self._batches, errors_to_output=handled, advice=self.advice,
        )  # fmt: skip
        outputs = rows | "Write rows" >> beam.ParDo(writing).with_outputs(FAILED, main="none")
        if not handled:
            return WriteToSinkResult(None)
        self.take_failures(outputs[FAILED])
        return WriteToSinkResult(outputs[FAILED])

    def display_data(self) -> dict[str, Any]:
        batching, retry = self._batching, self._retry
        shown = {
            "sink": self._sink.name,
            "max_rows": batching.max_rows,
            "max_bytes": batching.max_bytes,
            "max_wait_s": batching.max_wait_s,
            "give_up_after_s": retry.give_up_after_s,
            "dead_letter_topic": self._dead_letter_topic,
        }
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}
