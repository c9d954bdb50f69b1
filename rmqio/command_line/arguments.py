"""The common parts of rmqio's command lines: the cluster, times, and positions in queues."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import time
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from rmqio import security
from rmqio.command_line.parser import did_you_mean
from rmqio.errors import LocalError
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions, parse_name_server
from rmqio.start import Reset, StartFrom, StopAt, to_timestamp_ms

SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION: Final = re.compile(r"(\d{1,9})([smhd])")
TIME_HELP: Final = "TIME is ISO 8601 with a time zone, Unix milliseconds, or an age: 30s, 10m, 2h"
_A_TIME: Final = "a TIME like 10m or 2026-01-31T12:00:00Z"
DEFAULT_TIMEOUT_MS: Final = 3_000

StartKind = Literal["earliest", "latest", "group", "group:RESET", "timestamp:TIME"]
StopKind = Literal["none", "latest", "timestamp:TIME"]

# ---- the cluster -----------------------------------------------------------------------------------------------------


def add_name_server(parser: argparse._ActionsContainer) -> None:
    """Adds `--name_server`."""
    parser.add_argument(
        "--name_server",
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
    group.add_argument("--namespace", default="", metavar="NAME", help="the instance, a prefix of topics and groups")
    group.add_argument(
        "--timeout_ms",
        type=whole_number("number", 1),
        default=DEFAULT_TIMEOUT_MS,
        metavar="MS",
        help=f"time to connect, and to answer a request; default: {DEFAULT_TIMEOUT_MS}",
    )
    security.add_arguments(parser)


def client_options(arguments: argparse.Namespace, **more: Any) -> ClientOptions:
    """Returns the options of a client, from `--name_server` and the options that `rmqio.security` adds.

    Raises `LocalError`.
    """
    if arguments.name_server is None and not os.environ.get(NAME_SERVER_VARIABLE):
        raise LocalError(f"no name server given: --name_server HOST:9876, or set {NAME_SERVER_VARIABLE}")
    name_servers = parse_name_server(arguments.name_server)
    return ClientOptions(name_servers, security=security.from_arguments(arguments), **more)


def connection_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns what `--namespace` and `--timeout_ms` say, as arguments of `ClientOptions`."""
    return {
        "namespace": arguments.namespace,
        "request_timeout_ms": arguments.timeout_ms,
        "connect_timeout_ms": arguments.timeout_ms,
    }


# ---- times and numbers -----------------------------------------------------------------------------------------------


def parse_time(text: str) -> int:
    """Parses a time to Unix milliseconds; see `TIME_HELP`."""
    if text.isascii() and text.isdigit():
        return int(text)
    if ago := DURATION.fullmatch(text):
        return int(time.time() * 1000) - int(ago[1]) * SECONDS[ago[2]] * 1000
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"time {text!r} is neither ISO 8601 like 2026-01-31T12:00:00+08:00, nor Unix milliseconds, nor like 10m"
        ) from None
    try:
        return to_timestamp_ms(found)
    except LocalError:
        raise argparse.ArgumentTypeError(f"time {text!r} has no time zone; add one, e.g. Z or +08:00") from None


def whole_number(what: str, least: int) -> Callable[[str], int]:
    """Returns the parser of a whole number that is not less than `least`; `what` is used in its messages."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{what} {text!r} is not a whole number of at least {least}")
        return int(text)

    return parse


# ---- positions -------------------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """A position in a queue: by name, by store time, by offset, or by a group's offset."""

    kind: Literal["earliest", "latest", "none", "group", "time", "offset"]
    value: int = 0
    """Unix milliseconds, or an offset."""
    reset: Reset = "earliest"
    """The start for a group that has no offset."""


def position_parser(*kinds: str, numbers_are_offsets: bool = False) -> Callable[[str], Position]:
    """Returns the parser of a position of these kinds: names as in `Position`, `group:RESET`, `timestamp:TIME`.

    A TIME needs no `timestamp:` in front. With `numbers_are_offsets`, a bare number is an offset.
    """
    resets: dict[str, Reset] = {"": "earliest"}
    if "group:RESET" in kinds:
        resets |= {"earliest": "earliest", "latest": "latest", "error": "error"}
    said = {"group:RESET": "group:earliest, group:latest, group:error", "timestamp:TIME": _A_TIME}
    names = [said.get(kind, kind) for kind in kinds]

    def parse(text: str) -> Position:
        kind, _, rest = text.partition(":")
        if text in ("earliest", "latest", "none") and text in kinds:
            return Position(text)  # type: ignore[arg-type]  # the three names
        if kind == "group" and "group" in kinds and rest in resets:
            return Position("group", reset=resets[rest])
        if numbers_are_offsets and text.isascii() and text.isdigit():
            return Position("offset", int(text))
        if "timestamp:TIME" in kinds and kind == "timestamp" and rest:
            return Position("time", parse_time(rest))
        if "timestamp:TIME" in kinds and text[:1].isdigit():
            return Position("time", parse_time(text))
        words = [kind for kind in kinds if kind not in said]
        raise argparse.ArgumentTypeError(f"{text!r} is not {_one_of(names)}{did_you_mean(text, words)}")

    return parse


def start_parser(*kinds: StartKind) -> Callable[[str], StartFrom]:
    """Returns the parser of a start of these kinds. `group` alone is `group:earliest`."""
    parse_position = position_parser(*kinds)

    def parse(text: str) -> StartFrom:
        found = parse_position(text)
        if found.kind == "group":
            return StartFrom.group_offsets(reset=found.reset)
        if found.kind == "time":
            return StartFrom.timestamp(found.value)
        return StartFrom.earliest() if found.kind == "earliest" else StartFrom.latest()

    return parse


def stop_parser(*kinds: StopKind) -> Callable[[str], StopAt | None]:
    """Returns the parser of a stop of these kinds; `none` gives None."""
    parse_position = position_parser(*kinds)

    def parse(text: str) -> StopAt | None:
        found = parse_position(text)
        if found.kind == "time":
            return StopAt.timestamp(found.value)
        return None if found.kind == "none" else StopAt.latest()

    return parse


def _one_of(names: Any) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"
