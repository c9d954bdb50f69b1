"""The producer: `interfaces.Producer` over the remoting protocol."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.pending import Dispatcher, InFlight, PendingRequest, Sending, SendTemplates
from rmqio.client.queue_choice import QueueChoice, Throttle
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.client.session import Call
from rmqio.errors import LocalError
from rmqio.interfaces import PendingSend, SendStatistics
from rmqio.model import UNIQ_KEY, Message, MessageQueue, SendResult
from rmqio.options import ClientOptions
from rmqio.topics import validate_group, validate_topic
from rmqio.wire import requests
from rmqio.wire.batch import MAX_MESSAGE_BYTES, BatchBuilder, batchable, is_for_topic
from rmqio.wire.bodies import KINDS, compress, compression_flags
from rmqio.wire.command import Command
from rmqio.wire.ids import ConsecutiveIds, MessageIds
from rmqio.wire.properties import encode_properties
from rmqio.wire.requests import PREPARED, broker_of_handle, half_properties, recall
from rmqio.wire.stored import DEFAULT_MAX_BODY_BYTES
from rmqio.wire.templates import SendRequest, properties_text

_LOGGER = logging.getLogger("rmqio.client")


def require_sendable(message: Message) -> None:
    """Raise `LocalError` for properties that no broker takes. Nothing connects."""
    encode_properties(message, message_id=None)


class RemotingProducer:
    """Sends messages, one by one or in batches. Thread-safe. Connects on first use.

    Delivery is at least once: a try whose outcome is unknown (no answer, broken connection) is repeated with the same
    unique id and can be stored twice. Acknowledged messages are stored.

    Args:
      options: see `ClientOptions`.
      group: the producer group; it identifies the sender, and its members share nothing.
      pool, routes: shared with other clients of the process; None: the producer creates and closes its own.
      environment: clock, randomness and transport.
      ids: the source of unique ids.
    """

    def __init__(
        self,
        options: ClientOptions,
        group: str,
        *,
        pool: ConnectionPool | None = None,
        routes: Routes | None = None,
        environment: Environment | None = None,
        ids: MessageIds | None = None,
    ) -> None:
        environment = environment or Environment()
        self._options = options
        self._environment = environment
        self._owned_pool = ConnectionPool(options, environment) if pool is None else None
        pool = pool or self._owned_pool
        assert pool is not None  # one of the two
        self._pool = pool
        self._routes = routes or Routes(options, pool, environment)
        self._group = self._routes.wire_name(group)
        validate_group(self._group)
        self._choice = QueueChoice(options, self._routes, environment)
        self.statistics = SendStatistics()
        """Retries and unknown outcomes so far."""
        dispatcher = Dispatcher(options, self._group, pool, self._choice, environment)
        self._templates = SendTemplates(options, self._group, self._routes)
        throttle = Throttle(self.statistics, environment.clock, environment.sleep)
        self._sending = Sending(
            options, environment, self._routes, self._choice, self._templates, dispatcher, self.statistics, throttle
        )
        self._in_flight = InFlight(options.max_in_flight)
        self._ids = ids or MessageIds()
        self._compression = KINDS[options.compression]
        self._compression_flags = compression_flags(self._compression)
        self._legal_topics: set[str] = set()
        self._is_closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<RemotingProducer {self._group!r} {state}, {len(self._in_flight)} in flight, {self.statistics}>"

    def __enter__(self) -> RemotingProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The topic's writable queues, sorted. Raises `TopicNotExist`."""
        self._check_open()
        self._check_topic(topic)
        return self._choice.queues(topic)

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """Send one message and wait; see `interfaces.Producer.send`.

        Raises `LocalError` for a message that no broker accepts, and `BrokerError` and `TransportError` after the
        retries that the options permit.
        """
        if message.is_tombstone:  # only a member of a batch can have no body
            return self.send_batch([message], queue, message_ids=[message_id] if message_id else None)[0]
        return self._one(message, queue, message_id or next(self._ids)).result()[0]

    def send_half(
        self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None
    ) -> tuple[SendResult, str]:
        """Store a half message, which stays invisible until its transaction is committed: for `TransactionProducer`.

        Also returns the address of the connection used (`Connection.address`): the end of the transaction goes there,
        whatever name servers report by then.

        Not repeated after a try whose outcome is unknown: a second half message would also be checked and committed.
        Raises as `send`, and `LocalError` for a delayed message: the broker would drop the transaction from it.
        """
        if not batchable(message):
            raise LocalError("a delayed message cannot be sent in a transaction: send it without a transaction")
        dispatcher = _HalfDispatcher(self._sending.dispatcher)
        sending = replace(self._sending, dispatcher=dispatcher)
        pending = self._one(message, queue, message_id or next(self._ids), half_by=sending)
        return pending.result()[0], dispatcher.address

    def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a message that waits for its delivery time (`deliver_at_ms`); return its id.

        `recall_handle` is the handle in its `SendResult`. Success means that the broker accepted the recall: it drops
        the message unless it is delivered at that moment. Raises `LocalError` for an invalid handle, `IllegalOperation`
        for a message whose time has come, `NoPermission` where the broker does not permit recalls (recallMessageEnable,
        off by default), `BrokerError`, `TransportError`.
        """
        self._check_open()
        self._check_topic(topic)
        broker = broker_of_handle(recall_handle)
        command = recall(self._group, self._routes.wire_name(topic), recall_handle, broker)

        def attempt() -> Command:
            address = self._routes.master(topic, broker)
            answer = self._pool.connection(address).request(command, self._options.request_timeout_ms)
            requests.expect_success(answer, f"recall of a message of topic {topic!r} at {broker}")
            return answer

        answer = call_with_retries(
            attempt, self._options, self._environment, on_stale_route=lambda: self._routes.invalidate(topic)
        )
        return answer.ext.get("msgId", "")

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic to one queue in one request and wait; see `interfaces.Producer.send_batch`.

        Without a queue, the sharding keys choose it (`LocalError` when they belong to several), else queues take turns.
        """
        self._check_open()
        if not messages:
            return []
        may_move = queue is None
        if queue is None:
            topic = _topic_of(messages[0].topic, None)
            self._check_topic(topic)
            keys = {message.sharding_key for message in messages} - {None}
            targets = {self._choice.for_key(topic, key) for key in keys if key is not None}
            if len(targets) > 1:
                raise LocalError(f"sharding keys of one batch belong to {len(targets)} queues of topic {topic!r}")
            may_move = not targets
            queue = targets.pop() if targets else self._choice.in_turn(topic)
        return list(self._batch(messages, queue, message_ids, may_move=may_move).result())

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """Start sending a batch to one queue; see `interfaces.Producer.submit`.

        When `options.max_in_flight` batches are in flight, the oldest is awaited first, retries included. With
        `ordered`, every batch to the same queue is also awaited first, and a retry stays on that queue; after a failure
        that has not been retrieved, nothing more is sent there: later batches fail with the same error. Without
        `ordered`, a retry can move to a queue on another broker; the results then name it. `close` logs failures not
        retrieved with `result`.
        """
        self._check_open()
        if not messages:
            return _NothingToSend()
        pending = self._batch(messages, queue, message_ids, may_move=not ordered)
        self._in_flight.admit(pending, ordered=ordered)
        try:
            pending.start()
        except BaseException:
            self._in_flight.remove(pending)
            raise
        return pending

    def close(self) -> None:
        """Wait for batches in flight, at most `options.request_timeout_ms`, then close. Idempotent."""
        self._adopt_process()  # also for its lock
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._in_flight.drain(self._environment.clock() + self._options.request_timeout_ms / 1000)
        finally:
            if self._owned_pool is not None:
                self._owned_pool.close()
        lost = self._in_flight.unretrieved()
        if lost:
            count = sum(pending.message_count for pending in lost)
            _LOGGER.error(
                "producer %r closes with %d messages not sent, in %d batches whose result nobody retrieved; first: %s",
                self._group, count, len(lost), lost[0].error,
            )  # fmt: skip

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _one(
        self, message: Message, queue: MessageQueue | None, message_id: str, *, half_by: Sending | None = None
    ) -> PendingRequest:
        if self._is_closed:
            self._check_open()  # raises; it checks for a fork only if batches are in flight
        topic = _topic_of(message.topic, queue)
        if topic not in self._legal_topics:
            self._check_topic(topic)
        body = message.body
        if not isinstance(body, bytes) or not body:
            _refuse_body(body)
        sys_flag = 0
        is_half = half_by is not None
        if is_half:
            properties = encode_properties(message, message_id=message_id, extra=half_properties(self._group)).decode()
            sys_flag = PREPARED
        else:
            properties = properties_text(message, message_id)
        limit = self._options.compress_over_bytes
        if limit is not None and len(body) >= limit:
            compressed = self._compress(body)
            if len(compressed) < len(body):
                body, sys_flag = compressed, sys_flag | self._compression_flags
        if len(body) > MAX_MESSAGE_BYTES:
            raise LocalError(f"message body has {len(body)} bytes; the broker's maximum is {MAX_MESSAGE_BYTES}")
        may_move = queue is None and message.sharding_key is None
        if queue is None:
            key = message.sharding_key
            queue = self._choice.in_turn(topic) if key is None else self._choice.for_key(topic, key)
        request = SendRequest(self._templates.of(queue), body, properties, self._now_ms(), sys_flag)
        sending = half_by or self._sending
        return PendingRequest(sending, queue, request, (message_id,), may_move=may_move, is_single_try=is_half)

    def _compress(self, body: bytes) -> bytes:
        if len(body) > DEFAULT_MAX_BODY_BYTES:
            raise LocalError(
                f"message body has {len(body)} bytes; readers decompress no more than {DEFAULT_MAX_BODY_BYTES}, "
                "however small it is when compressed"
            )
        return compress(body, kind=self._compression, level=self._options.compression_level)

    def _batch(
        self, messages: Sequence[Message], queue: MessageQueue, message_ids: Sequence[str] | None, *, may_move: bool
    ) -> PendingRequest:
        topic = queue.topic
        self._check_topic(topic)
        if not is_for_topic(messages, topic):
            raise LocalError(f"all messages of a batch to {queue} must be for topic {topic!r} or name none")
        ids = self._ids.take(len(messages)) if message_ids is None else message_ids
        if not isinstance(ids, ConsecutiveIds):
            ids = list(ids)  # so that the caller's changes do not matter
        if len(ids) != len(messages):
            raise LocalError(f"{len(ids)} message_ids for {len(messages)} messages")
        compressed = self._all_compressed(messages)
        builder = BatchBuilder()
        if builder.add_all(compressed or messages, ids) < len(messages):
            raise LocalError(f"batch is full after {len(builder)} of {len(messages)} messages and {builder.size} bytes")
        # With this property, a topic of type BatchCQ stores the batch as one record, as from Java. A Java consumer
        # would take the record's compressed members for one compressed body: they are stored one by one. A broker
        # before 5.0 (MessageExtEncoder) appends these properties to each member's, and of two ids the last counts.
        is_inner = self._options.inner_batches and not compressed
        properties = f"{UNIQ_KEY}\x01{ids[0]}\x02" if is_inner else ""
        sys_flag = self._compression_flags if compressed else 0
        request = SendRequest(
            self._templates.of(queue), builder.encode(), properties, self._now_ms(), sys_flag, batch=True
        )
        return PendingRequest(self._sending, queue, request, ids, may_move=may_move)

    def _all_compressed(self, messages: Sequence[Message]) -> list[Message] | None:
        """Return the messages with compressed bodies; None: leave them. A batch has one flag for all its members."""
        limit = self._options.compress_over_bytes
        if limit is None:
            return None
        bodies = [message.body for message in messages]
        if not all(isinstance(body, bytes) and body for body in bodies):
            return None  # the batch builder refuses it
        if max(map(len, bodies)) < limit:
            return None
        compressed = [self._compress(body) for body in bodies]
        if sum(map(len, compressed)) >= sum(map(len, bodies)):
            return None
        return [message.replace(body=body) for message, body in zip(messages, compressed, strict=True)]

    def _now_ms(self) -> int:
        return int(self._environment.wall_clock() * 1000)

    def _check_topic(self, topic: str) -> None:
        if topic not in self._legal_topics:
            validate_topic(self._routes.wire_name(topic))
            self._legal_topics.add(topic)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LocalError("this producer is closed")
        self._adopt_process()

    def _adopt_process(self) -> None:
        """Start with nothing in flight in a forked child: the parent awaits what it started."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Lock()
            self._in_flight = InFlight(self._options.max_in_flight)


class _HalfDispatcher(Dispatcher):
    """Wraps a dispatcher and records the address of its last request."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.address = ""

    def start(self, queue: MessageQueue, request: SendRequest) -> Call:
        call = self._dispatcher.start(queue, request)
        self.address = call.session.address
        return call


class _NothingToSend:
    def is_done(self) -> bool:
        return True

    def result(self) -> list[SendResult]:
        return []


def _topic_of(topic: str | None, queue: MessageQueue | None) -> str:
    if queue is not None:
        if topic is not None and topic != queue.topic:
            raise LocalError(f"the message is for topic {topic!r}, but {queue} is not a queue of it")
        return queue.topic
    if topic is None:
        raise LocalError("neither the message nor the call names a topic or a queue")
    return topic


def _refuse_body(body: object) -> NoReturn:
    if not isinstance(body, bytes):
        raise LocalError(f"message body must be bytes, not {type(body).__name__}")
    raise LocalError("message body is empty; a broker fails on an empty single send")
