"""The entry point: runs a command line and returns the exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from rmqio.cli import offsets, produce, reading, topics
from rmqio.cli.arguments import Parser, parse
from rmqio.cli.connect import add_options
from rmqio.cli.output import allow_any_text, one_line
from rmqio.errors import LocalError, RmqioError, TransportError

OK: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130

_DESCRIPTION: Final = "Inspect a RocketMQ cluster, send messages, set the offsets of consumer groups."

_EPILOG: Final = """\
Only `produce`, and `offsets reset` with --execute, change anything. Reads use a private group and commit nothing.
--json prints output for scripts. Options can be written with hyphens too, and before or after the command.

exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted

examples:
  export NAMESRV_ADDR=127.0.0.1:9876
  rmqio topics
  rmqio describe orders --group billing
  rmqio peek orders -n 3 --tags paid
  rmqio tail orders --from 10m
  rmqio produce orders --tags paid --keys o-17 '{"id": 17}'
  rmqio offsets reset orders --group billing --to 2026-01-31T12:00:00+08:00
"""


def make_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(prog="rmqio", usage="rmqio [OPTIONS] COMMAND ...", description=_DESCRIPTION, epilog=_EPILOG)
    commands = parser.add_subparsers(prog="rmqio", metavar="COMMAND", title="commands, each with its own --help")
    for module in (topics, reading, produce, offsets):
        module.add_commands(commands)
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    add_options(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    An error that a user can fix is one line on stderr; `-v` adds the traceback. A closed standard output is a normal
    end for a command that reads, since its reader has seen enough, and a failure for a command that writes.
    """
    for stream in (sys.stdout, sys.stderr):
        allow_any_text(stream)
    verbose = writes = False
    try:
        arguments = parse(make_parser(), sys.argv[1:] if argv is None else argv)
        verbose, writes = arguments.verbose, arguments.writes
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except SystemExit as end:  # argparse: --help or wrong usage
        return end.code if isinstance(end.code, int) else WRONG_USAGE
    except KeyboardInterrupt:
        return _end(INTERRUPTED, "interrupted")
    except BrokenPipeError as error:
        # Python flushes standard output at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _end(FAILED, f"standard output was closed: {error}") if writes else OK
    except LocalError as error:
        return _end(WRONG_USAGE, str(error), verbose=verbose)
    except (RmqioError, OSError) as error:
        return _end(FAILED, _with_advice(error), verbose=verbose)
    return status


def _with_advice(error: Exception) -> str:
    text = str(error)
    if isinstance(error, TransportError) and "no name server answers" in text:
        return f"{text}; check the address (--name_server, NAMESRV_ADDR), and that it can be reached from here"
    if isinstance(error, TransportError) and "cannot connect" in text:
        return f"{text}; brokers are reached at the addresses that they register (`brokerIP1`): see --address_map"
    return text


def _end(status: int, text: str, *, verbose: bool = False) -> int:
    if verbose:
        traceback.print_exc()
    print(f"rmqio: {one_line(text)}", file=sys.stderr, flush=True)
    return status
