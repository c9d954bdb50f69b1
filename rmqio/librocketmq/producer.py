"""The producer: `interfaces.Producer` over librocketmq."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.pending import InFlight
from rmqio.client.queue_choice import QueueChoice
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.errors import LocalError, RequestTimeout, RmqioError, TopicNotExist, TransportError, counted
from rmqio.interfaces import PendingSend
from rmqio.librocketmq.library import Lane, Lanes, check_process, load
from rmqio.model import Message, MessageQueue, SendResult, SendStatus
from rmqio.options import ClientOptions
from rmqio.topics import validate_group, validate_topic
from rmqio.wire.batch import MAX_MESSAGE_BYTES, batchable
from rmqio.wire.ids import MessageIds
from rmqio.wire.properties import encode_properties

if TYPE_CHECKING:
    from rmqio.client.pending import PendingRequest


# Messages that a thread sends one by one.


class PendingMessages:
    """`interfaces.PendingSend`; also has the attributes that `InFlight` needs.

    Args:
      queue: the target queue.
      message_count: the number of messages.
      send: sends them, in a separate thread.
    """

    def __init__(self, queue: MessageQueue, message_count: int, send: Callable[[], list[SendResult]]) -> None:
        self.queue = queue
        self.message_count = message_count
        self.is_retrieved = False
        """Whether `result` has reported the outcome to anybody."""
        self._send = send
        self._outcome: list[SendResult] | BaseException | None = None
        self._settled = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start, unless it has already failed."""
        if not self.is_settled:
            # A daemon: other threads are joined at the end of a process before anybody can tell them to stop.
            threading.Thread(target=self._run, name=f"librocketmq to {self.queue}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._finish(self._send())
        except BaseException as error:  # noqa: BLE001  # `result` raises it
            self._finish(error)

    def _finish(self, outcome: list[SendResult] | BaseException) -> None:
        """Set the outcome; the first one counts."""
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
        self._settled.set()

    def fail_like(self, predecessor: PendingMessages | None) -> None:
        """Fail with the predecessor's error, if any, without sending."""
        if predecessor is not None and predecessor.error is not None:
            self._finish(predecessor.error)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known."""
        return self._settled.is_set()

    def is_done(self) -> bool:
        return self.is_settled

    @property
    def error(self) -> RmqioError | None:
        """The final error, if that is the outcome."""
        return self._outcome if isinstance(self._outcome, RmqioError) else None

    def settle(self, deadline: float | None = None) -> None:
        """Wait for the outcome, but not beyond `deadline` on the monotonic clock: then it is `RequestTimeout`.

        Raises nothing.
        """
        if not self._settled.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            sent = counted(self.message_count, "message")
            self._finish(RequestTimeout(f"send of {sent} to {self.queue}: no answer in time"))

    def result(self) -> list[SendResult]:
        self.settle()
        self.is_retrieved = True
        assert self._outcome is not None  # settled
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


_LOGGER = logging.getLogger("rmqio.client")

_STATUS: Final = (
    SendStatus.OK,
    SendStatus.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE,
)
"""Errors by the library's number."""

_ID: Final = b"~\x02UNIQ_KEY"
"""The name of the property that becomes the id. Under UNIQ_KEY itself, the library puts its own id, one of 256 in each
millisecond. It writes properties in the order of their names, separated by a 2. With this name, a second UNIQ_KEY comes
after its own, and of two with the same name a broker (5.5.0, 4.9.7) keeps the last. The part before the 2 is not a
property, and is dropped.
"""

Prepared = tuple[bytes, list[tuple[bytes, bytes]], str]
"""Body, properties, and the id among them."""


class LibrocketmqProducer:
    """Sends messages one by one through librocketmq. Thread-safe. Connects on first use.

    Delivery is at least once: a failed try is repeated with the same unique id, up to `options.max_retries` times, and
    the message can be stored twice. The library does not report why it failed: all its failures are `TransportError`,
    also when a broker refused, and when the message was stored but its safety was not confirmed (SendStatus).

    It is refused in a fork of a process that has used it.

    Args:
      options: see `ClientOptions`; the factory refuses options that the library does not support.
      group: the producer group.

    Raises `LocalError` when the library is missing, does not fit, or cannot be used in this process.
    """

    def __init__(self, options: ClientOptions, group: str) -> None:
        self._library = load()
        check_process()
        source = options.security.source
        if source is not None and source.get().security_token is not None:
            raise LocalError(
                "backend 'librocketmq' does not support temporary credentials (a security token): the library cannot "
                "send the token. Use backend='remoting'"
            )
        self._options = options
        self._environment = Environment()
        self._pool = ConnectionPool(options)
        self._routes = Routes(options, self._pool)
        self._group = self._routes.wire_name(group)
        validate_group(self._group)
        self._choice = QueueChoice(options, self._routes, self._environment)
        self._lanes = Lanes(self._new_lane, options.max_in_flight)
        self._in_flight = InFlight(options.max_in_flight)
        self._ids = MessageIds()
        self._held: dict[str, Sequence[MessageQueue]] = {}
        self._is_closed = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        _open.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<LibrocketmqProducer {self._group!r} {state}, {len(self._in_flight)} in flight>"

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the topic's writable queues, sorted.

        Raises `TopicNotExist`, and `LocalError` for topics that the library handles wrongly: static topics, and topics
        with an order configuration.
        """
        self._check_open()
        validate_topic(self._routes.wire_name(topic))
        queues = self._choice.queues(topic)
        route = self._routes.route(topic)
        if route.logical or route.order_conf:
            kind = "is a static topic" if route.logical else "has an order configuration"
            raise LocalError(f"topic {topic!r} {kind}, which backend 'librocketmq' cannot send to; use 'remoting'")
        self._held[topic] = queues
        return queues

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        """Send one message and wait; see `interfaces.Producer.send`.

        Ctrl-C waits for the current try. Raises `LocalError` for a message that no broker accepts, `TopicNotExist`, and
        `TransportError` for all failures of the library, after retries.
        """
        topic = message.topic if queue is None else queue.topic
        if topic is None:
            raise LocalError("neither the message nor the call names a topic or a queue")
        self._check_topic(message, topic)
        queues = self._queues(topic)
        prepared = _prepare(message, message_id or next(self._ids))
        may_move = queue is None and message.sharding_key is None
        if queue is None:
            key = message.sharding_key
            queue = self._choice.in_turn(topic) if key is None else self._choice.for_key(topic, key)
        elif queue not in queues:
            raise LocalError(f"{queue} is not one of the topic's {len(queues)} writable queues")
        return self._send(prepared, queue, may_move=may_move)

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> list[SendResult]:
        """Raise `LocalError`: what the library sends as a batch is acknowledged, but stored as one message."""
        raise LocalError(
            "backend 'librocketmq' cannot send a batch as one request: a broker takes the library's batch for one "
            "message with all of it as its body. Use submit, which sends one by one, or backend='remoting'"
        )

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> PendingSend:
        """Start sending messages to one queue, one by one and in order; see `interfaces.Producer.submit`.

        They are not one request: after a failure, the messages before it are stored, and none after it. Without
        `ordered`, a retry can move to a queue on another broker; the results then name it.
        """
        self._check_open()
        ids = self._ids.take(len(messages)) if message_ids is None else list(message_ids)
        if len(ids) != len(messages):
            raise LocalError(f"{len(ids)} message_ids for {len(messages)} messages")
        prepared = []
        for message, message_id in zip(messages, ids, strict=True):
            self._check_topic(message, queue.topic)
            if not batchable(message):
                raise LocalError("a delayed message cannot be submitted with others: use send")
            prepared.append(_prepare(message, message_id))

        def send() -> list[SendResult]:
            return [self._send(one, queue, may_move=not ordered) for one in prepared]

        pending = PendingMessages(queue, len(prepared), send)
        kept = cast("PendingRequest", pending)  # it has the attributes that are needed
        self._in_flight.admit(kept, ordered=ordered)
        try:
            pending.start()
        except BaseException:
            self._in_flight.remove(kept)
            raise
        return pending

    def close(self) -> None:
        """Wait for what is in flight, at most `options.request_timeout_ms` and the try that is on its way, then close.

        Idempotent. In a fork it does nothing.
        """
        if self._pid != os.getpid():
            self._is_closed = True
            return
        with self._lock:
            was_open = not self._is_closed
            if was_open:
                self._in_flight.drain(self._environment.clock() + self._options.request_timeout_ms / 1000)
                self._is_closed = True
        self._lanes.close()  # waits for the library's calls, which end in time; repeated if it was interrupted
        self._pool.close()
        _open.discard(self)
        if was_open:
            self._report_lost()

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _report_lost(self) -> None:
        lost = self._in_flight.unretrieved()
        if lost:
            count = sum(pending.message_count for pending in lost)
            _LOGGER.error(
                "producer %r closes with %d messages not sent, in %d batches whose result nobody retrieved; first: %s",
                self._group, count, len(lost), lost[0].error,
            )  # fmt: skip

    def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """As `queues`; returns the previous ones if a name server has forgotten the topic: are its brokers down?"""
        try:
            return self.queues(topic)
        except TopicNotExist:
            if topic not in self._held:
                raise
            return self._held[topic]

    def _send(self, prepared: Prepared, queue: MessageQueue, *, may_move: bool) -> SendResult:
        target = queue

        def attempt() -> SendResult:
            return self._try(prepared, target)

        def look_elsewhere() -> None:
            nonlocal target
            self._routes.invalidate(queue.topic)
            self._choice.failed(target.broker)
            if may_move:
                target = self._choice.elsewhere(target)

        return call_with_retries(attempt, self._options, self._environment, on_stale_route=look_elsewhere)

    def _try(self, prepared: Prepared, queue: MessageQueue) -> SendResult:
        body, properties, message_id = prepared
        queues = self._queues(queue.topic)
        if queue not in queues:
            raise TransportError(f"{queue} cannot be written to at the moment: the route does not have it")
        topic = self._routes.wire_name(queue.topic).encode()
        with self._lanes.lane() as lane:
            outcome = lane.send(topic, body, properties, queues.index(queue), len(queues))
        if outcome is None:
            self._lanes.renew()
            raise TransportError(f"{queue}: librocketmq has another route than the name server; nothing was sent")
        if isinstance(outcome, str):
            raise TransportError(
                f"send to {queue} by librocketmq fails: {outcome!r}, which it reports whatever the reason. What "
                "happened, or what the broker answered, is in its log in $HOME/logs/rocketmq-cpp"
            )
        status, offset = outcome
        return SendResult(queue, offset, message_id, "", _STATUS[status])

    def _new_lane(self) -> Lane:
        try:
            return Lane(self._library, self._options, self._group)
        except LocalError as error:
            # Credentials are missing now. That is not a message's fault; a `LocalError` would count as one.
            raise TransportError(f"librocketmq cannot be started: {error}") from error

    def _check_topic(self, message: Message, topic: str) -> None:
        if message.topic not in (None, topic):
            raise LocalError(f"the message is for topic {message.topic!r}, but is sent to {topic!r}")

    def _check_open(self) -> None:
        if self._is_closed:
            raise LocalError("this producer is closed")
        if self._pid != os.getpid():
            raise LocalError(
                f"backend 'librocketmq': this producer belongs to process {self._pid}, and cannot be used in its fork"
            )


def _prepare(message: Message, message_id: str) -> Prepared:
    """Encode a message. Raises `LocalError` for one that no broker accepts, or that the library would change."""
    body = message.body
    if not isinstance(body, bytes):
        raise LocalError(f"message body must be bytes, not {type(body).__name__}")
    if not body:
        raise LocalError("message body is empty; a broker fails on an empty single send")
    if len(body) > MAX_MESSAGE_BYTES:
        raise LocalError(f"message body has {len(body)} bytes; the broker's maximum is {MAX_MESSAGE_BYTES}")
    encoded = encode_properties(message, message_id=message_id)
    if b"\0" in encoded:
        raise LocalError("a message property contains the character 0, at which backend 'librocketmq' would cut it")
    properties: list[tuple[bytes, bytes]] = []
    for item in encoded.split(b"\x02")[:-1]:
        name, _, value = item.partition(b"\x01")
        properties.append((name, value))
    return body, [*properties, (_ID, message_id.encode())], message_id


_open: weakref.WeakSet[LibrocketmqProducer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all producers: a process whose library still runs would hang at its end."""
    for producer in list(_open):
        producer.close()
