"""The tables of a broker's consumer groups: which there are, and in which topics they have offsets.

Sources: SubscriptionGroupWrapper.java, ConsumerOffsetManager.java.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from rmqio.errors import WireError
from rmqio.wire.command import Command
from rmqio.wire.requests import expect_success

_GET_ALL_CONSUMER_OFFSET: Final = 43
_GET_ALL_SUBSCRIPTION_GROUP_CONFIG: Final = 201
_BARE_KEY: Final = re.compile(rb"([{,])(\d+):")


def get_groups() -> Command:
    """Request the configurations of all consumer groups."""
    return Command(_GET_ALL_SUBSCRIPTION_GROUP_CONFIG)


def parse_groups(answer: Command, what: str) -> set[str]:
    """Return the names of the groups, including RocketMQ's own."""
    return set(_table(answer, "subscriptionGroupTable", what))


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
