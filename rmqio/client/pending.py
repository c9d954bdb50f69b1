"""Sends in flight: each from its first try to its outcome, on the connection to its queue's broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqio.addresses import join_address, parse_address
from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment, client_id
from rmqio.client.queue_choice import NEW_TOPIC_QUEUES, QueueChoice, Throttle, is_busy
from rmqio.client.retry import backoff_ms
from rmqio.client.routes import Routes
from rmqio.client.session import Call
from rmqio.errors import (
    BrokerSystemError,
    GoAway,
    LocalError,
    QueueNotExist,
    RmqioError,
    TopicNotExist,
    TransportError,
    WireError,
)
from rmqio.interfaces import SendStatistics
from rmqio.model import MessageQueue, SendResult
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.batch import BatchResults
from rmqio.wire.command import Command
from rmqio.wire.templates import SendRequest, SendTemplate

# Sends a producer's requests, and heartbeats with them, on the connection to a queue's broker.

_VIP_DISTANCE = 2
"""A broker serves sends, but no pulls, on its port minus this."""


class Dispatcher:
    """Starts requests at brokers. Thread-safe.

    It has no thread: when a heartbeat is due, it goes out with the next request, in the same write. That is enough,
    because a socket that is idle for two minutes, which a server closes, is reopened.
    """

    def __init__(
        self, options: ClientOptions, group: str, pool: ConnectionPool, choice: QueueChoice, environment: Environment
    ) -> None:
        self._options = options
        self._group = group
        self._pool = pool
        self._choice = choice
        self._environment = environment
        self._next_heartbeat: dict[str, float] = {}

    def start(self, queue: MessageQueue, request: SendRequest) -> Call:
        """Send a request without waiting for its answer. Raises `TopicNotExist`, `TransportError`, `LocalError`."""
        address = self._choice.address(queue)
        connection = self._pool.connection(self._vip(address) if self._options.vip_channel else address)
        now = self._environment.clock()
        if now < self._next_heartbeat.get(connection.address, 0.0):
            return connection.start(request)
        heartbeat = requests.producer_heartbeat(client_id(self._options, self), [self._group])
        call = connection.start_all((heartbeat, request))[1]
        self._next_heartbeat[connection.address] = now + self._options.heartbeat_ms / 1000
        return call

    def _vip(self, address: str) -> str:
        try:
            host, port = parse_address(address)
        except LocalError:
            return address  # the pool reports what is wrong with the address, and where it came from
        return join_address(host, port - _VIP_DISTANCE)


# A producer's send templates, each created at the first send to its queue.


class SendTemplates:
    """Maps queues to templates. Thread-safe. Queues have the user's names; the group has the broker's name."""

    def __init__(self, options: ClientOptions, group: str, routes: Routes) -> None:
        self._options = options
        self._group = group
        self._routes = routes
        self._made: dict[MessageQueue, SendTemplate] = {}

    def of(self, queue: MessageQueue) -> SendTemplate:
        """Return the template of a queue."""
        found = self._made.get(queue)
        if found is None:
            found = self._made[queue] = SendTemplate(
                self._group,
                self._routes.wire_queue(queue),
                create_topic=self._options.create_topics,
                topic_queues=NEW_TOPIC_QUEUES,
            )
        return found


_LOGGER = logging.getLogger("rmqio.client")

GRACE_MS = 250.0
"""An answer can be in the socket long after its deadline because nobody waited: check for at least this long."""

_STALE_ONLY: Final = (TopicNotExist, QueueNotExist)
"""Errors that get one retry, with a new route."""
_DONE = SendRequest(SendTemplate("", MessageQueue("", "", 0)), b"", "", 0)
"""Replaces the request once it is no longer needed."""


@dataclass(frozen=True, slots=True)
class Sending:
    """The parts of a producer that each of its sends needs."""

    options: ClientOptions
    environment: Environment
    routes: Routes
    choice: QueueChoice
    templates: SendTemplates
    dispatcher: Dispatcher
    statistics: SendStatistics
    throttle: Throttle


class PendingRequest:
    """A request that stores one message or a batch; `interfaces.PendingSend`. Thread-safe.

    It has no thread: callers of `result` and `settle` read answers and repeat tries.

    Args:
      sending: the producer's shared objects.
      queue: the target queue.
      request: the request for that queue.
      message_ids: the unique ids of its messages, in order.
      may_move: whether a retry may go to a queue on another broker.
      is_single_try: whether to stop retrying once the messages may have been stored.
    """

    __slots__ = (
        "_busy_since", "_busy_tries",
        "_call", "_command", "_failure", "_is_single_try", "_lock", "_may_move", "_message_ids", "_outcome",
        "_route_was_refreshed", "_sending", "_tries", "is_retrieved", "queue",
    )  # fmt: skip

    def __init__(
        self,
        sending: Sending,
        queue: MessageQueue,
        request: SendRequest,
        message_ids: Sequence[str],
        *,
        may_move: bool,
        is_single_try: bool = False,
    ) -> None:
        self.queue = queue
        self.is_retrieved = False
        """Whether `result` has reported the outcome to anybody."""
        self._sending = sending
        self._command = request
        self._message_ids = message_ids
        self._may_move = may_move
        self._is_single_try = is_single_try
        self._call: Call | None = None
        self._failure: RmqioError | None = None
        """Why the last try failed, until it is decided whether there is another."""
        self._outcome: Sequence[SendResult] | RmqioError | None = None
        self._tries = 0
        self._busy_tries = 0
        self._busy_since: float | None = None
        self._route_was_refreshed = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "in flight" if self._outcome is None else "failed" if self.error is not None else "stored"
        return f"<send of {len(self._message_ids)} to {self.queue}: {state}, {self._tries} tries>"

    def __str__(self) -> str:
        count = len(self._message_ids)
        return f"send of {count} message{'s' if count > 1 else ''} to {self.queue}"

    @property
    def message_count(self) -> int:
        return len(self._message_ids)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome is not None

    @property
    def error(self) -> RmqioError | None:
        """The final error, if that is the outcome."""
        return self._outcome if isinstance(self._outcome, RmqioError) else None

    def is_done(self) -> bool:
        if self._outcome is not None:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # another thread is settling it
        try:
            call = self._call
            if call is None:
                return False
            while not call.is_done and call.session.pump(0):
                pass  # as long as there is something to read
            if call.is_done:
                self._look_at(call, 0)
            return self._outcome is not None
        finally:
            self._lock.release()

    def result(self) -> Sequence[SendResult]:
        self.settle()
        self.is_retrieved = True
        outcome = self._outcome
        if isinstance(outcome, RmqioError):
            raise outcome
        assert outcome is not None  # settled
        return outcome

    def start(self) -> None:
        """Make the first try; `result` reports its failure. Raises `LocalError` for a request that cannot be sent."""
        with self._lock:
            if self._call is None and self._outcome is None and self._failure is None:
                self._try()

    def fail_like(self, predecessor: PendingRequest | None) -> None:
        """Fail with the predecessor's error, if any, without sending."""
        if predecessor is not None and predecessor.error is not None:
            self._finish(predecessor.error)

    def settle(self, deadline: float | None = None) -> None:
        """Wait for the outcome, with the retries that the options permit, but not beyond `deadline` on the clock.

        Raises nothing; afterwards the outcome is known.
        """
        with self._lock:
            while self._outcome is None:
                if self._failure is not None:
                    self._retry_or_fail(self._failure, deadline)
                elif self._call is None:
                    try:
                        self._try()
                    except LocalError as error:  # closed meanwhile
                        self._finish(error)
                else:
                    self._look_at(self._call, self._patience_ms(self._call, deadline))

    # ---- tries; all under the lock -----------------------------------------------------------------------------------

    def _try(self) -> None:
        self._tries += 1
        self._sending.throttle.before(self._broker())
        try:
            self._sending.choice.look_up(self.queue.topic)
        except LocalError:
            raise
        except RmqioError as error:  # retried often enough, or a name server refuses
            self._finish(error)
            return
        try:
            self._call = self._sending.dispatcher.start(self.queue, self._command)
        except LocalError:
            raise
        except RmqioError as error:
            self._failure = error

    def _patience_ms(self, call: Call, deadline: float | None) -> float:
        left_ms = max(self._sending.options.request_timeout_ms - call.age_ms, GRACE_MS)
        if deadline is not None:
            left_ms = min(left_ms, (deadline - self._sending.environment.clock()) * 1000)
        return left_ms

    def _look_at(self, call: Call, timeout_ms: float) -> None:
        try:
            self._finish(self._results(call.result(timeout_ms)))
            self._sending.throttle.passed(self._broker())
        except RmqioError as error:
            if is_busy(error):
                self._note_busy()
            if isinstance(error, (TransportError, WireError)):
                self._sending.statistics.unknown_outcomes += 1
            self._call = None
            self._failure = error
            may_be_stored = self._is_single_try and isinstance(error, (TransportError, BrokerSystemError))
            if may_be_stored or not self._may_retry(error):
                self._finish(error)

    def _broker(self) -> str:
        return self._sending.routes.owner_of(self.queue)

    def _note_busy(self) -> None:
        self._sending.statistics.busy_answers += 1
        if self._is_patient:
            self._sending.throttle.busy(self._broker())
        self._busy_tries += 1
        if self._busy_since is None:
            self._busy_since = self._sending.environment.clock()

    def _finish(self, outcome: Sequence[SendResult] | RmqioError) -> None:
        self._outcome = outcome
        if isinstance(outcome, RmqioError) and outcome.stale_route:
            self._sending.routes.invalidate(self.queue.topic)  # so that a later send does not fail on the same route
        # Callers can keep many of these until the end of a bundle: release the bodies and answers.
        self._call = None
        self._command = _DONE

    def _results(self, answer: Command) -> BatchResults:
        status, queue_id, first, offset_ids = requests.parse_stored(answer, self)
        queue = self.queue
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker, queue_id)
        is_inner = "batchUniqId" in answer.ext
        handle = answer.ext.get("recallHandle")
        return BatchResults(
            queue, first, self._message_ids, offset_ids, status, is_inner=is_inner, recall_handle=handle
        )

    # ---- again? ------------------------------------------------------------------------------------------------------

    def _may_retry(self, error: RmqioError) -> bool:
        if isinstance(error, _STALE_ONLY) and self._route_was_refreshed:
            return False
        options = self._sending.options
        if is_busy(error) and self._busy_since is not None and self._is_patient:
            busy_ms = (self._sending.environment.clock() - self._busy_since) * 1000
            return busy_ms < options.busy_timeout_ms
        patient = self._busy_tries if self._is_patient else 0  # they have a time of their own
        return (error.retriable or error.stale_route) and self._tries - patient <= options.max_retries

    @property
    def _is_patient(self) -> bool:
        """Whether busy answers slow sends down, instead of counting as retries. Zero retries are none, of any kind."""
        options = self._sending.options
        return options.busy_timeout_ms > 0 and options.max_retries > 0

    def _retry_or_fail(self, error: RmqioError, deadline: float | None) -> None:
        sending = self._sending
        pause_ms = 0.0
        if is_busy(error) and self._is_patient:
            pause_ms = 0.0  # the throttle waits
        elif error.retriable and not (isinstance(error, GoAway) and self._tries == 1):
            pause_ms = backoff_ms(self._tries - 1, sending.options, sending.environment.random)
        is_late = deadline is not None and sending.environment.clock() + pause_ms / 1000 >= deadline
        if not self._may_retry(error) or is_late:
            self._finish(error)
            return
        _LOGGER.debug("%s: try %d in %.0f ms after %s", self, self._tries + 1, pause_ms, error)
        sending.statistics.retries += 1
        if error.retriable:
            sending.choice.failed(sending.routes.owner_of(self.queue))
        if pause_ms:
            sending.environment.sleep(pause_ms / 1000)
        self._failure = None
        if error.stale_route:
            self._route_was_refreshed |= isinstance(error, _STALE_ONLY)
            sending.routes.invalidate(self.queue.topic)
        if self._may_move:
            self._move()
        if deadline is not None and sending.environment.clock() + sending.throttle.wait_s(self._broker()) >= deadline:
            self._finish(error)

    def _move(self) -> None:
        try:
            queue = self._sending.choice.elsewhere(self.queue)
        except RmqioError:
            return  # no route now: the next try reports it
        if queue != self.queue:
            self.queue = queue
            self._command = self._command.by(self._sending.templates.of(queue))


# A producer's batches in flight.


class InFlight:
    """Limits the number of batches in flight and keeps failed ones until their failure is reported. Thread-safe.

    Args:
      limit: the maximum at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: list[PendingRequest] = []
        """The batches in flight, in order of admission."""
        self._failed: list[PendingRequest] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pending)

    def admit(self, pending: PendingRequest, *, ordered: bool) -> None:
        """Admit a batch. First await the oldest while there are too many, and all to its queue if `ordered`.

        An ordered batch after an unretrieved failure to its queue fails too: if sent, it would overtake the failed one.
        """
        while True:
            with self._lock:
                self._sort_out()
                awaited = self._in_the_way(pending, ordered)
                if awaited is None:
                    self._pending.append(pending)
                    if ordered:
                        pending.fail_like(next((other for other in self._failed if other.queue == pending.queue), None))
                    return
            awaited.settle()

    def remove(self, pending: PendingRequest) -> None:
        """Forget a batch that was never sent."""
        with self._lock:
            self._pending = [other for other in self._pending if other is not pending]

    def drain(self, deadline: float) -> None:
        """Await all batches, but not beyond `deadline`."""
        while True:
            with self._lock:
                self._sort_out()
                if not self._pending:
                    return
                oldest = self._pending[0]
            oldest.settle(deadline)

    def unretrieved(self) -> list[PendingRequest]:
        """Return the failed batches whose failure has not been reported to anybody."""
        with self._lock:
            self._sort_out()
            return list(self._failed)

    def _in_the_way(self, pending: PendingRequest, ordered: bool) -> PendingRequest | None:
        if len(self._pending) >= self._limit:
            return self._pending[0]
        if ordered:
            return next((other for other in self._pending if other.queue == pending.queue), None)
        return None

    def _sort_out(self) -> None:
        settled = [pending for pending in self._pending if pending.is_settled]
        if settled:
            self._pending = [pending for pending in self._pending if not pending.is_settled]
            self._failed += [pending for pending in settled if pending.error is not None]
        if self._failed:
            self._failed = [pending for pending in self._failed if not pending.is_retrieved]
