"""Finds what is lost or duplicated between two topics, from the topics alone: `python -m rmqio.pipelines.check`.

`province.py` gives each message that it writes the unique id (UNIQ_KEY) of its source message, and the same id field in
body and key. So each source message must occur once, in the sink or in the dead-letter topic. A dead letter holds the
coordinates (queue and offset) of its source message in a property. The check ignores what the pipeline itself reports.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from rmqio.client.factory import RemotingClientFactory
from rmqio.command_line.arguments import add_connection, client_options, parse_topic
from rmqio.command_line.parser import Parser
from rmqio.dead_letters.letters import ORIGIN
from rmqio.errors import RmqioError
from rmqio.interfaces import QueueClient
from rmqio.model import MessageFilter, Record

_WAIT_MS: Final = 1_000
_QUIET_S: Final = 30
"""A read gives up after this long without an answer."""


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

    Raises `RmqioError` if the topic does not exist, a broker does not answer, or a stored message is corrupt.
    """
    for queue in client.queues(topic):
        position, end = client.min_offset(queue), client.max_offset(queue)
        reader = client.open_reader(queue, position, message_filter=MessageFilter())
        quiet_ms = 0
        try:
            while position < end:
                fetched = reader.poll()
                if fetched is None:
                    quiet_ms = 0 if client.wait([reader], _WAIT_MS) else quiet_ms + _WAIT_MS
                    if quiet_ms >= _QUIET_S * 1000:
                        raise RmqioError(f"{queue}: no answer for {_QUIET_S} s at offset {position} of {end}")
                    continue
                if fetched.corrupt:
                    raise fetched.corrupt[0]
                position = fetched.next_offset
                yield from (record for record in fetched.records if record.queue_offset < end)
        finally:
            reader.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit status: 0 all is there once, 1 it is not or a failure, 2 wrong usage."""
    parser = Parser(
        prog="check.py",
        description="Compare the source and the sink of province.py, and report lost and duplicated messages.",
        epilog="exit status: 0 every message arrived once, 1 otherwise or on failure, 2 wrong usage, 130 interrupted",
    )
    add_connection(parser)
    parser.add_argument("--source_topic", type=parse_topic, required=True, metavar="TOPIC")
    parser.add_argument("--sink_topic", type=parse_topic, required=True, metavar="TOPIC")
    parser.add_argument(
        "--dead_letter_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="the topic with the dead letters; without it, bad input counts as lost",
    )
    arguments = parser.parse(sys.argv[1:] if argv is None else argv)
    try:
        options = client_options(arguments)
    except RmqioError as error:
        parser.error(str(error))
    client = RemotingClientFactory(options).queue_client()
    try:
        letters = arguments.dead_letter_topic
        tally = compare(
            read_topic(client, arguments.source_topic),
            read_topic(client, arguments.sink_topic),
            read_topic(client, letters) if letters else (),
        )
    except RmqioError as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("check.py: interrupted", file=sys.stderr)
        return 130
    finally:
        client.close()
    if tally.foreign:
        print(f"{tally.foreign} written messages match no message of {arguments.source_topic}")
    print(tally, flush=True)
    return 0 if tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
