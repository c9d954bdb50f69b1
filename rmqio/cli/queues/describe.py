"""`rmqio describe`: a topic's queues and a group's lag, once or again and again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rmqio.cli.queues.table import finish, print_states, require_group, state_fields, state_total
from rmqio.command_line.commands import new_command
from rmqio.command_line.connect import open_admin, queue_client, queues_of
from rmqio.command_line.contents import QueueState, now_ms, states
from rmqio.command_line.output import print_json
from rmqio.command_line.values import parse_group, parse_seconds, parse_topic
from rmqio.command_line.watch import watch
from rmqio.errors import counted
from rmqio.interfaces import QueueClient

_MORE = """\
MAX OFFSET is one past the newest message. LAG is the number of messages that the group has yet to read, LAG TIME how
long the oldest of them has been waiting. Times are the broker's. Columns are left out where the terminal is too
narrow.

examples:
  rmqio describe orders
  rmqio describe orders --group billing --watch
  rmqio describe orders --group billing --json | jq .total.lag_messages"""


def add_commands(commands: Any) -> None:
    """Add `describe`."""
    describe = new_command(
        commands, "describe", _describe, "show a topic's queues, and how far behind a group is", more=_MORE
    )
    describe.add_argument("topic", type=parse_topic, metavar="TOPIC")
    describe.add_argument(
        "--group", type=parse_group, metavar="GROUP", help="also show the offsets and the lag of this consumer group"
    )
    describe.add_argument(
        "--watch",
        nargs="?",
        const=2,
        type=parse_seconds,
        metavar="SECONDS",
        help="show it again every SECONDS (default: 2) until Ctrl-C",
    )
    describe.add_argument("--json", action="store_true", help="print one JSON document; with --watch, one per line")


def _describe(arguments: argparse.Namespace) -> int:
    topic, group = arguments.topic, arguments.group
    with queue_client(arguments, pull_batch=1, pull_depth=1) as client:
        if group is not None:
            found = _states(client, topic, group)
            with open_admin(arguments) as admin:
                require_group(admin, group, topic, found)
        if arguments.watch is None:
            return _show(_states(client, topic, group) if group is None else found, arguments)
        return watch(
            lambda: _show(_states(client, topic, group), arguments), arguments.watch, redraws=not arguments.json
        )


def _states(client: QueueClient, topic: str, group: str | None) -> list[QueueState]:
    return states(client, queues_of(client, topic), group=group)


def _show(found: Sequence[QueueState], arguments: argparse.Namespace) -> int:
    topic, group = arguments.topic, arguments.group
    now = now_ms()
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
    where = f"{counted(len(found), 'queue')} on {counted(len({state.queue.broker for state in found}), 'broker')}"
    messages = counted(state_total(found, now, None)["messages"], "message")
    whose = f", group {group}" if group is not None else ""
    print(f"topic {topic}, {where}, {messages}{whose}", end="\n\n")
    print_states(found, now, group)
    return finish(found, group)
