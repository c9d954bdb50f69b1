"""Values that several commands take: positions, numbers, queues, properties."""

from __future__ import annotations

import argparse
import os
import re
import time
from typing import AnyStr, Final, NamedTuple

from rmqio.command_line.arguments import checked, parse_time, position_parser, whole_number
from rmqio.errors import quoted
from rmqio.start import DURATION, SECONDS
from rmqio.topics import validate_group, validate_topic

_MOST_AHEAD_MS: Final = 3 * 86_400_000
"""timerMaxDelaySec of a broker, as it is by default."""
_TOKEN: Final = re.compile(r"--[^\r\n]*|/\*.*?\*/|'(?:[^']|'')*'|[\w$.]+|<[>=]?|>=?|\S", re.DOTALL)
_UNFINISHED: Final = re.compile(r"[=<>+(,-]|<=|>=|<>|(?i:AND|OR|IN|IS|BETWEEN|CONTAINS)")

parse_from = position_parser("earliest", "latest", "timestamp:TIME")
parse_to = position_parser("earliest", "latest", "timestamp:TIME", numbers_are_offsets=True)
"""Like `parse_from`, but a bare number is an offset."""
parse_offset = whole_number("offset", 0)
parse_count = whole_number("number", 1)
parse_size = whole_number("number", 0)


parse_topic, parse_group = checked(validate_topic), checked(validate_group)


def parse_coming_time(text: str) -> int:
    """Like `parse_time`, but 10m means in ten minutes. A past time is rejected, and one more than three days ahead."""
    now = int(time.time() * 1000)
    ahead = DURATION.fullmatch(text)
    found = now + int(ahead[1]) * SECONDS[ahead[2]] * 1000 if ahead else parse_time(text)
    if found <= now:
        raise argparse.ArgumentTypeError(f"time {text!r} is in the past; 10m means in ten minutes")
    if found > now + _MOST_AHEAD_MS:
        raise argparse.ArgumentTypeError(f"time {text!r} is more than three days ahead, which brokers do not take")
    return found


def parse_regex(text: str) -> re.Pattern[str]:
    """Parse a regular expression."""
    return _compiled(text, text)


def parse_bytes_regex(text: str) -> re.Pattern[bytes]:
    """Parse a regular expression for bytes, of those that the command line has."""
    return _compiled(text, os.fsencode(text))


def _compiled(text: str, pattern: AnyStr) -> re.Pattern[AnyStr]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a regular expression: {reason}") from None


def parse_some(text: str) -> str:
    """Parse text that is not empty: an empty one may be a variable of the shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: is a variable of the command line empty?")
    return text


def parse_seconds(text: str) -> float:
    """Parse a duration in seconds; a fraction is permitted."""
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0.1 <= found <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 86400")
    return found


def parse_selector(text: str) -> str:
    """Parse an expression of SQL92. What a broker makes of it, only the broker knows; told is what is not finished."""
    tokens = [each for each in _TOKEN.findall(parse_some(text)) if each[:2] not in ("--", "/*")]
    missing = ""
    if "'" in tokens:
        missing = "a single quote is missing"
    elif tokens.count("(") > tokens.count(")"):
        missing = "a ) is missing"
    elif not tokens or _UNFINISHED.fullmatch(tokens[-1]):
        missing = f"nothing follows {tokens[-1]}" if tokens else "it has comments only"
    if missing:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not an expression of SQL92: {missing}")
    return text


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
