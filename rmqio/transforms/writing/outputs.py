"""The outputs and metrics of writing DoFns: results and failures, with the window and timestamp of their element."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final

from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch, MessageBatch
from rmqio.errors import LocalError, RmqioError
from rmqio.logs import event
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.sending.batches import FailedMessage, element_text
from rmqio.sending.producers import COUNTED
from rmqio.transforms.metrics import Count, Latency, queue_labels
from rmqio.transforms.writing.elements import MessageMaker, if_encodable, letter_of_failure
from rmqio.wire.batch import common_queue, weak_count

_LOGGER = logging.getLogger("rmqio.transforms")

FAILED: Final = "failed"
"""The tag of the output for `FailedMessage`s; the main output is for `SendResult`s."""
SENT: Final = "sent"
LETTERS: Final = "letters"
"""The tag of the output for dead letters: one `Message` for each failure."""
_body = operator.itemgetter(Message._fields.index("body"))  # by position: runs per message
_UNQUOTED: Final = "see the output for its text"

LetterOf = Callable[[Any, FailedMessage], Message]
"""Creates the dead letter of a failed element."""


class WriteMetrics:
    """The metrics of a writing DoFn. Updated per batch, never per message.

    Args:
      is_letters: whether the DoFn sends dead letters.
    """

    def __init__(self, *, is_letters: bool = False) -> None:
        self.messages_sent = Count("messages_sent")
        self.bytes_sent = Count("bytes_sent")
        self.batches_sent = Count("batches_sent")
        self.send_failures = Count("send_failures")
        self.weak_acknowledgements = Count("weak_acknowledgements")
        self.dead_letters = Count("dead_letters") if is_letters else None
        self.send_latency = Latency("send_latency_ms")
        self._of_producer = [Count(name) for _, name in COUNTED]
        self.already_there = Count("messages_already_there")

    def sent(self, messages: Sequence[Message], results: Sequence[SendResult], latency_s: float) -> None:
        """Count a batch that was stored in one queue."""
        labels, count = queue_labels(common_queue(results)), len(messages)
        self.messages_sent.add(count, labels)
        self.bytes_sent.add(sum(map(len, map(_body, messages))), labels)
        self.batches_sent.add(1, labels)
        self.send_latency.add(latency_s * 1000, labels[:2])
        weak = weak_count(results)
        if weak:
            self.weak_acknowledgements.add(weak, labels)
        if self.dead_letters is not None:
            self.dead_letters.add(count, labels[:1])

    def retried(self, *statistics: int) -> None:
        """Count how the producer handled failures, in the order of `COUNTED`. The recorder got them at once."""
        for metric, value in zip(self._of_producer, statistics, strict=True):
            if value:
                metric.add_told(value)


class WriteOutputs:
    """Collects the outputs of one bundle until Beam takes them.

    An `origin` is a WindowedValue with the windows, timestamp and pane of an element, and any value. Outputs get these
    from it. Elements with the same windows, timestamp and pane can share one.

    Args:
      with_sent: whether results are emitted, or only counted.
      letter_of: None: no dead letters.
    """

    def __init__(self, metrics: WriteMetrics, *, with_sent: bool, letter_of: LetterOf | None = None) -> None:
        self._metrics = metrics
        self._with_sent = with_sent
        self._letter_of = letter_of
        self.waiting: list[Iterable[Any]] = []
        """Outputs that Beam has not taken yet. A batch's results are created while Beam takes them."""
        self._failures = 0
        self._first: FailedMessage | None = None

    def begin_bundle(self) -> None:
        """Drop what an earlier bundle left when it failed."""
        self.waiting = []
        self._failures = 0
        self._first = None

    def take(self) -> Iterator[Any]:
        """Return the waiting outputs, and keep none of them."""
        waiting, self.waiting = self.waiting, []
        return chain.from_iterable(waiting)

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """Emit the results of a stored batch: one per message, in order."""
        self.require_one_each(messages, results)
        self._metrics.sent(messages, results, latency_s)
        if self._with_sent:
            self.waiting.append(map(WindowedValue.with_value, origins, results))

    @staticmethod
    def require_one_each(messages: Sequence[Message], results: Sequence[SendResult]) -> None:
        """Raises `LocalError` if the producer does not return one result per message."""
        if len(results) != len(messages):  # results would go to the wrong elements
            raise LocalError(f"the producer returned {len(results)} results for {len(messages)} messages")

    def already_there(self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult]) -> None:
        """Emit the results of messages that an earlier attempt has sent: the places where they are stored."""
        for result in results:
            self._metrics.already_there.add(1, queue_labels(result.queue))
        if self._with_sent:
            self.waiting.append(map(WindowedValue.with_value, origins, results))

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """Emit the failure of an element that will not be sent."""
        self.fail(element, origin, message, topic, error)

    def fail(
        self,
        element: Any,
        origin: Any,
        message: Message | None,
        topic: str | None,
        error: Exception,
        position: int | None = None,
    ) -> None:
        """Emit a failure. `position`: of the element in its batch."""
        topic = topic if isinstance(topic, str) else None  # another type may be why it fails
        failure = FailedMessage(
            if_encodable(message), element_text(element), topic or None, type(error).__name__, str(error), position
        )
        self._metrics.send_failures.add(1, ())
        self._failures += 1
        if self._first is None:
            # A user's exception can quote the element; a log must not.
            self._first = failure if isinstance(error, RmqioError) else failure._replace(reason=_UNQUOTED)
        outputs = [TaggedOutput(FAILED, origin.with_value(failure))]
        if self._letter_of is not None:
            outputs.append(TaggedOutput(LETTERS, origin.with_value(self._letter_of(element, failure))))
        self.waiting.append(outputs)

    def end_bundle(self) -> None:
        """Log how many messages of the bundle failed, and why the first one did."""
        if self._first is not None:
            topic, count = self._first.topic, self._failures
            _LOGGER.warning(
                "%s cannot be sent and went to the output %r; the first%s: %s: %s",
                "1 message" if count == 1 else f"{count} messages",
                FAILED,
                "" if topic is None else f", for topic {topic!r}",
                self._first.error,
                self._first.reason,
                extra=event(topic=topic, count=count, error=self._first.error),
            )


# The outputs of a DoFn that writes batches: results and failures, with the window and timestamp of their batch.


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
