"""`rmqio copy`: its options, and the job."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from rmqio import security
from rmqio.command_line.arguments import parse_topic, require_usable
from rmqio.command_line.output import WRONG_USAGE, with_short_words
from rmqio.command_line.parser import Parser
from rmqio.connect.copying.urls import FORMS, End, check, parse_end, require_files
from rmqio.errors import LocalError
from rmqio.runners.options import connects_from_here, known_flags, known_runner, strict_options, wrong_argument

_MORE: Final = f"""\
URLs: {FORMS}

Options of a URL follow a question mark, as in rocketmq:orders?start=latest or ...#users?mode=ignore; \
docs/connect/copy.md lists them. Name environment variables that hold passwords: password_env=, sasl.password_env=; \
for a query, before the #, as in mysql://me@db/shop?password_env=DB_PASSWORD#SELECT ... \
All other options of the command go to Beam and its runner: --runner=SparkRunner.

example: rmqio copy --from rocketmq:orders --to 'mysql://me@db/shop#orders?password_env=DB_PASSWORD'"""


def add_options(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = f"{_MORE}\n\n{parser.epilog or ''}".rstrip()
    parser.known_elsewhere = known_flags
    add = parser.add_argument
    add("--from", dest="source", required=True, metavar="URL", help="the source")
    add("--to", dest="target", required=True, metavar="URL", help="the target")
    add(
        "--follow",
        action="store_true",
        help="continue with data that arrives later; default: end with the existing data",
    )
    add(
        "--dead_letter_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="RocketMQ topic for rows that the target refuses; default: the copy fails",
    )
    add("--runner", type=known_runner, metavar="NAME", help="DirectRunner (default), FlinkRunner, SparkRunner")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns the exit status."""
    if wrong := wrong_argument(arguments.rest, arguments.parser.option_names):
        arguments.parser.error(wrong)
    try:
        secured = security.from_arguments(arguments)
        source, target = _end("--from", arguments.source), _end("--to", arguments.target)
        where = _where(arguments, source, target, secured)
        check(source, target, follow=arguments.follow, name_server=where.get("name_server"))
        if arguments.runner in (None, "DirectRunner"):  # the others can have workers on other machines
            require_files(source, target)
        if where and connects_from_here(arguments.runner):
            require_usable(secured)
        options = strict_options(arguments.rest, runner=arguments.runner)  # imports Beam
    except LocalError as error:
        said = with_short_words(str(error), (arguments.source, arguments.target))
        print(f"rmqio copy: {said}", file=sys.stderr)
        return WRONG_USAGE
    from rmqio.connect.copying.job import copy

    return copy(
        source,
        target,
        options,
        follow=arguments.follow,
        where=where,
        dead_letter_topic=arguments.dead_letter_topic,
        verbose=arguments.verbose,
    )


def _end(option: str, url: str) -> End:
    try:
        return parse_end(url)
    except LocalError as error:
        raise LocalError(f"{option}: {error}") from None


def _where(arguments: argparse.Namespace, source: End, target: End, secured: security.Security) -> dict[str, Any]:
    """The cluster of RocketMQ, if the copy has to do with one."""
    if "rocketmq" not in (source.kind, target.kind) and not arguments.dead_letter_topic:
        return {}
    name_server = arguments.name_server or source.place * (source.kind == "rocketmq") or None
    name_server = name_server or target.place * (target.kind == "rocketmq") or None
    return {"name_server": name_server, "security": secured}
