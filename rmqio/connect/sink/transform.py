"""`WriteToSink`: writes elements to a `BatchSink`."""

from __future__ import annotations

from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.sink.base import BatchSink
from rmqio.connect.sink.options import Batching, Retry
from rmqio.connect.sink.write_fn import ADVICE, FAILED, WriteRowsFn
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.security import Security
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import HandlesFailures


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
