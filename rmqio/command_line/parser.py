"""The parser of every command line of rmqio: help of 80 columns, one-line errors with the nearest name, late options.

An option can be written with hyphens or underscores, and the options that all commands share can stand before or after
a command.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NoReturn

from rmqio.command_line.arguments import add_connection, add_name_server
from rmqio.command_line.output import COLUMNS, with_short_words
from rmqio.hints import did_you_mean, nearest

_HELP_COLUMN: Final = 28
_CLOSE: Final = 0.8
"""How close a name is that was meant for sure."""
_FEW: Final = 4
"""Commands that the usage names."""


class Parser(argparse.ArgumentParser):
    """argparse with a compact usage, short errors, and both spellings of options.

    Args:
      fill: adds the parser's own arguments when they are first needed, so that the help of a program does not wait for
        the modules of all its commands.
    """

    def __init__(self, *, fill: Callable[[Parser], None] | None = None, **given: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **given)
        self._positionals.title = "arguments"
        self._fill = fill
        self.passes_on = False
        """Whether it takes arguments that it does not know, for another parser: they are in `found.rest`."""
        self.known_elsewhere: Callable[[], Collection[str]] = tuple
        """Returns the options of the other parser, with two hyphens."""
        self.values_elsewhere: Callable[[], Collection[str]] = tuple
        """Returns those of them that take a value: the word behind one is no argument of this parser."""
        self._optional_commands: dict[str, Parser] = {}
        self._given: Sequence[str] = ()

    def add_optional_command(self, command: Parser, name: str) -> None:
        """Add a command of a command that also acts by itself: `rmqio topics create` beside `rmqio topics`."""
        self._optional_commands[name] = command

    @property
    def commands(self) -> dict[str, Parser]:
        """The commands of this one."""
        self._filled()
        found = dict(self._optional_commands)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= action.choices
        return found

    @property
    def arguments(self) -> list[argparse.Action]:
        """The parser's arguments, without commands."""
        self._filled()
        return [action for action in self._actions if not isinstance(action, argparse._SubParsersAction)]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._filled()
        argv = self._given = list(self._joined(self._spelled(sys.argv[1:] if args is None else args)))
        at = self._first_word(argv) if self._optional_commands else None
        if at is not None and argv[at] in self._optional_commands:
            return self._optional_commands[argv[at]].parse_known_args(argv[:at] + argv[at + 1 :], namespace)
        return super().parse_known_args(argv, namespace)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command line. `found.parser` is the parser of its command.

        Wrong usage and `--help` end the program, with status 2 or 0.
        """
        found, rest = self.parse_known_args(argv)
        command: Parser = vars(found).setdefault("parser", self)
        if command.passes_on:
            found.rest = rest
        elif rest:
            command.error(command._advice(argv, rest))
        assert isinstance(found, argparse.Namespace)
        return found

    def _advice(self, argv: Sequence[str], rest: Sequence[str]) -> str:
        """Return the error message for arguments that this command does not take."""
        unknown = next((argument for argument in rest if argument.startswith("-")), rest[0])
        if unknown.startswith("-"):
            option = unknown.partition("=")[0]  # its value can be a password
            return f"unknown argument {option!r}{did_you_mean(option, self.option_names)}"
        text = f"unknown argument {unknown!r}"
        # `rmqio topics creat orders`: what was to be a command has been taken for an argument.
        found = (nearest(argument, self._optional_commands) for argument in argv)
        name = next((name for name in found if name is not None), None)
        return f"{text}; did you mean `{self.prog} {name}`?" if name else text

    def error(self, message: str) -> NoReturn:
        """Print the error and end the program with status 2. If an argument is missing, print the usage first."""
        message = with_short_words(re.sub(r"invalid [\w.<>]+ value: ", _of_a_type, message), self._given)
        if choice := re.search(r"invalid choice: (['\"])(.*)\1 \(choose from (.*)\)", message):
            names = [name.strip(" '") for name in choice[3].split(",")]  # quoted or not, as Python's version has it
            option = re.match("argument -[^:]*: ", message)  # a command needs no such words
            said = f"{choice[2]!r} is not one of {', '.join(names)}"
            message = (option[0] if option else "") + said + did_you_mean(choice[2], names)
        elif missing := re.search(r"the following arguments are required: (.*)", message):
            *first, last = missing[1].split(", ")
            message = self._misspelt([*first, last])
            if not message:
                self.print_usage(sys.stderr)
                message = f"{', '.join(first)} and {last} are missing" if first else f"{last} is missing"
        print(f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)", file=sys.stderr, flush=True)
        sys.exit(2)

    def _misspelt(self, missing: Sequence[str]) -> str:
        """Return the error message for a given option that is unknown, first of one near a missing one; else empty."""
        names = [name for name in missing if name.startswith("--")]
        given = [argument.partition("=")[0] for argument in self._given if re.match("--.", argument)]
        unknown = [name for name in given if name not in self.option_names]
        for name in unknown:
            if near := nearest(name, names, cutoff=_CLOSE):
                return f"unknown argument {name!r}; did you mean {near}?"
        unknown = [name for name in unknown if name not in self.known_elsewhere()]
        return f"unknown argument {unknown[0]!r}{did_you_mean(unknown[0], self.option_names)}" if unknown else ""

    def format_usage(self) -> str:
        self._set_usage()
        return super().format_usage()

    def format_help(self) -> str:
        self._set_usage()
        return super().format_help()

    def _filled(self) -> None:
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill(self)

    def _set_usage(self) -> None:
        """Name what is needed; argparse's own usage has every option."""
        self._filled()
        if self.usage is not None:
            return
        words = [self.prog]
        for action in self._actions:
            if action.help == argparse.SUPPRESS:
                continue
            if isinstance(action, argparse._SubParsersAction):
                few = len(action.choices) <= _FEW
                words.append(f"{'|'.join(action.choices) if few else action.metavar or 'COMMAND'} ...")
            elif not action.option_strings:
                words.append(f"[{action.metavar}]" if action.nargs == "?" else str(action.metavar or action.dest))
            elif action.required:
                words.append(f"{action.option_strings[-1]} {action.metavar}")
        if any(action.option_strings for action in self.arguments) and not words[-1].endswith("..."):
            words.append("[OPTIONS]")
        self.usage = " ".join(words).replace("%", "%%")

    @property
    def option_names(self) -> set[str]:
        """The parser's options, with two hyphens."""
        return {name for action in self.arguments for name in action.option_strings if name.startswith("--")}

    def _spelled(self, argv: Sequence[str]) -> Iterable[str]:
        """Spell options as the parser does, and give an option with an optional value its default.

        Such a value needs the equals sign, so that the option does not take the word after it. Words after a bare `--`
        are left as they are.
        """
        options = {name: action for action in self.arguments for name in action.option_strings}
        is_over = False
        for argument in argv:
            is_over = is_over or argument == "--"
            name, equals, value = argument.partition("=")
            if is_over or not name.startswith("--"):
                yield argument
                continue
            stem = name[2:]
            name = next(
                (way for way in (name, f"--{stem.replace('-', '_')}", f"--{stem.replace('_', '-')}") if way in options),
                name,
            )
            action = options.get(name)
            if action is not None and action.nargs == "?" and not equals:
                equals, value = "=", str(action.const)
            yield name + equals + value

    def _joined(self, argv: Iterable[str]) -> Iterable[str]:
        """Join an option of the other parser with its value."""
        left = list(argv)
        while left:
            argument = left.pop(0)
            if argument == "--":
                yield from (argument, *left)
                return
            is_ours = not argument.startswith("--") or "=" in argument or argument in self.option_names
            if not is_ours and argument in self.values_elsewhere():
                if not left or left[0].startswith("--"):
                    self.error(f"argument {argument}: expected one argument")
                if not left[0].startswith("-"):
                    argument += f"={left.pop(0)}"
            yield argument

    def _first_word(self, argv: Sequence[str]) -> int | None:
        """Return the place of the first argument that is neither an option nor an option's value."""
        options = {name: action for action in self._actions for name in action.option_strings}
        is_value = False
        for at, argument in enumerate(argv):
            if argument == "--":
                return None
            if is_value:
                is_value = False
            elif not argument.startswith("-"):
                return at
            else:
                action = options.get(argument)
                is_value = action is not None and action.nargs != 0
        return None


def _of_a_type(said: re.Match[str]) -> str:
    """The name of a function that parses a value says nothing to a user."""
    return said[0] if said[0].split()[1] in ("int", "float") else "invalid value: "


class _Formatter(argparse.HelpFormatter):
    """80 columns, whatever the terminal has: the texts are written for them. An option's value is shown once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN, width=COLUMNS)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap paragraphs, and leave alone those with indented lines, such as examples."""
        paragraphs = (
            paragraph if "\n " in f"\n{paragraph}" else textwrap.fill(" ".join(paragraph.split()), width)
            for paragraph in text.strip("\n").split("\n\n")
        )
        return textwrap.indent("\n\n".join(paragraphs), indent)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        # Only the commands: the usage has the word for them.
        return "".join(super(_Formatter, self)._format_action(command) for command in action._get_subactions())

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
        value = action.metavar or choices
        shown = f"[={value}]" if action.nargs == "?" else f" {value}"
        return ", ".join(action.option_strings) + shown


# The commands of the command line: each takes the common options, which only `rmqio --help_connection` shows.

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
