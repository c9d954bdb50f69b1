"""`MapRecords` and `DecodeRecords`: they apply a function or a deserializer, and have outputs for records that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, get_type_hints

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Record
from rmqio.security import Security
from rmqio.serde.base import error_of_record
from rmqio.transforms.coders import BatchConstraint
from rmqio.transforms.failures import ReadFailure, failure_of_record
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.reading.record_batches import ERRORS_TAG, failure_of_member, located, located_member
from rmqio.transforms.reading.restriction import beam_timestamp
from rmqio.transforms.write import WriteDeadLetters

# `HandlesFailures`: the outputs for elements that fail, which several transforms have.


class HandlesFailures(beam.PTransform):
    """A transform whose failures go to an error handler, to a dead-letter topic, or fail the pipeline.

    Args:
      dead_letter_topic: None: there is none, and the other arguments are not used.
      name_server, security, client_factory: as in `WriteToRocketMQ`.
    """

    def __init__(
        self,
        dead_letter_topic: str | None,
        name_server: str | tuple[str, ...] | list[str] | None,
        security: Security | None,
        client_factory: ClientFactory | None,
    ) -> None:
        super().__init__()
        self._dead_letter_topic = dead_letter_topic
        self._letters: WriteDeadLetters | None = None
        if dead_letter_topic is not None:
            self._letters = WriteDeadLetters(
                dead_letter_topic, name_server=name_server, security=security, client_factory=client_factory
            )
        self._error_handler: Any = None

    def with_error_handler(self, error_handler: Any) -> Self:
        """Send elements that fail to Beam's `ErrorHandler` as `ReadFailure`. None: take the handler back."""
        self._error_handler = error_handler
        return self

    @property
    def takes_failures(self) -> bool:
        """Whether failures go to an error handler or to dead letters."""
        return self._error_handler is not None or self._letters is not None

    def take_failures(self, failures: Any) -> None:
        """Give the output of failures its type, and send it to where they go."""
        # So that Beam finds its coder: only its newest versions know the types of a ParDo's tagged outputs.
        failures.element_type = ReadFailure
        if self._error_handler is not None:
            self._error_handler.add_error_pcollection(failures)
        if self._letters is not None:
            _ = failures | "Dead letters" >> self._letters


# `DecodeRecords`: applies a deserializer to records, for pipelines that decode later than they read.


class DecodeRecords(HandlesFailures):
    """Applies a deserializer to each `Record`.

    It does the same as `ReadFromRocketMQ(deserializer=...)`, for pipelines that look at the records first. It is fused
    with its neighbours and needs no shuffle.

    Args:
      deserializer: a callable from `Record` to the element, which raises `SerdeError`.
      dead_letter_topic: a topic for records that cannot be decoded, with coordinates and raw body. Without it and
        without `.with_error_handler(...)`, such a record fails the pipeline.
      name_server, security, client_factory: for the dead-letter topic, as in `WriteToRocketMQ`.

    Returns: a PCollection of the deserializer's `output_type`, with the window and timestamp of the record.

    Delivery: a letter is written at least once, with an id that is derived from the record's coordinates.

    Raises: `LocalError` when it is built; `SerdeError` with queue and offset while it runs.
    """

    def __init__(
        self,
        deserializer: Callable[[Record], Any],
        *,
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        if not callable(deserializer):
            raise LocalError(f"deserializer is {deserializer!r}; it must be callable with a Record")
        self._deserializer = deserializer

    def expand(self, records: Any) -> Any:
        handled = self.takes_failures
        output_type = getattr(self._deserializer, "output_type", Any)
        decode = beam.ParDo(DecodeFn(self._deserializer, errors_to_output=handled)).with_output_types(output_type)
        if not handled:
            return records | "Decode" >> decode
        outputs = records | "Decode" >> decode.with_outputs(ERRORS_TAG, main="decoded")
        decoded, failures = outputs["decoded"], outputs[ERRORS_TAG]
        decoded.element_type = output_type
        self.take_failures(failures)
        return decoded

    def display_data(self) -> dict[str, Any]:
        return {"dead_letter_topic": DisplayDataItem(self._dead_letter_topic).drop_if_none()}


class DecodeFn(beam.DoFn):
    """Calls the deserializer. Failures go to `ERRORS_TAG`, or are raised with the record's coordinates."""

    def __init__(self, deserializer: Callable[[Record], Any], *, errors_to_output: bool) -> None:
        self._deserializer = deserializer
        self._errors_to_output = errors_to_output
        self._failures = Count("decode_failures")

    def setup(self) -> None:
        observe_process()

    def process(self, element: Record) -> Sequence[Any]:
        try:
            return (self._deserializer(element),)
        except Exception as error:  # a user's function can raise anything; one message must not stop the others
            error = error_of_record(error, self._deserializer)
            self._failures.add(1, (element.topic,))
            if not self._errors_to_output:
                raise located(element, error) from error
            return (beam.pvalue.TaggedOutput(ERRORS_TAG, failure_of_record(element, error)),)


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
