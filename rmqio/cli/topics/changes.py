"""`rmqio topics create` and `rmqio topics update`: what they change on each broker, and what they say."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rmqio.cli.topics.brokers import add_where, configs, confirmed, masters
from rmqio.cli.topics.plan import MESSAGE_TYPE, PERMISSIONS, Wanted, contrast, description, differences, hidden_queues
from rmqio.command_line.commands import optional_command
from rmqio.command_line.connect import open_admin, queue_client, queues_of
from rmqio.command_line.contents import for_all
from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.output import note, print_json, shortened
from rmqio.command_line.parser import Parser
from rmqio.command_line.values import parse_count, parse_property, parse_topic
from rmqio.errors import LocalError, RmqioError, counted
from rmqio.interfaces import QueueClient
from rmqio.model import BrokerData

if TYPE_CHECKING:
    from rmqio.client.admin import Admin, TopicConfig

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


def add_commands(topics: Parser) -> None:
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
