"""The entry point: runs a command line and returns the exit status."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from rmqio.cli import completion, find, groups, offsets, peek, produce, programs, queues, topics, trace
from rmqio.command_line.output import FAILED, INTERRUPTED, OK, WRONG_USAGE, allow_any_text, one_line, with_short_words
from rmqio.command_line.parser import Parser, add_common
from rmqio.errors import LocalError, RmqioError, TransportError

_NAME: Final = "rmqio"
"""Begins errors of commands that do not name themselves: those that run jobs do."""


def make_parser() -> Parser:
    """Return the parser of the whole command line. Its help fits on a screen of 30 lines."""
    parser = Parser(prog="rmqio", usage="rmqio [OPTIONS] COMMAND ...", add_help=False)
    commands = parser.add_subparsers(prog="rmqio", metavar="COMMAND", title="commands, each with its own --help")
    for module in (topics, groups, queues, peek, find, trace, produce, offsets, programs, completion):
        module.add_commands(commands)
    options = add_common(parser)
    options.add_argument("--version", action="store_true", help="show the version and exit")
    options.add_argument("-h", "--help", action="help", help="show this help and exit")
    return parser


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; `found.run(found)` executes it. Wrong usage ends the program with status 2."""
    found = parser.parse(argv)
    found.whole, found.argv = parser, list(argv)
    if found.version:
        found.run = _show_version
    elif not hasattr(found, "run"):
        found.run = _show_help
    found.writes, found.named = getattr(found, "writes", False), getattr(found, "named", _NAME)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    An error that a user can fix is one line on stderr; `-v` adds the traceback. A closed standard output is a normal
    end for a command that reads, since its reader has seen enough, and a failure for a command that writes.
    """
    for stream in (sys.stdout, sys.stderr):
        allow_any_text(stream)
    arguments = argparse.Namespace(verbose=False, writes=False, named=_NAME, argv=())
    try:
        arguments = parse(make_parser(), sys.argv[1:] if argv is None else argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except SystemExit as end:  # argparse: --help or wrong usage
        return end.code if isinstance(end.code, int) else WRONG_USAGE
    except KeyboardInterrupt:
        return _end(arguments, INTERRUPTED, "interrupted")
    except BrokenPipeError as error:
        # Python flushes standard output at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _end(arguments, FAILED, f"standard output was closed: {error}") if arguments.writes else OK
    except LocalError as error:
        return _end(arguments, WRONG_USAGE, str(error), verbose=arguments.verbose)
    except (RmqioError, OSError) as error:
        return _end(arguments, FAILED, _with_advice(error), verbose=arguments.verbose)
    return status


def _show_help(arguments: argparse.Namespace) -> int:
    arguments.parser.print_help()
    return OK


def _show_version(_: argparse.Namespace) -> int:
    from rmqio import __version__

    print(f"rmqio {__version__}")
    return OK


def _with_advice(error: Exception) -> str:
    text = str(error)
    if isinstance(error, TransportError) and "no name server answers" in text:
        return f"{text}; check the address (--name_server, NAMESRV_ADDR), and that it can be reached from here"
    if isinstance(error, TransportError) and "cannot connect" in text:
        return f"{text}; brokers are reached at the addresses that they register (`brokerIP1`): see --address_map"
    return text


def _end(arguments: argparse.Namespace, status: int, text: str, *, verbose: bool = False) -> int:
    if verbose:
        traceback.print_exc()
    text = with_short_words(text, arguments.argv)
    print(f"{arguments.named}: {one_line(text)}", file=sys.stderr, flush=True)
    return status
