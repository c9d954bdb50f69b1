"""Batches in flight: sent, awaited, or split until only the faulty messages fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import PendingSend, Producer
from rmqio.model import MessageQueue, SendResult
from rmqio.sending.batch import ProducerBatch
from rmqio.sending.failures import refuses_message, refuses_topic
from rmqio.sending.gate import Gate
from rmqio.sending.outcomes import Outcomes
from rmqio.sending.traces.tracing import SendTrace
from rmqio.wire.messages.ids import MessageIds


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
