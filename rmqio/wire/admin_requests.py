"""Requests of administration: the configurations of topics, and tables of consumer groups."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.errors import RequestCodeNotSupported, TopicNotExist, WireError
from rmqio.model import READ_PERMISSION, WRITE_PERMISSION
from rmqio.wire.command import Command, RequestCode, ResponseCode
from rmqio.wire.requests import AUTO_CREATE_TOPIC, expect_success

# The tables of a broker's consumer groups: which there are, how they are configured, and where they have offsets.
#
# Sources: SubscriptionGroupWrapper.java, SubscriptionGroupConfig.java, ConsumerOffsetManager.java.

_GET_ALL_CONSUMER_OFFSET: Final = 43
_PUT_SUBSCRIPTION_GROUP: Final = 200
_GET_ALL_SUBSCRIPTION_GROUP_CONFIG: Final = 201
_BARE_KEY: Final = re.compile(rb"([{,])(\d+):")


def get_groups() -> Command:
    """Request the configurations of all consumer groups."""
    return Command(_GET_ALL_SUBSCRIPTION_GROUP_CONFIG)


def parse_groups(answer: Command, what: str) -> dict[str, dict[str, Any]]:
    """Return the configurations of the groups by name, including RocketMQ's own."""
    return _table(answer, "subscriptionGroupTable", what)


def put_group(config: dict[str, Any]) -> Command:
    """Replace the configuration of a group, or create it. `groupName` says which; what is not given is the default."""
    return Command(_PUT_SUBSCRIPTION_GROUP, {}, json.dumps(config).encode())


def subscription(topic: str, version: int) -> dict[str, Any]:
    """Return the entry of `subscriptionDataSet` for a group that reads all messages of a topic."""
    return {
        "topic": topic,
        "subString": "*",
        "expressionType": "TAG",
        "subVersion": version,
        "tagsSet": [],
        "codeSet": [],
        "classFilterMode": False,
    }


def get_offsets() -> Command:
    """Request the committed offsets of all groups."""
    return Command(_GET_ALL_CONSUMER_OFFSET)


def parse_offset_topics(answer: Command, what: str) -> dict[str, set[str]]:
    """Return the topics in which each group has offsets. Neither a topic nor a group can have an `@` in its name."""
    found: dict[str, set[str]] = {}
    for key in _table(answer, "offsetTable", what):
        topic, at, group = key.partition("@")
        if at:
            found.setdefault(group, set()).add(topic)
    return found


def _table(answer: Command, field: str, what: str) -> dict[str, Any]:
    expect_success(answer, what)
    try:
        try:
            content = json.loads(answer.body)
        except ValueError:  # queue ids are bare integer keys, which is not JSON
            content = json.loads(_BARE_KEY.sub(rb'\1"\2":', answer.body))
        found = content.get(field) or {}
    except (ValueError, AttributeError) as error:
        raise WireError(f"{what}: the answer is not a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise WireError(f"{what}: {field} is not a JSON object")
    return found


MESSAGE_TYPE: Final = "message.type"
MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")
_GET_ALL_TOPIC_CONFIG: Final = 21
_PUT_KV_CONFIG: Final = 100
_GET_KV_CONFIG: Final = 101
_DELETE_KV_CONFIG: Final = 102
_ORDERS: Final = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One broker's configuration of a topic. `permission`: 4 read, 2 write, 6 both; other bits are RocketMQ's own."""

    read_queues: int = 4
    write_queues: int = 4
    permission: int = READ_PERMISSION | WRITE_PERMISSION
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    """By RocketMQ's names, e.g. `message.type`; brokers before 5.0 have none."""
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0


def put_topic_config(topic: str, config: TopicConfig, *, removed: frozenset[str] = frozenset()) -> Command:
    """Create or change a topic on one broker, which replaces everything but the attributes.

    Attributes that are not in the request stay as they are; `removed` names those to delete.
    """
    set_ = [f"+{name}={value}" for name, value in config.attributes.items()]
    ext = {
        "topic": topic,
        "defaultTopic": AUTO_CREATE_TOPIC,
        "readQueueNums": str(config.read_queues),
        "writeQueueNums": str(config.write_queues),
        "perm": str(config.permission),
        "topicFilterType": config.filter_type,
        "topicSysFlag": str(config.sys_flag),
        "order": "true" if config.order else "false",
        "attributes": ",".join([*set_, *(f"-{name}" for name in sorted(removed))]),
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def get_topic_config(topic: str) -> Command:
    """Request a topic's configuration. Brokers before 5.0 do not support it: see `get_all_topic_configs`."""
    return Command(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})


def get_all_topic_configs() -> Command:
    """Request the configurations of all topics of a broker."""
    return Command(_GET_ALL_TOPIC_CONFIG)


def parse_topic_config(answer: Command, what: str) -> TopicConfig | None:
    """Return the configuration; None if the broker does not have the topic. Raises `RequestCodeNotSupported`."""
    if answer.code == TopicNotExist.number:
        return None
    expect_success(answer, what)
    return _config(_json(answer, what), what)


def parse_all_topic_configs(answer: Command, topic: str, what: str) -> TopicConfig | None:
    """Return the configuration of one topic, as `parse_topic_config`."""
    expect_success(answer, what)
    found = _json(answer, what).get("topicConfigTable")
    if not isinstance(found, dict):
        raise WireError(f"{what}: the answer has no topicConfigTable")
    return _config(found[topic], what) if topic in found else None


def is_not_supported(answer: Command) -> bool:
    """Return whether a broker does not know the request."""
    return answer.code == RequestCodeNotSupported.number


def _config(found: Any, what: str) -> TopicConfig:
    try:
        return TopicConfig(
            int(found["readQueueNums"]),
            int(found["writeQueueNums"]),
            int(found["perm"]),
            bool(found.get("order")),
            {str(name): str(value) for name, value in (found.get("attributes") or {}).items()},
            str(found.get("topicFilterType") or "SINGLE_TAG"),
            int(found.get("topicSysFlag") or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"{what}: the answer is malformed: {error!r}") from error


def _json(answer: Command, what: str) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError as error:
        raise WireError(f"{what}: the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise WireError(f"{what}: the answer is not a JSON object")
    return found


# ---- the order of a topic at a name server ---------------------------------------------------------------------------


def put_order(topic: str, queues: Mapping[str, int]) -> Command:
    """Fix the queues of an ordered topic: Java's producers then use these, also while a broker is down.

    A name server reports them if `orderMessageEnable` is on.
    """
    value = ";".join(f"{broker}:{count}" for broker, count in sorted(queues.items()))
    return Command(_PUT_KV_CONFIG, {"namespace": _ORDERS, "key": topic, "value": value})


def get_order(topic: str) -> Command:
    """Request the fixed queues of a topic."""
    return Command(_GET_KV_CONFIG, {"namespace": _ORDERS, "key": topic})


def parse_order(answer: Command, what: str) -> str | None:
    """Return the fixed queues as text, `broker-a:8;broker-b:8`; None: there are none, or the server keeps none."""
    if answer.code == ResponseCode.QUERY_NOT_FOUND or is_not_supported(answer):
        return None
    expect_success(answer, what)
    return answer.ext.get("value")


def delete_order(topic: str) -> Command:
    """Forget the fixed queues of a topic. No effect if there are none."""
    return Command(_DELETE_KV_CONFIG, {"namespace": _ORDERS, "key": topic})
