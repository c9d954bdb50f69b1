"""`rmqio describe`: a topic's queues and a group's lag, once or again and again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqio.command_line.arguments import parse_group, parse_seconds, parse_topic
from rmqio.command_line.cluster import QueueState, now_ms, open_admin, queue_client, queues_of, remarks, short, states
from rmqio.command_line.output import CommandFailed, age, count, duration, note, print_json, print_table, watch
from rmqio.command_line.parser import new_command
from rmqio.errors import BrokerError, counted
from rmqio.hints import did_you_mean
from rmqio.interfaces import QueueClient

if TYPE_CHECKING:
    from rmqio.client.admin import Admin


# The queues of a topic and the position of a group in them, for `describe` and `offsets show`.


def require_group(admin: Admin, group: str, topic: str, states: Sequence[QueueState], *, hint: str = "") -> None:
    """Raises `CommandFailed` for a group without offset in the topic and without member: probably a mistyped name.

    No request asks a broker for a group without creating it.
    """
    # 0 can mean none: brokers before 5.0 answer it for a group that they have never seen.
    if any(state.committed or state.error is not None for state in states):
        return
    try:
        known = admin.groups_of_topic(topic)
    except BrokerError:  # not permitted or not supported: accept the group
        return
    if group not in known:
        near = did_you_mean(group, known) or (f"; groups with offsets: {', '.join(known)}" if known else "")
        raise CommandFailed(f"group {group!r} has no offset in topic {topic!r}, and no member online{near}{hint}")


def print_states(states: Sequence[QueueState], now_ms: int, group: str | None) -> None:
    """Print the table of queues: how many messages each has, or where the group is."""
    total = state_total(states, now_ms, group)
    newest = age(total["last_timestamp_ms"], now_ms)
    if group is None:
        columns = ["~QUEUE", "?>MIN OFFSET", ">MAX OFFSET", ">MESSAGES", "NEWEST"]
        last = ["total", "", "", count(total["messages"]), newest]
    else:
        columns = ["~QUEUE", "?>MIN OFFSET", ">MAX OFFSET", "?NEWEST", ">COMMITTED", ">LAG", ">LAG TIME"]
        last = ["total", "", "", newest, "", count(total["lag_messages"]), duration(total["lag_ms"])]
    print_table(columns, [_row(state, now_ms, group) for state in states], total=last)


def finish(states: Sequence[QueueState], group: str | None) -> int:
    """Print the remarks, and return the exit status, which is 1 if a broker could not be reached."""
    silent: dict[str, list[str]] = {}
    for state in states:
        if state.error is not None:
            silent.setdefault(state.error.removeprefix(f"{state.queue}: "), []).append(short(state.queue))
    for error, queues in silent.items():
        note(f"no answer for {', '.join(queues)}: {error}")
    for text in remarks([state for state in states if state.error is None], group):
        note(text)
    return 1 if silent else 0


def _row(state: QueueState, now_ms: int, group: str | None) -> list[str]:
    if state.error is not None:
        more = ["-", "no answer"] if group is None else ["no answer", "-", "-", "-"]
        return [short(state.queue), "-", "-", *more]
    row = [short(state.queue), count(state.min_offset), count(state.max_offset)]
    newest = age(state.last_ms, now_ms)
    if group is None:
        return [*row, count(state.messages), newest]
    return [*row, newest, count(state.committed), count(state.lag), duration(state.lag_ms(now_ms))]


def state_fields(state: QueueState, now_ms: int, group: str | None) -> dict[str, Any]:
    """Return the state of a queue for a script."""
    place = {"broker": state.queue.broker, "queue_id": state.queue.queue_id}
    if state.error is not None:
        return place | {"error": state.error}
    fields: dict[str, Any] = place | {
        "min_offset": state.min_offset,
        "max_offset": state.max_offset,
        "messages": state.messages,
        "last_timestamp_ms": state.last_ms,
    }
    if group is not None:
        fields |= {
            "committed_offset": state.committed,
            "lag_messages": state.lag,
            "lag_ms": state.lag_ms(now_ms),
            "lost_messages": state.lost,
        }
    return fields


def state_total(states: Sequence[QueueState], now_ms: int, group: str | None) -> dict[str, Any]:
    """Return sums over the queues that answered, the time of the newest message, and the longest lag."""
    states = [state for state in states if state.error is None]
    fields: dict[str, Any] = {
        "messages": sum(state.messages for state in states),
        "last_timestamp_ms": max((state.last_ms for state in states if state.last_ms is not None), default=None),
    }
    if group is not None:
        lags = [state.lag for state in states if state.lag is not None]
        times = [lag_ms for state in states if (lag_ms := state.lag_ms(now_ms)) is not None]
        fields |= {
            "lag_messages": sum(lags) if lags else None,
            "lag_ms": max(times, default=None),
            "lost_messages": sum(state.lost for state in states),
        }
    return fields


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
