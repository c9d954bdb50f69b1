"""How to reach the cluster: the one place that makes clients of a command's options; and what topics there are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rmqio.command_line import arguments as common
from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.values import QueueName
from rmqio.errors import RmqioError, TopicNotExist
from rmqio.interfaces import QueueClient
from rmqio.model import MessageQueue
from rmqio.near_names import did_you_mean
from rmqio.options import ClientOptions

if TYPE_CHECKING:
    from rmqio.client.admin import Admin

_TAIL_OUTAGE_MS = 60_000


def attended_options(arguments: argparse.Namespace, **more: Any) -> ClientOptions:
    """Return the options of a client whose user is waiting. Raises `LocalError`."""
    given = {"outage_timeout_ms": arguments.timeout_ms, "max_retries": 2}  # report a broker that is down at once
    return common.client_options(arguments, **(given | more))


@contextmanager
def queue_client(
    arguments: argparse.Namespace, *, pull_batch: int = 32, pull_depth: int = 2, rides_out_outages: bool = False
) -> Iterator[QueueClient]:
    """Open a client that reads, under a private group."""
    from rmqio.client.client import RemotingQueueClient

    more = {"outage_timeout_ms": _TAIL_OUTAGE_MS} if rides_out_outages else {}
    client = RemotingQueueClient(attended_options(arguments, pull_batch=pull_batch, pull_depth=pull_depth, **more))
    try:
        yield client
    finally:
        client.close()


def open_admin(arguments: argparse.Namespace) -> Admin:
    """Open the admin client, a context manager."""
    from rmqio.client.admin import Admin

    return Admin(attended_options(arguments))


def require_topics(client: QueueClient, named: Mapping[str, str | None]) -> None:
    """Check that the topics exist which options name. Raises `CommandFailed` with the nearest name."""
    for option, topic in named.items():
        if topic is None:
            continue
        try:
            client.queues(topic)
        except TopicNotExist as error:
            near = did_you_mean(topic, client.topics())
            raise CommandFailed(f"{option} {topic}: the topic does not exist{near}") from error


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


def missing_topic(client: QueueClient, topic: str, *, advice: str = "") -> str:
    """Return the error message for a missing topic, with the closest existing name and what else to do."""
    try:
        topics = client.topics()
    except RmqioError:
        topics = []
    near = did_you_mean(topic, list(topics))
    if near:
        return f"topic {topic!r} does not exist{near} {advice}".rstrip()
    # A name server forgets a topic when its last broker goes down.
    return f"topic {topic!r} does not exist, or its brokers are down; {advice or '`rmqio topics` lists the topics'}"


def short(queue: MessageQueue) -> str:
    """Format a queue as `--queue` takes it."""
    return f"{queue.broker}:{queue.queue_id}"
