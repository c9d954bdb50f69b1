"""`rmqio replay` and `python -m rmqio.replay`: the result on standard output, progress and errors on standard error."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Final

from rmqio.client.factory import RemotingClientFactory
from rmqio.command_line.connect import require_topics
from rmqio.command_line.terminal import line_width
from rmqio.dead_letters.arguments import Arguments, make_parser, to_arguments
from rmqio.dead_letters.replay import Replay
from rmqio.dead_letters.result import ReplayResult
from rmqio.errors import LocalError, RmqioError
from rmqio.interfaces import ClientFactory

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
