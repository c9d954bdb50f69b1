"""Cached routes of topics, from whichever name server answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rmqio.client.breaker import Breaker
from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.retry import call_with_retries
from rmqio.client.session import Call
from rmqio.errors import (
    BrokerSilent,
    BrokerSystemError,
    RequestCodeNotSupported,
    RmqioError,
    TopicNotExist,
    TransportError,
    broker_error,
)
from rmqio.model import MessageQueue, TopicRoute
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command

_KINDS = ("%RETRY%", "%DLQ%")
_SILENT_S = 5.0


class Routes:
    """Maps topics to routes. Thread-safe. Topics have the user's names; the namespace is added and removed here."""

    def __init__(
        self,
        options: ClientOptions,
        pool: ConnectionPool,
        environment: Environment | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._options = options
        self._pool = pool
        self._environment = environment or Environment()
        self._breaker = breaker or Breaker(options, pool, self._environment)
        self._known: dict[str, tuple[float, TopicRoute]] = {}
        self._servers = list(options.name_servers)
        self._looking_up: dict[str, Call] = {}
        self._silent_until = float("-inf")
        """Until this time, name servers that did not answer are not queried again for routes that we hold."""

    def __repr__(self) -> str:
        return f"<Routes from {';'.join(self._servers)}, {len(self._known)} known>"

    def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """Return the topic's route, at most `options.route_refresh_ms` old; with `refresh` a new one.

        Returns the route that we hold, however old, when no name server can be reached. Raises `TopicNotExist`,
        `BrokerError` and `TransportError` (with the failures of all name servers).
        """
        held = self._known.get(topic)
        if held is None:
            route = call_with_retries(lambda: self._look_up(topic), self._options, self._environment)
            self.keep(topic, route)
            return route
        if (not refresh and held[0] > self._environment.clock()) or self._silent_until > self._environment.clock():
            return held[1]
        try:
            route = self._look_up(topic, spares_time=True)
        except TopicNotExist:
            self.invalidate(topic)
            raise
        except TransportError:
            # A client with many routes must not wait for the same servers once per route.
            self._silent_until = self._environment.clock() + _SILENT_S
            route = held[1]
        self.keep(topic, route)
        return route

    def invalidate(self, topic: str) -> None:
        """Look the topic up again at the next use. The old route is kept in case no name server answers."""
        held = self._known.get(topic)
        if held is not None:
            self._known[topic] = (float("-inf"), held[1])

    def master(self, topic: str, broker: str, queue_id: int = -1) -> str:
        """Return the address of a broker's master. Raises as `route`, and `TransportError` while no master is known.

        With a queue id, the broker is the current owner of that queue of a static topic.
        """
        for refresh in (False, True):
            route = self.route(topic, refresh=refresh)
            data = route.brokers.get(route.owner(broker, queue_id))
            if data is not None and (address := data.master) is not None:
                return address
        raise TransportError(f"no name server knows a master of broker {broker!r} (topic {topic!r}); is it down?")

    def serving(self, route: TopicRoute, queue: MessageQueue, *, or_replica: bool) -> tuple[str, bool]:
        """Return the address to query about a queue by this route, and whether it is a replica's.

        The address is the master's. Without a master it is a replica's, given `or_replica` and if the options permit
        it. Raises `TransportError`.
        """
        data = route.brokers.get(route.owner(queue.broker, queue.queue_id))
        if data is not None and data.master is not None:
            return data.master, False
        if data is not None and data.addresses and or_replica and self._options.replica_reads:
            return data.addresses[min(data.addresses)], True
        raise TransportError(
            f"no name server knows a master of broker {queue.broker!r} (topic {queue.topic!r}); is it down?"
        )

    def asked(self, queue: MessageQueue) -> tuple[str, bool]:
        """As `serving`, including replicas, with a route that is looked up if necessary. Also raises as `route`."""
        try:
            return self.master(*queue), False
        except TransportError:  # the route was looked up just now
            return self.serving(self.route(queue.topic), queue, or_replica=True)

    def held_address(self, topic: str, broker: str, queue_id: int = -1) -> str:
        """Return the address to pull from by the route that we hold: the master, or a replica while there is none.

        The route can be old. Never blocks. Raises `TransportError` when we hold no route.
        """
        return self.held_broker(topic, broker, queue_id)[0]

    def held_broker(self, topic: str, broker: str, queue_id: int = -1, *, wanted_id: int = 0) -> tuple[str, int]:
        """As `held_address`, with the broker's id (0: the master); prefers the broker with the wanted id."""
        held = self._known.get(topic)
        data = held[1].brokers.get(held[1].owner(broker, queue_id)) if held is not None else None
        if data is None or not data.addresses:
            raise TransportError(f"no address of broker {broker!r} is known (topic {topic!r})")
        broker_id = wanted_id if wanted_id in data.addresses and self._options.replica_reads else min(data.addresses)
        if broker_id and not self._options.replica_reads:
            raise TransportError(f"broker {broker!r} has no master now (topic {topic!r}), and replica_reads is off")
        return data.addresses[broker_id], broker_id

    def refresh_if_old(self, topic: str) -> None:
        """Call `refresh_soon` if the route that we hold is due for a refresh."""
        if self.fresh(topic) is None:
            self.refresh_soon(topic)

    def owner_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker that owns a queue by the route that we hold, without network access.

        The queue is named after its owner, except in static topics.
        """
        held = self._known.get(queue.topic)
        return queue.broker if held is None else held[1].owner(queue.broker, queue.queue_id)

    def refresh_soon(self, topic: str) -> None:
        """Begin or continue to look up a route without blocking: call it again to take the answer."""
        call = self._looking_up.pop(topic, None)
        server = self._servers[0]
        try:
            if call is None:
                connection = self._pool.connection(server)
                if connection.begin():
                    self._looking_up[topic] = connection.start(requests.get_route(self.wire_name(topic)))
                return
            call.session.pump(0)
            if not call.is_done and call.age_ms < self._options.request_timeout_ms:
                self._looking_up[topic] = call
                return
            route = self.parse(topic, call.result(0))
        except RmqioError:
            # A server may have forgotten the topic because its only broker is down: keep the old route.
            self._servers = [*self._servers[1:], self._servers[0]]
            return
        if route.queues:
            self.keep(topic, route)

    def ask(self, command: Command, what: str, *, spares_time: bool = False) -> Command:
        """Return a name server's answer: try the last good server first, then the others in turn.

        With `spares_time`, because the caller can do without, all share the timeout of one request, and a server that
        does not answer in time is left out until it answers a probe.

        A server's error is returned, not raised, except SYSTEM_ERROR, which means that the server is not ready.
        TopicNotExist is returned only when no server knows the topic. Raises `TransportError` when no server answers.
        """
        failures: list[str] = []
        last: RmqioError | None = None
        unknown: Command | None = None
        servers, clock = tuple(self._servers), self._environment.clock
        deadline = clock() + self._options.request_timeout_ms / 1000
        for number, server in enumerate(servers, 1):
            began = clock()
            # Each server but the last has half of the time that is left.
            part_s = (deadline - began) * (1.0 if number == len(servers) else 0.5)
            timeout_ms = max(1, int(part_s * 1000)) if spares_time else self._options.request_timeout_ms
            try:
                refusal = self._breaker.refusal(server, "name server") if spares_time else None
                if refusal is not None:
                    raise refusal
                answer = self._pool.connection(server).request(command, timeout_ms)
            except TransportError as error:
                last = error
                failures.append(str(error))
                was_slow = clock() - began >= timeout_ms / 1000 * 0.9
                if spares_time and was_slow and not isinstance(error, BrokerSilent):
                    self._breaker.trip(server, str(error), requests.get_cluster_info())
                continue
            self._breaker.heard(server)
            if (
                answer.code == BrokerSystemError.number
            ):  # "name server not ready", right after its start: another one may be
                last = broker_error(answer.code, answer.remark, what)
                failures.append(f"{server}: {last}")
                continue
            if answer.code == TopicNotExist.number:  # also after its start, until the topic's brokers have registered
                unknown = unknown or answer
                continue
            self.prefer(server)
            return with_advice(server, answer)
        if unknown is not None:
            return unknown
        raise TransportError(f"{what}: no name server answers: {'; '.join(failures)}") from last

    def _look_up(self, topic: str, *, spares_time: bool = False) -> TopicRoute:
        command, what = requests.get_route(self.wire_name(topic)), f"route of topic {topic!r}"
        return self.parse(topic, self.ask(command, what, spares_time=spares_time))

    # ---- for callers that query name servers themselves -------------------------------------------------------------

    @property
    def servers(self) -> tuple[str, ...]:
        """The name servers, starting with the last one that answered."""
        return tuple(self._servers)

    def held(self, topic: str) -> TopicRoute | None:
        """Return the route that we hold, however old."""
        held = self._known.get(topic)
        return None if held is None else held[1]

    def fresh(self, topic: str) -> TopicRoute | None:
        """Return the route that we hold, unless it is due for a refresh."""
        held = self._known.get(topic)
        return held[1] if held is not None and held[0] > self._environment.clock() else None

    def parse(self, topic: str, answer: Command) -> TopicRoute:
        """Return a name server's answer as a route. Raises as `requests.parse_route`."""
        return self._named(topic, requests.parse_route(self.wire_name(topic), answer))

    @staticmethod
    def _named(topic: str, route: TopicRoute) -> TopicRoute:
        return route if route.topic == topic else replace(route, topic=topic)

    def keep(self, topic: str, route: TopicRoute) -> None:
        """Hold a route that was just looked up, or that has to serve for a while because no newer one is available."""
        self._known[topic] = (self._environment.clock() + self._options.route_refresh_ms / 1000, route)

    def wire_name(self, name: str) -> str:
        """Return a topic or group name as brokers know it: `namespace%name`, `%RETRY%namespace%name`."""
        if not self._options.namespace:
            return name
        kind = next((prefix for prefix in _KINDS if name.startswith(prefix)), "")
        prefix = f"{kind}{self._options.namespace}%"
        return name if name.startswith(prefix) else prefix + name.removeprefix(kind)

    def users_names(self, names: Iterable[str]) -> list[str]:
        """Return the names of our namespace, without it. `names` are as brokers know them."""
        if not self._options.namespace:
            return list(names)
        prefix = f"{self._options.namespace}%"
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as its broker knows it."""
        return queue._replace(topic=self.wire_name(queue.topic)) if self._options.namespace else queue

    def prefer(self, server: str) -> None:
        """Query this name server first."""
        if self._servers[0] != server:
            self._servers = [server, *(other for other in self._servers if other != server)]


def with_advice(server: str, answer: Command) -> Command:
    """Return a name server's answer. If it is from another server, as with a wrong port, its remark says so."""
    if answer.code != RequestCodeNotSupported.number:
        return answer
    advice = (
        f"{server} seems to be a broker, or a proxy of RocketMQ 5, which does not serve this: give the address of a "
        "name server, whose port is usually 9876"
    )
    return replace(answer, remark=f"{(answer.remark or '').strip()}; {advice}")
