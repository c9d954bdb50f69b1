"""How to reach the cluster: the options, and the one place that makes `ClientOptions` of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rmqio import command_line, security
from rmqio.cli.errors import CommandFailed
from rmqio.cli.values import QueueName, did_you_mean, parse_count
from rmqio.command_line import add_name_server
from rmqio.errors import LocalError, RmqioError, TopicNotExist
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

_TAIL_OUTAGE_MS = 60_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command takes."""
    group = parser.add_argument_group("connections")
    add = group.add_argument
    add_name_server(group)
    add("--namespace", default="", metavar="NAME", help="of an instance, put before topics and groups")
    add(
        "--timeout_ms",
        type=parse_count,
        default=3_000,
        metavar="MS",
        help="time to connect, and to answer a request; default: 3000",
    )
    add("-v", "--verbose", action="store_true", help="show tracebacks of failures")
    security.add_arguments(parser)


def client_options(arguments: argparse.Namespace, **more: Any) -> ClientOptions:
    """Return the options of every client, including the admin client. Raises `LocalError`."""
    timeout_ms = arguments.timeout_ms
    given: dict[str, Any] = {
        "request_timeout_ms": timeout_ms,
        "connect_timeout_ms": timeout_ms,
        # A user is waiting: report a broker that is down instead of waiting for it.
        "outage_timeout_ms": timeout_ms,
        "max_retries": 2,
        "namespace": arguments.namespace,
    }
    if arguments.name_server is None and not os.environ.get(NAME_SERVER_VARIABLE):
        raise LocalError(f"no name server given: --name_server HOST:9876, or set {NAME_SERVER_VARIABLE}")
    return command_line.client_options(arguments, **(given | more))


@contextmanager
def queue_client(
    arguments: argparse.Namespace, *, pull_batch: int = 32, pull_depth: int = 2, rides_out_outages: bool = False
) -> Iterator[QueueClient]:
    """Open a client that reads, under a private group."""
    from rmqio.client.client import RemotingQueueClient

    more = {"outage_timeout_ms": _TAIL_OUTAGE_MS} if rides_out_outages else {}
    client = RemotingQueueClient(client_options(arguments, pull_batch=pull_batch, pull_depth=pull_depth, **more))
    try:
        yield client
    finally:
        client.close()


def open_admin(arguments: argparse.Namespace) -> Admin:
    """Open the admin client, a context manager."""
    from rmqio.client.admin import Admin

    return Admin(client_options(arguments))


def queues_of(client: QueueClient, topic: str, names: Sequence[QueueName] = ()) -> list[MessageQueue]:
    """Return the topic's readable queues, or those named. Raises `CommandFailed` for a missing topic or queue."""
    try:
        queues = list(client.queues(topic))
    except TopicNotExist as error:
        raise CommandFailed(missing_topic(client, topic)) from error
    if not queues:
        raise CommandFailed(f"topic {topic!r} has no readable queue: its permission forbids reading")
    chosen = set()
    brokers = sorted({queue.broker for queue in queues})
    for name in names:
        if name.broker is None and len(brokers) > 1:
            raise CommandFailed(
                f"queue {name}: topic {topic!r} is on {len(brokers)} brokers; write {brokers[0]}:{name}"
            )
        queue = MessageQueue(topic, name.broker or brokers[0], name.queue_id)
        if queue not in queues:
            there = f"{short(queues[0])} to {short(queues[-1])}"
            raise CommandFailed(f"topic {topic!r} has no queue {name}; it has {len(queues)}: {there}")
        chosen.add(queue)
    return sorted(chosen) if names else queues


def missing_topic(client: QueueClient, topic: str) -> str:
    """Return the error message for a missing topic, with the closest existing name."""
    try:
        topics = client.topics()
    except RmqioError:
        topics = []
    near = did_you_mean(topic, list(topics))
    # A name server forgets a topic when its last broker goes down.
    return f"topic {topic!r} does not exist" + (near or ", or its brokers are down; `rmqio topics` lists the topics")


def short(queue: MessageQueue) -> str:
    """Format a queue as `--queue` takes it."""
    return f"{queue.broker}:{queue.queue_id}"
