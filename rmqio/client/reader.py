"""Pipelined reading of one queue: runs the plan of `read_ahead` on a connection, with timeouts and retries."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from rmqio.client.connection import Connection, ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.offset_queries import ReplicaBehind
from rmqio.client.read_ahead import ReadAhead
from rmqio.client.retry import RetryState
from rmqio.client.routes import Routes
from rmqio.client.session import Call, Session
from rmqio.errors import (
    CorruptMessage,
    InvalidParameter,
    LocalError,
    OffsetOutOfRange,
    RequestTimeout,
    RmqioError,
    TopicNotExist,
    TransportError,
)
from rmqio.interfaces import FetchedBatch
from rmqio.model import MessageFilter, MessageQueue, PullResult, PullStatus, Record
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import ResponseCode
from rmqio.wire.stored import MAX_PULL_BYTES
from rmqio.wire.templates import PullTemplate

# How a reader reaches its broker.

_REST_S: Final = 30.0
"""The time after a replica's failure in which it is not read even if its master suggests it."""


class Link(Protocol):
    """A reader's connection to its broker. Nothing here blocks."""

    is_replica: bool
    """Whether the connection returned last leads to a replica."""

    def connection(self) -> Connection:
        """Return the connection to the queue's broker by the held route. Raises `TransportError` without one."""
        ...

    def refresh(self) -> None:
        """Begin or continue to refresh the route."""
        ...

    def suggest(self, broker_id: int) -> None:
        """Set the broker for the next pulls, as suggested by the last answer: 0 is the master."""
        ...

    def distrust(self) -> bool:
        """Return to the master because the suggested broker failed. False: none was suggested, so nothing changed."""
        ...


class RouteLink:
    """Follows a client's routes over the connections of its pool.

    A master that would have to read old messages from disk suggests a replica, as in Java's clients
    (PullAPIWrapper.java). While the route has no master, a replica is read whatever is suggested.
    """

    def __init__(
        self,
        queue: MessageQueue,
        pool: ConnectionPool,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue, self._pool, self._routes, self._clock = queue, pool, routes, clock
        self.is_replica = False
        self._wanted_id = 0
        self._rests_until = float("-inf")

    def connection(self) -> Connection:
        address, broker_id = self._routes.held_broker(*self._queue, wanted_id=self._wanted_id)
        self.is_replica = broker_id != 0
        if self.is_replica:
            self._routes.refresh_if_old(self._queue.topic)  # its master may be back, and no failure would reveal it
        return self._pool.connection(address)

    def suggest(self, broker_id: int) -> None:
        if broker_id == 0 or self._clock() >= self._rests_until:
            self._wanted_id = broker_id

    def distrust(self) -> bool:
        if self._wanted_id == 0:
            return False
        self._wanted_id = 0
        self._rests_until = self._clock() + _REST_S
        return True

    def refresh(self) -> None:
        self._routes.refresh_soon(self._queue.topic)


# Turns the answers to pulls into the batches that a reader returns.


class PullGroupReset(TransportError):
    """Somebody reset our pull group, which is not the user's. The broker has consumed the reset: pull again."""


@dataclass(frozen=True, slots=True)
class ReadQueue:
    """The queue being read: its user's name, its broker's name, and its filter."""

    queue: MessageQueue
    wire_queue: MessageQueue
    message_filter: MessageFilter
    tags: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", self.message_filter.tag_set)


def fetch(plan: ReadAhead[Call], what: ReadQueue, most: int) -> tuple[FetchedBatch, int] | None:
    """Decode up to `most` answers from the plan's position and advance it; None when the first has not arrived.

    Also returns the id of the broker that the last answer suggests for the next pulls.

    Stops earlier once the decompressed bodies reach the limit of one pull.

    Raises `OffsetOutOfRange`, `PullGroupReset`, `BrokerError`, `WireError`, `CorruptMessage` for lost framing, and
    `TransportError` for a call that failed; the position is then unchanged. Messages before such an answer are returned
    first: the next call raises.
    """
    records: list[Record] = []
    corrupt: tuple[CorruptMessage, ...] = ()
    answers = skipped = max_offset = decompressed_bytes = suggested = 0
    latency_ms = 0.0
    while answers < most and decompressed_bytes < MAX_PULL_BYTES:
        head = plan.head
        if head is None or head.call is None or not head.call.is_done:
            break
        try:
            result, body_bytes = _found(head.call, plan.position, what)
            taken = plan.take(result, body_bytes)
        except RmqioError:
            if answers:
                break
            raise
        if answers:
            records += taken.records
        else:
            records = taken.records
            latency_ms = head.call.age_ms  # the oldest call's age: one clock reading for all
        for call in taken.given_up:
            call.forget()
        corrupt += taken.corrupt
        skipped += taken.skipped
        max_offset, suggested = result.max_offset, result.suggested_broker_id
        decompressed_bytes += result.decompressed_bytes
        answers += 1
    if not answers:
        return None
    fetched = FetchedBatch(
        _as_the_user_sees(records, corrupt, what), corrupt, plan.position, max_offset, skipped, round(latency_ms, 3)
    )
    return fetched, suggested


def _found(call: Call, position: int, what: ReadQueue) -> tuple[PullResult, int]:
    answer = call.result(0)
    try:
        result = requests.parse_pull(answer, what.wire_queue, position)
    except CorruptMessage as error:
        error.topic = what.queue.topic
        raise
    if result.status is PullStatus.OFFSET_ILLEGAL:
        if result.remark == "OFFSET_RESET":
            raise PullGroupReset(f"{what.queue}: the pull group (ClientOptions.pull_group) was reset")
        raise OffsetOutOfRange(what.queue, position, result.min_offset, result.max_offset)
    return result, len(answer.body)


def _as_the_user_sees(records: list[Record], corrupt: tuple[CorruptMessage, ...], what: ReadQueue) -> list[Record]:
    tags, topic = what.tags, what.queue.topic
    if tags:
        # The broker compares hashes of tags, and different tags can share one ("Aa" and "BB").
        records = [record for record in records if record.tags in tags]
    if what.wire_queue is not what.queue:
        records = [record._replace(topic=topic) for record in records]
        for bad in corrupt:
            bad.topic = topic
    return records


_LOGGER = logging.getLogger("rmqio.client")

ANSWERS_PER_POLL = 16
"""Maximum number of answers that one `poll` decodes."""
_ANSWER_BYTES = 256 * 1024
_BROKER_PATIENCE_MS = 5_000
"""How long a broker lets a pull wait for a thread before refusing it as busy."""
_LONG_POLL_GRACE_MS = 10_000
"""A broker checks for expired long polls every 5 s."""
_TICK_MS = 1.0
"""An event due within this time counts as due: poll(2) waits for whole milliseconds."""

_TELLING = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


_UNKNOWN_YET = (TopicNotExist, InvalidParameter, OffsetOutOfRange)
"""A replica's errors for topics, queues and offsets that it has not received from its master yet."""


class PipelinedReader:
    """Implements `interfaces.QueueReader`. Belongs to one thread.

    Transient failures are retried for `options.outage_timeout_ms` without blocking: until then, `poll` returns None.
    After it raises an error, the reader keeps its position, and the next `poll` tries again.

    Args:
      what: the queue.
      offset: the first offset to read.
      group: the group to pull under, as the broker names it.
    """

    def __init__(
        self,
        what: ReadQueue,
        offset: int,
        *,
        group: str,
        link: Link,
        options: ClientOptions,
        environment: Environment,
        on_close: Callable[[PipelinedReader], None] | None = None,
    ) -> None:
        self._what = what
        self._queue = what.queue
        self._group = group
        self._link = link
        self._options = options
        self._environment = environment
        self._on_close = on_close
        self._plan: ReadAhead[Call] = ReadAhead(
            offset,
            depth=options.pull_depth,
            batch=options.pull_batch,
            is_filtered=not what.message_filter.is_all,
            max_bytes=options.pull_depth * _ANSWER_BYTES,
        )
        self._template: PullTemplate | None = None
        self._session: Session | None = None
        self._error: RmqioError | None = None
        self._asks_replica = False
        """Whether a pull in flight may have gone to a replica."""
        self._outage = RetryState(options, environment)
        self._is_closed = False
        self.answered_at: float | None = None
        """The Unix time of the broker's last answer."""

    def __repr__(self) -> str:
        state = (
            "closed"
            if self._is_closed
            else "failing"
            if self._outage.failures
            else "at end"
            if self.is_at_end
            else "reading"
        )
        return f"<PipelinedReader {self._queue} {state} at {self.position}, in flight {len(self._plan.segments)}>"

    @property
    def queue(self) -> MessageQueue:
        return self._queue

    @property
    def position(self) -> int:
        return self._plan.position

    def is_ready(self) -> bool:
        if self._is_closed:
            return False
        self.tick()
        return self._error is not None or self.has_answer

    @property
    def has_answer(self) -> bool:
        """Whether the pull at `position` is answered or has failed; the answer can turn out to be empty."""
        head = self._plan.head
        return head is not None and head.call is not None and head.call.is_done

    @property
    def is_backing_off(self) -> bool:
        """Whether it waits for its next retry and not for the network."""
        return self._outage.is_pausing

    @property
    def retries(self) -> int:
        """Failures so far that were followed by new pulls."""
        return self._outage.retries

    @property
    def is_at_end(self) -> bool:
        head = self._plan.head
        return head is not None and head.is_long_poll and head.call is not None and not head.call.is_done

    @property
    def session(self) -> Session | None:
        """The socket from which the first answer is expected; None if there is none."""
        head = self._plan.head
        if head is not None and head.call is not None:
            return head.call.session
        return self._session

    def due_in_ms(self) -> float:
        """Return the time until `tick` has work to do without input from the network."""
        if self._outage.is_pausing:
            return self._outage.pause_left_ms
        head = self._plan.head
        if head is None or head.call is None:
            return self._options.connect_timeout_ms
        return max(self._timeout_ms(head.is_long_poll) - head.call.age_ms, 0)

    def poll(self) -> FetchedBatch | None:
        if self._is_closed:
            raise LocalError(f"the reader of {self._queue} is closed")
        if not self.has_answer:
            session = self.session
            if session is not None and session.is_connected:
                session.pump(0)
        if not self.is_ready():
            return None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        fetched = self._take_answers()
        self.tick()
        return fetched

    def seek(self, offset: int) -> None:
        self._drop(offset)
        self._error = None
        self._outage.try_now()
        if not self._is_closed:
            self.tick()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._drop(self.position)
        if self._on_close is not None:
            self._on_close(self)

    # ---- sending ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send due requests, detect failures and timeouts, and retry when due. Never blocks or raises."""
        if self._error is not None or self._is_closed:
            return
        if self._outage.is_pausing:
            if self._outage.pause_left_ms >= _TICK_MS:
                return
            self._outage.try_now()
            self._link.refresh()
        head = self._plan.head
        if head is not None and head.call is not None:
            if head.call.is_done:
                self._look_at(head.call)
            elif self.due_in_ms() < _TICK_MS:
                self._time_out(head.call, self._timeout_ms(head.is_long_poll))
        if self._error is None and not self._outage.is_pausing:
            self._send()

    def _send(self) -> None:
        segments = self._plan.plan()
        if not segments:
            return
        if any(segment.is_long_poll for segment in segments):
            self._link.suggest(0)  # at the end of a replica that lags behind, the master may have more
        try:
            connection = self._link.connection()
            self._asks_replica |= self._link.is_replica
            is_usable = connection.begin()
            self._session = connection.session
            if not is_usable:
                return
            calls = connection.start_pulls(
                self._pull_template(),
                [(segment.begin, segment.max_messages, segment.is_long_poll) for segment in segments],
            )
        except RmqioError as error:
            if self._fail(error):
                self._send()
            return
        for segment, call in zip(segments, calls, strict=True):
            segment.call = call

    def _pull_template(self) -> PullTemplate:
        if self._template is None:
            self._template = PullTemplate(
                self._group,
                self._what.wire_queue,
                message_filter=self._what.message_filter,
                suspend_ms=self._options.long_poll_ms,
            )
        return self._template

    def _timeout_ms(self, is_long_poll: bool) -> int:
        if is_long_poll:
            return self._options.long_poll_ms + _LONG_POLL_GRACE_MS
        return self._options.request_timeout_ms + _BROKER_PATIENCE_MS

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _look_at(self, call: Call) -> None:
        """Handle an answer without data for the caller: a failure, or the end of a long poll."""
        try:
            answer = call.result(0)
            if answer.code == ResponseCode.PULL_NOT_FOUND or answer.code not in _TELLING:
                result = requests.parse_pull(answer, self._what.wire_queue, self.position)
                if result.next_offset <= self.position:
                    self._plan.take(result, 0)
                    self._link.suggest(result.suggested_broker_id)
                    self._succeed()
        except RmqioError as error:
            self._fail(error)

    def _take_answers(self) -> FetchedBatch | None:
        """Decode the answers in order, up to the first that is missing or a failure."""
        try:
            found = fetch(self._plan, self._what, ANSWERS_PER_POLL)
        except RmqioError as error:
            self._fail(error)
            if self._error is not None:
                failure, self._error = self._error, None
                raise failure from failure.__cause__
            return None
        if found is None:
            return None
        fetched, suggested = found
        self._link.suggest(suggested)
        self._succeed()
        return fetched

    def _succeed(self) -> None:
        self._outage.succeed()
        self.answered_at = self._environment.wall_clock()

    # ---- failures ---------------------------------------------------------------------------------------------------

    def _time_out(self, call: Call, timeout_ms: float) -> None:
        while not call.is_done and call.session.pump(0):
            pass  # the answer may have arrived unread, because this reader was not polled for a while
        if call.is_done:
            return
        call.session.time_out(call, timeout_ms)
        self._fail(RequestTimeout(f"pull of {self._queue} at {self.position}: no answer within {timeout_ms:.0f} ms"))

    def _fail(self, error: RmqioError) -> bool:
        """Give up the pulls in flight; plan a retry, or keep the error for `poll`. True: query the master at once.

        That is when a replica suggested by the master failed: it is unavailable, lags behind, or refuses.
        """
        if self._asks_replica and self._link.distrust():
            _LOGGER.info("%s: switching from a replica back to its master: %s", self._queue, error)
            self._drop(self.position)
            return True
        if self._asks_replica and isinstance(error, _UNKNOWN_YET):
            behind = ReplicaBehind(f"the master is unavailable, and its replica may lag behind: {error}")
            behind.__cause__ = error
            error = behind
        self._drop(self.position)
        if self._outage.fail(error):
            if self._outage.failures == 1:
                _LOGGER.info("%s: retrying: %s", self._queue, error)
        else:
            self._error = error
        return False

    def _drop(self, position: int) -> None:
        self._asks_replica = False
        for segment in self._plan.restart(position):
            if segment.call is not None:
                segment.call.forget()
