"""Queries and commits for many queues at once: implements `QueueClient.look_up` and `commit_offsets`.

They behave as the methods for single queues, except that all share one deadline and silent servers are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rmqio.client.breaker import Breaker
from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.exchange import Crew, Exchange, NotConnected, Pause, Steps, Task, Waiter
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
from rmqio.client.retry import backoff_ms
from rmqio.client.routes import Routes, with_advice
from rmqio.errors import (
    BrokerSilent,
    BrokerSystemError,
    CommitIgnored,
    NotLeaderForQueue,
    RequestTimeout,
    RmqioError,
    SubscriptionGroupNotExist,
    TopicNotExist,
    TransportError,
    broker_error,
)
from rmqio.interfaces import OffsetQuery
from rmqio.model import MessageQueue, TopicRoute
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command

GroupAt = tuple[str, str, str]
"""A group, a topic, and a broker that has queues of it."""
_MAX_CONFIRMATIONS: Final = 3


class Look:
    """One look at many queues. Belongs to one thread and is used once.

    Args:
      timeout_ms: for the whole look.
      known_groups: where groups have offsets; a commit adds to it.
    """

    def __init__(
        self,
        options: ClientOptions,
        pool: ConnectionPool,
        routes: Routes,
        breaker: Breaker,
        waiter: Waiter,
        environment: Environment,
        timeout_ms: float,
        known_groups: set[GroupAt],
    ) -> None:
        self._options, self._routes, self._breaker, self._environment = options, routes, breaker, environment
        self._known_groups = known_groups
        self._began = environment.clock()
        deadline = self._began + timeout_ms / 1000
        self._exchange = Exchange(options, pool, breaker, waiter, environment, deadline=deadline)
        self._crew = Crew(self._exchange, environment)
        self._refusals: dict[str, BrokerSilent | None] = {}
        self._lookups: dict[str, Task[TopicRoute]] = {}
        self._brokers: Task[frozenset[str]] | None = None
        self._brokers_at = 0.0
        """When the name servers had answered which brokers there are."""
        self._known: dict[str, tuple[TopicRoute, frozenset[MessageQueue]]] = {}
        self._registrations: dict[tuple[str, str], Task[None]] = {}

    def answers(self, queries: Sequence[OffsetQuery]) -> list[int | RmqioError | None]:
        """Return the answers in the order of the queries."""
        tasks = [self._crew.begin(self._offset(query)) for query in queries]
        self._crew.run(tasks)
        return [task.outcome() for task in tasks]

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, RmqioError]:
        """Commit the offsets and return the failures."""
        parts: dict[GroupAt, dict[MessageQueue, int]] = {}
        for queue, offset in offsets.items():
            parts.setdefault((group, queue.topic, self._routes.owner_of(queue)), {})[queue] = offset
        outcomes: dict[MessageQueue, RmqioError | None] = {}
        tasks = [self._crew.begin(self._commit_at(place, part, outcomes)) for place, part in parts.items()]
        self._crew.run(tasks)
        for task in tasks:
            task.result()
        return {queue: error for queue in offsets if (error := outcomes[queue]) is not None}

    def _commit_at(
        self, place: GroupAt, offsets: Mapping[MessageQueue, int], outcomes: dict[MessageQueue, RmqioError | None]
    ) -> Steps[None]:
        """Commit the offsets of a topic on one broker. The group's first offsets there need care.

        A broker keeps a group's offsets of a topic in one table. If it processes the first two commits at the same
        time, each makes a table, one replaces the other, and both commits are acknowledged
        (https://github.com/apache/rocketmq/issues/10700). So the first commit goes alone, and all are looked up after
        it: another process may have committed its first offset at the same time.
        """
        is_known = place in self._known_groups
        left = dict(offsets)
        while left and not is_known:
            queue = next(iter(left))
            yield from self._commit_all(place[0], {queue: left.pop(queue)}, outcomes)
            is_known = outcomes[queue] is None or isinstance(outcomes[queue], TransportError)
        yield from self._commit_all(place[0], left, outcomes)
        if place not in self._known_groups:
            done = {queue: offset for queue, offset in offsets.items() if outcomes[queue] is None}
            yield from self._confirm(place, done, outcomes)

    def _commit_all(
        self, group: str, offsets: Mapping[MessageQueue, int], outcomes: dict[MessageQueue, RmqioError | None]
    ) -> Steps[None]:
        tasks = {queue: self._crew.begin(self._commit(group, queue, offset)) for queue, offset in offsets.items()}
        for queue, task in tasks.items():
            yield task
            outcomes[queue] = task.outcome()

    def _confirm(
        self, place: GroupAt, offsets: Mapping[MessageQueue, int], outcomes: dict[MessageQueue, RmqioError | None]
    ) -> Steps[None]:
        """Look up what was committed, and commit again what the broker has lost."""
        for _ in range(_MAX_CONFIRMATIONS):
            queries = [OffsetQuery(queue, "committed", group=place[0]) for queue in offsets]
            tasks = {query.queue: self._crew.begin(self._offset(query)) for query in queries}
            found: dict[MessageQueue, int | RmqioError | None] = {}
            for queue, task in tasks.items():
                yield task
                found[queue] = task.outcome()
            lost = {queue: offsets[queue] for queue, offset in found.items() if offset is None}
            if not lost:
                if any(isinstance(offset, int) for offset in found.values()):
                    self._known_groups.add(place)
                return
            yield from self._commit_all(place[0], lost, outcomes)

    # ---- one question -----------------------------------------------------------------------------------------------

    def _offset(self, query: OffsetQuery) -> Steps[int | None]:
        queue = query.queue
        yield from self._require(queue)
        sent = self._environment.clock()
        command = offset_command(query, self._routes)
        answer, is_replica = yield from self._ask(queue, command, what_is_asked(query), or_replica=True)
        offset = parse_answer(query, answer)
        if is_replica:
            check_replica(query, offset)
            if has_to_know_topic(query, offset):
                yield from self._check_topic(queue)
        if offset == 0 and query.kind in ("max", "time"):
            # Deleted since we last saw the route? That also looks like an empty queue.
            route, readable = yield from self._readable(queue.topic, newer_than=sent)
            if queue not in readable:
                raise no_such_queue(queue, route)
        return offset

    def _check_topic(self, queue: MessageQueue) -> Steps[None]:
        address, is_replica = self._address(queue, or_replica=True)
        if is_replica:
            answer = yield from self._request(address, self._who(queue), get_topic_config(queue, self._routes))
            check_topic_at_replica(answer, queue)

    def _commit(self, group: str, queue: MessageQueue, offset: int) -> Steps[None]:
        check_commit(group, queue, offset)
        yield from self._require(queue)
        wire_group, wire_queue = self._routes.wire_name(group), self._routes.wire_queue(queue)
        command = requests.commit_group_offset(wire_group, wire_queue, offset)
        probe = requests.query_group_offset(wire_group, wire_queue)
        what = f"commit of offset {offset} of {queue} for group {group!r}"
        answer, _ = yield from self._ask(queue, command, what, probe=probe)
        if answer.code == SubscriptionGroupNotExist.number:
            key = (group, self._routes.owner_of(queue))
            task = self._registrations.get(key)
            if task is None:
                task = self._registrations[key] = self._crew.begin(self._register(wire_group, queue))
            yield task
            task.result()
            answer, _ = yield from self._ask(queue, command, what, probe=probe)
        requests.expect_success(answer, what)
        if requests.is_ignored_commit(answer):
            raise CommitIgnored(group, queue, offset)

    def _register(self, wire_group: str, queue: MessageQueue) -> Steps[None]:
        try:
            command = register_group(wire_group, self._routes.wire_queue(queue))
            yield from self._ask(queue, command, f"registration of group {wire_group!r}")
        except NotLeaderForQueue:
            pass  # a static topic has no such queue either, and reports it with another error

    # ---- brokers ----------------------------------------------------------------------------------------------------

    def _ask(
        self,
        queue: MessageQueue,
        command: Command,
        what: str,
        *,
        or_replica: bool = False,
        probe: Command | None = None,
    ) -> Steps[tuple[Command, bool]]:
        """Return the broker's answer, whatever its code unless it can be retried, and whether a replica gave it."""
        tries, moved = 0, False
        while True:
            address = ""
            sent = self._environment.clock()
            try:
                address, is_replica = self._address(queue, or_replica)
                answer = yield from self._request(address, self._who(queue), command, probe=probe)
                if answer.code:
                    error = broker_error(answer.code, answer.remark, f"{what} of {queue}")
                    if error.retriable or error.stale_route:
                        raise error
                return answer, is_replica
            except RequestTimeout as error:
                raise RequestTimeout(f"{what} of {queue}: {error}") from error
            except RmqioError as error:
                if not address or isinstance(error, NotConnected | BrokerSilent):
                    # Not reached after several tries. Does a newer route lead elsewhere?
                    if moved or not error.stale_route:
                        raise
                    moved = True
                    yield from self._refresh(queue, self._began if isinstance(error, BrokerSilent) else sent)
                    if self._held(queue, or_replica) in (None, address):
                        raise
                    continue
                may_retry = error.retriable or (error.stale_route and tries == 0)
                pause_until = self._environment.clock() + self._pause_s(tries)
                if not may_retry or tries >= self._options.max_retries or pause_until >= self._exchange.deadline:
                    raise
                tries += 1
                yield Pause(pause_until)
                if error.stale_route:
                    yield from self._refresh(queue, sent)

    def _refresh(self, queue: MessageQueue, newer_than: float) -> Steps[None]:
        try:
            yield from self._readable(queue.topic, newer_than=newer_than)
        except TopicNotExist as missing:  # `_require` found the topic: was it forgotten together with its only broker?
            yield from self._require_broker(queue, missing)
            yield from self._readable(queue.topic, newer_than=self._brokers_at)

    def _pause_s(self, tries: int) -> float:
        return backoff_ms(tries, self._options, self._environment.random) / 1000

    def _held(self, queue: MessageQueue, or_replica: bool) -> str | None:
        try:
            return self._address(queue, or_replica)[0]
        except TransportError:
            return None

    def _address(self, queue: MessageQueue, or_replica: bool) -> tuple[str, bool]:
        return self._routes.serving(self._route_of(queue), queue, or_replica=or_replica)

    def _route_of(self, queue: MessageQueue) -> TopicRoute:
        return self._known[queue.topic][0]

    def _who(self, queue: MessageQueue) -> str:
        return f"broker {self._route_of(queue).owner(queue.broker, queue.queue_id)!r}"

    def _request(
        self,
        address: str,
        who: str,
        command: Command,
        *,
        probe: Command | None = None,
        until: float | None = None,
        is_patient: bool = True,
    ) -> Steps[Command]:
        if address not in self._refusals:
            self._refusals[address] = self._breaker.refusal(address, who)
        refusal = self._refusals[address]
        if refusal is not None:
            raise BrokerSilent(str(refusal))
        ticket = self._exchange.put(address, command, probe=probe, until=until, is_patient=is_patient)
        yield ticket
        answer = ticket.answer()
        self._breaker.heard(address)
        return answer

    # ---- routes -----------------------------------------------------------------------------------------------------

    def _require(self, queue: MessageQueue) -> Steps[None]:
        """Check the queue as the single methods do: for a missing queue, a broker answers 0 with success."""
        missing = yield from self._missing(queue, (float("-inf"), self._began))
        if missing is not None:
            yield from self._require_broker(queue, missing)
            # Its broker may have restarted between the two questions. All queues share the second one.
            missing = yield from self._missing(queue, (self._brokers_at,))
        if missing is not None:
            raise missing

    def _missing(self, queue: MessageQueue, newer_than: tuple[float, ...]) -> Steps[RmqioError | None]:
        """Return the error that a missing queue deserves, None for a queue that one of the routes names."""
        try:
            for age in newer_than:
                route, readable = yield from self._readable(queue.topic, newer_than=age)
                if queue in readable:
                    return None
        except TopicNotExist as error:
            return error
        return no_such_queue(queue, route)

    def _require_broker(self, queue: MessageQueue, missing: RmqioError) -> Steps[None]:
        if self._brokers is None:
            self._brokers = self._crew.begin(self._look_brokers_up())
        yield self._brokers
        if queue.broker not in self._brokers.result():
            raise unknown_broker(queue) from missing

    def _readable(self, topic: str, *, newer_than: float) -> Steps[tuple[TopicRoute, frozenset[MessageQueue]]]:
        """Return the topic's route and queues; a held route is enough unless it must be newer than a given time."""
        found = self._known.get(topic)
        if newer_than == float("-inf"):
            if found is not None:
                return found
            route = self._routes.fresh(topic)
            if route is not None:
                return self._keep(topic, route)
        task = self._lookups.get(topic)
        if task is None or task.began < newer_than:
            task = self._lookups[topic] = self._crew.begin(self._look_route_up(topic))
        yield task
        return self._keep(topic, task.result())

    def _keep(self, topic: str, route: TopicRoute) -> tuple[TopicRoute, frozenset[MessageQueue]]:
        found = self._known.get(topic)
        if found is None or found[0] is not route:
            found = self._known[topic] = (route, frozenset(route.readable()))
        return found

    def _look_route_up(self, topic: str) -> Steps[TopicRoute]:
        """Return a new route; when no name server answers, the old one."""
        what = f"route of topic {topic!r}"
        name = self._routes.wire_name(topic)
        held = self._routes.held(topic)
        try:
            answer = yield from self._ask_name_servers(requests.get_route(name), what, spares_time=held is not None)
            route = self._routes.parse(topic, answer)
        except TopicNotExist:
            self._routes.invalidate(topic)
            raise
        except TransportError:
            if held is None:
                raise
            route = held
        self._routes.keep(topic, route)
        return route

    def _look_brokers_up(self) -> Steps[frozenset[str]]:
        answer = yield from self._ask_name_servers(requests.get_cluster_info(), "cluster info", spares_time=False)
        self._brokers_at = self._environment.clock()
        return frozenset(broker.broker for broker in requests.parse_cluster_info(answer))

    def _ask_name_servers(self, command: Command, what: str, *, spares_time: bool) -> Steps[Command]:
        """As `Routes.ask`. Each server but the last has half of the time left; so has the last with `spares_time`."""
        failures: list[str] = []
        unknown: Command | None = None
        tries = 0
        while True:
            is_starting = False
            servers = self._routes.servers
            for number, server in enumerate(servers, 1):
                now = self._environment.clock()
                part = 1.0 if number == len(servers) and not spares_time else 0.5
                until = now + (self._exchange.deadline - now) * part
                try:
                    is_patient = len(servers) == 1  # else another server answers sooner
                    answer = yield from self._request(
                        server, "name server", command, until=until, is_patient=is_patient
                    )
                except TransportError as error:
                    failures.append(str(error))
                    continue
                if answer.code == BrokerSystemError.number:  # "name server not ready", right after its start
                    is_starting = True
                    failures.append(f"{server}: {broker_error(answer.code, answer.remark, what)}")
                elif answer.code == TopicNotExist.number:  # also after its start, until the brokers have registered
                    unknown = unknown or answer
                else:
                    self._routes.prefer(server)
                    return with_advice(server, answer)
            if unknown is not None:
                return unknown
            pause_until = self._environment.clock() + self._pause_s(tries)
            if not is_starting or tries >= self._options.max_retries or pause_until >= self._exchange.deadline:
                raise TransportError(f"{what}: no name server answers: {'; '.join(failures)}")
            tries += 1
            yield Pause(pause_until)
