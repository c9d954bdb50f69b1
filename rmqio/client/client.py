"""The queue client over sockets; implements `interfaces.QueueClient`."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from rmqio.client.breaker import Breaker
from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment, client_id
from rmqio.client.exchange import Waiter
from rmqio.client.offset_queries import (
    check_commit,
    check_replica,
    check_topic_at_replica,
    get_topic_config,
    has_to_know_topic,
    no_such_queue,
    offset_command,
    parse_answer,
    register_group,
    unknown_broker,
    what_is_asked,
)
from rmqio.client.offsets import GroupAt, Look
from rmqio.client.reader import PipelinedReader, ReadQueue, RouteLink
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
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
from rmqio.interfaces import OffsetQuery, QueueReader
from rmqio.model import MessageFilter, MessageQueue
from rmqio.options import ClientOptions
from rmqio.topics import users_topics
from rmqio.wire import requests
from rmqio.wire.command import Command


class RemotingQueueClient:
    """Reads queues by offset over the remoting protocol. Thread-safe; a reader belongs to one thread.

    Nothing is sent before the first use. After a fork, the child opens its own connections. To pickle a client, pickle
    a `RemotingClientFactory` instead.
    """

    def __init__(self, options: ClientOptions, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = environment or Environment()
        self._pool = ConnectionPool(options, self._environment)
        self._breaker = Breaker(options, self._pool, self._environment)
        self._routes = Routes(options, self._pool, self._environment, self._breaker)
        self._topics: Sequence[str] | None = None
        self._waiter = Waiter(self._environment)
        # No lock: another thread could hold it during a fork. Every operation on this table is atomic.
        self._readers: weakref.WeakValueDictionary[int, PipelinedReader] = weakref.WeakValueDictionary()
        self._checked_filters: set[tuple[str, str]] = set()
        self._known_groups: set[GroupAt] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RemotingQueueClient {'closed' if self._is_closed else 'open'}, {self._routes!r}, {self._pool!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client holds sockets and cannot be pickled: pass a RemotingClientFactory instead")

    # ---- topics -----------------------------------------------------------------------------------------------------

    def queues(self, topic: str, *, refresh: bool = False) -> Sequence[MessageQueue]:
        return self._routes.route(topic, refresh=refresh).readable()

    def topics(self) -> Sequence[str]:
        """As `QueueClient.topics`; the last list, however old, when no name server can be reached.

        One of many looks does not wait for name servers that do not answer: after one timeout, it asks them again when
        they have answered a probe.
        """

        def ask() -> list[str]:
            command, spares_time = requests.get_topic_list(), self._topics is not None
            topics = requests.parse_topic_list(self._routes.ask(command, "list of topics", spares_time=spares_time))
            brokers = requests.parse_cluster_info(
                self._routes.ask(requests.get_cluster_info(), "cluster info", spares_time=spares_time)
            )
            return users_topics(self._routes.users_names(topics), brokers)

        if self._topics is None:
            self._topics = call_with_retries(ask, self._options, self._environment)
            return self._topics
        with suppress(TransportError):
            self._topics = ask()
        return self._topics

    # ---- offsets ----------------------------------------------------------------------------------------------------

    def min_offset(self, queue: MessageQueue) -> int:
        """As `QueueClient.min_offset`; from a replica while there is no master."""
        return self._offset(OffsetQuery(queue, "min")) or 0

    def max_offset(self, queue: MessageQueue, *, at_least: int = 0) -> int:
        """As `QueueClient.max_offset`; from a replica while there is no master.

        A replica can lag behind, so its end can be smaller than one seen before. A caller that holds a position must
        not move back: keep the larger offset, and continue reading once the end has passed it.
        """
        return self._offset(OffsetQuery(queue, "max", at_least=at_least)) or 0

    def offset_for_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """As `QueueClient.offset_for_time`; without a master from a replica: at most its end, see `max_offset`."""
        return self._offset(OffsetQuery(queue, "time", timestamp_ms)) or 0

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """As `QueueClient.committed_offset`; from a replica while there is no master.

        A replica's offset is up to 10 s old, so messages can be read again. A replica that knows no offset raises
        `TransportError`, because it may not have received it yet.
        """
        return self._offset(OffsetQuery(queue, "committed", group=group))

    def _offset(self, query: OffsetQuery) -> int | None:
        queue = query.queue
        self._require(queue)
        answer, is_replica = self._ask(
            queue, offset_command(query, self._routes), what_is_asked(query), or_replica=True
        )
        offset = parse_answer(query, answer)
        if is_replica:
            check_replica(query, offset)
            if has_to_know_topic(query, offset):
                config = self._pool.connection(self._routes.asked(queue)[0]).request(
                    get_topic_config(queue, self._routes), self._options.request_timeout_ms
                )
                check_topic_at_replica(config, queue)
        # Deleted since we last saw the route? That also looks like an empty queue.
        if offset == 0 and query.kind in ("max", "time"):
            route = self._routes.route(queue.topic, refresh=True)
            if queue not in route.readable():
                raise no_such_queue(queue, route)
        return offset

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """As `QueueClient.commit_offset`. Raises `CommitIgnored` while an operator's reset is pending.

        A group that the broker does not know is registered first. A negative offset is refused here: the broker would
        accept it and then report that the group has no offset.
        """
        check_commit(group, queue, offset)
        self._require(queue)
        wire_group, wire_queue = self._routes.wire_name(group), self._routes.wire_queue(queue)
        command = requests.commit_group_offset(wire_group, wire_queue, offset)
        what = f"commit of offset {offset} of {queue} for group {group!r}"
        answer, _ = self._ask(queue, command, what)
        if answer.code == SubscriptionGroupNotExist.number:
            self._register_group(wire_group, queue)
            answer, _ = self._ask(queue, command, what)
        requests.expect_success(answer, what)
        if requests.is_ignored_commit(answer):
            raise CommitIgnored(group, queue, offset)

    def look_up(
        self, queries: Sequence[OffsetQuery], *, timeout_ms: int | None = None
    ) -> Sequence[int | RmqioError | None]:
        """As `QueueClient.look_up`; the answers, replicas' included, are those of the methods for single queues."""
        return self._look(timeout_ms).answers(queries)

    def commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int], *, timeout_ms: int | None = None
    ) -> Mapping[MessageQueue, RmqioError]:
        """As `QueueClient.commit_offsets`. The outcome of a commit that was not answered in time is unknown."""
        return self._look(timeout_ms).commit(group, offsets)

    def _look(self, timeout_ms: int | None) -> Look:
        limit = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        if limit <= 0:
            raise LocalError(f"timeout_ms must be more than 0, not {timeout_ms}")
        return Look(
            self._options,
            self._pool,
            self._routes,
            self._breaker,
            self._waiter,
            self._environment,
            timeout_ms=limit,
            known_groups=self._known_groups,
        )

    def take_reset(self, group: str, queue: MessageQueue) -> int | None:
        self._require(queue)
        wire_group, wire_queue = self._routes.wire_name(group), self._routes.wire_queue(queue)
        # The group's own offset: a pending reset is returned whatever offset is requested.
        offset = self.committed_offset(group, queue) or 0
        command = requests.pull(wire_group, wire_queue, offset, max_messages=1, message_filter=MessageFilter())
        answer, _ = self._ask(queue, command, f"reset of group {group!r}")
        return requests.parse_reset(answer)

    def _register_group(self, group: str, queue: MessageQueue) -> None:
        with suppress(NotLeaderForQueue):  # a static topic has no such queue either, and reports it with another error
            command = register_group(group, self._routes.wire_queue(queue))
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
            link=RouteLink(queue, self._pool, self._routes, self._environment.clock),
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
        self._breaker.clear()

    def _forget_reader(self, reader: PipelinedReader) -> None:
        self._readers.pop(id(reader), None)

    def _check_filter(self, queue: MessageQueue, message_filter: MessageFilter) -> None:
        """Have the broker compile an SQL92 filter: a pull with a filter that does not compile delivers everything."""
        key = (queue.broker, message_filter.expression)
        if key in self._checked_filters:
            return
        group = self._routes.wire_name(self._options.pull_group)
        command = requests.check_filter(
            client_id(self._options, self), group, self._routes.wire_name(queue.topic), message_filter
        )
        what = f"filter {message_filter.expression!r} at broker {queue.broker!r}"
        answer, _ = self._ask(queue, command, what, or_replica=True)
        requests.expect_success(answer, what)
        self._checked_filters.add(key)

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _require(self, queue: MessageQueue) -> None:
        # For a topic or queue that it does not have, a broker answers offset 0 with success.
        if self._is_closed:
            raise LocalError("the client is closed")
        missing = self._missing(queue)
        if missing is not None:
            self._require_broker(queue, missing)
            missing = self._missing(queue)  # its broker may have restarted between the two questions
        if missing is not None:
            raise missing

    def _missing(self, queue: MessageQueue) -> RmqioError | None:
        """Return the error that a missing queue deserves, None for a queue that a route names."""
        try:
            for refresh in (False, True):
                route = self._routes.route(queue.topic, refresh=refresh)
                if queue in route.readable():
                    return None
        except TopicNotExist as error:
            return error
        return no_such_queue(queue, route)

    def _require_broker(self, queue: MessageQueue, missing: RmqioError) -> None:
        """Raise `TransportError` for a queue whose broker is missing; anything else missing is then a consequence."""
        brokers = requests.parse_cluster_info(self._routes.ask(requests.get_cluster_info(), "cluster info"))
        if all(broker.broker != queue.broker for broker in brokers):
            raise unknown_broker(queue) from missing

    def _ask(
        self, queue: MessageQueue, command: Command, what: str, *, or_replica: bool = False
    ) -> tuple[Command, bool]:
        """Return the broker's answer, whatever its code unless it can be retried, and whether a replica gave it."""

        def locate() -> tuple[str, bool]:
            return self._routes.asked(queue) if or_replica else (self._routes.master(*queue), False)

        def attempt() -> tuple[Command, bool]:
            try:
                address, is_replica = locate()
            except TopicNotExist as unknown:  # `_require` found the topic: was it forgotten between two tries?
                self._require_broker(queue, unknown)
                address, is_replica = locate()  # its broker may have restarted between the two questions
            answer = self._pool.connection(address).request(command, self._options.request_timeout_ms)
            self._breaker.heard(address)
            if answer.code:
                error = broker_error(answer.code, answer.remark, f"{what} of {queue}")
                if error.retriable or error.stale_route:
                    raise error
            return answer, is_replica

        return call_with_retries(
            attempt,
            self._options,
            self._environment,
            on_stale_route=lambda: self._routes.invalidate(queue.topic),
        )
