"""`MapRecords`: applies a function to each record of a batch, inside of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_type_hints

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Record
from rmqio.security import Security
from rmqio.serde.base import error_of_record
from rmqio.transforms.coders.batch import BatchConstraint
from rmqio.transforms.failures.handles_failures import HandlesFailures
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.reading.batch_failures import failure_of_member, located_member
from rmqio.transforms.reading.record_batches import ERRORS_TAG
from rmqio.transforms.reading.watermark import beam_timestamp


class MapRecords(HandlesFailures):
    """Applies a function to each record of a batch, and gives a batch of the results with the same places.

    Beam hands each element on at a cost of 2 to 3 us. This loop costs 0.05 us a record beside the function's own time.

    Args:
      fn: a callable from a value of the batch (a `Record`, unless the read has a deserializer) to its result.
      output_type: the type of the results; None: the function's return annotation, else Any.
      dead_letter_topic: a topic for records for which the function raises, with their coordinates and, if they are
        `Record`s, their bodies. Without it and without `.with_error_handler(...)`, such a record fails the pipeline.
      name_server, security, client_factory: for the dead-letter topic, as in `WriteToRocketMQ`.

    Elements: batches of `ReadFromRocketMQ(batches=True)` or of another `MapRecords`, or lists, which have no places.

    Returns: a PCollection of `Batch`, with the window and timestamp of its batch. A batch without results is left out.

    Delivery: a letter is written at least once, with an id that is derived from the record's coordinates.

    Raises: `LocalError` when it is built; `SerdeError` with queue and offset while it runs.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any],
        *,
        output_type: Any = None,
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        if not callable(fn):
            raise LocalError(f"fn is {fn!r}; it must be callable with a record")
        self._fn = fn
        self._output_type = _annotated(fn) if output_type is None else output_type

    def expand(self, batches: Any) -> Any:
        handled = self.takes_failures
        label = batches.pipeline.transforms_stack[-1].full_label
        hint = BatchConstraint(self._output_type)
        mapping = beam.ParDo(MapRecordsFn(self._fn, label, errors_to_output=handled)).with_output_types(hint)
        if not handled:
            return batches | "Map" >> mapping
        outputs = batches | "Map" >> mapping.with_outputs(ERRORS_TAG, main="mapped")
        mapped, failures = outputs["mapped"], outputs[ERRORS_TAG]
        mapped.element_type = hint
        self.take_failures(failures)
        return mapped

    def display_data(self) -> dict[str, Any]:
        name = getattr(self._fn, "__qualname__", type(self._fn).__qualname__)
        shown = {"fn": name, "dead_letter_topic": self._dead_letter_topic}
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}


class MapRecordsFn(beam.DoFn):
    """Calls the function. Failures go to `ERRORS_TAG`, or are raised with the record's coordinates.

    `step`: what distinguishes the results from those of other functions of the same records.
    """

    def __init__(self, fn: Callable[[Any], Any], step: str, *, errors_to_output: bool) -> None:
        self._fn = fn
        self._step = step
        self._errors_to_output = errors_to_output
        self._failures = Count("decode_failures")

    def setup(self) -> None:
        observe_process()

    def process(self, element: Sequence[Any], window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        if isinstance(element, (str, bytes)) or not isinstance(element, Sequence):
            raise LocalError(f"MapRecords takes batches, not {type(element).__name__}: read with batches=True")
        batch = element if isinstance(element, Batch) else Batch(element)
        results, failed = self._results(batch)
        if failed:
            good = [position for position in range(len(batch)) if position not in failed]
        if results:
            yield batch.with_values(results, good if failed else None, step=self._step)
        for position, error in failed.items():
            failure = failure_of_member(batch, position, error)
            output: Any = failure
            if failure.store_timestamp_ms:
                output = WindowedValue(failure, beam_timestamp(failure.store_timestamp_ms), (window,))
            yield beam.pvalue.TaggedOutput(ERRORS_TAG, output)

    def _results(self, batch: Batch[Any]) -> tuple[list[Any], dict[int, Exception]]:
        """The results in order, and the errors by position."""
        many = getattr(self._fn, "many", None)
        if many is not None and batch and {*map(type, batch)} == {Record}:  # a deserializer
            found, errors = many(batch)
            return found, {position: self._noted(batch, position, error) for position, error in errors.items()}
        results: list[Any] = []
        failed: dict[int, Exception] = {}
        fn, left = self._fn, iter(batch)
        while True:
            try:  # outside of the loop, which goes on after the value that failed
                for value in left:
                    results.append(fn(value))  # a comprehension would lose them all
                return results, failed
            except Exception as error:  # noqa: BLE001  # a user's function can raise anything
                position = len(results) + len(failed)
                failed[position] = self._noted(batch, position, error)

    def _noted(self, batch: Batch[Any], position: int, error: Exception) -> Exception:
        """Counts an error, and returns it. Raises it if nobody takes it, or the record did not cause it."""
        error = error_of_record(error, self._fn)
        self._failures.add(1, () if batch.queue is None else (batch.queue.topic,))
        if not self._errors_to_output:
            raise located_member(batch, position, error) from error
        return error


def _annotated(fn: Callable[[Any], Any]) -> Any:
    """The function's return type; Any if it names none that is known."""
    try:
        return get_type_hints(fn).get("return") or Any
    except Exception:  # noqa: BLE001  # an annotation can name what does not exist here
        return Any
