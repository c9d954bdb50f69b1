"""The input of all sides: messages `key|milliseconds` in a topic, and what must become of them."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bench.common.tally import UnequalWork
from rmqio.client.factory import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, Record
from rmqio.options import ClientOptions
from tests.helpers.check import read_topic

QUEUES: Final = 4
WINDOW_S: Final = 10
PER_WINDOW: Final = 100_000
"""Messages, so that their times are 0.1 ms apart."""
_BATCH: Final = 500
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Load:
    """A topic that holds `messages` messages of `keys` keys, and behind them one a queue that is a day later.

    Without those a job whose watermark follows its data would not close the last windows.
    """

    topic: str
    messages: int
    keys: int


Body = Callable[[str, int], bytes]
"""Makes the body of a message of its key and its time in milliseconds."""


def plain(key: str, time_ms: int) -> bytes:
    return b"%s|%d" % (key.encode(), time_ms)


def load(broker: LocalRocketMQ, name: str, messages: int, keys: int, in_turn: bool = False, body: Body = plain) -> Load:
    """Makes the topic. The same messages each time, their keys by chance or in turn."""
    broker.create_topic(name, queues=QUEUES)
    begin_ms = int(time.time() * 1000) // _DAY_MS * _DAY_MS - _DAY_MS
    keys_of = random.Random(7)
    with contextlib.closing(RemotingClientFactory(ClientOptions(broker.name_server)).producer("bench")) as producer:
        queues = producer.queues(name)
        for first in range(0, messages, _BATCH):
            numbers = range(first, min(first + _BATCH, messages))
            bodies = (
                body(str(number % keys if in_turn else keys_of.randrange(keys)), begin_ms + number // 10)
                for number in numbers
            )
            batch = [Message(each, topic=name) for each in bodies]
            producer.send_batch(batch, queues[first // _BATCH % QUEUES])
        for queue in queues:
            producer.send(Message(body("end", begin_ms + 10 * _DAY_MS), topic=name), queue)
    return Load(name, messages, keys)


def records_of(name_server: str, topic: str) -> Iterator[Record]:
    """All that a topic holds now, queue by queue."""
    client = RemotingClientFactory(ClientOptions(name_server)).queue_client()
    try:
        yield from read_topic(client, topic)
    finally:
        client.close()


def check(broker: LocalRocketMQ, sink: str, load: Load) -> int:
    """Counts the totals. Raises `UnequalWork` unless every message is in exactly one of them."""
    totals: dict[tuple[str, int], int] = {}
    for record in records_of(broker.name_server, sink):
        found = json.loads(record.body)
        if found["key"] != "end":
            totals[found["key"], int(found["start"])] = int(found["count"])
    counted = sum(totals.values())
    if counted != load.messages:
        raise UnequalWork(f"{sink}: {counted:,} messages are in the totals, {load.messages:,} were sent")
    return len(totals)


def check_counts(broker: LocalRocketMQ, sink: str, load: Load) -> int:
    """Counts the keys. Raises `UnequalWork` unless each has been reported once."""
    told = sorted(int(record.body) for record in records_of(broker.name_server, sink) if record.body != b"end")
    if told != list(range(load.keys)):
        raise UnequalWork(f"{sink}: {len(told):,} keys are in the sink, {load.keys:,} should be there, once each")
    return len(told)
