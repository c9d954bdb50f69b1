"""`rmqio replay` and `python -m rmqio.replay`: the result on standard output, progress and errors on standard error."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqio.client.factory import RemotingClientFactory
from rmqio.command_line.arguments import (
    add_connection,
    client_options,
    parse_group,
    parse_regex,
    parse_topic,
    start_parser,
    stop_parser,
    whole_number,
)
from rmqio.command_line.cluster import require_topics
from rmqio.command_line.output import line_width
from rmqio.command_line.parser import Parser
from rmqio.dead_letters.replay import LARGE_BODY_BYTES, Choice, Replay, ReplayResult
from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory
from rmqio.options import ClientOptions
from rmqio.start import TIME_HELP, StartFrom, StopAt

# The command line of `rmqio replay` and `python -m rmqio.replay`.

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


_SAY_EVERY_S: Final = 5.0


def main(argv: Sequence[str] | None = None, *, client_factory: ClientFactory | None = None) -> int:
    """Runs `python -m rmqio.replay`. Returns the exit status as `run`; wrong usage ends the program with status 2.

    `client_factory`: another way to create clients, for tests.
    """
    return run(make_parser().parse(sys.argv[1:] if argv is None else argv), client_factory=client_factory)


def run(found: argparse.Namespace, *, client_factory: ClientFactory | None = None) -> int:
    """Runs a parsed command line.

    Returns the exit status: 0 done, 1 failed, or letters were not sent or lost, 130 interrupted.
    """
    try:
        arguments = to_arguments(found)
    except LocalError as error:
        found.parser.error(str(error))
    name = found.parser.prog.removeprefix("python -m ")
    group, factory = arguments.consumer_group, client_factory or RemotingClientFactory(arguments.options)
    replay = Replay(
        arguments.choice,
        factory,
        group=None if arguments.is_dry_run else group,
        is_dry_run=arguments.is_dry_run,
    )
    status, text, has_begun = 0, "", False
    try:
        with contextlib.closing(factory.queue_client()) as client:
            require_topics(client, {"--dead_letter_topic": found.dead_letter_topic, "--to": found.to})
        has_begun = True
        replay.run(arguments.start, arguments.stop, group, _Teller(name))
    except RmqioError as error:
        status, text = 1, " ".join(str(error).split())  # a broker's remark can have several lines
        if found.verbose:
            traceback.print_exc()
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    if has_begun:
        _show(replay.result, arguments, is_done=not status)
    if text:
        _say(name, text)
    result = replay.result
    return status or int(bool(result.lost) or (bool(result.not_sent) and not result.is_dry_run))


def _show(result: ReplayResult, arguments: Arguments, *, is_done: bool) -> None:
    if arguments.is_json:
        print(json.dumps(result.as_dict(), ensure_ascii=False), flush=True)
        return
    print(result.table(line_width() if sys.stdout.isatty() else None), flush=True)
    if result.is_dry_run and is_done:
        how = f"Nothing has been sent. To send the messages, {arguments.next_step}."
        print(how if result.sent else "There is nothing to send.", flush=True)


class _Teller:
    """Reports the progress periodically."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._said = time.monotonic()

    def __call__(self, result: ReplayResult, total: int) -> None:
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY_S:
            self._said = now
            rate = result.read / (now - self._began)
            _say(self._name, f"{result.read:,} of {total:,} read, {result.sent:,} sent, {rate:,.0f} a second")


def _say(name: str, text: str) -> None:
    print(f"{name}: {text}", file=sys.stderr, flush=True)
