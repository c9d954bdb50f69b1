"""The queue client over sockets: implements `seams.QueueClient`."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from rmqio.client.answers import ReadQueue
from rmqio.client.environment import Environment
from rmqio.client.link import RouteLink
from rmqio.client.pool import ConnectionPool
from rmqio.client.reader import PipelinedReader
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.client.system_topics import users_topics
from rmqio.client.waiting import Waiter
from rmqio.errors import (
    CommitIgnored,
    LocalError,
    NotLeaderForQueue,
    RmqioError,
    SubscriptionGroupNotExist,
    TopicNotExist,
    TransportError,
    broker_error,
)
from rmqio.model import MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.seams import QueueReader
from rmqio.wire import requests
from rmqio.wire.command import Command


class RemotingQueueClient:
    """Reads queues by offset over the remoting protocol. Thread-safe; a reader belongs to one thread.

    Nothing is sent before the first use. After a fork the child connects anew; to pickle it, pickle a
    `RemotingClientFactory`.
    """

    def __init__(self, options: ClientOptions, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = environment or Environment()
        self._pool = ConnectionPool(options, self._environment)
        self._routes = Routes(options, self._pool, self._environment)
        self._waiter = Waiter(self._environment)
        # No lock: another thread could hold it at a fork, and every step on this table is atomic.
        self._readers: weakref.WeakValueDictionary[int, PipelinedReader] = weakref.WeakValueDictionary()
        self._checked_filters: set[tuple[str, str]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RemotingQueueClient {'closed' if self._is_closed else 'open'}, {self._routes!r}, {self._pool!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client holds sockets and does not pickle: pass a RemotingClientFactory and make it there")

    # ---- topics -----------------------------------------------------------------------------------------------------

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        return self._routes.route(topic).readable()

    def topics(self) -> Sequence[str]:
        def ask() -> list[str]:
            topics = requests.parse_topic_list(self._routes.ask(requests.get_topic_list(), "list of topics"))
            brokers = requests.parse_cluster_info(self._routes.ask(requests.get_cluster_info(), "cluster info"))
            return users_topics(self._routes.users_names(topics), brokers)

        return call_with_retries(ask, self._options, self._environment)

    # ---- offsets ----------------------------------------------------------------------------------------------------

    def min_offset(self, queue: MessageQueue) -> int:
        self._require(queue)
        answer = self._ask(queue, requests.get_min_offset(self._routes.wire_queue(queue)), "minimum offset")
        return requests.parse_offset(answer, f"minimum offset of {queue}")

    def max_offset(self, queue: MessageQueue) -> int:
        self._require(queue)
        answer = self._ask(queue, requests.get_max_offset(self._routes.wire_queue(queue)), "maximum offset")
        return self._checked_zero(queue, requests.parse_offset(answer, f"maximum offset of {queue}"))

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        self._require(queue)
        command = requests.search_offset(self._routes.wire_queue(queue), timestamp_ms)
        answer = self._ask(queue, command, "offset by time")
        return self._checked_zero(queue, requests.parse_offset(answer, f"offset of {queue} at {timestamp_ms} ms"))

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        self._require(queue)
        command = requests.query_group_offset(self._routes.wire_name(group), self._routes.wire_queue(queue))
        return requests.parse_group_offset(self._ask(queue, command, f"offset of group {group!r}"), group)

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """As `QueueClient.commit_offset`. Raises `CommitIgnored` while an operator's reset is pending.

        A group that the broker does not know yet is made known first. A negative offset is refused here: the broker
        would take it and then say that the group has none.
        """
        if offset < 0:
            raise LocalError(f"{queue}: cannot commit the negative offset {offset} for group {group!r}")
        self._require(queue)
        wire_group, wire_queue = self._routes.wire_name(group), self._routes.wire_queue(queue)
        command = requests.commit_group_offset(wire_group, wire_queue, offset)
        what = f"commit of offset {offset} of {queue} for group {group!r}"
        answer = self._ask(queue, command, what)
        if answer.code == SubscriptionGroupNotExist.number:
            self._register_group(wire_group, queue)
            answer = self._ask(queue, command, what)
        requests.expect_success(answer, what)
        if requests.is_ignored_commit(answer):
            raise CommitIgnored(group, queue, offset)

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        self._require(queue)
        wire_group, wire_queue = self._routes.wire_name(group), self._routes.wire_queue(queue)
        # Where the group stands: a reset is handed out whatever the offset asked for.
        offset = self.committed_offset(group, queue) or 0
        command = requests.pull(wire_group, wire_queue, offset, max_messages=1, message_filter=MessageFilter())
        answer = self._ask(queue, command, f"reset of group {group!r}")
        return requests.parse_reset(answer)

    def _register_group(self, group: str, queue: MessageQueue) -> None:
        """Make a broker know a group, which it does when somebody pulls under it.

        A real pull would swallow an operator's pending reset, so this one asks for a queue that cannot be: the broker
        registers the group (where it may), then refuses the queue (29), and only after that would look for a reset.
        """
        nowhere = self._routes.wire_queue(queue)._replace(queue_id=-1)
        command = requests.pull(group, nowhere, 0, max_messages=1, message_filter=MessageFilter())
        with suppress(NotLeaderForQueue):  # a static topic has no such queue either, and says it in other words
            self._ask(queue, command, f"registration of group {group!r}")

    # ---- reading ----------------------------------------------------------------------------------------------------

    def open_reader(self, queue: MessageQueue, offset: int, *, message_filter: MessageFilter) -> PipelinedReader:
        """As `QueueClient.open_reader`. Raises `SubscriptionParseFailed` for an SQL92 filter that does not compile."""
        self._require(queue)
        if message_filter.sql:
            self._check_filter(queue, message_filter)
        reader = PipelinedReader(
            ReadQueue(queue, self._routes.wire_queue(queue), message_filter),
            offset,
            group=self._routes.wire_name(self._options.pull_group),
            link=RouteLink(queue, self._pool, self._routes),
            options=self._options,
            environment=self._environment,
            on_close=self._forget_reader,
        )
        self._readers[id(reader)] = reader
        reader.tick()
        return reader

    def wait(self, readers: Iterable[QueueReader], timeout_ms: int) -> bool:
        ours = []
        for reader in readers:
            if not isinstance(reader, PipelinedReader):
                raise LocalError(f"{reader!r} is not a reader of this client")
            ours.append(reader)
        return self._waiter.wait(ours, timeout_ms)

    def close(self) -> None:
        self._is_closed = True
        for reference in self._readers.valuerefs():
            reader = reference()
            if reader is not None:
                reader.close()
        self._pool.close()

    def _forget_reader(self, reader: PipelinedReader) -> None:
        self._readers.pop(id(reader), None)

    def _check_filter(self, queue: MessageQueue, message_filter: MessageFilter) -> None:
        """Have the broker compile an SQL92 filter: a pull with one that does not compile delivers everything."""
        key = (queue.broker, message_filter.expression)
        if key in self._checked_filters:
            return
        group = self._routes.wire_name(self._options.pull_group)
        command = requests.check_filter("rmqio", group, self._routes.wire_name(queue.topic), message_filter)
        what = f"filter {message_filter.expression!r} at broker {queue.broker!r}"
        requests.expect_success(self._ask(queue, command, what), what)
        self._checked_filters.add(key)

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _require(self, queue: MessageQueue) -> None:
        # Asked for a topic or queue that it does not have, a broker answers offset 0 with success.
        if self._is_closed:
            raise LocalError("the client is closed")
        known: Sequence[MessageQueue] = ()
        missing: RmqioError | None = None
        try:
            for refresh in (False, True):
                known = self._routes.route(queue.topic, refresh=refresh).readable()
                if queue in known:
                    return
        except TopicNotExist as error:
            missing = error
        self._require_broker(queue, missing)
        raise missing or _no_such_queue(queue, known)

    def _require_broker(self, queue: MessageQueue, missing: RmqioError | None) -> None:
        """Raises `TransportError` for a queue whose broker is not there; what was missing is then a consequence."""
        brokers = requests.parse_cluster_info(self._routes.ask(requests.get_cluster_info(), "cluster info"))
        if all(broker.broker != queue.broker for broker in brokers):
            # A name server forgets a broker that went down, and with it the topics that only this one has.
            raise TransportError(f"{queue}: no name server knows broker {queue.broker!r}; is it down?") from missing

    def _checked_zero(self, queue: MessageQueue, offset: int) -> int:
        # Deleted since we last saw the route? That, too, looks like an empty queue.
        if offset == 0 and queue not in self._routes.route(queue.topic, refresh=True).readable():
            raise _no_such_queue(queue, self._routes.route(queue.topic).readable())
        return offset

    def _ask(self, queue: MessageQueue, command: Command, what: str) -> Command:
        """The broker's answer, whatever its code unless that is worth a retry."""

        def attempt() -> Command:
            try:
                address = self._routes.master(*queue)
            except TopicNotExist as unknown:  # it was there in `_require`: forgotten between two tries?
                self._require_broker(queue, unknown)
                raise
            answer = self._pool.connection(address).request(command, self._options.request_timeout_ms)
            if answer.code:
                error = broker_error(answer.code, answer.remark, f"{what} of {queue}")
                if error.retriable or error.stale_route:
                    raise error
            return answer

        return call_with_retries(
            attempt,
            self._options,
            self._environment,
            on_stale_route=lambda: self._routes.invalidate(queue.topic),
        )


def _no_such_queue(queue: MessageQueue, known: Sequence[MessageQueue]) -> LocalError:
    ids = sorted(other.queue_id for other in known if other.broker == queue.broker)
    there = (
        f"broker {queue.broker!r} serves queues {ids[0]} to {ids[-1]} of it" if ids else "its broker serves none of it"
    )
    return LocalError(f"{queue} does not exist: {there} (topic {queue.topic!r})")
