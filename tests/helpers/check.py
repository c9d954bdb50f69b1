"""Finds what is lost or duplicated between two topics, from the topics alone.

`province.py` gives each message that it writes the unique id (UNIQ_KEY) of its source message, and the same id field in
body and key. So each source message must occur once, in the sink or in the dead-letter topic. A dead letter holds the
coordinates (queue and offset) of its source message in a property. The check ignores what the pipeline itself reports.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rmqio.dead_letters.letters import ORIGIN
from rmqio.interfaces import FetchedBatch, QueueClient, QueueReader
from rmqio.model import MessageFilter, Record
from tests.helpers.waiting import until


class Identity(NamedTuple):
    """Identifies a message in both topics."""

    message_id: str
    body_id: str
    """The field `id` of the JSON body, as text; empty if there is none."""


class Tally(NamedTuple):
    """The comparison of two topics."""

    read: int
    """Messages in the source."""
    written: int
    """Messages in the sink and in the dead-letter topic."""
    lost: int
    duplicated: int
    foreign: int
    """Messages in the sink or the dead-letter topic that match no message of the source."""

    @property
    def is_good(self) -> bool:
        return self.lost == self.duplicated == self.foreign == 0

    def __str__(self) -> str:
        return f"read {self.read}, wrote {self.written}, lost {self.lost}, duplicated {self.duplicated}"


def compare(source: Iterable[Record], sink: Iterable[Record], dead_letters: Iterable[Record] = ()) -> Tally:
    """Count messages by identity. A message that is in the source twice is expected twice."""
    expected: Counter[Identity] = Counter()
    by_origin: dict[str, Identity] = {}
    for record in source:
        identity = identity_of(record)
        expected[identity] += 1
        by_origin[f"{record.topic}/{record.broker}/{record.queue_id}/{record.queue_offset}"] = identity
    found: Counter[Identity] = Counter()
    foreign = 0
    for record in sink:
        identity = identity_of(record)
        if identity in expected and record.keys == (identity.body_id,):
            found[identity] += 1
        else:
            foreign += 1
    for record in dead_letters:
        origin = by_origin.get(record.get_property(ORIGIN) or "")
        if origin is None:
            foreign += 1
        else:
            found[origin] += 1
    return Tally(
        read=expected.total(),
        written=found.total() + foreign,
        lost=(expected - found).total(),
        duplicated=(found - expected).total(),
        foreign=foreign,
    )


def identity_of(record: Record) -> Identity:
    """Return the unique id and the id in the body."""
    body = body_of(record)
    return Identity(record.message_id, str(body.get("id", "")))


def body_of(record: Record) -> dict[str, Any]:
    """Return the JSON object of a body; an empty one for anything else."""
    try:
        body = json.loads(record.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def read_topic(client: QueueClient, topic: str) -> Iterator[Record]:
    """Yield everything that the topic's queues hold at this moment.

    Raises `RmqioError` if the topic does not exist, or a stored message is corrupt.
    """
    for queue in client.queues(topic):
        end = client.max_offset(queue)
        reader = client.open_reader(queue, client.min_offset(queue), message_filter=MessageFilter())
        with contextlib.closing(reader):
            while reader.position < end:
                fetched: FetchedBatch = until(
                    functools.partial(_polled, client, reader), f"{queue}: an answer before offset {end}"
                )
                if fetched.corrupt:
                    raise fetched.corrupt[0]
                yield from (record for record in fetched.records if record.queue_offset < end)


def _polled(client: QueueClient, reader: QueueReader) -> Any:
    client.wait([reader], 1_000)
    return reader.poll()
