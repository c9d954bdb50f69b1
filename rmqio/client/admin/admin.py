"""Administration: creates and deletes topics, resets groups. Separate from the clients, so no pipeline holds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

from rmqio.client.connections.pool import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.errors import BrokerSystemError, LocalError, RequestTimeout, TopicNotExist, TransportError, WireError
from rmqio.model import BrokerData, MessageQueue, QueueData
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.codes import RequestCode
from rmqio.wire.command import Command

ROUTE_TIMEOUT_MS = 30_000
"""Brokers report a topic to name servers asynchronously, at the latest with their next registration."""
_GET_BROKER_CONFIG = 26
_GET_CONSUMER_LIST_BY_GROUP = 38
_QUERY_TOPIC_CONSUME_BY_WHO = 300
_ROUTE_POLL_S = 0.05
_KINDS = ("%RETRY%", "%DLQ%")


class Admin:
    """Changes topics and groups on every broker of the cluster. Thread-safe. A context manager.

    All methods raise `BrokerError` when a broker refuses and `TransportError` when one cannot be reached. Changes that
    other brokers have already made are not undone.
    """

    def __init__(self, options: ClientOptions, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = environment or Environment()
        self._pool = ConnectionPool(options, self._environment)
        self._routes = Routes(options, self._pool, self._environment)
        self._resets_one_queue: set[str] = set()

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
        """Create or change a topic on every master (of one cluster), and wait until the route shows it.

        `queues` is the number of readable and writable queues on each broker. `permission`: 4 read, 2 write, 6 both.
        `attributes` are named as in RocketMQ: `{"message.type": "DELAY"}`. Lowering `queues` hides messages that have
        not been read. Raises `RequestTimeout` when the route does not show the topic within 30 s.
        """
        if queues < 1:
            raise LocalError(f"topic {topic!r}: queues is {queues}; it must be at least 1")
        masters = self.masters(cluster)
        command = requests.create_topic(
            self._routes.wire_name(topic),
            read_queues=queues,
            write_queues=queues,
            permission=permission,
            attributes=attributes,
        )
        for broker in masters:
            self.ask(broker, command, f"creation of topic {topic!r} on {broker.broker}")
        shown = {broker.broker: QueueData(broker.broker, queues, queues, permission) for broker in masters}
        self.wait_for_route(topic, shown)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages everywhere, and wait until it has no route. No effect if there is none."""
        name = self._routes.wire_name(topic)
        for broker in self.masters():
            self.ask(broker, requests.delete_topic_in_broker(name), f"deletion of topic {topic!r} on {broker.broker}")
        self.ask_name_servers(requests.delete_topic_in_name_server(name), f"deletion of topic {topic!r}")
        self.wait_until_gone(topic)

    def topic_config(self, topic: str) -> dict[str, dict[str, Any]]:
        """Return the topic's configuration on each broker that has it, by broker name. Raises `TopicNotExist`."""
        command = Command(RequestCode.GET_TOPIC_CONFIG, {"topic": self._routes.wire_name(topic)})
        found = {}
        for name, broker in self._routes.route(topic, refresh=True).brokers.items():
            answer = self.ask(broker, command, f"configuration of topic {topic!r} on {name}")
            try:
                found[name] = dict(json.loads(answer.body))
            except (ValueError, TypeError) as error:
                raise WireError(f"configuration of topic {topic!r} on {name} is not a JSON object") from error
        return found

    def all_topics(self) -> list[str]:
        """Return all topics, sorted, including retry, dead-letter and RocketMQ's own topics."""

        def ask() -> list[str]:
            answer = self._routes.ask(requests.get_topic_list(), "list of topics")
            return self._routes.users_names(requests.parse_topic_list(answer))

        return call_with_retries(ask, self._options, self._environment)

    def group_members(self, group: str, topic: str | None = None) -> list[str]:
        """Return the client ids of the group's members that are online, sorted: at the topic's brokers, or at all.

        Clients that read under another group and only commit for this one, as rmqio pipelines do, are not included.
        """
        command = Command(_GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._routes.wire_name(group)})
        found: set[str] = set()
        for broker in self.masters() if topic is None else self._routes.route(topic).brokers.values():
            what = f"members of group {group!r} on {broker.broker}"
            answer = self._request(self._master(broker, what), command)
            if answer.code == BrokerSystemError.number and "no consumer" in (answer.remark or ""):
                continue  # its way to say that there are none
            requests.expect_success(answer, what)
            found |= set(_strings(answer, "consumerIdList", what))
        return sorted(found)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that have an offset in the topic, or an online member that reads it, sorted.

        The topic is queried because a query for a group makes brokers create that group.
        """
        command = Command(_QUERY_TOPIC_CONSUME_BY_WHO, {"topic": self._routes.wire_name(topic)})
        found: set[str] = set()
        for name, broker in self._routes.route(topic).brokers.items():
            what = f"groups of topic {topic!r} on {name}"
            found |= set(_strings(self.ask(broker, command, what), "groupList", what))
        return sorted(self._routes.users_names(found))

    def reset_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Reset one queue as an operator's reset does: the group's first pull is given the offset, once.

        Until then the group's commits are ignored. Raises `SubscriptionGroupNotExist` for a group that has never been
        used, and `LocalError` for a broker that would reset all queues of the topic to their end instead.
        """
        broker = self._routes.route(queue.topic).brokers.get(queue.broker)
        if broker is None:
            raise LocalError(f"{queue}: the topic is not on that broker")
        self._require_reset_of_one_queue(broker)
        command = requests.reset_group_offset(self._routes.wire_name(group), self._routes.wire_queue(queue), offset)
        self.ask(broker, command, f"reset of group {group!r} at {queue}")

    def _require_reset_of_one_queue(self, broker: BrokerData) -> None:
        """Raise unless the broker keeps resets itself, which is the default since 5.0.

        Other brokers ignore the queue and the offset in the request and use only its time. A time of -1 means the end.
        """
        if broker.broker in self._resets_one_queue:
            return
        config = self.ask(broker, Command(_GET_BROKER_CONFIG), f"configuration of broker {broker.broker!r}").body
        if b"useServerSideResetOffset=true" not in config.splitlines():
            raise LocalError(
                f"broker {broker.broker!r} cannot reset one queue (useServerSideResetOffset is not true, or it is"
                " older than 5.0): stop the group's members and commit the offset instead"
            )
        self._resets_one_queue.add(broker.broker)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._pool.close()

    # ---- for the modules that ask brokers for more -------------------------------------------------------------------

    def masters(self, cluster: str | None = None) -> list[BrokerData]:
        """Return the brokers that have a master (of one cluster), sorted by name. Raises `TransportError` for none."""

        masters = [b for b in self.brokers() if b.master is not None and cluster in (None, b.cluster)]
        if not masters:
            where = f"cluster {cluster!r}" if cluster else "the cluster"
            raise TransportError(f"no master of {where} known to name servers {'; '.join(self._options.name_servers)}")
        return masters

    def brokers(self) -> list[BrokerData]:
        """Return all brokers that name servers know, sorted by name; also those of which only a replica is there."""

        def ask() -> list[BrokerData]:
            return requests.parse_cluster_info(self._routes.ask(requests.get_cluster_info(), "cluster info"))

        return call_with_retries(ask, self._options, self._environment)

    def ask(self, broker: BrokerData, command: Command, what: str) -> Command:
        """Return a master's answer, which is a success; retried as the options say."""
        address = self._master(broker, what)

        def attempt() -> Command:
            answer = self._request(address, command)
            requests.expect_success(answer, what)
            return answer

        return call_with_retries(attempt, self._options, self._environment)

    def answer(self, broker: BrokerData, command: Command, what: str) -> Command:
        """Return a master's answer, whatever its code."""
        address = self._master(broker, what)
        return call_with_retries(lambda: self._request(address, command), self._options, self._environment)

    def answer_at(self, address: str, command: Command) -> Command:
        """Return the answer of the server at an address, whatever its code."""
        return call_with_retries(lambda: self._request(address, command), self._options, self._environment)

    def ask_name_servers(self, command: Command, what: str) -> None:
        """Send a change to every name server: they know nothing of each other."""
        for server in self._options.name_servers:
            requests.expect_success(self._request(server, command), f"{what} at name server {server}")

    def ask_name_server(self, command: Command, what: str) -> Command:
        """Return the answer of a name server that answers, whatever its code."""
        return call_with_retries(lambda: self._routes.ask(command, what), self._options, self._environment)

    def wait_for_route(self, topic: str, shown: Mapping[str, QueueData]) -> None:
        """Wait until the name servers show the topic so on these brokers. Raises `RequestTimeout` after 30 s."""

        def is_there() -> bool:
            try:
                queues = {queue.broker: queue for queue in self._routes.route(topic, refresh=True).queues}
            except TopicNotExist:
                return False
            return all(queues.get(name) == wanted for name, wanted in shown.items())

        self._wait(is_there, f"topic {topic!r} as it was set on {', '.join(sorted(shown))}")

    def wait_until_gone(self, topic: str, brokers: frozenset[str] = frozenset()) -> None:
        """Wait until the name servers show the topic nowhere, or not on these brokers. Raises as `wait_for_route`."""

        def is_gone() -> bool:
            try:
                queues = self._routes.route(topic, refresh=True).queues
            except TopicNotExist:
                return True
            return bool(brokers) and brokers.isdisjoint(queue.broker for queue in queues)

        self._wait(is_gone, f"deletion of topic {topic!r}")

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = self._environment.clock() + ROUTE_TIMEOUT_MS / 1000
        while not is_done():
            if self._environment.clock() >= deadline:
                raise RequestTimeout(f"{what}: not seen in the route within {ROUTE_TIMEOUT_MS} ms")
            self._environment.sleep(_ROUTE_POLL_S)

    def wire_name(self, name: str) -> str:
        """Return a topic's or group's name as brokers know it."""
        return self._routes.wire_name(name)

    def users_name(self, name: str) -> str | None:
        """Return a brokers' name of a topic or group without the namespace; None if it belongs to another one."""
        kind = next((prefix for prefix in _KINDS if name.startswith(prefix)), "")
        found = self._routes.users_names([name.removeprefix(kind)])
        return kind + found[0] if found else None

    @staticmethod
    def _master(broker: BrokerData, what: str) -> str:
        if broker.master is None:
            raise TransportError(f"{what}: broker {broker.broker!r} has no master")
        return broker.master

    def _request(self, address: str, command: Command) -> Command:
        return self._pool.connection(address).request(command, self._options.request_timeout_ms)


def _strings(answer: Command, field: str, what: str) -> list[str]:
    try:
        found = json.loads(answer.body)[field]
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"{what}: the answer is not a JSON object with {field}") from error
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise WireError(f"{what}: {field} is not a list of strings")
    return found
