"""Values that several commands take: positions, numbers, queues, properties."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

from rmqio.command_line.arguments import as_argument, parse_time, position_parser, whole_number
from rmqio.start.texts import DURATION, SECONDS
from rmqio.topics.names import validate_group, validate_topic

parse_from = position_parser("earliest", "latest", "timestamp:TIME")
parse_to = position_parser("earliest", "latest", "timestamp:TIME", numbers_are_offsets=True)
"""Like `parse_from`, but a bare number is an offset."""
parse_offset = whole_number("offset", 0)
parse_count = whole_number("number", 1)
parse_size = whole_number("number", 0)


def _name_parser(check: Callable[[str], object]) -> Callable[[str], str]:
    """Returns the parser of a name that a broker accepts: others are refused before anything connects."""

    def parse(text: str) -> str:
        with as_argument():
            check(text)
        return text

    return parse


parse_topic, parse_group = _name_parser(validate_topic), _name_parser(validate_group)


def parse_coming_time(text: str) -> int:
    """Like `parse_time`, but 10m means in ten minutes, and a past time is rejected."""
    now = int(time.time() * 1000)
    if ahead := DURATION.fullmatch(text):
        return now + int(ahead[1]) * SECONDS[ahead[2]] * 1000
    found = parse_time(text)
    if found <= now:
        raise argparse.ArgumentTypeError(f"time {text!r} is in the past; 10m means in ten minutes")
    return found


def parse_seconds(text: str) -> float:
    """Parse a duration in seconds; a fraction is permitted."""
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0.1 <= found <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 86400")
    return found


class QueueName(NamedTuple):
    """A queue as a command line names it: `BROKER:ID`, or `ID` if the topic is on one broker."""

    broker: str | None
    queue_id: int

    def __str__(self) -> str:
        return str(self.queue_id) if self.broker is None else f"{self.broker}:{self.queue_id}"


def parse_queue(text: str) -> QueueName:
    """Parse a `QueueName`."""
    broker, _, number = text.rpartition(":")
    if not (number.isascii() and number.isdigit()) or text.startswith(":"):
        raise argparse.ArgumentTypeError(f"queue {text!r} is not BROKER:ID, e.g. broker-a:3")
    return QueueName(broker or None, int(number))


def parse_property(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"property {text!r} is not NAME=VALUE")
    return name, value
