"""`rmqio groups`: the consumer groups that the brokers know, and how far behind they are; or one of them by topic."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from rmqio.cli.groups.lags import lags_of, total_of
from rmqio.cli.groups.members import members_text
from rmqio.command_line.commands import new_command
from rmqio.command_line.connect import open_admin, queue_client
from rmqio.command_line.contents import for_all
from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.output import count, note, print_json, print_table
from rmqio.command_line.values import parse_topic
from rmqio.errors import BrokerError, TransportError
from rmqio.interfaces import QueueClient
from rmqio.near_names import did_you_mean

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

_MORE = """\
LAG is the number of messages that the group has yet to read, in all topics in which it has offsets, %RETRY% topics
included, but not the topics in which it keeps the position of an exactly-once write. Nothing is committed, and no group
is joined. Only --subscribe changes something.

examples:
  rmqio groups
  rmqio groups billing
  rmqio groups 'bill*' --long --json
  rmqio groups billing --subscribe orders"""

_FAILED: Final = 1


def add_commands(commands: Any) -> None:
    """Add `groups`."""
    groups = new_command(commands, "groups", _groups, "list the consumer groups, or show one, with their lag",
                         more=_MORE)  # fmt: skip
    groups.add_argument(
        "group", nargs="?", metavar="GROUP", help="show this group by topic; with *, list the groups that match"
    )
    groups.add_argument("-l", "--long", action="store_true", help="also show how many members are online")
    groups.add_argument(
        "--all",
        action="store_true",
        help="include RocketMQ's own groups, rmqio's private one, and those of exactly-once writes",
    )
    groups.add_argument("--names", action="store_true", help="show only the names, one per line, without the lag")
    groups.add_argument("--json", action="store_true", help="print one JSON document")
    groups.add_argument(
        "--subscribe",
        type=parse_topic,
        action="append",
        metavar="TOPIC",
        help="write on the brokers that GROUP reads this topic, and no others, and create its retry topic, so that"
        " their metrics and mqadmin have its lag; can be repeated",
    )


def _groups(arguments: argparse.Namespace) -> int:
    from rmqio.client.admin import is_own, positions_in

    wanted = arguments.group
    if arguments.names and (arguments.long or arguments.json):
        arguments.parser.error("--names cannot be combined with --long or --json")
    if arguments.subscribe:
        if wanted is None or set(wanted) & set("*?[") or arguments.names or arguments.long or arguments.json:
            arguments.parser.error("--subscribe needs the name of one group, and no other option")
        return _subscribe(arguments)
    with open_admin(arguments) as admin, queue_client(arguments) as client:
        known, silent = _known(admin)
        positions = positions_in(known)
        if wanted is not None and not arguments.names and not set(wanted) & set("*?["):
            if wanted not in known:
                near = did_you_mean(wanted, known) or "; `rmqio groups` lists the groups"
                raise CommandFailed(f"no broker knows the group {wanted!r}{near}")
            of_writes = positions.get(wanted, set())
            return _one(client, admin, wanted, known[wanted], of_writes, arguments.json) or _tell(silent)
        read = {name: topics - positions.get(name, set()) for name, topics in known.items()}
        hidden = {name for name in known if is_own(name) or (name in positions and not read[name])}
        names = sorted(name for name in known if arguments.all or name not in hidden)
        if wanted is not None:
            names = [name for name in names if fnmatchcase(name, wanted)]
        lags, problems = lags_of(client, {name: read[name] for name in names if not arguments.names})
        members: list[list[str] | None] = [None] * len(names)
        if arguments.long:
            members = for_all(lambda name: _members(admin, name), names)
    if arguments.json:
        print_json(
            {
                "groups": [
                    {"group": name, "topics": len(lags[name]), "lag_messages": total_of(lags[name])}
                    | ({"members": online} if arguments.long else {})
                    for name, online in zip(names, members, strict=True)
                ]
            }
        )
    elif arguments.names and names:
        print("\n".join(names))
    elif names:
        columns = ["~GROUP", ">TOPICS", ">LAG", *([">MEMBERS"] * arguments.long)]
        rows = [
            [
                name,
                count(len(lags[name])),
                count(total_of(lags[name])),
                *([count(None if online is None else len(online))] * arguments.long),
            ]
            for name, online in zip(names, members, strict=True)
        ]
        print_table(columns, rows)
    else:
        note("no broker knows a consumer group" + (f" that matches {wanted!r}" if wanted is not None else ""))
    return _tell([*silent, *problems]) or int(wanted is not None and not names)


def _subscribe(arguments: argparse.Namespace) -> int:
    from rmqio.client.admin import subscribe

    group, topics = arguments.group, [*dict.fromkeys(arguments.subscribe)]
    with open_admin(arguments) as admin, queue_client(arguments) as client:
        for topic in topics:
            client.queues(topic)  # raises for a topic that does not exist
        unused = subscribe(admin, group, topics)
    print(f"group {group} reads {', '.join(topics)}, as the brokers know now")
    for broker in unused:
        note(f"the metrics of {broker} leave the group out until its useStaticSubscription is true")
    return 0


def _one(
    client: QueueClient, admin: Admin, group: str, topics: set[str], of_writes: Collection[str], as_json: bool
) -> int:
    """Print one group, topic by topic. `of_writes`: topics in which it has no lag, but the position of a write."""
    found, problems = lags_of(client, {group: topics.difference(of_writes)})
    lags, online = found[group], _members(admin, group)
    if as_json:
        rows = [{"topic": lag.topic, "queues": lag.queues, "lag_messages": lag.messages} for lag in lags]
        print_json({"group": group, "members": online, "topics": rows, "total": {"lag_messages": total_of(lags)}})
        return _tell(problems)
    print(f"group {group}, {members_text(online)}", end="\n\n")
    if lags:
        cells = [[lag.topic, count(lag.queues), count(lag.messages)] for lag in lags]
        print_table(("~TOPIC", ">QUEUES", ">LAG"), cells, total=["total", "", count(total_of(lags))])
    elif not of_writes:
        print("The group has no offset in any topic.")
    if of_writes:
        print(f"Its offsets in {', '.join(sorted(of_writes))} are the position of an exactly-once write, and no lag.")
    return _tell(problems)


def _known(admin: Admin) -> tuple[dict[str, set[str]], list[str]]:
    """Return the groups with their topics, and why brokers did not answer. Raises if none did."""
    from rmqio.client.admin import known_groups

    def ask(broker: Any) -> dict[str, set[str]] | TransportError:
        try:
            return known_groups(admin, broker)
        except TransportError as error:
            return error

    answers = for_all(ask, admin.masters())
    errors = [answer for answer in answers if isinstance(answer, TransportError)]
    if len(errors) == len(answers):
        raise errors[0]
    known: dict[str, set[str]] = {}
    for answer in answers:
        if not isinstance(answer, TransportError):
            for group, topics in answer.items():
                known.setdefault(group, set()).update(topics)
    return known, [str(error) for error in errors]


def _members(admin: Admin, group: str) -> list[str] | None:
    try:
        return admin.group_members(group)
    except (BrokerError, TransportError):  # not permitted, or a broker is down, which is reported elsewhere
        return None


def _tell(problems: Sequence[str]) -> int:
    """Print each problem once, and return the exit status."""
    for problem in dict.fromkeys(problems):
        note(problem)
    return _FAILED if problems else 0
