"""Values that several commands take: times, positions, numbers, queues, properties."""

from __future__ import annotations

import argparse
import difflib
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rmqio.command_line import DURATION, SECONDS, parse_time


def did_you_mean(wrong: str, names: Sequence[str] | set[str]) -> str:
    """Return advice to append to a message; empty if no name is close."""
    nearest = difflib.get_close_matches(wrong, sorted(names), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


# ---- values ---------------------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """A position in a queue: by name, by store time, or by offset."""

    kind: Literal["earliest", "latest", "time", "offset"]
    value: int = 0
    """Unix milliseconds, or an offset."""


def parse_coming_time(text: str) -> int:
    """Like `parse_time`, but 10m means in ten minutes, and a past time is rejected."""
    now = int(time.time() * 1000)
    if ahead := DURATION.fullmatch(text):
        return now + int(ahead[1]) * SECONDS[ahead[2]] * 1000
    found = parse_time(text)
    if found <= now:
        raise argparse.ArgumentTypeError(f"time {text!r} is in the past; 10m means in ten minutes")
    return found


def parse_from(text: str) -> Position:
    """Parse `earliest`, `latest` or a time, also as `timestamp:TIME`."""
    if text in ("earliest", "latest"):
        return Position("earliest" if text == "earliest" else "latest")
    return Position("time", parse_time(text.removeprefix("timestamp:")))


def parse_to(text: str) -> Position:
    """Like `parse_from`, but a bare number is an offset."""
    if text.isascii() and text.isdigit():
        return Position("offset", int(text))
    return parse_from(text)


def parse_offset(text: str) -> int:
    """Parse an offset."""
    return _whole_number(text, "offset", 0)


def parse_count(text: str) -> int:
    """Parse a count of at least one."""
    return _whole_number(text, "number", 1)


def parse_size(text: str) -> int:
    """Parse a number of bytes or milliseconds; 0 is allowed."""
    return _whole_number(text, "number", 0)


def _whole_number(text: str, what: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{what} {text!r} is not a whole number of at least {least}")
    return int(text)


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
