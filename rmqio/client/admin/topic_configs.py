"""Reads and changes the configuration of topics, broker by broker: for the command line."""

from __future__ import annotations

from collections.abc import Mapping

from rmqio.client.admin.admin import Admin
from rmqio.model import BrokerData, QueueData
from rmqio.topics.names import validate_topic
from rmqio.wire import requests
from rmqio.wire.admin import topic_config as wire
from rmqio.wire.admin.topic_config import MESSAGE_TYPE, MESSAGE_TYPES, TopicConfig
from rmqio.wire.command import Command

__all__ = ["MESSAGE_TYPE", "MESSAGE_TYPES", "TopicConfig", "config_on", "delete", "put", "set_order"]


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


def put(admin: Admin, topic: str, broker: BrokerData, config: TopicConfig) -> None:
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


def delete(admin: Admin, topic: str, brokers: list[BrokerData], cluster: str | None) -> None:
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
