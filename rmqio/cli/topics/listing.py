"""`rmqio topics`: lists the topics. `changes` and `deletion` change them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from rmqio.cli.topics import changes, deletion
from rmqio.command_line.commands import new_command
from rmqio.command_line.connect import open_admin, queue_client
from rmqio.command_line.contents import for_all
from rmqio.command_line.output import count, note, print_json, print_table, shortened
from rmqio.errors import TopicNotExist
from rmqio.interfaces import QueueClient
from rmqio.near_names import nearest

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
    changes.add_commands(topics)
    deletion.add_command(topics)


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
