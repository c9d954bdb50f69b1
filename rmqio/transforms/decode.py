"""`DecodeRecords`: applies a deserializer to records, for pipelines that decode later than they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Record
from rmqio.security import Security
from rmqio.serde.base import error_of_record
from rmqio.transforms.failures.handles_failures import HandlesFailures
from rmqio.transforms.failures.read_failures import failure_of_record
from rmqio.transforms.metrics import Count, observe_process
from rmqio.transforms.reading.record_batches import ERRORS_TAG, located


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
