"""`rmqio topics` and `rmqio describe`: the topics, their queues, and a group's lag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from rmqio.cli.arguments import new_command
from rmqio.cli.connect import open_admin, queue_client, queues_of
from rmqio.cli.groups import finish, print_states, require_group, state_fields, state_total
from rmqio.cli.output import count, plural, print_json, print_table
from rmqio.cli.queues import for_all, now_ms, states
from rmqio.errors import TopicNotExist
from rmqio.interfaces import QueueClient

_TOPICS_MORE = """\
examples:
  rmqio topics
  rmqio topics 'order*' -l
  rmqio topics --all          also retry, dead-letter and system topics"""

_DESCRIBE_MORE = """\
LAG is the number of messages that the group has yet to read, LAG TIME how long the oldest of them has been waiting.
Times are the broker's.

examples:
  rmqio describe orders
  rmqio describe orders --group billing
  rmqio describe orders --group billing --json | jq .total.lag_messages"""


def add_commands(commands: Any) -> None:
    """Add `topics` and `describe`."""
    topics = new_command(commands, "topics", _topics, "list the topics", more=_TOPICS_MORE)
    topics.add_argument("pattern", nargs="?", metavar="PATTERN", help="only matching names, e.g. 'order*'")
    topics.add_argument("-l", "--long", action="store_true", help="also show queues, brokers and messages")
    topics.add_argument("--all", action="store_true", help="include retry, dead-letter and RocketMQ's own topics")
    topics.add_argument("--json", action="store_true", help="print one JSON document")

    describe = new_command(
        commands, "describe", _describe, "show a topic's queues, and how far behind a group is", more=_DESCRIBE_MORE
    )
    describe.add_argument("topic", metavar="TOPIC")
    describe.add_argument("--group", metavar="GROUP", help="also show the offsets and the lag of this consumer group")
    describe.add_argument("--json", action="store_true", help="print one JSON document")


def _topics(arguments: argparse.Namespace) -> int:
    with queue_client(arguments) as client:
        if arguments.all:
            with open_admin(arguments) as admin:
                names: Sequence[str] = admin.all_topics()
        else:
            names = client.topics()
        names = [name for name in names if arguments.pattern is None or fnmatchcase(name, arguments.pattern)]
        if arguments.long:
            _print_long([row for row in for_all(lambda name: _topic(client, name), names) if row], arguments.json)
            return 0
    if arguments.json:
        print_json({"topics": [{"topic": name} for name in names]})
    else:
        for name in names:
            print(name)
    return 0


def _topic(client: QueueClient, name: str) -> dict[str, Any] | None:
    try:
        queues = client.queues(name)
        found = [client.max_offset(queue) - client.min_offset(queue) for queue in queues]
    except TopicNotExist:  # deleted since it was listed, or a name server's own
        return None
    brokers = sorted({queue.broker for queue in queues})
    return {"topic": name, "queues": len(queues), "brokers": brokers, "messages": sum(found)}


def _print_long(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"topics": rows})
        return
    cells = [(row["topic"], count(row["queues"]), count(row["messages"]), ", ".join(row["brokers"])) for row in rows]
    print_table(("TOPIC", ">QUEUES", ">MESSAGES", "BROKERS"), cells)


def _describe(arguments: argparse.Namespace) -> int:
    topic, group = arguments.topic, arguments.group
    with queue_client(arguments, pull_batch=1, pull_depth=1) as client:
        queues = queues_of(client, topic)
        found = states(client, queues, group=group)
    now = now_ms()
    if group is not None:
        with open_admin(arguments) as admin:
            require_group(admin, group, topic, found)
    if arguments.json:
        print_json(
            {
                "topic": topic,
                "group": group,
                "queues": [state_fields(state, now, group) for state in found],
                "total": state_total(found, now, group),
            }
        )
        return finish(found, group)
    brokers = len({queue.broker for queue in queues})
    whose = f", group {group}" if group is not None else ""
    print(f"topic {topic}, {plural(len(queues), 'queue')} on {plural(brokers, 'broker')}{whose}", end="\n\n")
    print_states(found, now, group)
    return finish(found, group)
