"""`rmqio groups`: the consumer groups that the brokers know, and how far behind they are; or one of them by topic."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal

from rmqio.command_line.arguments import parse_topic
from rmqio.command_line.cluster import QueueState, for_all, open_admin, queue_client
from rmqio.command_line.output import CommandFailed, count, note, print_json, print_table, shortened
from rmqio.command_line.parser import new_command
from rmqio.errors import BrokerError, RmqioError, TopicNotExist, TransportError, counted
from rmqio.hints import did_you_mean
from rmqio.interfaces import OffsetQuery, QueueClient
from rmqio.model import MessageQueue

if TYPE_CHECKING:
    from rmqio.client.admin import Admin


# How far consumer groups are behind, topic by topic: asked for all groups at once.

_ENDS: Final[tuple[Literal["min", "max"], ...]] = ("min", "max")
_AT_ONCE: Final = 2_000
"""Queries of one look: its requests share one deadline."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one topic."""

    topic: str
    queues: int
    """The number of queues in which the group has an offset."""
    messages: int | None
    """None: unknown, since no broker has answered."""


def lags_of(client: QueueClient, topics_of: Mapping[str, Iterable[str]]) -> tuple[dict[str, list[Lag]], list[str]]:
    """Return the lags of each group by topic, and what could not be found out. A deleted topic is left out."""
    topics = sorted({topic for topics in topics_of.values() for topic in topics})
    queues = dict(zip(topics, for_all(lambda topic: _queues(client, topic), topics), strict=True))
    # Committed offsets first: the ends only grow meanwhile, so no offset is found past them.
    queries = [
        OffsetQuery(queue, "committed", group=group)
        for group, names in topics_of.items()
        for name in names
        for queue in queues[name]
    ]
    queries += [OffsetQuery(queue, kind) for there in queues.values() for queue in there for kind in _ENDS]
    answers, problems = _look_up(client, queries)
    found = {
        group: [_lag(name, queues[name], answers, group) for name in sorted(names) if queues[name]]
        for group, names in topics_of.items()
    }
    return found, problems


def total_of(lags: Iterable[Lag]) -> int | None:
    """Return the sum of what is known; None if nothing is."""
    known = [lag.messages for lag in lags if lag.messages is not None]
    return sum(known) if known else None


def _look_up(client: QueueClient, queries: Sequence[OffsetQuery]) -> tuple[dict[OffsetQuery, int | None], list[str]]:
    answers: dict[OffsetQuery, int | None] = {}
    problems: list[str] = []
    for begin in range(0, len(queries), _AT_ONCE):
        part = queries[begin : begin + _AT_ONCE]
        for query, answer in zip(part, client.look_up(part), strict=True):
            if isinstance(answer, RmqioError):
                problems.append(str(answer))
            else:
                answers[query] = answer
    return answers, problems


def _lag(topic: str, queues: Sequence[MessageQueue], answers: Mapping[OffsetQuery, int | None], group: str) -> Lag:
    states = [state for queue in queues if (state := _state(answers, queue, group)) is not None]
    lags = [state.lag for state in states if state.lag is not None]
    return Lag(topic, len(lags), sum(lags) if states else None)


def _state(answers: Mapping[OffsetQuery, int | None], queue: MessageQueue, group: str) -> QueueState | None:
    low, high = (answers.get(OffsetQuery(queue, kind)) for kind in _ENDS)
    query = OffsetQuery(queue, "committed", group=group)
    if low is None or high is None or query not in answers:
        return None
    return QueueState(queue, low, high, committed=answers[query])


def _queues(client: QueueClient, topic: str) -> Sequence[MessageQueue]:
    try:
        return client.queues(topic)
    except TopicNotExist:
        return ()


# The online members of a consumer group, in words.


def members_text(members: Sequence[str] | None) -> str:
    """Say who is online; None: unknown."""
    if members is None:
        return "members online unknown"
    return f"{counted(len(members), 'member')} online: {shortened(members)}" if members else "nobody online"


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
