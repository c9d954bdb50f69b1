"""The common parts of rmqio's command lines: the cluster, times, and positions in queues."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, AnyStr, Final, NamedTuple

from rmqio import security
from rmqio.errors import LocalError, quoted
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions, options_of_cluster, parse_name_server
from rmqio.start import (
    DURATION,
    SECONDS,
    Position,
    StartFrom,
    StartKind,
    StopAt,
    StopKind,
    position_of,
    start_of,
    stop_of,
    time_of,
)
from rmqio.topics import topic_fault, validate_group, validate_topic

DEFAULT_TIMEOUT_MS: Final = 3_000
_MOST: Final = 2**63 - 1
"""What RocketMQ has as a `long`."""


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Returns the parser of text that `check` takes: what it refuses is told before anything connects."""

    def parse(text: str) -> str:
        with as_argument():
            check(text)
        return text

    return parse


@contextlib.contextmanager
def as_argument() -> Iterator[None]:
    """argparse shows the messages of its own errors only."""
    try:
        yield
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# ---- the cluster -----------------------------------------------------------------------------------------------------


def add_name_server(parser: argparse._ActionsContainer) -> None:
    """Adds `--name_server`."""
    parser.add_argument(
        "--name_server",
        type=checked(parse_name_server),
        metavar="HOST:PORT",
        help=f"one or more, as in a:1;b:1; default: ${NAME_SERVER_VARIABLE}",
    )


def add_connection(parser: argparse.ArgumentParser, *, has_name_server: bool = False) -> None:
    """Adds the options of every command that connects to a cluster: `--name_server`, `--tls` and so on.

    `has_name_server`: the parser has `--name_server` already.
    """
    group = parser.add_argument_group("connection")
    if not has_name_server:
        add_name_server(group)
    group.add_argument(
        "--namespace",
        type=checked(_check_namespace),
        default="",
        metavar="NAME",
        help="the instance, a prefix of topics and groups",
    )
    group.add_argument(
        "--timeout_ms",
        type=whole_number("number", 1),
        default=DEFAULT_TIMEOUT_MS,
        metavar="MS",
        help=f"time to connect, and to answer a request; default: {DEFAULT_TIMEOUT_MS}",
    )
    security.add_arguments(parser)


def client_options(arguments: argparse.Namespace, **more: Any) -> ClientOptions:
    """Returns the options of a client, from what `add_connection` adds; `more` wins.

    Raises `LocalError`, also for credentials and files of TLS that cannot be read.
    """
    if arguments.name_server is None and not os.environ.get(NAME_SERVER_VARIABLE):
        raise LocalError(f"no name server given: --name_server HOST:9876, or set {NAME_SERVER_VARIABLE}")
    given = _connection(arguments) | more
    secured = security.from_arguments(arguments)
    options = options_of_cluster(arguments.name_server, secured, **given)
    require_usable(secured)
    return options


def require_usable(secured: security.Security) -> None:
    """Calls `client.connection.require_usable`, which is imported only then: it needs the client."""
    from rmqio.client.connection import require_usable

    require_usable(secured)


def _check_namespace(name: str) -> None:
    if name and (fault := topic_fault(name)):  # it becomes a part of names of topics
        raise LocalError(f"namespace {name!r} is illegal: {fault}")


def _connection(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "namespace": arguments.namespace,
        "request_timeout_ms": arguments.timeout_ms,
        "connect_timeout_ms": arguments.timeout_ms,
    }


# ---- times and numbers -----------------------------------------------------------------------------------------------


def parse_time(text: str) -> int:
    """Parses a time to Unix milliseconds; see `TIME_HELP`."""
    with as_argument():
        return time_of(text)


def whole_number(what: str, least: int, most: int = _MOST) -> Callable[[str], int]:
    """Returns the parser of a whole number from `least` to `most`; `what` is used in its messages."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        # Python reads no more than 4,300 digits
        found = -1 if not is_number else int(text) if len(text) <= len(str(_MOST)) else _MOST + 1
        if not least <= found <= most:
            wanted = f"of at least {least}" if most == _MOST and found < least else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{what} {text!r} is not a whole number {wanted}")
        return found

    return parse


parse_port = whole_number("port", 1, 65_535)


# ---- positions -------------------------------------------------------------------------------------------------------


def position_parser(*kinds: str, numbers_are_offsets: bool = False) -> Callable[[str], Position]:
    """Returns the parser of a position of these kinds, see `position_of`."""

    def parse(text: str) -> Position:
        with as_argument():
            return position_of(text, kinds, numbers_are_offsets=numbers_are_offsets)

    return parse


def start_parser(*kinds: StartKind) -> Callable[[str], StartFrom]:
    """Returns the parser of a start of these kinds. `group` alone is `group:earliest`."""

    def parse(text: str) -> StartFrom:
        with as_argument():
            return start_of(text, kinds)

    return parse


def stop_parser(*kinds: StopKind) -> Callable[[str], StopAt | None]:
    """Returns the parser of a stop of these kinds; `none` gives None."""

    def parse(text: str) -> StopAt | None:
        with as_argument():
            return stop_of(text, kinds)

    return parse


# Values that several commands take: positions, numbers, queues, properties.

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


def parse_interval(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


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
