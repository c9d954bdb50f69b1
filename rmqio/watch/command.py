"""The command `rmqio watch`: its options, and the choice between a terminal, lines of JSON and a page."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from rmqio.command_line.arguments import checked, parse_group, parse_seconds, parse_topic, whole_number
from rmqio.command_line.cluster import open_admin, queue_client
from rmqio.command_line.output import note, print_json
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError
from rmqio.prometheus.export import metrics_url
from rmqio.watch.frames import Target
from rmqio.watch.watcher import Watcher

DEFAULT_PORT: Final = 8765
_INTERRUPTED: Final = 130
_AWAY: Final = 1

MORE: Final = """\
LAG is the number of messages that the group has yet to read, WAIT how long the oldest of them has waited, COMMIT how
long ago the group's offset last moved. Rates are means over ten seconds. Nothing is committed, and no group is joined.
The exit status of --once is 1 if a broker or the exporter does not answer.

examples:
  rmqio watch --topic orders --group billing
  rmqio watch --topic orders --group billing --metrics 127.0.0.1:9464 --web
  rmqio watch --topic orders --group billing --once --json"""


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--topic",
        dest="topics",
        type=parse_topic,
        action="append",
        required=True,
        metavar="TOPIC",
        help="the topic; repeatable",
    )
    parser.add_argument("--group", type=parse_group, metavar="GROUP", help="show the lag of this consumer group")
    parser.add_argument(
        "--dead_letter_topic",
        dest="dead_letter_topics",
        type=parse_topic,
        action="append",
        default=[],
        metavar="TOPIC",
        help="also count the messages of this topic; repeatable. Those of %%DLQ%%GROUP are counted anyway",
    )
    parser.add_argument(
        "--metrics",
        type=checked(metrics_url),
        metavar="URL",
        help="the pipeline's exporter (RMQIO_PROMETHEUS): delay and errors",
    )
    parser.add_argument(
        "--every", type=parse_seconds, default=1.0, metavar="SECONDS", help="time between two polls (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="poll twice, print the result, and end")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print one JSON document per line")
    shown.add_argument(
        "--web",
        nargs="?",
        type=whole_number("port", 0, 65_535),
        const=DEFAULT_PORT,
        metavar="PORT",
        help=f"serve a page on this machine only, on PORT (default: {DEFAULT_PORT}; 0: any free port)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch as the options say, and return the exit status."""
    if arguments.web is not None and arguments.once:
        arguments.parser.error("--once cannot be combined with --web, which serves a page until Ctrl-C")
    target = _target(arguments)
    if not arguments.json and arguments.web is None:
        require_rich()
    with queue_client(arguments, pull_batch=1, pull_depth=1) as client, open_admin(arguments) as admin:
        watcher = Watcher(
            client,
            target,
            every_s=arguments.every,
            timeout_ms=arguments.timeout_ms,
            groups_of=admin.groups_of_topic,
        )
        try:
            watcher.start()
            return _show(watcher, arguments)
        except KeyboardInterrupt:
            note("ended by Ctrl-C")
            return _INTERRUPTED
        finally:
            watcher.close()


def _target(arguments: argparse.Namespace) -> Target:
    topics, letters = tuple(dict.fromkeys(arguments.topics)), list(arguments.dead_letter_topics)
    if arguments.group is not None:
        letters.insert(0, f"%DLQ%{arguments.group}")
    both = [topic for topic in letters if topic in topics]
    if both:
        raise LocalError(f"--dead_letter_topic {both[0]}: it is also given as --topic; name it once")
    if arguments.metrics is not None:
        if _is_missing("prometheus_client"):
            raise LocalError("--metrics needs the extra 'watch': pip install 'rmqio[watch]' (no prometheus_client)")
        arguments.metrics = metrics_url(arguments.metrics)
    return Target(topics, arguments.group, tuple(dict.fromkeys(letters)), arguments.metrics)


def _show(watcher: Watcher, arguments: argparse.Namespace) -> int:
    if arguments.web is not None:
        from rmqio.watch.page import serve

        serve(watcher, arguments.web)
    if arguments.once:
        # Rates need two looks. A broker that is away must not hold up a script: what there is then is shown.
        watcher.wait(1, arguments.every + 2 * arguments.timeout_ms / 1000)
        if arguments.json:
            print_json(watcher.frame().fields())
        else:
            _print_view(watcher)
        return 0 if watcher.frame().is_whole else _AWAY
    if arguments.json:
        seen = 0
        while True:
            count = watcher.wait(seen, 1.0)
            frame = watcher.frame()  # raises what ended the polls
            if count > seen:
                print_json(frame.fields())
                sys.stdout.flush()
            seen = count
    from rich.console import Console

    from rmqio.watch.terminal import watch_on_terminal

    console = Console(highlight=False)
    if not console.is_terminal:
        raise LocalError("standard output is not a terminal: add --once, --json or --web")
    watch_on_terminal(console, watcher.frame, f"every {arguments.every:g} s, Ctrl-C ends it", arguments.every)
    return 0


def _print_view(watcher: Watcher) -> None:
    from rich.console import Console

    from rmqio.command_line.output import line_width
    from rmqio.watch.terminal import View

    Console(highlight=False, width=line_width()).print(View(watcher.frame()))


def require_rich() -> None:
    """Raises `LocalError` if rich is missing."""
    if _is_missing("rich"):
        raise LocalError("rmqio watch on a terminal needs the extra 'watch': pip install 'rmqio[watch]'; or use --web")


def _is_missing(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is None
