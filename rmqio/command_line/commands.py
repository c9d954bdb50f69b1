"""The commands of the command line: each takes the common options, which only `rmqio --help_connection` shows."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rmqio.command_line.arguments import add_connection, add_name_server
from rmqio.command_line.parser import Parser

Run = Callable[[argparse.Namespace], int]


class _HelpConnection(argparse.Action):
    """Prints the connection options, and ends the program: like `--help`, also where arguments are missing."""

    def __init__(self, option_strings: Any, dest: str, **given: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **given)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        shown = Parser(prog="rmqio", add_help=False, usage="rmqio COMMAND [OPTIONS]", epilog=_CONNECTION_MORE)
        add_connection(shown)
        shown.print_help()
        parser.exit()


_CONNECTION_MORE = """\
Name servers know the addresses of the brokers. Options can stand before or after the command. docs/security.md
describes the options for security."""


def add_common(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that stand before a command, and return the group of those that the help shows."""
    group = parser.add_argument_group("options, before or after the command")
    add_name_server(group)
    group.add_argument("-v", "--verbose", action="store_true", help="show the traceback of a failure")
    _hidden_connection(parser, has_name_server=True)
    group.add_argument(
        "--help_connection", action=_HelpConnection, help="show the options for time limits, TLS, access"
    )
    return group


def new_command(
    commands: Any,
    name: str,
    run: Run | None,
    summary: str,
    *,
    more: str = "",
    connects: bool = True,
    fill: Callable[[Parser], None] | None = None,
) -> Parser:
    """Add a command whose help ends with `more`.

    `connects`: it takes the common options, which its help does not show. Their values are those of the whole command
    line, unless the command sets them. `fill`: see `Parser`.
    """
    description = summary[0].upper() + summary[1:] + "."
    epilog = _epilog(more) if connects else more
    parser: Parser = commands.add_parser(name, help=summary, description=description, epilog=epilog, fill=fill)
    return _prepared(parser, run, connects=connects)


def optional_command(parent: Parser, name: str, run: Run, summary: str, *, more: str = "") -> Parser:
    """Add a command of a command that also acts by itself."""
    prog, description = f"{parent.prog} {name}", summary[0].upper() + summary[1:] + "."
    parser = Parser(prog=prog, description=description, epilog=_epilog(more))
    parent.add_optional_command(parser, name)
    return _prepared(parser, run, connects=True)


def _epilog(more: str) -> str:
    return f"{more}\n\nConnection and security: rmqio --help_connection".lstrip()


def _prepared(parser: Parser, run: Run | None, *, connects: bool) -> Parser:
    group = parser.add_argument_group()
    group.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    if connects:
        group.add_argument("--help_connection", action=_HelpConnection, help=argparse.SUPPRESS)
        for action in _hidden_connection(parser):
            action.default = argparse.SUPPRESS
    parser.set_defaults(parser=parser)
    if run is not None:
        parser.set_defaults(run=run)
    return parser


def _hidden_connection(parser: argparse.ArgumentParser, *, has_name_server: bool = False) -> list[argparse.Action]:
    """Add the connection options without a line in the help; return them."""
    own = len(parser._actions)
    add_connection(parser, has_name_server=has_name_server)
    for action in parser._actions[own:]:
        action.help = argparse.SUPPRESS
    return parser._actions[own:]
