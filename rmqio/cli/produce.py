"""`rmqio produce`: sends messages from an argument or from standard input."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from rmqio.command_line.arguments import parse_coming_time, parse_property, parse_topic, whole_number
from rmqio.command_line.cluster import attended_options, missing_topic, queue_client, short
from rmqio.command_line.output import INTERRUPTED, CommandFailed, duration, note, print_json, time_text
from rmqio.command_line.parser import new_command
from rmqio.errors import BrokerSystemError, LocalError, RmqioError, TopicNotExist, counted
from rmqio.hints import nearest
from rmqio.model import Message, MessageQueue, SendResult, SendStatus

if TYPE_CHECKING:
    from rmqio.client.producer import RemotingProducer

GROUP: Final = "rmqio_producer"
"""The producer group; producers of a group share nothing."""

_BATCH_MESSAGES: Final = 1_000
_BATCH_BYTES: Final = 256 * 1024
_ROOM_BYTES: Final = 200
"""Roughly what a message in a batch takes besides its body and properties."""
_CHUNK_BYTES: Final = 1 << 20
_IN_PROPERTIES: Final = ("tags", "keys", "property", "sharding_key")
_MAX_LINE_BYTES: Final = 4 << 20
"""A message cannot hold more."""

_MORE = """\
BODY `-` is standard input: all of it as one message, or with --lines one message per line, sent in batches as it
arrives. --deliver_at takes a time as `peek --from` does, but 10m means in ten minutes; at most three days ahead.

If the topic does not exist and the broker permits it (autoCreateTopicEnable), the broker creates it. Otherwise, use
`rmqio topics create TOPIC`.

Delivery is at least once: a send with an unknown outcome is retried, and its messages can be stored twice. A message
that is reported as sent is stored.

examples:
  rmqio produce orders '{"id": 17}' --tags paid --keys 'o-17 c-3'
  rmqio produce orders - < picture.png
  rmqio produce orders --lines - < orders.jsonl
  tail -f app.log | rmqio produce logs --lines -"""


def add_commands(commands: Any) -> None:
    """Add `produce`."""
    parser = new_command(commands, "produce", _produce, "send messages to a topic", more=_MORE)
    add = parser.add_argument
    add("topic", type=parse_topic, metavar="TOPIC")
    add("body", metavar="BODY", help="the body; - is standard input")
    add("--lines", action="store_true", help="send one message per line; empty lines are left out")
    add("--tags", metavar="TAG", help="one tag; consumers filter on it")
    add("--keys", action="append", default=[], metavar="KEYS", help="business keys, separated by spaces; repeatable")
    add(
        "--property",
        type=parse_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a user property; repeatable",
    )
    add("--sharding_key", metavar="KEY", help="all messages of one key go to one queue, as with Java's producers")
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--delay_level",
        type=whole_number("level", 1, 18),
        metavar="1..18",
        help="1s 5s 10s 30s 1m .. 10m 20m 30m 1h 2h",
    )
    when.add_argument("--deliver_at", type=parse_coming_time, metavar="TIME", help="not visible before this time")
    add("--json", action="store_true", help="print where each message went, one JSON document per line")
    parser.set_defaults(writes=True)


def _produce(arguments: argparse.Namespace) -> int:
    from rmqio.client.producer import RemotingProducer, require_sendable

    if arguments.body == "" and not arguments.lines:
        raise LocalError("the body is empty; brokers reject empty messages")

    template = Message(
        b"",
        topic=arguments.topic,
        tags=arguments.tags,
        keys=tuple(key for keys in arguments.keys for key in keys.split()),
        properties=dict(arguments.property),
        sharding_key=arguments.sharding_key,
        delay_level=arguments.delay_level,
        deliver_at_ms=arguments.deliver_at,
    )
    try:
        require_sendable(template)
    except LocalError as error:
        given = [name for name in _IN_PROPERTIES if getattr(arguments, name) not in (None, [])]
        raise LocalError(f"{' and '.join(f'--{name}' for name in given)}: {error}") from error
    is_new = _is_new(arguments)
    with RemotingProducer(attended_options(arguments, max_retries=3, create_topics=is_new), GROUP) as producer:
        if is_new:
            _require_creation(arguments, producer)
        sending = _Sending(producer, template, as_json=arguments.json, shows_each=not arguments.lines)
        if arguments.lines:
            return sending.send_lines(_lines(arguments.body))
        body = sys.stdin.buffer.read() if arguments.body == "-" else os.fsencode(arguments.body)
        if not body:
            raise LocalError("the body is empty; brokers reject empty messages")
        sending.send([body])
    return 0


def _is_new(arguments: argparse.Namespace) -> bool:
    """Return whether the topic does not exist: only then is a broker asked to create it."""
    with queue_client(arguments) as client:
        try:
            client.queues(arguments.topic)
        except TopicNotExist:
            return True
    return False


def _require_creation(arguments: argparse.Namespace, producer: RemotingProducer) -> None:
    """Raise `CommandFailed` unless the brokers create a missing topic; say it, since the name may be mistyped."""
    topic = arguments.topic
    with queue_client(arguments) as client:
        try:
            producer.queues(topic)
        except TopicNotExist as error:
            advice = f"`rmqio topics create {topic}` creates it"
            raise CommandFailed(missing_topic(client, topic, advice=advice)) from error
        near = nearest(topic, client.topics())
    note(f"topic {topic} does not exist{f', but {near} does' if near else ''}: the broker is asked to create it")


class _Sending:
    """Sends bodies with the other fields of a template, and reports the results."""

    def __init__(self, producer: RemotingProducer, template: Message, *, as_json: bool, shows_each: bool) -> None:
        self._producer, self._template = producer, template
        self._as_json, self._shows_each = as_json, shows_each
        # A batch cannot hold delayed messages: their delay would be ignored.
        self._is_delayed = template.delay_level is not None or template.deliver_at_ms is not None
        self._sent = self._unsafe = 0
        self._used: set[MessageQueue] = set()

    def send_lines(self, chunks: Iterator[list[bytes]]) -> int:
        """Send lines as they arrive, print a summary, and return the exit status."""
        begin, empty = time.monotonic(), 0
        try:
            for chunk in chunks:
                lines = [line for line in chunk if line]
                empty += len(chunk) - len(lines)
                for batch in self._batches(lines):
                    self.send(batch)
        except KeyboardInterrupt:
            note(f"interrupted; {counted(self._sent, 'message')} sent before")
            return INTERRUPTED
        took_ms = (time.monotonic() - begin) * 1000
        if not self._as_json:
            where = counted(len(self._used), "queue")
            print(f"sent {counted(self._sent, 'message')} to {where} of {self._template.topic} in {duration(took_ms)}")
        if empty:
            note(f"{counted(empty, 'empty line')} left out: brokers reject empty messages")
        return 0

    def send(self, bodies: Sequence[bytes]) -> None:
        """Send a batch, which is stored whole or not at all. Raises `CommandFailed` saying how far it got."""
        messages = [self._template.replace(body=body) for body in bodies]
        unknown = self._producer.statistics.unknown_outcomes
        try:
            is_single = len(messages) == 1  # only single messages can be delayed
            results = [self._producer.send(messages[0])] if is_single else self._producer.send_batch(messages)
        except RmqioError as error:
            may_be_stored = self._producer.statistics.unknown_outcomes > unknown or isinstance(error, BrokerSystemError)
            if not self._sent and not may_be_stored:
                raise
            lines = f"message {self._sent + 1}" + (f" to {self._sent + len(bodies)}" if len(bodies) > 1 else "")
            outcome = "may be stored, possibly more than once" if may_be_stored else "not sent"
            raise CommandFailed(f"{lines} {outcome}, {counted(self._sent, 'message')} sent before: {error}") from error
        self._sent += len(results)
        for result in results:
            self._tell(result)
        sys.stdout.flush()

    def _batches(self, lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        most = 1 if self._is_delayed else _BATCH_MESSAGES
        properties = sum(len(name) + len(value) for name, value in self._template.properties.items()) * 4
        batch: list[bytes] = []
        room = _BATCH_BYTES
        for line in lines:
            needed = len(line) + properties + _ROOM_BYTES
            if batch and (needed > room or len(batch) == most):
                yield batch
                batch, room = [], _BATCH_BYTES
            batch.append(line)
            room -= needed
        if batch:
            yield batch

    def _tell(self, result: SendResult) -> None:
        self._used.add(result.queue)
        if result.status is not SendStatus.OK:
            note(f"{short(result.queue)}: stored, but not confirmed as safe: {result.status.name}")
        # For a delayed message, the broker reports where it waits, which is not an offset in the topic.
        offset = None if self._is_delayed else result.queue_offset
        if self._as_json:
            print_json(
                {
                    "topic": result.queue.topic,
                    "broker": result.queue.broker,
                    "queue_id": result.queue.queue_id,
                    "queue_offset": offset,
                    "message_id": result.message_id,
                    "status": result.status.name,
                }
            )
        elif self._shows_each:
            at = self._template.deliver_at_ms
            when = f", visible at {time_text(at)}" if at else ", visible after its delay" if self._is_delayed else ""
            place = short(result.queue) if offset is None else f"{short(result.queue)} @ {offset}"
            print(f"sent to {place}{when}, id {result.message_id}")


def _lines(body: str) -> Iterator[list[bytes]]:
    """Yield the lines of the argument, or those of standard input as soon as they arrive."""
    if body != "-":
        yield os.fsencode(body).split(b"\n")
        return
    yield from _lines_of(sys.stdin.buffer)


def _lines_of(source: BinaryIO) -> Iterator[list[bytes]]:
    begun = b""
    while chunk := source.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # a BufferedReader
        *lines, begun = (begun + chunk).split(b"\n")
        if len(begun) > _MAX_LINE_BYTES:  # too long to be sent: report it before reading all of it
            lines, begun = [*lines, begun], b""
        if lines:
            yield lines
    if begun:
        yield [begun]
