"""`rmqio topics`: lists, creates, updates and deletes topics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from rmqio.command_line.arguments import parse_count, parse_property, parse_topic
from rmqio.command_line.cluster import for_all, missing_topic, open_admin, queue_client, queues_of
from rmqio.command_line.output import CommandFailed, count, note, print_json, print_table, shortened
from rmqio.command_line.parser import Parser, new_command, optional_command
from rmqio.errors import BrokerError, LocalError, RmqioError, TopicNotExist, TransportError, counted
from rmqio.hints import did_you_mean, nearest
from rmqio.interfaces import QueueClient
from rmqio.model import BrokerData

if TYPE_CHECKING:
    from rmqio.client.admin import Admin, TopicConfig


# The brokers on which a topic is changed or deleted, their state of it, and the question before something is lost.


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the options that all changes of topics take."""
    parser.add_argument("--cluster", metavar="NAME", help="needed if the name servers know several clusters")
    parser.add_argument("--dry_run", action="store_true", help="only show what would be done")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def masters(admin: Admin, cluster: str | None, named: Sequence[str] = ()) -> list[BrokerData]:
    """Return the masters of a cluster, or those that are named.

    Raises `CommandFailed` for a name that is not there, and for several clusters of which none is named.
    """
    there = admin.masters()
    clusters = sorted({broker.cluster for broker in there})
    if cluster is None and len(clusters) > 1:
        raise CommandFailed(f"the name servers know several clusters, {', '.join(clusters)}: name one with --cluster")
    if cluster not in (None, *clusters):
        near = did_you_mean(str(cluster), clusters)
        raise CommandFailed(f"--cluster {cluster}: the name servers know {', '.join(clusters)}{near}")
    found = [broker for broker in there if cluster in (None, broker.cluster)]
    names = [broker.broker for broker in found]
    for name in named:
        if name not in names:
            raise CommandFailed(f"--broker {name}: the masters are {shortened(names)}{did_you_mean(name, names)}")
    return [broker for broker in found if not named or broker.broker in named]


def configs(
    admin: Admin, topic: str, brokers: Sequence[BrokerData], *, so_far: str = "nothing has been changed"
) -> dict[str, TopicConfig | None]:
    """Return the topic's configuration on each broker, by name; None for a broker that does not have it.

    Raises `CommandFailed` for a broker that does not answer, saying what has been done so far.
    """
    from rmqio.client.admin import config_on

    def ask(broker: BrokerData) -> TopicConfig | None:
        try:
            return config_on(admin, topic, broker)
        except TransportError as error:
            raise CommandFailed(f"broker {broker.broker} does not answer: {error}; {so_far}") from error

    return dict(zip([broker.broker for broker in brokers], for_all(ask, brokers), strict=True))


def confirmed(question: str, *, is_sure: bool) -> bool:
    """Ask on a terminal, unless the user is sure (--yes). Raises `LocalError` where nobody can answer."""
    if is_sure:
        return True
    if not sys.stdin.isatty():
        raise LocalError(f"{question} Standard input is not a terminal: add --yes to continue")
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# `rmqio topics delete`: says what would be lost, asks, and deletes.

_DELETE_MORE = """\
Deletes the topic, its messages and the groups' offsets in it on every broker of the cluster, and at the name servers.
It asks first; without a terminal, it needs --yes.

examples:
  rmqio topics delete orders --dry_run
  rmqio topics delete orders --yes"""


def add_command(topics: Parser) -> None:
    """Add `delete` to `topics`."""
    delete = optional_command(topics, "delete", _delete, "delete a topic and its messages", more=_DELETE_MORE)
    delete.add_argument("topic", type=parse_topic, metavar="TOPIC")
    add_where(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _delete(arguments: argparse.Namespace) -> int:
    from rmqio.client.admin import delete_topic

    topic = arguments.topic
    with open_admin(arguments) as admin, queue_client(arguments) as client:
        brokers = masters(admin, arguments.cluster)
        there = [name for name, config in configs(admin, topic, brokers).items() if config is not None]
        try:
            queues = client.queues(topic)
        except TopicNotExist as error:
            if not there:
                raise CommandFailed(missing_topic(client, topic)) from error
            queues = ()
        queues = [queue for queue in queues if queue.broker in there]
        messages = sum(for_all(lambda queue: client.max_offset(queue) - client.min_offset(queue), queues))
        groups = _groups(admin, topic)
        if not arguments.json:
            where = f" on {shortened(there)}" if there else ", known to the name servers only"
            print(f"topic {topic}{where}: {counted(len(queues), 'queue')}, {counted(messages, 'message')}")
            if groups:
                print(f"consumer groups with offsets in it: {shortened(groups)}")
        if not arguments.dry_run:
            if not confirmed("Delete the topic and its messages?", is_sure=arguments.yes):
                note("nothing has been deleted")
                return _FAILED
            delete_topic(admin, topic, [broker for broker in brokers if broker.broker in there], arguments.cluster)
    if arguments.json:
        fields = {"topic": topic, "executed": not arguments.dry_run, "brokers": there, "queues": len(queues)}
        print_json(fields | {"messages": messages, "groups": groups})
    elif arguments.dry_run:
        print("Nothing has been deleted. To delete the topic, leave out --dry_run.")
    else:
        print(f"deleted topic {topic}")
    return 0


def _groups(admin: Admin, topic: str) -> list[str]:
    try:
        return admin.groups_of_topic(topic)
    except (BrokerError, TopicNotExist):  # not permitted, or no longer there
        return []


# Plans a change of a topic on each broker: the options as a value, the differences, and the words for them.

MESSAGE_TYPE: Final = "message.type"
PERMISSIONS: Final = {"rw": 6, "r": 4, "w": 2}
_READ_AND_WRITE: Final = 6
_PERMISSION_TEXT: Final = {6: "read and write", 4: "read only", 2: "write only", 0: "neither read nor write"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a command that concern a topic; None: the option was not given."""

    queues: int | None = None
    """Readable and writable."""
    write_queues: int | None = None
    """Instead of `queues`, of those that can be written to."""
    permission: int | None = None
    order: bool | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return self == Wanted()

    def applied(self, config: TopicConfig) -> TopicConfig:
        """Return the configuration with these changes."""
        read = config.read_queues if self.queues is None else self.queues
        write = next(number for number in (self.write_queues, self.queues, config.write_queues) if number is not None)
        permission = config.permission
        if self.permission is not None:  # other bits are the broker's own
            permission = permission & ~_READ_AND_WRITE | self.permission
        order = config.order if self.order is None else self.order
        attributes = {**config.attributes, **self.attributes}
        return replace(
            config, read_queues=read, write_queues=write, permission=permission, order=order, attributes=attributes
        )

    def options(self) -> str:
        """Return the options of a command that asks for the same."""
        words = [f"--queues {self.queues}"] * (self.queues is not None)
        words += [f"--write_queues {self.write_queues}"] * (self.write_queues is not None)
        words += [f"--permission {name}" for name, number in PERMISSIONS.items() if number == self.permission]
        words += ["--order" if self.order else "--no_order"] * (self.order is not None)
        for name, value in self.attributes.items():
            words.append(f"--message_type {value}" if name == MESSAGE_TYPE else f"--attribute {name}={value}")
        return " ".join(words)


def description(config: TopicConfig) -> str:
    """Describe a configuration: `8 queues, read and write, message type FIFO`."""
    parts = [_queues(config), _permission(config)]
    parts += ["ordered"] * config.order
    parts += [f"{_name(name)} {value}" for name, value in sorted(config.attributes.items())]
    return ", ".join(parts)


def differences(one: TopicConfig, other: TopicConfig) -> list[tuple[str, str]]:
    """Return what differs, in the words of each side: `4 queues` and `8 queues`."""
    found = [
        (_queues(one), _queues(other)),
        (_permission(one), _permission(other)),
        ("ordered" if one.order else "unordered", "ordered" if other.order else "unordered"),
    ]
    for name in sorted({*one.attributes, *other.attributes}):
        values = (config.attributes.get(name, "unset") for config in (one, other))
        old, new = (f"{_name(name)} {value}" for value in values)
        found.append((old, new))
    return [(old, new) for old, new in found if old != new]


def contrast(found: Sequence[tuple[str, str]]) -> str:
    """Say what is there and what should be, from `differences`."""
    return ", ".join(f"{has} (not {asked})" for has, asked in found)


def hidden_queues(before: TopicConfig, after: TopicConfig) -> Sequence[int]:
    """Return the ids of the queues that can no longer be read after a change."""
    return range(after.read_queues, before.read_queues)


def _queues(config: TopicConfig) -> str:
    if config.read_queues == config.write_queues:
        return counted(config.read_queues, "queue")
    return f"{counted(config.read_queues, 'queue')} to read, {config.write_queues} to write"


def _permission(config: TopicConfig) -> str:
    return _PERMISSION_TEXT[config.permission & _READ_AND_WRITE]


def _name(attribute: str) -> str:
    return "message type" if attribute == MESSAGE_TYPE else attribute


# `rmqio topics create` and `rmqio topics update`: what they change on each broker, and what they say.

_FAILED: Final = 1
_DEFAULT_QUEUES: Final = 4
_MESSAGE_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")

_CREATE_MORE = """\
Creates the topic on every broker of the cluster. A broker that already has it is left unchanged; if one differs from
the options, nothing is created anywhere. The queues are counted per broker. The message type is for RocketMQ's gRPC
proxy, which refuses other messages; brokers since 5.0 keep it.

examples:
  rmqio topics create orders --queues 8
  rmqio topics create refunds --message_type FIFO --order --dry_run"""

_UPDATE_MORE = """\
Changes what the options say, and nothing else, on every broker that has the topic. Fewer queues hide the messages in
the others. To remove queues that are in use, lower --write_queues first. When all groups have read the remaining
queues to their end, lower --queues.

examples:
  rmqio topics update orders --queues 16
  rmqio topics update orders --permission r --broker broker-a"""


def add_changes(topics: Parser) -> None:
    """Add both to `topics`."""
    create = optional_command(topics, "create", _create, "create a topic", more=_CREATE_MORE)
    update = optional_command(topics, "update", _update, "change a topic", more=_UPDATE_MORE)
    for parser in (create, update):
        parser.add_argument("topic", type=parse_topic, metavar="TOPIC")
        _add_properties(parser, is_new=parser is create)
        parser.add_argument(
            "--broker", dest="brokers", action="append", default=[], metavar="NAME", help="only this broker; repeatable"
        )
        add_where(parser)
    update.add_argument("--yes", action="store_true", help="do not ask before messages are hidden")


def _add_properties(parser: Parser, *, is_new: bool) -> None:
    add = parser.add_argument
    add("--queues", type=parse_count, metavar="N",
        help="queues per broker" + (f"; default: {_DEFAULT_QUEUES}" if is_new else ""))  # fmt: skip
    add("--write_queues", type=parse_count, metavar="N", help="of these, the first N can be written to; default: all")
    add("--permission", choices=tuple(PERMISSIONS), help="read and write, read only, or write only"
        + ("; default: rw" if is_new else ""))  # fmt: skip
    order = parser.add_mutually_exclusive_group()
    order.add_argument("--order", action="store_true", default=None,
                       help="Java's producers keep to these queues while a broker is down")  # fmt: skip
    order.add_argument("--no_order", dest="order", action="store_false", default=None, help="undo --order")
    add("--message_type", type=str.upper, choices=_MESSAGE_TYPES, metavar="TYPE", help=", ".join(_MESSAGE_TYPES))
    add("--attribute", dest="attributes", type=parse_property, action="append", default=[], metavar="NAME=VALUE",
        help="another attribute of RocketMQ's, e.g. cleanup.policy=COMPACTION; repeatable")  # fmt: skip


def _wanted(arguments: argparse.Namespace) -> Wanted:
    attributes = dict(arguments.attributes)
    if arguments.message_type is not None:
        attributes[MESSAGE_TYPE] = arguments.message_type
    permission = PERMISSIONS[arguments.permission] if arguments.permission is not None else None
    return Wanted(arguments.queues, arguments.write_queues, permission, arguments.order, attributes)


# ---- create and update -----------------------------------------------------------------------------------------------


def _create(arguments: argparse.Namespace) -> int:
    from rmqio.client.admin import TopicConfig

    topic, wanted = arguments.topic, _wanted(arguments)
    new = wanted.applied(TopicConfig(_DEFAULT_QUEUES, _DEFAULT_QUEUES))
    _check(new)
    with open_admin(arguments) as admin:
        brokers = masters(admin, arguments.cluster, arguments.brokers)
        before = configs(admin, topic, brokers)
        for name, config in before.items():
            different = differences(config, wanted.applied(config)) if config is not None else []
            if different:
                raise CommandFailed(
                    f"topic {topic!r} exists on {name} with {contrast(different)}; nothing has been changed:"
                    f" `rmqio topics update {topic} {wanted.options()}` changes it"
                )
        after = {name: new if config is None else config for name, config in before.items()}
        _carry_out(arguments, admin, brokers, before, after)
    return 0


def _update(arguments: argparse.Namespace) -> int:
    topic, wanted = arguments.topic, _wanted(arguments)
    if wanted.is_nothing:
        arguments.parser.error("there is nothing to change: add --queues, --permission or another option")
    with open_admin(arguments) as admin, queue_client(arguments) as client:
        brokers = masters(admin, arguments.cluster, arguments.brokers)
        found = configs(admin, topic, brokers)
        before = {name: config for name, config in found.items() if config is not None}
        if not before:
            queues_of(client, topic)  # raises where it does not exist at all
            raise CommandFailed(f"topic {topic!r} is not on {shortened(list(found))}")
        after = {name: wanted.applied(config) for name, config in before.items()}
        for config in after.values():
            _check(config)
        if hidden := _hidden_messages(client, topic, before, after):
            text = f"{counted(hidden, 'message')} of topic {topic} could no longer be read."
            if arguments.dry_run:
                note(text)
            elif not confirmed(f"{text} Go on?", is_sure=arguments.yes):
                note("nothing has been changed")
                return _FAILED
        _carry_out(arguments, admin, [broker for broker in brokers if broker.broker in before], before, after)
        without = [name for name in found if name not in before]
        if without:
            note(f"topic {topic} is not on {shortened(without)}; `rmqio topics create {topic}` creates it there")
    return 0


def _check(config: TopicConfig) -> None:
    if config.write_queues > config.read_queues:
        raise LocalError(
            f"--write_queues {config.write_queues}: there are {counted(config.read_queues, 'queue')}, and nobody would"
            f" read the others; add --queues {config.write_queues}"
        )


def _hidden_messages(
    client: QueueClient, topic: str, before: Mapping[str, TopicConfig], after: Mapping[str, TopicConfig]
) -> int:
    ids = {name: hidden_queues(config, after[name]) for name, config in before.items()}
    if not any(ids.values()):
        return 0
    queues = [queue for queue in client.queues(topic) if queue.queue_id in ids.get(queue.broker, ())]
    return sum(for_all(lambda queue: client.max_offset(queue) - client.min_offset(queue), queues))


def _carry_out(
    arguments: argparse.Namespace,
    admin: Admin,
    brokers: Sequence[BrokerData],
    before: Mapping[str, TopicConfig | None],
    after: Mapping[str, TopicConfig],
) -> None:
    """Make the changes, verify them, and print what each broker has. Raises `CommandFailed`, naming what is done."""
    from rmqio.client.admin import put_config, set_order

    topic = arguments.topic
    needed = [broker for broker in brokers if before[broker.broker] != after[broker.broker]]
    done: list[str] = []
    ordered = {name: config.write_queues for name, config in after.items() if config.order}
    was_ordered = any(config is not None and config.order for config in before.values())
    if not arguments.dry_run:
        if was_ordered and not ordered:  # first: what name servers hold makes brokers set it again
            set_order(admin, topic, {})
        for broker in needed:
            try:
                put_config(admin, topic, broker, after[broker.broker])
            except RmqioError as error:
                so_far = f"already done on {', '.join(done)}" if done else "nothing has been changed"
                raise CommandFailed(f"{error}; {so_far}") from error
            done.append(broker.broker)
        _verify(topic, configs(admin, topic, needed, so_far="it has accepted the change"), after)
        if ordered:
            set_order(admin, topic, ordered)
    if arguments.json:
        print_json(_fields(arguments, before, after))
        return
    for broker in brokers:
        print(_line(topic, broker.broker, before[broker.broker], after[broker.broker], arguments.dry_run))
    if arguments.dry_run:
        print("Nothing has been changed. To make the change, leave out --dry_run." if needed else "Nothing to change.")


def _verify(topic: str, now: Mapping[str, TopicConfig | None], after: Mapping[str, TopicConfig]) -> None:
    """Raise `CommandFailed` if a broker has not kept what it has accepted: before 5.0, it drops attributes."""
    for name, config in now.items():
        if config is None:
            raise CommandFailed(f"topic {topic!r} is not on {name} after the change: somebody has deleted it meanwhile")
        if found := differences(config, after[name]):
            raise CommandFailed(
                f"{name} has accepted the change of topic {topic!r}, but has {contrast(found)}; brokers before 5.0 drop"
                " the message type and attributes"
            )


def _line(topic: str, broker: str, before: TopicConfig | None, after: TopicConfig, is_dry_run: bool) -> str:
    place = f"topic {topic} on {broker}:"
    if before is None:
        return f"{place} {'would be created' if is_dry_run else 'created'} with {description(after)}"
    changed = differences(before, after)
    if not changed:
        return f"{place} exists already, with {description(before)}"
    text = ", ".join(f"{old} to {new}" for old, new in changed)
    return f"{place} {'would change' if is_dry_run else 'changed'} from {text}"


def _fields(
    arguments: argparse.Namespace, before: Mapping[str, TopicConfig | None], after: Mapping[str, TopicConfig]
) -> dict[str, Any]:
    brokers = [
        {"broker": name, "before": _config_fields(before[name]), "after": _config_fields(config)}
        for name, config in after.items()
    ]
    return {"topic": arguments.topic, "executed": not arguments.dry_run, "brokers": brokers}


def _config_fields(config: TopicConfig | None) -> dict[str, Any] | None:
    if config is None:
        return None
    return {
        "read_queues": config.read_queues,
        "write_queues": config.write_queues,
        "permission": config.permission,
        "order": config.order,
        "attributes": dict(config.attributes),
    }


_MORE = """\
commands, each with its own --help:
  create                    create a topic
  update                    change the queues, permission or type of a topic
  delete                    delete a topic and its messages

examples:
  rmqio topics
  rmqio topics 'order*' -l
  rmqio topics --all        # also retry, dead-letter and system topics
  rmqio topics create orders --queues 8"""

_NOTHING_FOUND = 1


def add_commands(commands: Any) -> None:
    """Add `topics` and its commands."""
    topics = new_command(commands, "topics", _topics, "list, create, change or delete topics", more=_MORE)
    topics.add_argument("pattern", nargs="?", metavar="PATTERN", help="only matching names, e.g. 'order*'")
    topics.add_argument("-l", "--long", action="store_true", help="also show queues, brokers and messages")
    topics.add_argument("--all", action="store_true", help="include retry, dead-letter and RocketMQ's own topics")
    topics.add_argument("--json", action="store_true", help="print one JSON document")
    add_changes(topics)
    add_command(topics)


def _topics(arguments: argparse.Namespace) -> int:
    with queue_client(arguments) as client:
        if arguments.all:
            with open_admin(arguments) as admin:
                there: Sequence[str] = admin.all_topics()
        else:
            there = client.topics()
        names = [name for name in there if arguments.pattern is None or fnmatchcase(name, arguments.pattern)]
        rows = [row for row in for_all(lambda name: _topic(client, name), names) if row] if arguments.long else []
    if arguments.json:
        print_json({"topics": rows if arguments.long else [{"topic": name} for name in names]})
    elif arguments.long and rows:
        cells = [
            (row["topic"], count(row["queues"]), count(row["messages"]), shortened(row["brokers"])) for row in rows
        ]
        print_table(("~TOPIC", ">QUEUES", ">MESSAGES", "~BROKERS"), cells)
    else:
        for name in names:
            print(name)
    if names:
        return 0
    note(_nothing(arguments, there))
    return _NOTHING_FOUND if arguments.pattern is not None else 0


def _nothing(arguments: argparse.Namespace, there: Sequence[str]) -> str:
    pattern = arguments.pattern
    if pattern is None:
        return "there is no topic yet; `rmqio topics create TOPIC` creates one"
    text = f"no topic matches {pattern!r}"
    if pattern not in arguments.parser.commands and (command := nearest(pattern, arguments.parser.commands)):
        return f"{text}; did you mean the command `rmqio topics {command}`?"
    found = nearest(pattern.strip("*?"), there)
    if found is not None:
        return f"{text}; the nearest is {found}"
    return f"{text}; `rmqio topics` lists all topics" if there else f"{text}: there is no topic yet"


def _topic(client: QueueClient, name: str) -> dict[str, Any] | None:
    try:
        queues = client.queues(name)
        found = [client.max_offset(queue) - client.min_offset(queue) for queue in queues]
    except TopicNotExist:  # deleted since it was listed, or a name server's own
        return None
    brokers = sorted({queue.broker for queue in queues})
    return {"topic": name, "queues": len(queues), "brokers": brokers, "messages": sum(found)}
