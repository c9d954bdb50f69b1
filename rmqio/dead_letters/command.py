"""`python -m rmqio.replay`: writes the result to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Final

from rmqio.client.factory import RemotingClientFactory
from rmqio.dead_letters.arguments import parse
from rmqio.dead_letters.replay import Replay
from rmqio.dead_letters.result import ReplayResult
from rmqio.errors import RmqioError
from rmqio.interfaces import ClientFactory

_SAY_EVERY_S: Final = 5.0


def main(argv: Sequence[str] | None = None, *, client_factory: ClientFactory | None = None) -> int:
    """Returns the exit status: 0 done, 1 failed, or letters were not sent or lost, 2 wrong usage, 130 interrupted.

    `client_factory`: another way to create clients, for tests.
    """
    arguments = parse(sys.argv[1:] if argv is None else argv)
    group = arguments.consumer_group
    run = Replay(
        arguments.choice,
        client_factory or RemotingClientFactory(arguments.options),
        group=None if arguments.is_dry_run else group,
        is_dry_run=arguments.is_dry_run,
    )
    status, text = 0, ""
    try:
        run.run(arguments.start, arguments.stop, group, _Teller())
    except RmqioError as error:
        status, text = 1, " ".join(str(error).split())  # a broker's remark can have several lines
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    result = run.result
    print(json.dumps(result.as_dict(), ensure_ascii=False) if arguments.is_json else result.table(), flush=True)
    if text:
        _say(text)
    return status or int(bool(result.lost) or (bool(result.not_sent) and not result.is_dry_run))


class _Teller:
    """Reports the progress periodically."""

    def __init__(self) -> None:
        self._began = self._said = time.monotonic()

    def __call__(self, result: ReplayResult, total: int) -> None:
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY_S:
            self._said = now
            rate = result.read / (now - self._began)
            _say(f"{result.read:,} of {total:,} read, {result.sent:,} sent, {rate:,.0f} a second")


def _say(text: str) -> None:
    print(f"rmqio.replay: {text}", file=sys.stderr, flush=True)
