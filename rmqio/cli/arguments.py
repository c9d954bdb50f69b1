"""Building blocks of the command line: a parser with short errors, and commands with the common options."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from rmqio.cli.connect import add_options
from rmqio.cli.values import did_you_mean


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors, the closest name for a wrong one, and common options before or after a command."""

    def __init__(self, **given: Any) -> None:
        def formatter(prog: str) -> argparse.HelpFormatter:
            return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=110)

        super().__init__(formatter_class=formatter, allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        """Print the error and end the program with status 2."""
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            names = [name.strip(" '") for name in choice[2].split(",")]  # quoted or not, as Python's version has it
            message = f"{choice[1]!r} is none of {', '.join(names)}" + did_you_mean(choice[1], names)
        print(f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)", file=sys.stderr, flush=True)
        sys.exit(2)

    def commands(self) -> Iterator[Parser]:
        """Yield this parser and those of its commands."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    yield from command.commands()

    def option_names(self) -> set[str]:
        return {name for action in self._actions for name in action.option_strings if name.startswith("--")}


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; `found.run(found)` executes it. Wrong usage ends the program with status 2."""
    known = {name for command in parser.commands() for name in command.option_names()}
    found, rest = parser.parse_known_args(list(_with_underscores(argv, known)))
    command: Parser = getattr(found, "parser", parser)
    if rest:
        unknown = next((argument for argument in rest if argument.startswith("-")), rest[0])
        names = command.option_names() | parser.option_names()
        command.error(f"unknown argument {unknown!r}" + did_you_mean(unknown.partition("=")[0], names))
    if found.version:
        found.run = _show_version
    elif not hasattr(found, "run"):
        found.run = _show_help
        found.parser = command
    found.writes = getattr(found, "writes", False)
    return found


def _with_underscores(argv: Sequence[str], known: set[str]) -> Iterator[str]:
    """Spell options with hyphens as the parser does; arguments after a bare `--` stay as they are."""
    is_over = False
    for argument in argv:
        is_over = is_over or argument == "--"
        name, equals, value = argument.partition("=")
        spelled = "--" + name[2:].replace("-", "_")
        is_ours = not is_over and name.startswith("--") and name not in known and spelled in known
        yield spelled + equals + value if is_ours else argument


def _show_help(arguments: argparse.Namespace) -> int:
    arguments.parser.print_help()
    return 0


def _show_version(_: argparse.Namespace) -> int:
    from rmqio import __version__

    print(f"rmqio {__version__}")
    return 0


def new_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int] | None, summary: str, *, more: str = ""
) -> Parser:
    """Add a command whose help ends with `more`. It takes the common options, but its help does not show them.

    Their values are those of the whole command line, unless the command sets them.
    """
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"{more}\n\nConnection options: see rmqio --help.".lstrip(),
    )
    own = len(parser._actions)
    add_options(parser)
    for action in parser._actions[own:]:
        action.default = action.help = argparse.SUPPRESS
    parser.set_defaults(parser=parser)
    if run is not None:
        parser.set_defaults(run=run)
    return parser
