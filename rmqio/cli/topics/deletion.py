"""`rmqio topics delete`: says what would be lost, asks, and deletes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from rmqio.cli.topics.brokers import add_where, configs, confirmed, masters
from rmqio.command_line.commands import optional_command
from rmqio.command_line.connect import missing_topic, open_admin, queue_client
from rmqio.command_line.contents import for_all
from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.output import note, print_json, shortened
from rmqio.command_line.parser import Parser
from rmqio.command_line.values import parse_topic
from rmqio.errors import BrokerError, TopicNotExist, counted

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

_FAILED: Final = 1

_MORE = """\
Deletes the topic, its messages and the groups' offsets in it on every broker of the cluster, and at the name servers.
It asks first; without a terminal, it needs --yes.

examples:
  rmqio topics delete orders --dry_run
  rmqio topics delete orders --yes"""


def add_command(topics: Parser) -> None:
    """Add `delete` to `topics`."""
    delete = optional_command(topics, "delete", _delete, "delete a topic and its messages", more=_MORE)
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
