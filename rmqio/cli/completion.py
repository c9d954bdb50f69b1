"""`rmqio completion`: prints a shell's completion script, made from the parser by `completion_scripts`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from rmqio.cli.completion_scripts import SCRIPTS, Command, Kind, Word
from rmqio.command_line.arguments import add_connection
from rmqio.command_line.commands import new_command
from rmqio.command_line.parser import Parser

_MORE = """\
It completes commands, options, their choices, files, and the topics and groups of the cluster in NAMESRV_ADDR.

examples, for the file that the shell reads at its start:
  eval "$(rmqio completion bash)"        # ~/.bashrc
  eval "$(rmqio completion zsh)"         # ~/.zshrc, after compinit
  rmqio completion fish | source         # ~/.config/fish/config.fish"""

_NEW_TOPIC: Final = "topics create"
_FILES: Final = frozenset({"FILE", "PEM", "DIR", "FOLDER"})


def add_commands(commands: Any) -> None:
    """Add `completion`."""
    parser = new_command(
        commands, "completion", _completion, "print the completion script of bash, zsh or fish", more=_MORE,
        connects=False,
    )  # fmt: skip
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")


def commands_of(parser: Parser, words: str = "") -> Iterator[Command]:
    """Yield a parser's command, and those below it."""
    connection = Parser(add_help=False)
    add_connection(connection)
    described = {action.option_strings[0]: action.help for action in connection.arguments}
    options: list[Word] = []
    arguments: list[Word] = []
    for action in parser.arguments:
        if action.help == argparse.SUPPRESS and action.option_strings[0] not in described:
            continue
        found = _word(action, described, words)
        (options if found.names else arguments).append(found)
    inner = parser.commands
    yield Command(words, tuple(options), tuple(arguments), tuple((name, _summary(one)) for name, one in inner.items()))
    for name, one in inner.items():
        yield from commands_of(one, f"{words} {name}".lstrip())


def _summary(parser: Parser) -> str:
    text = (parser.description or "").partition(".")[0]
    return text[:1].lower() + text[1:]


def _word(action: argparse.Action, described: dict[str, str | None], words: str) -> Word:
    names = tuple(action.option_strings)
    text = action.help if action.help != argparse.SUPPRESS else described[names[0]]
    choices = tuple(map(str, action.choices or ()))
    kind: Kind = "any"
    if names and action.nargs in (0, "?"):
        kind = "flag"
    elif choices:
        kind = "choice"
    elif action.metavar in _FILES:
        kind = "file"
    elif (action.metavar == "TOPIC" and words != _NEW_TOPIC) or action.dest == "pattern":
        kind = "topic"
    elif action.metavar == "GROUP":
        kind = "group"
    return Word(names, kind, choices, (text or "").replace("%(default)s", str(action.default)))


def _completion(arguments: argparse.Namespace) -> int:
    print(SCRIPTS[arguments.shell](tuple(commands_of(arguments.whole))))
    return 0
