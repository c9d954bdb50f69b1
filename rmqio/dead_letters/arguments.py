"""The command line of `rmqio replay` and `python -m rmqio.replay`."""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from rmqio.command_line.arguments import (
    add_connection,
    client_options,
    start_parser,
    stop_parser,
    whole_number,
)
from rmqio.command_line.parser import Parser
from rmqio.command_line.values import parse_group, parse_regex, parse_topic
from rmqio.dead_letters.replay import LARGE_BODY_BYTES, Choice
from rmqio.errors import LocalError
from rmqio.options import ClientOptions
from rmqio.start import StartFrom, StopAt
from rmqio.start.texts import TIME_HELP

_DESCRIPTION: Final = """\
Read the dead letters of a topic and send their messages back to where they came from, or to another topic. Without
--back and --to, it shows the letters and sends nothing."""

_EPILOG: Final = f"""\
{TIME_HELP}.

Delivery is at least once: if you repeat an interrupted replay, it sends the same messages with the same ids. With
--consumer_group, a replay continues where the last one ended. Use one group for each choice of letters, because
letters that are not chosen count as done. Letters stay in their topic.

exit status: 0 done, 1 failed, or something was not sent or is lost on the broker, 2 wrong usage, 130 interrupted

examples:
  %(prog)s --dead_letter_topic orders-dead
  %(prog)s --dead_letter_topic orders-dead --back"""


class Arguments(NamedTuple):
    """A parsed command line."""

    choice: Choice
    options: ClientOptions
    start: StartFrom
    stop: StopAt
    consumer_group: str | None
    is_dry_run: bool
    is_json: bool
    next_step: str
    """How to go on after a dry run."""


def make_parser() -> Parser:
    """Return the parser of `python -m rmqio.replay`."""
    parser = Parser(prog="python -m rmqio.replay")
    add_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traceback of a failure")
    add_connection(parser)
    return parser


def add_options(parser: Parser) -> None:
    """Add the description, and all options but those of the connection."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG + ("\n\n" + parser.epilog if parser.epilog else "")
    add = parser.add_argument
    add("--dead_letter_topic", required=True, type=parse_topic, metavar="TOPIC", help="the topic with the letters")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--back", action="store_true", help="send each message to the topic that it came from")
    where.add_argument(
        "--to", type=parse_topic, metavar="TOPIC", help="send all messages to this topic, which must exist"
    )
    add("--dry_run", action="store_true", help="with --back or --to: show what would be sent")
    add("--error", type=parse_regex, metavar="REGEX", help="only letters whose 'class: reason' matches")
    add(
        "--source_topic",
        action="append",
        default=[],
        type=parse_topic,
        metavar="TOPIC",
        help="only letters that go back to this topic; repeatable",
    )
    add("--limit", type=whole_number("number", 1), metavar="N", help="the maximum number of letters")
    add("--start", "--from", type=_parse_start, metavar="WHERE", help="earliest, group, or a TIME; default: group with"
        " --consumer_group (earliest if the group has no offset), else earliest")  # fmt: skip
    add("--stop", type=_parse_stop, metavar="WHERE", help="latest (the default: the current end) or a TIME")
    add(
        "--consumer_group",
        type=parse_group,
        metavar="GROUP",
        help="continue where this group's last replay ended, and commit to it",
    )
    add("--json", action="store_true", help="print the result as JSON")


def to_arguments(found: argparse.Namespace) -> Arguments:
    """Check what argparse cannot. Raises `LocalError`, naming the option."""
    group, start = found.consumer_group, found.start
    if found.to == found.dead_letter_topic:
        raise LocalError(f"--to={found.to} is the dead-letter topic itself: name another topic")
    if start is None:
        start = StartFrom.group_offsets(reset="earliest") if group else StartFrom.earliest()
    if start.needs_group and group is None:
        raise LocalError("--start=group needs --consumer_group, the group at whose offsets to start")
    choice = Choice(found.dead_letter_topic, found.to, found.error, frozenset(found.source_topic), found.limit)
    options = client_options(found, compress_over_bytes=LARGE_BODY_BYTES)
    if found.dry_run and (found.back or found.to):
        next_step = "leave out --dry_run"
    else:
        next_step = "add --back (each to the topic that it came from) or --to=TOPIC"
    is_dry_run = found.dry_run or not (found.back or found.to)
    return Arguments(choice, options, start, found.stop or StopAt.latest(), group, is_dry_run, found.json, next_step)


_parse_start = start_parser("earliest", "group", "timestamp:TIME")
_parse_stop = stop_parser("latest", "timestamp:TIME")
