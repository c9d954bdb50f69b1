"""The consumer groups that brokers know, and the topics in which they have offsets: for the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Final

from rmqio.client.admin.admin import Admin
from rmqio.interfaces import QUEUES
from rmqio.model import BrokerData
from rmqio.options import ClientOptions
from rmqio.wire.admin import consumer_groups as wire

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
