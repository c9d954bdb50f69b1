"""`rmqio offsets show` and `rmqio offsets reset`: where a group stands, and where it resumes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from rmqio.cli.groups import members_text
from rmqio.cli.queues import finish, print_states, require_group, state_fields, state_total
from rmqio.command_line.arguments import parse_group, parse_queue, parse_to, parse_topic
from rmqio.command_line.cluster import QueueState, now_ms, open_admin, queue_client, queues_of, resolve, short, states
from rmqio.command_line.output import CommandFailed, count, note, print_json, print_table
from rmqio.command_line.parser import new_command
from rmqio.errors import BrokerError, CommitIgnored, LocalError, RmqioError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from rmqio.start import TIME_HELP

if TYPE_CHECKING:
    from rmqio.client.admin import Admin


# Sets a group's offsets, and checks the result.
#
# There are two ways, and each is wrong where the other is right:
#
# - A *commit* (request 15) takes effect at once and leaves no state behind. The broker checks nothing: a member that is
#   online commits its offsets from memory a few seconds later, and so undoes the change.
# - RocketMQ's *reset* (request 222) is kept by the broker until a client pulls under the group. Until then, the broker
#   answers commits with success and ignores them. A member learns of the reset at its next pull and resumes there. With
#   no member online, the reset stays pending: a reader that pulls under a group of its own, as pipelines of rmqio do,
#   cannot commit until it takes the reset.
#
# So we commit while no member is online, and reset otherwise. If a pending reset swallows a commit, we reset instead,
# which replaces the pending one.

Method = Literal["commit", "reset"]


@dataclass(frozen=True, slots=True)
class Change:
    """One queue and its new offset."""

    state: QueueState
    target: int

    @property
    def is_needed(self) -> bool:
        return self.state.committed != self.target

    @property
    def by(self) -> int | None:
        """How far forward (messages skipped) or, if negative, back (messages repeated); None if there was no offset."""
        return None if self.state.committed is None else self.target - self.state.committed


@dataclass(frozen=True, slots=True)
class Plan:
    """The offsets to set, and the group and queues that they belong to."""

    topic: str
    group: str
    method: Method
    members: Sequence[str] | None
    """Client ids of the members online; None: unknown."""
    changes: Sequence[Change]


def choose_method(
    admin: Admin, wanted: Literal["auto", "commit", "reset"], group: str, topic: str
) -> tuple[Method, Sequence[str] | None]:
    """Return the method and the members online. Raises `CommandFailed` if these decide and are unknown."""
    try:
        members = admin.group_members(group, topic)
    except BrokerError as error:
        if wanted == "auto":
            raise CommandFailed(
                f"cannot find out whether members of group {group!r} are online ({error}); if there are none,"
                " use --method commit"
            ) from error
        return wanted, None
    if wanted == "auto":
        return ("reset" if members else "commit"), members
    if wanted == "commit" and members:
        note(
            f"{counted(len(members), 'member')} of group {group!r} online will overwrite the commit; use --method reset"
        )
    return wanted, members


def execute(plan: Plan, client: QueueClient, admin: Admin) -> set[Method]:
    """Set the offsets that differ, and return the methods used. Raises `CommandFailed`, which names the queues done."""
    done: list[str] = []
    used: set[Method] = set()
    for change in plan.changes:
        if not change.is_needed:
            continue
        queue = change.state.queue
        try:
            used.add(_set(plan, queue, change.target, client, admin))
        except RmqioError as error:
            so_far = f"; already set: {', '.join(done)}" if done else "; nothing has been changed"
            raise CommandFailed(f"cannot set the offset of queue {short(queue)}: {error}{so_far}") from error
        done.append(short(queue))
    return used


def _set(plan: Plan, queue: MessageQueue, offset: int, client: QueueClient, admin: Admin) -> Method:
    if plan.method == "commit":
        try:
            client.commit_offset(plan.group, queue, offset)
        except CommitIgnored:
            pass
        else:
            return "commit"
    admin.reset_group_offset(plan.group, queue, offset)
    return "reset"


def verify(plan: Plan, client: QueueClient) -> list[int | None]:
    """Return the offsets that the brokers report now, queue by queue."""
    return [client.committed_offset(plan.group, change.state.queue) for change in plan.changes]


_SHOW_MORE = """\
example:
  rmqio offsets show --group billing orders"""

_RESET_MORE = f"""\
Shows what would change; --execute makes the change and verifies it. WHERE is earliest, latest, an offset (with
--queue), or a TIME: the first message stored then or later. {TIME_HELP}. Write Unix milliseconds as timestamp:MS.

While no member of the group is online, its offsets are set by a commit. Members that are online would overwrite that,
so they get RocketMQ's own reset (request 222), of which each member is notified at its next pull. Pipelines of rmqio
are never online as members: stop them first, or use --method reset, which they follow (see on_group_reset).

examples:
  rmqio offsets reset --group billing orders --to earliest
  rmqio offsets reset --group billing orders --to 10m --execute
  rmqio offsets reset --group billing orders --to 1200 --queue broker-a:3"""

_FAILED: Final = 1


def add_commands(commands: Any) -> None:
    """Add `offsets` with its two commands."""
    parser = new_command(commands, "offsets", None, "show or set the offsets of a consumer group")
    inner = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)

    show = new_command(inner, "show", _show, "show the offsets of a group in a topic", more=_SHOW_MORE)
    reset = new_command(inner, "reset", _reset, "set the offsets of a group in a topic", more=_RESET_MORE)
    for command in (show, reset):
        command.add_argument("topic", type=parse_topic, metavar="TOPIC")
        command.add_argument("--group", type=parse_group, required=True, metavar="GROUP", help="the consumer group")
        command.add_argument(
            "--queue",
            dest="queues",
            type=parse_queue,
            action="append",
            default=[],
            metavar="BROKER:ID",
            help="only this queue; repeatable",
        )
        command.add_argument("--json", action="store_true", help="print one JSON document")
    reset.add_argument("--to", required=True, type=parse_to, metavar="WHERE", help="earliest, latest, offset or TIME")
    mode = reset.add_mutually_exclusive_group()
    mode.add_argument("--dry_run", action="store_true", help="only show what would change (default)")
    mode.add_argument("--execute", action="store_true", help="make the change")
    reset.add_argument(
        "--method",
        choices=("auto", "commit", "reset"),
        default="auto",
        help="auto (default): commit while no member is online, else reset",
    )
    reset.add_argument("--new_group", action="store_true", help="permit a group that has no offset in this topic yet")


# ---- show -----------------------------------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    topic, group = arguments.topic, arguments.group
    with queue_client(arguments, pull_batch=1, pull_depth=1) as client, open_admin(arguments) as admin:
        found = states(client, queues_of(client, topic, arguments.queues), group=group)
        now = now_ms()
        require_group(admin, group, topic, found)
        try:
            members = admin.group_members(group, topic)
        except BrokerError:  # permission to read offsets does not include this
            members = None
    if arguments.json:
        print_json(
            {
                "topic": topic,
                "group": group,
                "members": members,
                "queues": [state_fields(state, now, group) for state in found],
                "total": state_total(found, now, group),
            }
        )
        return finish(found, group)
    print(f"topic {topic}, group {group}, {members_text(members)}", end="\n\n")
    print_states(found, now, group)
    return finish(found, group)


# ---- reset ----------------------------------------------------------------------------------------------------------


def _reset(arguments: argparse.Namespace) -> int:
    topic, group, to = arguments.topic, arguments.group, arguments.to
    with queue_client(arguments) as client, open_admin(arguments) as admin:
        queues = queues_of(client, topic, arguments.queues)
        if to.kind == "offset" and len(queues) > 1:
            raise LocalError(
                f"--to {to.value}: an offset belongs to one queue, and {len(queues)} are selected;"
                f" add --queue, e.g. --queue {short(queues[0])}"
            )
        found = states(client, queues, group=group, with_times=False)
        for state in found:
            if state.error is not None:
                raise CommandFailed(f"queue {short(state.queue)}: {state.error}; nothing has been changed")
        if not arguments.new_group:
            require_group(admin, group, topic, found, hint="; --new_group sets its offsets anyway")
        changes = [Change(state, resolve(client, state.queue, to)) for state in found]
        method, members = choose_method(admin, arguments.method, group, topic)
        plan = Plan(topic, group, method, members, changes)
        after, used = None, {method}
        if arguments.execute:
            used = execute(plan, client, admin)
            after = verify(plan, client)
    is_wrong = after is not None and after != [change.target for change in changes]
    if arguments.json:
        print_json(_fields(plan, after))
    else:
        _print(plan, after, " and ".join(_METHODS[each] for each in sorted(used)))
    if "reset" in used and not members:
        note(
            f"the reset is pending until a member of group {group!r} pulls; until then its commits are ignored"
            if after is not None
            else f"no member of group {group!r} is known to be online: the reset would be pending until a member pulls"
        )
    if is_wrong:
        note(
            "some offsets are no longer as they were set: a member of the group has committed; stop its members and"
            " pipelines, or use --method reset, and try again"
        )
        return _FAILED
    return 0


def _print(plan: Plan, after: Sequence[int | None] | None, how: str) -> None:
    print(f"topic {plan.topic}, group {plan.group}, {members_text(plan.members)}", end="\n\n")
    columns = ["~QUEUE", "?>MIN OFFSET", "?>MAX OFFSET", ">COMMITTED", ">NEW", ">CHANGE"]
    rows = []
    for change in plan.changes:
        state = change.state
        rows.append(
            [
                short(state.queue),
                count(state.min_offset),
                count(state.max_offset),
                count(state.committed),
                count(change.target),
                "none" if not change.is_needed else "-" if change.by is None else f"{change.by:+,}",
            ]
        )
    if after is not None:
        columns += [">IS NOW", ""]
        for row, change, offset in zip(rows, plan.changes, after, strict=True):
            row += [count(offset), "ok" if offset == change.target else "WRONG"]
    print_table(columns, rows)
    print()
    again = sum(-change.by for change in plan.changes if change.by is not None and change.by < 0)
    skipped = sum(change.by for change in plan.changes if change.by is not None and change.by > 0)
    effects = [f"{counted(again, 'message')} again"] * bool(again)
    effects += [f"{counted(skipped, 'message')} skipped"] * bool(skipped)
    effect = f": {', '.join(effects)}" if effects else ""
    needed = sum(change.is_needed for change in plan.changes)
    if not needed:
        print("Nothing to change.")
    elif after is None:
        print(f"{counted(needed, 'queue')} would be set by {how}{effect}.")
        print("Nothing has been changed. To make the change, add --execute.")
    else:
        print(f"{counted(needed, 'queue')} set by {how}{effect}.")


_METHODS: Final[dict[Method, str]] = {"commit": "a commit", "reset": "RocketMQ's reset"}


def _fields(plan: Plan, after: Sequence[int | None] | None) -> dict[str, Any]:
    queues = []
    for number, change in enumerate(plan.changes):
        state = change.state
        fields = {
            "broker": state.queue.broker,
            "queue_id": state.queue.queue_id,
            "min_offset": state.min_offset,
            "max_offset": state.max_offset,
            "committed_offset": state.committed,
            "new_offset": change.target,
        }
        queues.append(fields | ({} if after is None else {"offset_now": after[number]}))
    return {
        "topic": plan.topic,
        "group": plan.group,
        "members": plan.members,
        "method": plan.method,
        "executed": after is not None,
        "queues": queues,
    }
