"""Subscriptions that brokers keep for a consumer group, without a member that is online: for the command line.

A broker exports the lag of a group only for topics to which the group subscribes. It knows that from heartbeats of the
group's members, or, with `useStaticSubscription=true`, from the configuration of the group. A pipeline sends no
heartbeat, so its group needs the latter. Source: ConsumerLagCalculator.java.

A heartbeat also creates the group's retry topic, by whose route RocketMQ's tools find the brokers that serve a group.
Source: ClientManageProcessor.java, DefaultMQAdminExtImpl.examineConsumeStats.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from rmqio.client.admin import topic_configs
from rmqio.client.admin.admin import Admin
from rmqio.wire.admin import consumer_groups as wire
from rmqio.wire.command import Command

_GET_BROKER_CONFIG: Final = 26
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
        if topic_configs.config_on(admin, _RETRY + group, broker) is None:
            queues = config.get("retryQueueNums", 1)
            topic_configs.put(admin, _RETRY + group, broker, topic_configs.TopicConfig(queues, queues))
        settings = admin.ask(broker, Command(_GET_BROKER_CONFIG), f"configuration of broker {broker.broker!r}").body
        if b"useStaticSubscription=true" not in settings.splitlines():
            unused.append(broker.broker)
    return unused
