"""Two brokers, one of which goes away, with a topic on both and a copy of it that shows what has been read."""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.errors import RmqioError
from rmqio.local.config import Config
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.check import read_topic
from tests.helpers.servers.cluster import SMALL, Cluster
from tests.helpers.waiting import repeated, until

STAYS, GOES = "stays", "goes"
CONFIG: Config = {**SMALL, "flushConsumerOffsetInterval": 300}
Place = tuple[str, int, int]
"""Broker, queue, offset."""
_EVERY_S: Final = 0.1


class Topic:
    """A topic with two queues on each broker, and a sink on the broker that stays."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.name, self.sink, self.group = (f"{what}-{uuid.uuid4().hex[:8]}" for what in ("away", "sink", "group"))
        cluster.create_topic(self.name, 2)
        cluster.create_topic(self.sink, 2, on=[STAYS])
        options = ClientOptions(cluster.name_server, request_timeout_ms=10_000)
        self.client = RemotingQueueClient(options)
        self._producer = RemotingProducer(options, "away")
        self.queues = self.client.queues(self.name)
        self.sent: Counter[MessageQueue] = Counter()

    def close(self) -> None:
        self.client.close()
        self._producer.close()

    def of(self, broker: str) -> list[MessageQueue]:
        return [queue for queue in self.queues if queue.broker == broker]

    def send(self, queues: Sequence[MessageQueue], count: int) -> None:
        """Sends `count` messages to each queue. Returns when they are stored."""
        for queue in queues:
            self._producer.send_batch([Message(b"m", topic=self.name)] * count, queue)
            self.sent[queue] += count

    def commit(self, offset: int) -> None:
        """Commits the group's offset of each queue. Returns when the offset would survive a kill of its broker."""
        for queue in self.queues:
            self.client.commit_offset(self.group, queue, offset)
        for broker in (STAYS, GOES):
            file = self._cluster.folder / f"broker-{broker}" / "store" / "config" / "consumerOffset.json"
            until(lambda file=file: _holds(file, self.group), "offsets are kept")  # type: ignore[misc]

    def places(self, broker: str, begin: int = 0) -> set[Place]:
        """Returns the places of the messages that were sent to a broker, from an offset on."""
        return {(q.broker, q.queue_id, at) for q in self.of(broker) for at in range(begin, self.sent[q])}

    def stored(self) -> dict[Place, int]:
        """Returns when each message of the topic was stored, in Unix milliseconds. `sent` includes them all afterwards.

        A broker that hangs stores what its sender believes to be lost.
        """
        for queue in self.queues:
            self.sent[queue] = self.client.max_offset(queue)
        return {
            (r.broker, r.queue_id, r.queue_offset): r.store_timestamp_ms for r in read_topic(self.client, self.name)
        }

    def copied(self) -> Counter[Place]:
        """Returns how often each message is in the sink."""
        found: Counter[Place] = Counter()
        for record in read_topic(self.client, self.sink):
            copy = json.loads(record.body)
            found[copy["broker"], copy["queue"], copy["offset"]] += 1
        return found

    def copy_times(self) -> dict[Place, int]:
        """Returns when each copy was stored, in Unix milliseconds. If there are several, the first one counts."""
        found: dict[Place, int] = {}
        for record in read_topic(self.client, self.sink):
            copy = json.loads(record.body)
            place = (copy["broker"], copy["queue"], copy["offset"])
            found[place] = min(record.store_timestamp_ms, found.get(place, record.store_timestamp_ms))
        return found

    def command(self, flags: Sequence[str]) -> list[str]:
        """Returns the command line of a program that copies each message with its place."""
        program = [
            sys.executable,
            "-m",
            "tests.helpers.pipelines.copying",
            f"--name_server={self._cluster.name_server}",
        ]
        topics = [f"--source={self.name}", f"--sink={self.sink}", f"--group={self.group}"]
        return [*program, *topics, *flags]


def _holds(file: Path, text: str) -> bool:
    """Returns whether a file contains a text. A broker replaces its files: for a moment there is none."""
    with contextlib.suppress(FileNotFoundError):
        return text in file.read_text()
    return False


@contextlib.contextmanager
def sending(cluster: Cluster, topic: Topic, brokers: Sequence[str] = (STAYS, GOES)) -> Iterator[None]:
    """Ten messages a second go to each queue, so that a broker that goes away has messages that were not read yet.

    Each broker has a thread of its own: if one is away, only its thread waits.
    """
    with contextlib.ExitStack() as stack:
        for broker in brokers:
            options = ClientOptions(cluster.name_server, max_retries=0)
            producer = stack.enter_context(RemotingProducer(options, f"sender-{broker}"))
            stack.enter_context(repeated(partial(_send, producer, topic.of(broker), topic.name), _EVERY_S))
        yield


def _send(producer: RemotingProducer, queues: Sequence[MessageQueue], topic: str) -> None:
    for queue in queues:
        with contextlib.suppress(RmqioError):
            producer.send(Message(b"m", topic=topic), queue)


def lose(cluster: Cluster) -> None:
    """Kills the broker and waits until the name server has forgotten it."""
    cluster.brokers[GOES].kill()
    (server,) = cluster.name_servers
    until(lambda: not cluster.has_registered(GOES, server), "the broker is forgotten")


def find(cluster: Cluster) -> None:
    """Brings the broker back, whatever happened to it."""
    broker = cluster.brokers[GOES]
    if broker.is_running:
        broker.resume()
    else:
        broker.restart()
