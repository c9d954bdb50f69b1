"""Administration of a cluster: topics, consumer groups and single messages. No client of a pipeline needs it."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, Self

from rmqio.client.connection import ConnectionPool
from rmqio.client.environment import Environment
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.errors import (
    BrokerSystemError,
    CorruptMessage,
    LocalError,
    RequestTimeout,
    TopicNotExist,
    TransportError,
    WireError,
)
from rmqio.interfaces import QUEUES
from rmqio.model import UNIQ_KEY, BrokerData, MessageQueue, QueueData, Record
from rmqio.options import ClientOptions
from rmqio.topics import validate_topic
from rmqio.wire import admin_requests as wire
from rmqio.wire import requests
from rmqio.wire.admin_requests import MESSAGE_TYPE, MESSAGE_TYPES, TopicConfig
from rmqio.wire.command import Command, RequestCode

__all__ = ["MESSAGE_TYPE", "MESSAGE_TYPES", "Admin", "MessageQueries", "TopicConfig"]

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

        Clients that only commit for this group, as `ReadFromRocketMQ` does, are not included.
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


# Reads and changes the configuration of topics, broker by broker: for the command line.


def config_on(admin: Admin, topic: str, broker: BrokerData) -> TopicConfig | None:
    """Return a topic's configuration on one broker; None if it does not have the topic.

    Raises `LocalError` for an illegal name, `BrokerError` and `TransportError`.
    """
    name, what = admin.wire_name(topic), f"configuration of topic {topic!r} on {broker.broker}"
    validate_topic(name)
    answer = admin.answer(broker, wire.get_topic_config(name), what)
    if wire.is_not_supported(answer):  # before 5.0
        return wire.parse_all_topic_configs(admin.ask(broker, wire.get_all_topic_configs(), what), name, what)
    return wire.parse_topic_config(answer, what)


def put_config(admin: Admin, topic: str, broker: BrokerData, config: TopicConfig) -> None:
    """Create a topic on one broker, or change it, and wait until the name servers show it. Raises as `config_on`."""
    what = f"topic {topic!r} on {broker.broker}"
    admin.ask(broker, wire.put_topic_config(admin.wire_name(topic), config), what)
    shown = QueueData(broker.broker, config.read_queues, config.write_queues, config.permission)
    admin.wait_for_route(topic, {broker.broker: shown})


def set_order(admin: Admin, topic: str, queues: Mapping[str, int]) -> None:
    """Fix the queues of an ordered topic by broker at the name servers; none: forget what is fixed.

    Brokers that are not named keep what is fixed for them, unless nothing is named.
    """
    name, what = admin.wire_name(topic), f"order of topic {topic!r}"
    fixed = wire.parse_order(admin.ask_name_server(wire.get_order(name), what), what)
    if not queues:
        if fixed is not None:
            admin.ask_name_servers(wire.delete_order(name), what)
        return
    entries = (entry.partition(":") for entry in (fixed or "").split(";"))
    held = {broker: int(count) for broker, _, count in entries if count.isdigit()}
    if (wanted := {**held, **queues}) != held:
        admin.ask_name_servers(wire.put_order(name, wanted), what)


def delete_topic(admin: Admin, topic: str, brokers: list[BrokerData], cluster: str | None) -> None:
    """Delete a topic and its messages on these brokers, and at the name servers (of one cluster, if given).

    Waits until the name servers no longer show it. Raises as `config_on`.
    """
    name, what = admin.wire_name(topic), f"deletion of topic {topic!r}"
    for broker in brokers:
        admin.ask(broker, requests.delete_topic_in_broker(name), f"{what} on {broker.broker}")
    command = requests.delete_topic_in_name_server(name)
    if cluster is not None:
        command = Command(command.code, {**command.ext, "clusterName": cluster})
    admin.ask_name_servers(command, what)
    set_order(admin, topic, {})
    admin.wait_until_gone(topic, frozenset(broker.broker for broker in brokers) if cluster is not None else frozenset())


# The consumer groups that brokers know, and the topics in which they have offsets: for the command line.

# MixAll.java, PREDEFINE_GROUP_SET and CID_RMQ_SYS_PREFIX
_OWN: Final = frozenset(
    (
        "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL", "CID_SYS_RMQ_TRANS",
    )
)  # fmt: skip
_OWN_PREFIX: Final = "CID_RMQ_SYS_"
_PRIVATE: Final = next(field.default for field in fields(ClientOptions) if field.name == "pull_group")


def is_own(group: str) -> bool:
    """Return whether a group is RocketMQ's own, or the private one under which rmqio pulls."""
    return group in _OWN or group.startswith(_OWN_PREFIX) or group == _PRIVATE


def positions_in(known: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return the topics in which groups have the position of an exactly-once write, or its number of queues: no lag.

    Such a write has two groups, of which one is named after the other.
    """
    found: dict[str, set[str]] = {}
    for name, topics in known.items():
        group = name.removesuffix(QUEUES)
        if group != name and (shared := {*topics} & {*known.get(group, ())}):
            for each in (name, group):
                found.setdefault(each, set()).update(shared)
    return found


def known_groups(admin: Admin, broker: BrokerData) -> dict[str, set[str]]:
    """Return the groups that a broker knows, with the topics in which they have offsets, by their users' names.

    Groups that have never committed have no topic. Raises `BrokerError` and `TransportError`.
    """
    what = f"consumer groups on {broker.broker}"
    topics = wire.parse_offset_topics(admin.ask(broker, wire.get_offsets(), what), what)
    names = {*wire.parse_groups(admin.ask(broker, wire.get_groups(), what), what), *topics}
    found: dict[str, set[str]] = {}
    for name in names:
        group = admin.users_name(name)
        if group is not None:
            ours = (admin.users_name(topic) for topic in topics.get(name, ()))
            found[group] = {topic for topic in ours if topic is not None}
    return found


# Subscriptions that brokers keep for a consumer group, without a member that is online: for the command line.
#
# A broker exports the lag of a group only for topics to which the group subscribes. It knows that from heartbeats of
# the group's members, or, with `useStaticSubscription=true`, from the configuration of the group. A pipeline sends no
# heartbeat, so its group needs the latter. Source: ConsumerLagCalculator.java.
#
# A heartbeat also creates the group's retry topic, by whose route RocketMQ's tools find the brokers that serve a
# group. Source: ClientManageProcessor.java, DefaultMQAdminExtImpl.examineConsumeStats.

_RETRY: Final = "%RETRY%"


def subscribe(admin: Admin, group: str, topics: Collection[str]) -> list[str]:
    """Write on each broker that the group reads these topics and no others, and keep the rest of its configuration.

    A group that a broker does not know yet is created there, and so is its retry topic. Returns the brokers that do not
    use such subscriptions. Raises `BrokerError` and `TransportError`; brokers that were asked before keep the change.
    """
    name, version = admin.wire_name(group), int(time.time() * 1000)
    entries = [wire.subscription(admin.wire_name(topic), version) for topic in topics]
    unused = []
    for broker in admin.masters():
        what = f"subscriptions of group {group!r} on {broker.broker}"
        known = wire.parse_groups(admin.ask(broker, wire.get_groups(), what), what)
        config = {"groupName": name, **known.get(name, {}), "subscriptionDataSet": entries}
        admin.ask(broker, wire.put_group(config), what)
        if config_on(admin, _RETRY + group, broker) is None:
            queues = config.get("retryQueueNums", 1)
            put_config(admin, _RETRY + group, broker, TopicConfig(queues, queues))
        settings = admin.ask(broker, Command(_GET_BROKER_CONFIG), f"configuration of broker {broker.broker!r}").body
        if b"useStaticSubscription=true" not in settings.splitlines():
            unused.append(broker.broker)
    return unused


# Finds single messages on all brokers, by unique id, by key, and by the broker's own id.

MOST: Final = 64
"""The most that a broker answers to one query by key."""
_INDEX_STEP_MS: Final = 1_000
"""The times of a broker's index are whole seconds since its file began, rounded down."""
_OFFSET_ID: Final = re.compile("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


class MessageQueries:
    """Asks the brokers of a cluster for messages of a topic. Results are sorted by store time.

    A replica is asked if its master does not answer. A broker of which nobody answers is left out, see `away`; it is
    not asked again. Raises `TransportError` if no broker answers, and `CorruptMessage` if what a broker has found
    cannot be decoded, and nothing else was found.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._silent: dict[str, TransportError] = {}
        """The servers that did not answer, by address."""
        self.away: dict[str, str] = {}
        """The brokers of which nobody answered, and why: their messages are not among the results."""
        self.may_have_more: set[str] = set()
        """The brokers that answered as many messages as they answer at most."""
        self.from_replica: dict[str, str] = {}
        """The brokers whose replica answered in place of its master, and why. It may lack the newest messages."""

    def by_unique_id(self, topic: str, message_id: str) -> list[Record]:
        """Return the messages with a unique id (UNIQ_KEY): several if a writer has repeated itself."""
        command = requests.query_message(self._admin.wire_name(topic), message_id, is_unique_id=True, most=MOST)
        found = self._ask(topic, command, f"message {message_id!r} of topic {topic!r}")
        return [record for record in found if record.get_property(UNIQ_KEY) == message_id]

    def by_key(self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None) -> list[Record]:
        """Return the messages with a business key that were stored in a time, whose end is exclusive: of each broker
        the newest `MOST` at most.
        """
        times = {"begin_ms": max(0, begin_ms - _INDEX_STEP_MS)} | ({} if end_ms is None else {"end_ms": end_ms})
        command = requests.query_message(self._admin.wire_name(topic), key, is_unique_id=False, most=MOST, **times)
        found = self._ask(topic, command, f"key {key!r} of topic {topic!r}")
        found = [each for each in found if begin_ms <= each.store_timestamp_ms and key in each.keys]
        return found if end_ms is None else [each for each in found if each.store_timestamp_ms < end_ms]

    def by_offset_id(self, topic: str, message_id: str) -> list[Record]:
        """Return the message with a broker's id (`Record.offset_message_id`): that broker is asked, and no other.

        Raises `LocalError` if the text is not such an id, or its broker is not one of the cluster.
        """
        if not _OFFSET_ID.fullmatch(message_id):
            raise LocalError(f"{message_id!r} is not a message id: it must have 32 hexadecimal digits, or 56 with IPv6")
        raw = bytes.fromhex(message_id)
        host, port, position = ipaddress.ip_address(raw[:-12]), int.from_bytes(raw[-12:-8], "big"), raw[-8:]
        address = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
        command = requests.view_message(self._admin.wire_name(topic), int.from_bytes(position, "big", signed=True))
        brokers = [each for each in self._admin.brokers() if address in each.addresses.values()]
        if not brokers:
            raise LocalError(f"message id {message_id!r} names the broker {address}, which is not one of the cluster")
        try:
            found = self._ask(topic, command, f"message {message_id!r}", lambda broker: broker in brokers)
        except BrokerSystemError:  # its answer for a position where no message begins
            return []
        return [record for record in found if record.offset_message_id == message_id.upper()]

    def _ask(
        self, topic: str, command: Command, what: str, is_wanted: Callable[[BrokerData], bool] = lambda broker: True
    ) -> list[Record]:
        found: list[Record] = []
        corrupt: list[CorruptMessage] = []
        brokers = [broker for broker in self._admin.brokers() if is_wanted(broker)]
        for broker in brokers:
            answer = self._answer(broker, command)
            if answer is None:
                continue
            decoded = requests.parse_messages(answer, broker.broker, f"{what} on {broker.broker}")
            if len(decoded.records) + len(decoded.corrupt) >= MOST:
                self.may_have_more.add(broker.broker)
            found += decoded.records
            corrupt += decoded.corrupt
        if len(self.away) >= len(brokers) and all(broker.broker in self.away for broker in brokers):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.away.items()))
            raise TransportError(f"{what}: no broker answers ({reasons or 'no broker is known'})")
        found = [record._replace(topic=self._admin.users_name(record.topic) or record.topic) for record in found]
        found = [record for record in found if record.topic == topic]
        if corrupt and not found:  # "no such message" would be wrong
            raise corrupt[0]
        return sorted(found, key=lambda record: (record.store_timestamp_ms, record.queue, record.queue_offset))

    def _answer(self, broker: BrokerData, command: Command) -> Command | None:
        """Return the answer of the master, or else of a replica; None if nobody answers."""
        reasons: list[str] = [] if broker.master is not None else ["it has no master now"]
        for _, address in sorted(broker.addresses.items()):
            error = self._silent.get(address)
            if error is None:
                try:
                    answer = self._admin.answer_at(address, command)
                except TransportError as failed:
                    error = self._silent[address] = failed
                else:
                    if reasons:
                        self.from_replica[broker.broker] = reasons[0]
                    return answer
            reasons.append(str(error))
        self.away[broker.broker] = reasons[0] if reasons else "no address of it is known"
        return None
