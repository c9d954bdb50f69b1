"""Administration: topics created and deleted, groups reset. Apart from the clients, so that no pipeline has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

from rmqio.client.environment import Environment
from rmqio.client.pool import ConnectionPool
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.errors import LocalError, RequestTimeout, TopicNotExist, TransportError, WireError
from rmqio.model import BrokerData, MessageQueue
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command

ROUTE_TIMEOUT_MS = 30_000
"""Brokers tell name servers of a topic asynchronously; at the latest with their next registration."""
_ROUTE_POLL_S = 0.05


class Admin:
    """Changes topics and groups on every broker of the cluster. Thread-safe. A context manager.

    All methods raise `BrokerError` when a broker refuses and `TransportError` when one cannot be reached; what other
    brokers have done by then stays done.
    """

    def __init__(self, options: ClientOptions, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = environment or Environment()
        self._pool = ConnectionPool(options, self._environment)
        self._routes = Routes(options, self._pool, self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 4,
        permission: int = 6,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create a topic, or change it, on every master (of one cluster), and wait until the route shows it.

        `queues` are a broker's, readable and writable. `permission`: 4 read, 2 write, 6 both. `attributes` as RocketMQ
        names them, `{"message.type": "DELAY"}`. Lowering `queues` hides messages that have not been read. Raises
        `RequestTimeout` when the route does not show it within 30 s.
        """
        if queues < 1:
            raise LocalError(f"topic {topic!r}: queues is {queues}; it must be at least 1")
        masters = self._masters(cluster)
        command = requests.create_topic(
            self._routes.wire_name(topic),
            read_queues=queues,
            write_queues=queues,
            permission=permission,
            attributes=attributes,
        )
        for broker in masters:
            self._ask(broker, command, f"creation of topic {topic!r} on {broker.broker}")
        names = {broker.broker for broker in masters}

        def is_there() -> bool:
            shown = {q.broker: (q.read_queues, q.permission) for q in self._routes.route(topic, refresh=True).queues}
            return all(shown.get(name) == (queues, permission) for name in names)

        self._wait_for_route(topic, is_there, f"topic {topic!r} with {queues} queues on {', '.join(sorted(names))}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages everywhere, and wait until it has no route. No effect if there is none."""
        name = self._routes.wire_name(topic)
        for broker in self._masters(None):
            self._ask(broker, requests.delete_topic_in_broker(name), f"deletion of topic {topic!r} on {broker.broker}")
        for server in self._options.name_servers:
            answer = self._request(server, requests.delete_topic_in_name_server(name))
            requests.expect_success(answer, f"deletion of topic {topic!r} at name server {server}")
        self._wait_for_route(topic, lambda: False, f"deletion of topic {topic!r}", gone=True)

    def topic_config(self, topic: str) -> dict[str, dict[str, Any]]:
        """The topic's configuration on each broker that has it, by broker name. Raises `TopicNotExist`."""
        command = Command(RequestCode.GET_TOPIC_CONFIG, {"topic": self._routes.wire_name(topic)})
        found = {}
        for name, broker in self._routes.route(topic, refresh=True).brokers.items():
            answer = self._ask(broker, command, f"configuration of topic {topic!r} on {name}")
            try:
                found[name] = dict(json.loads(answer.body))
            except (ValueError, TypeError) as error:
                raise WireError(f"configuration of topic {topic!r} on {name} is not a JSON object") from error
        return found

    def reset_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """What an operator's reset does to one queue: the group's first pull is told the offset, once.

        Until then the group's commits are ignored. Raises `SubscriptionGroupNotExist` for a group that nobody used yet.
        """
        broker = self._routes.route(queue.topic).brokers.get(queue.broker)
        if broker is None:
            raise LocalError(f"{queue}: the topic is not on that broker")
        command = requests.reset_group_offset(self._routes.wire_name(group), self._routes.wire_queue(queue), offset)
        self._ask(broker, command, f"reset of group {group!r} at {queue}")

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._pool.close()

    def _masters(self, cluster: str | None) -> list[BrokerData]:
        def ask() -> list[BrokerData]:
            return requests.parse_cluster_info(self._routes.ask(requests.get_cluster_info(), "cluster info"))

        brokers = call_with_retries(ask, self._options, self._environment)
        masters = [b for b in brokers if b.master is not None and cluster in (None, b.cluster)]
        if not masters:
            where = f"cluster {cluster!r}" if cluster else "the cluster"
            raise TransportError(f"name servers {'; '.join(self._options.name_servers)} know no master of {where}")
        return masters

    def _ask(self, broker: BrokerData, command: Command, what: str) -> Command:
        address = broker.master
        if address is None:
            raise TransportError(f"{what}: it has no master")

        def attempt() -> Command:
            answer = self._request(address, command)
            requests.expect_success(answer, what)
            return answer

        return call_with_retries(attempt, self._options, self._environment)

    def _request(self, address: str, command: Command) -> Command:
        return self._pool.connection(address).request(command, self._options.request_timeout_ms)

    def _wait_for_route(self, topic: str, is_there: Callable[[], bool], what: str, *, gone: bool = False) -> None:
        deadline = self._environment.clock() + ROUTE_TIMEOUT_MS / 1000
        while True:
            try:
                if is_there():
                    return
                self._routes.route(topic, refresh=True)
            except TopicNotExist:
                if gone:
                    return
            if self._environment.clock() >= deadline:
                raise RequestTimeout(f"{what}: not seen in the route within {ROUTE_TIMEOUT_MS} ms")
            self._environment.sleep(_ROUTE_POLL_S)
