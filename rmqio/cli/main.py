"""The command line `rmqio`: its commands, those of other packages among them, which are imported when they are used."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

from rmqio.cli import completion, find, groups, offsets, peek, produce, queues, topics, trace
from rmqio.command_line.output import FAILED, INTERRUPTED, OK, WRONG_USAGE, allow_any_text, one_line, with_short_words
from rmqio.command_line.parser import Parser, add_common, new_command
from rmqio.errors import LocalError, RmqioError, TransportError


def _add_programs(commands: Any) -> None:
    """Add them."""
    new_command(commands, "watch", None, "watch a running job: lag, rates, brokers", fill=_fill_watch)
    sql = new_command(commands, "sql", None, "run SQL over topics, on any runner", fill=_fill_sql)
    sql.set_defaults(writes=True, named="rmqio sql")
    sql.passes_on = True
    new_command(commands, "rules", None, "check, explain and run rules on topics", fill=_fill_rules)
    copy = new_command(commands, "copy", None, "copy data between topics, files, tables, Kafka", fill=_fill_copy)
    copy.set_defaults(writes=True, named="rmqio copy")
    copy.passes_on = True
    replay = new_command(commands, "replay", None, "send the messages of dead letters again", fill=_fill_replay)
    replay.set_defaults(writes=True)
    new_command(commands, "audit", None, "find messages lost or doubled between two topics", fill=_fill_audit)
    new_command(commands, "claims", None, "clean the folder of big bodies by age", fill=_fill_claims, connects=False)
    summary = "list the Avro schemas of a folder, or check them"
    new_command(commands, "schemas", None, summary, fill=_fill_schemas, connects=False)
    new_command(commands, "local", None, "run a RocketMQ on this machine", fill=_fill_local, connects=False)


def _fill_replay(parser: Parser) -> None:
    from rmqio.dead_letters import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _fill_audit(parser: Parser) -> None:
    from rmqio.audit import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _fill_claims(parser: Parser) -> None:
    from rmqio.claims import command

    command.add_options(parser)
    parser.set_defaults(run=command.show_help)


def _fill_schemas(parser: Parser) -> None:
    from rmqio.cli import schemas

    schemas.add_options(parser)
    parser.set_defaults(run=schemas.run)


def _fill_local(parser: Parser) -> None:
    from rmqio.local import __main__ as local

    local.add_options(parser)
    parser.set_defaults(run=local.run)


def _fill_rules(parser: Parser) -> None:
    from rmqio.rules import command

    command.add_options(parser)
    parser.set_defaults(run=command.show_help)


def _fill_copy(parser: Parser) -> None:
    from rmqio.connect.copying import command

    command.add_options(parser)
    parser.set_defaults(run=command.run)


def _fill_watch(parser: Parser) -> None:
    from rmqio.watch import command

    command.add_options(parser)
    parser.epilog = f"{command.MORE}\n\n{parser.epilog or ''}".rstrip()
    parser.set_defaults(run=command.run)


def _fill_sql(parser: Parser) -> None:
    try:
        from rmqio.sql import command
    except ImportError as error:
        raise LocalError(f"rmqio sql needs the extra 'sql': pip install 'rmqio[sql]' ({error})") from error

    command.add_options(parser)
    parser.set_defaults(run=command.run)


# The entry point: runs a command line and returns the exit status.

_NAME: Final = "rmqio"
"""Begins errors of commands that do not name themselves: those that run jobs do."""


def make_parser() -> Parser:
    """Return the parser of the whole command line. Its help fits on a screen of 30 lines."""
    parser = Parser(prog="rmqio", usage="rmqio [OPTIONS] COMMAND ...", add_help=False)
    commands = parser.add_subparsers(prog="rmqio", metavar="COMMAND", title="commands, each with its own --help")
    for module in (topics, groups, queues, peek, find, trace, produce, offsets):
        module.add_commands(commands)
    _add_programs(commands)
    completion.add_commands(commands)
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
