"""The common parts of rmqio's command lines: the cluster, times, and positions in queues."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from rmqio import security
from rmqio.errors import LocalError
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions, options_of_cluster, parse_name_server
from rmqio.start import (
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
from rmqio.topics import topic_fault

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
