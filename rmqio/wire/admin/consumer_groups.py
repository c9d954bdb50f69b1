"""The tables of a broker's consumer groups: which there are, how they are configured, and where they have offsets.

Sources: SubscriptionGroupWrapper.java, SubscriptionGroupConfig.java, ConsumerOffsetManager.java.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from rmqio.errors import WireError
from rmqio.wire.command import Command
from rmqio.wire.requests import expect_success

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
