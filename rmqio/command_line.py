"""What the command lines of rmqio have in common: the cluster, times, and where a read starts and stops."""

from __future__ import annotations

import argparse
import datetime as dt
import re
import time
from collections.abc import Callable
from typing import Any, Final, Literal

from rmqio import security
from rmqio.errors import LocalError
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions, parse_name_server
from rmqio.start import Reset, StartFrom, StopAt, to_timestamp_ms

SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION: Final = re.compile(r"(\d{1,9})([smhd])")
TIME_HELP: Final = "TIME is ISO 8601 with a time zone, Unix milliseconds, or how long ago: 30s, 10m, 2h, 7d"

StartKind = Literal["earliest", "latest", "group", "group:RESET", "timestamp:TIME"]
StopKind = Literal["none", "latest", "timestamp:TIME"]


def add_name_server(parser: argparse._ActionsContainer) -> None:
    """Adds `--name_server`."""
    parser.add_argument(
        "--name_server",
        metavar="HOST:PORT",
        help=f"one or several, separated by semicolons; default: the environment variable {NAME_SERVER_VARIABLE}",
    )


def client_options(arguments: argparse.Namespace, **more: Any) -> ClientOptions:
    """Returns the options of a client, from `--name_server` and the options that `rmqio.security` adds.

    Raises `LocalError`.
    """
    name_servers = parse_name_server(arguments.name_server)
    return ClientOptions(name_servers, security=security.from_arguments(arguments), **more)


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


def start_parser(*kinds: StartKind) -> Callable[[str], StartFrom]:
    """Returns the parser of a start of these kinds. `group` alone is `group:earliest`."""
    resets: dict[str, Reset] = {"": "earliest"}
    if "group:RESET" in kinds:
        resets |= {"earliest": "earliest", "latest": "latest", "error": "error"}
    names = [("group:earliest, group:latest, group:error" if kind == "group:RESET" else kind) for kind in kinds]

    def parse(text: str) -> StartFrom:
        kind, _, rest = text.partition(":")
        if kind == "group" and "group" in kinds and rest in resets:
            return StartFrom.group_offsets(reset=resets[rest])
        if kind == "timestamp" and rest and "timestamp:TIME" in kinds:
            return StartFrom.timestamp(parse_time(rest))
        if text in ("earliest", "latest") and text in kinds:
            return StartFrom.earliest() if text == "earliest" else StartFrom.latest()
        raise argparse.ArgumentTypeError(f"{text!r} is not {_one_of(names)}")

    return parse


def stop_parser(*kinds: StopKind) -> Callable[[str], StopAt | None]:
    """Returns the parser of a stop of these kinds; `none` gives None."""

    def parse(text: str) -> StopAt | None:
        kind, _, rest = text.partition(":")
        if kind == "timestamp" and rest and "timestamp:TIME" in kinds:
            return StopAt.timestamp(parse_time(rest))
        if text in ("none", "latest") and text in kinds:
            return None if text == "none" else StopAt.latest()
        raise argparse.ArgumentTypeError(f"{text!r} is not {_one_of(kinds)}")

    return parse


def _one_of(names: Any) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"
