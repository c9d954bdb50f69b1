"""Batches in flight: sent, awaited, or split until only the faulty messages fail."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from rmqio.errors import (
    InvalidParameter,
    LocalError,
    MessageIllegal,
    NoPermission,
    RmqioError,
    SetupError,
)
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.sending.traces import SendTrace
from rmqio.wire.ids import MessageIds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqio.model import SendResult
    # JOIN


# A batch: messages for one queue, sent together.


class ProducerBatch:
    """Messages for one queue, with the elements that they come from.

    `ids` holds None for a message without a stable id. `origins` is passed to `Outcomes` with the elements. `keyed`:
    the queue follows from a sharding key.
    """

    __slots__ = ("elements", "ids", "keyed", "limit", "messages", "numbers", "origins", "queue", "since", "size")

    def __init__(self, queue: MessageQueue, *, keyed: bool) -> None:
        self.queue = queue
        self.keyed = keyed
        self.messages: list[Message] = []
        self.ids: list[str | None] = []
        self.numbers: Sequence[str] | None = None
        """Ids of all messages, if none has a stable one and it was numbered when it was sent."""
        self.elements: list[Any] = []
        self.origins: list[Any] = []
        self.size = 0
        """Approximate number of bytes on the wire."""
        self.limit = 0
        """Its size until it asks for more memory."""
        self.since = 0.0
        """When it was begun."""

    @property
    def message_ids(self) -> Sequence[str]:
        """The ids of all messages, which all have one by now."""
        return self.ids if self.numbers is None else self.numbers  # type: ignore[return-value]

    def add(self, message: Message, message_id: str | None, element: Any, origin: Any, size: int) -> None:
        """Add a message; the caller checks whether it fits."""
        self.messages.append(message)
        self.ids.append(message_id)
        self.elements.append(element)
        self.origins.append(origin)
        self.size += size

    def extend(
        self,
        messages: Sequence[Message],
        ids: Sequence[str | None],
        elements: Sequence[Any],
        origin: Any,
        size: int,
    ) -> None:
        """Add messages of one origin, of `size` bytes altogether; the caller checks whether they fit."""
        self.messages += messages
        self.ids += ids
        self.elements += elements
        self.origins += [origin] * len(messages)
        self.size += size

    def halves(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Return two batches with the same messages in the same order."""
        count = len(self.messages)
        return self.parted([position < count // 2 for position in range(count)])

    def parted(self, is_first: Sequence[bool]) -> tuple[ProducerBatch, ProducerBatch]:
        """Return two batches in the same order: the messages marked as first, and the others."""
        parts = (ProducerBatch(self.queue, keyed=self.keyed), ProducerBatch(self.queue, keyed=self.keyed))
        for part, selectors in zip(parts, (is_first, [not each for each in is_first]), strict=True):
            part.messages, part.ids = [*compress(self.messages, selectors)], [*compress(self.ids, selectors)]
            if self.numbers is not None:
                part.numbers = [*compress(self.numbers, selectors)]
            part.elements, part.origins = [*compress(self.elements, selectors)], [*compress(self.origins, selectors)]
        return parts


# The interface between sending and the code that knows what is already in the sink.


class Gate(Protocol):
    """Every batch passes it before it is sent."""

    def sending(self, topic: str) -> AbstractContextManager[None]:
        """Wrap everything done to send a batch, so that nobody looks into the sink in between."""
        ...

    def take_out(self, batch: ProducerBatch) -> ProducerBatch:
        """Return the batch without messages that are already stored; their outcome is settled."""
        ...

    def stored(self, results: Sequence[SendResult]) -> None:
        """Note that a batch was stored."""
        ...


# The interface between sending and the code that handles the outcome.


class Outcomes(Protocol):
    """Receives the outcome of messages. `element` and `origin` are passed through from the message unchanged.

    An error that it raises is raised by the call that settles the message, once nothing is in flight.
    """

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """A batch was stored: one result per message, in order."""
        ...

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """One message can never be sent, because of `error`. Others of its batch may have been."""
        ...


# Messages that cannot be sent: a value with the reason, and which errors are a message's own fault.

_REFUSES_MESSAGE: Final = (LocalError, MessageIllegal, InvalidParameter)

_FORBIDDEN_TOPIC: Final = re.compile(r"has no permission to access Topic:|No default permission for ")
"""How authorization refuses a topic: DefaultAuthorizationHandler of 5.x, PlainPermissionManager before it."""

MAX_ELEMENT_TEXT: Final = 1_000


class FailedMessage(NamedTuple):
    """A message that was not sent because it never can be; the runner retries all other failures.

    Nothing of it was stored, unless an earlier try of the same bundle stored it.
    """

    message: Message | None
    """None when the element produced no message, or one whose fields have wrong types."""
    element: str
    """`repr` of the input element, cut to 1,000 characters."""
    topic: str | None
    """The target topic; None when nothing named a topic."""
    error: str
    """The error's class name."""
    reason: str
    """The error's text."""
    position: int | None = None
    """The value's index in its batch; None: it was an element of its own, or the whole batch."""


def refuses_message(error: RmqioError) -> bool:
    """Return whether one message of the batch is at fault, so that the others would pass."""
    return isinstance(error, _REFUSES_MESSAGE) and not isinstance(error, SetupError)


def refuses_topic(error: RmqioError) -> bool:
    """Return whether we are authenticated but may not write to this topic.

    The code alone is not enough: a broker also uses it for a wrong signature, an unknown user, and when it accepts no
    messages at all.
    """
    return isinstance(error, NoPermission) and _FORBIDDEN_TOPIC.search(error.remark or "") is not None


def element_text(element: Any) -> str:
    """Return `repr`, cut; if `repr` fails, the element's type."""
    try:
        text = repr(element)
    except Exception:  # noqa: BLE001  # it is a user's code, and the element is on its way out because of an error
        text = f"<{type(element).__name__}>"
    return text if len(text) <= MAX_ELEMENT_TEXT else text[: MAX_ELEMENT_TEXT - 3] + "..."


class _Flight(NamedTuple):
    batch: ProducerBatch
    pending: PendingSend
    started: float


class BatchSender:
    """Sends batches and settles them: results and refused messages go to `outcomes`; other errors are raised.

    The producer retries; unless a batch is ordered, it retries at another broker if there is one. After an error
    nothing is in flight, and the bundle must fail.

    Args:
      max_in_flight: maximum number of batches in flight; 1: each is awaited before `send` returns.
      required_topics: topics that the whole write needs: if one is forbidden, the error is raised, no message blamed.
      ordered: a keyed batch stays on its queue, which has at most one batch in flight, and none after a failed one.
      gate: filters out messages that are already in the sink; then each batch is awaited and has ids.
      trace: traces what was stored.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        producer: Producer,
        outcomes: Outcomes,
        *,
        max_in_flight: int,
        ordered: bool,
        required_topics: frozenset[str] = frozenset(),
        gate: Gate | None = None,
        trace: SendTrace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._outcomes = outcomes
        self._max_in_flight = max_in_flight
        self._ordered = ordered
        self._required_topics = required_topics
        self._gate = gate
        self._trace = trace
        self._clock = clock
        self._ids = MessageIds()
        self._flights: list[_Flight] = []

    def send(self, batch: ProducerBatch) -> None:
        """Send a batch. Raises the first error, of this or an earlier batch, that a later retry may resolve."""
        with self._abandoning():
            if self._gate is not None:
                self._send_through(self._gate, batch)
                return
            self._settle_done()
            if batch.keyed and self._ordered:
                self._await_queue(batch.queue)
            while len(self._flights) >= self._max_in_flight:
                self._settle(self._flights.pop(0))
            self._number(batch)
            flight = self._submit(batch)
            if flight is None:
                return
            if self._max_in_flight == 1:
                self._settle(flight)
            else:
                self._flights.append(flight)

    def send_alone(self, batch: ProducerBatch) -> None:
        """Send a message that cannot be batched (delayed, or large) and wait. Raises as `send`.

        In an ordered queue, earlier messages are awaited first.
        """
        with self._abandoning():
            if self._gate is not None:
                self._send_through(self._gate, batch, alone=True)
                return
            if batch.keyed and self._ordered:
                self._await_queue(batch.queue)
            self._number(batch)
            self._send_one(batch)

    def drain(self) -> None:
        """Wait for everything in flight. Raises the first error."""
        with self._abandoning():
            while self._flights:
                self._settle(self._flights.pop(0))

    def abandon(self) -> None:
        """Wait for everything in flight, whatever the outcome: its bundle has failed and will be retried.

        It waits so that the retry is stored after these messages. Also, a producer refuses an ordered queue while it
        has a failure that nobody has retrieved.
        """
        flights, self._flights = self._flights, []
        for flight in flights:
            with suppress(RmqioError):
                flight.pending.result()

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self.abandon()
            raise

    def _send_through(self, gate: Gate, batch: ProducerBatch, *, alone: bool = False) -> None:
        with gate.sending(batch.queue.topic):
            batch = gate.take_out(batch)
            if not batch.messages:
                return
            if alone:
                self._send_one(batch)
            elif (flight := self._submit(batch)) is not None:
                self._settle(flight)

    def _number(self, batch: ProducerBatch) -> None:
        # Each message gets its id once, here, and keeps it when it is sent again in a smaller batch.
        if not any(batch.ids):
            batch.numbers = self._ids.take(len(batch.messages))
        elif None in batch.ids:
            batch.ids = [known or next(self._ids) for known in batch.ids]

    def _send_one(self, batch: ProducerBatch) -> None:
        (message,) = batch.messages
        if message.topic is None:
            message = message.replace(topic=batch.queue.topic)
        started = self._clock()
        try:
            # Without a key the producer chooses the queue, so that a retry can use another broker.
            queue = batch.queue if batch.keyed or self._gate is not None else None
            result = self._producer.send(message, queue, message_id=batch.message_ids[0])
        except RmqioError as error:
            self._recover(batch, error)
        else:
            self._stored(batch, [result], started)

    def _submit(self, batch: ProducerBatch) -> _Flight | None:
        """Start sending; return None when that failed and has been settled."""
        started = self._clock()
        try:
            pending = self._producer.submit(
                batch.messages,
                batch.queue,
                ordered=batch.keyed and self._ordered,
                message_ids=batch.message_ids,
            )
        except RmqioError as error:
            self._recover(batch, error)
            return None
        return _Flight(batch, pending, started)

    def _settle_done(self) -> None:
        # An error of an earlier batch must stop us before more is sent after it.
        self._settle_all([flight for flight in self._flights if flight.pending.is_done()])

    def _await_queue(self, queue: MessageQueue) -> None:
        self._settle_all([flight for flight in self._flights if flight.batch.queue == queue])

    def _settle_all(self, flights: list[_Flight]) -> None:
        for flight in flights:
            self._flights.remove(flight)
            self._settle(flight)

    def _settle(self, flight: _Flight) -> None:
        try:
            results = flight.pending.result()
        except RmqioError as error:
            self._recover(flight.batch, error)
        else:
            self._stored(flight.batch, results, flight.started)

    def _stored(self, batch: ProducerBatch, results: Sequence[SendResult], started: float) -> None:
        if self._gate is not None:
            self._gate.stored(results)
        latency_s = self._clock() - started
        if self._trace is not None:
            self._trace.sent(batch.messages, results, latency_s)
        self._outcomes.sent(batch.origins, batch.messages, results, latency_s)

    def _recover(self, batch: ProducerBatch, error: RmqioError) -> None:
        """Settle a failed batch, or raise the error when only a retry of the whole bundle can help."""
        if isinstance(error, LocalError):
            # A closed producer also raises it, and does so here again. Blamed on the messages, it would drop them all.
            self._producer.queues(batch.queue.topic)
        if refuses_message(error):
            if len(batch.messages) > 1:
                for half in batch.halves():
                    flight = self._submit(half)
                    if flight is not None:
                        self._settle(flight)
                return
        elif not refuses_topic(error) or batch.queue.topic in self._required_topics:
            # Also TopicNotExist: the topic had queues, and name servers report the same while its brokers are down.
            raise error
        for element, origin, message in zip(batch.elements, batch.origins, batch.messages, strict=True):
            self._outcomes.failed(element, origin, message, batch.queue.topic, error)
