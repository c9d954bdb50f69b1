"""`rmqio local` and `python -m rmqio.local`: run a RocketMQ name server and broker until Ctrl-C.

Standard output has one line, the name server's address, for scripts; everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from rmqio.command_line.arguments import parse_port, parse_topic, whole_number
from rmqio.command_line.output import FAILED, WRONG_USAGE
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError, RmqioError
from rmqio.local.broker import LocalRocketMQ
from rmqio.local.errors import LocalBrokerError

_POLL_S = 0.5


class _Interrupted(BaseException):
    """A signal to stop. Not an Exception, so that no code in between swallows it."""

    def __init__(self, number: int) -> None:
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m rmqio.local`, and return the exit status as `run`; wrong usage ends it with status 2."""
    parser = Parser(prog="python -m rmqio.local")
    add_options(parser)
    return run(parser.parse(sys.argv[1:] if arguments is None else arguments))


def run(given: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM, and return the exit status.

    It is 0 when stopped this way, 128 + signal if not up yet, 1 on failure, and 2 for wrong usage.
    """
    say = _teller(given.parser.prog.removeprefix("python -m "))
    stop = threading.Event()
    up = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the orderly stop
        if not up:
            raise _Interrupted(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        rocketmq = LocalRocketMQ(
            name=given.name,
            name_server_port=given.port,
            broker_port=given.broker_port,
            broker_config=dict(given.broker_config),
            name_server_config=dict(given.name_server_config),
            broker_heap_mb=given.heap,
            data_dir=given.data_dir,
            tls=given.tls,
        )
        with rocketmq:
            for topic, queues in given.topic:
                rocketmq.create_topic(topic, queues)
            up = True
            say(f"broker {rocketmq.broker} (pid {rocketmq.pid()}) is up, data and logs in {rocketmq.data_dir}")
            say("Ctrl-C stops it and the name server")
            print(rocketmq.name_server, flush=True)
            while not stop.wait(_POLL_S):
                _require_running(rocketmq)
            say("stopping" + (" (the broker writes its state, about ten seconds)" if given.data_dir else ""))
    except _Interrupted as interrupted:
        say("interrupted before it was up")
        return 128 + interrupted.number
    except RmqioError as error:
        say(str(error))
        return WRONG_USAGE if isinstance(error, LocalError) else FAILED
    return 0


def add_options(parser: Parser) -> None:
    """Add the description and the options."""
    parser.description = """\
Start a RocketMQ 5.5.0 name server and broker on free loopback ports, print the name server's address, and stop both on
Ctrl-C. The first start downloads 98 MB."""
    add = parser.add_argument
    add(
        "--topic",
        action="append",
        default=[],
        type=_topic,
        metavar="NAME[:QUEUES]",
        help="create this topic, with 4 queues by default; repeatable",
    )
    add("--data_dir", metavar="DIR", help="keep topics and messages there; default: a temporary folder")
    add("--port", type=parse_port, metavar="PORT", help="the name server's port; default: a free one")
    add("--broker_port", type=parse_port, metavar="PORT", help="the broker's port; it also uses PORT - 2")
    add(
        "--heap",
        type=whole_number("number", 128),
        default=1024,
        metavar="MB",
        help="maximum heap size of the broker; default: 1024",
    )
    add("--name", default="broker-a", metavar="NAME", help="the broker's name; default: broker-a")
    add("--tls", action="store_true", help="also accept TLS, with a self-signed certificate")
    for option, server, example in (
        ("--broker_config", "broker", "autoCreateTopicEnable=true"),
        ("--name_server_config", "name server", "scanNotActiveBrokerInterval=5000"),
    ):
        add(
            option,
            action="append",
            default=[],
            type=_property,
            metavar="KEY=VALUE",
            help=f"a property of RocketMQ's {server}, e.g. {example}; repeatable",
        )


def _topic(text: str) -> tuple[str, int]:
    name, colon, queues = text.partition(":")
    if not name or (colon and not (queues.isascii() and queues.isdigit() and int(queues) > 0)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:QUEUES with at least one queue")
    return parse_topic(name), int(queues) if colon else 4


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _require_running(rocketmq: LocalRocketMQ) -> None:
    if rocketmq.pid("broker") is None or rocketmq.pid("name_server") is None:
        raise LocalBrokerError(f"a process ended unexpectedly: {rocketmq!r}\n{rocketmq.logs()}")


def _teller(name: str) -> Callable[[str], None]:
    return lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
