"""The outputs of a DoFn that writes batches: results and failures, with the window and timestamp of their batch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch, MessageBatch
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.transforms.metrics import queue_labels
from rmqio.transforms.writing.elements import MessageMaker, letter_of_failure
from rmqio.transforms.writing.outputs import WriteMetrics, WriteOutputs


class Origin:
    """A batch of the input: where results and failures of its messages belong.

    Args:
      element: the batch.
      value: a WindowedValue with the batch's windows, timestamp and pane.
    """

    __slots__ = ("_values", "element", "value")

    def __init__(self, element: Any, value: WindowedValue) -> None:
        self.element = element
        self.value = value
        self._values: Sequence[Any] | None = None

    def __getitem__(self, position: int) -> Any:
        """The value at a position."""
        if self._values is None:
            element = self.element
            self._values = element.messages() if isinstance(element, MessageBatch) else element  # once for all failures
        return self._values[position]

    def place(self, position: int) -> tuple[MessageQueue, int] | None:
        """The queue and offset that a value comes from."""
        element = self.element
        if not isinstance(element, Batch) or element.queue is None:
            return None
        return element.queue, element.offsets[position]

    def id_of(self, position: int) -> str | None:
        """The id that the batch gives a value."""
        element = self.element
        if isinstance(element, Batch):
            return element.id_at(position)
        return element.ids[position] if isinstance(element, MessageBatch) and element.ids is not None else None


class BatchWriteOutputs(WriteOutputs):
    """As `WriteOutputs`; origins are `Origin`s, and elements are positions in their batches.

    Results are emitted as lists: one for each batch of the input and request, in the order of the batch.

    Args:
      maker: with which dead letters are made; None: no dead letters.
    """

    def __init__(self, metrics: WriteMetrics, *, with_sent: bool, maker: MessageMaker | None = None) -> None:
        super().__init__(metrics, with_sent=with_sent, letter_of=None)
        self._maker = maker

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """Emit the results of a stored request."""
        self.require_one_each(messages, results)
        self._metrics.sent(messages, results, latency_s)
        if self._with_sent:
            self.waiting.append(_lists(origins, results))

    def already_there(self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult]) -> None:
        """Emit the results of messages that an earlier attempt has sent: the places where they are stored."""
        for result in results:
            self._metrics.already_there.add(1, queue_labels(result.queue))
        if self._with_sent:
            self.waiting.append(_lists(origins, results))

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """Emit the failure of the value at a position, or of the whole batch if `element` is None."""
        value = origin.element if element is None else origin[element]
        self._letter_of = None
        maker = self._maker
        if maker is not None:
            known: dict[str, Any] = {}
            if element is not None:
                known["place"] = origin.place(element)
                known["message_id"] = origin.id_of(element) if maker.id_fn is None else None
            self._letter_of = functools.partial(letter_of_failure, maker, **known)
        self.fail(value, origin.value, message, topic, error, position=element)


def _lists(origins: Sequence[Any], results: Sequence[SendResult]) -> Iterator[WindowedValue]:
    """The results of each batch. Its messages are neighbours."""
    if origins[0] is origins[-1]:
        yield origins[0].value.with_value(list(results))
        return
    begin = 0
    for origin, members in groupby(origins):
        end = begin + sum(1 for _ in members)
        yield origin.value.with_value(results[begin:end])
        begin = end
