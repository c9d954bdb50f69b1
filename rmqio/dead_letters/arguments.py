"""The command line of `python -m rmqio.replay`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqio import security
from rmqio.command_line import add_name_server, start_parser, stop_parser
from rmqio.dead_letters.replay import Choice, client_options
from rmqio.errors import LocalError
from rmqio.options import ClientOptions
from rmqio.start import StartFrom, StopAt
from rmqio.wire.properties import validate_group

_DESCRIPTION: Final = """\
Read the dead letters of a topic and send their messages back to where they came from, or to another topic. Without
--back and --to, it shows the letters and sends nothing.
"""

_EPILOG: Final = """\
TIME is Unix milliseconds, or ISO 8601 with a time zone.

Delivery is at least once: if you repeat an interrupted replay, it sends the same messages with the same ids. With
--consumer_group, a replay continues where the last one ended. Use one group for each choice of letters, because letters
that are not chosen count as done. Letters stay in their topic.

exit status: 0 done, 1 failed, or something was not sent or is lost on the broker, 2 wrong usage, 130 interrupted
example: python -m rmqio.replay --name_server=127.0.0.1:9876 --dead_letter_topic=dead --back --error=SerdeError
"""


class Arguments(NamedTuple):
    """A parsed command line."""

    choice: Choice
    options: ClientOptions
    start: StartFrom
    stop: StopAt
    consumer_group: str | None
    is_dry_run: bool
    is_json: bool


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rmqio.replay",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add_name_server(parser)
    add("--dead_letter_topic", required=True, metavar="TOPIC", help="the topic with the letters")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--back", action="store_true", help="send each message to the topic that it came from")
    where.add_argument("--to", metavar="TOPIC", help="send all messages to this topic, which must exist")
    add("--dry_run", "--dry-run", action="store_true", help="with --back or --to: show what would be sent")
    add("--error", type=_pattern, metavar="REGEX", help="only letters whose 'class: reason' matches")
    add(
        "--source_topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="only letters that go back to this topic; repeatable",
    )
    add("--limit", type=int, metavar="N", help="the maximum number of letters")
    add("--start", type=_parse_start, metavar="WHERE", help="earliest, group, or timestamp:TIME; default: group with"
        " --consumer_group (earliest if the group has no offset), else earliest")  # fmt: skip
    add(
        "--stop",
        type=_parse_stop,
        metavar="WHERE",
        help="latest (the default: the current end) or timestamp:TIME",
    )
    add("--consumer_group", metavar="GROUP", help="continue where this group's last replay ended, and commit to it")
    add("--json", action="store_true", help="print the result as JSON")
    security.add_arguments(parser)
    return parser


def parse(argv: Sequence[str]) -> Arguments:
    """Parses a command line. Wrong usage and `--help` end the program as argparse does, with status 2 or 0."""
    parser = make_parser()
    found = parser.parse_args(argv)
    group = found.consumer_group
    try:
        choice = Choice(found.dead_letter_topic, found.to, found.error, frozenset(found.source_topic), found.limit)
        options = client_options(found.name_server, security.from_arguments(found))
        if group is not None:
            validate_group(group)
        start = found.start or (StartFrom.group_offsets(reset="earliest") if group else StartFrom.earliest())
        if start.needs_group and group is None:
            raise LocalError("--start=group needs --consumer_group")
    except LocalError as error:
        parser.error(str(error))
    is_dry_run = found.dry_run or not (found.back or found.to)
    return Arguments(choice, options, start, found.stop or StopAt.latest(), group, is_dry_run, found.json)


_parse_start = start_parser("earliest", "group", "timestamp:TIME")
_parse_stop = stop_parser("latest", "timestamp:TIME")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
