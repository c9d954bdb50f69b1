"""`rmqio completion`: prints a completion script for bash, zsh or fish, made from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rmqio.command_line.arguments import add_connection
from rmqio.command_line.parser import Parser, new_command

# The completion scripts of bash, zsh and fish.
#
# Each finds the command that has been typed (`at`, e.g. `topics create`), and then completes a value, an option, or
# what the command takes. A word after an option that takes a value is never a command.

Kind = Literal["flag", "any", "file", "topic", "group", "choice"]

_LISTS: Final[dict[Kind, str]] = {
    "topic": "topics --timeout_ms 1000 2>/dev/null",
    "group": "groups --names --timeout_ms 1000 2>/dev/null",
}
"""The commands that print the names to choose from."""
_OF_ARGUMENTS: Final = (*_LISTS, "file", "choice")


@dataclass(frozen=True, slots=True)
class Word:
    """An option, or an argument (without names), and what completes its value."""

    names: tuple[str, ...]
    kind: Kind
    choices: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command with what can follow it. `words`: how it is called, e.g. `topics create`; empty for `rmqio` itself."""

    words: str
    options: tuple[Word, ...]
    arguments: tuple[Word, ...]
    commands: tuple[tuple[str, str], ...]
    """Names and summaries."""


def bash(commands: Sequence[Command]) -> str:
    """Return the script for bash 3.2 or later, which splits a word at each equals sign."""
    values = [
        f"        {pattern})\n            {_bash_values(word)}\n            return ;;"
        for pattern, word in _valued(commands)
    ]
    ends = []
    for command in commands:
        parts = [f'options="{_joined(command)}"', f'words="{" ".join(name for name, _ in command.commands)}"']
        parts += [_bash_argument(word) for word in command.arguments[:1] if word.kind in _OF_ARGUMENTS]
        ends.append(f'        "{command.words}") {"; ".join(parts)} ;;')
    return f"""\
# bash completion of rmqio; `rmqio completion bash` makes it
_rmqio() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    local at="" skip="" options="" words="" word i
    if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then prev="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        if [[ $word == "=" ]]; then skip=1; continue; fi
        if [[ $skip ]]; then skip=""; continue; fi
        case "$word" in
            {_alternatives(_taking(commands))}) skip=1; continue ;;
            -*) continue ;;
        esac
        case "$at $word" in
            {_alternatives(_paths(commands))}) at="${{at:+$at }}$word" ;;
        esac
    done
    local IFS=$' \\t\\n'
    COMPREPLY=()
    case "$at $prev" in
{chr(10).join(values)}
    esac
    case "$prev" in
        {_alternatives(_taking(commands))}) return ;;
    esac
    case "$at" in
{chr(10).join(ends)}
    esac
    if [[ $cur == -* ]]; then words="$options"; fi
    COMPREPLY+=($(compgen -W "$words" -- "$cur"))
}}
complete -F _rmqio rmqio"""


def zsh(commands: Sequence[Command]) -> str:
    """Return the script for zsh, which can be evaluated, or put into `fpath` as `_rmqio`."""
    values = [f"        {pattern}) {_zsh_values(word)}; return ;;" for pattern, word in _valued(commands)]
    ends = []
    for command in commands:
        options = " ".join(_quoted(f"{name}:{word.help}") for word in command.options for name in word.names)
        lines = [f"options=({options})"]
        if command.commands:
            inner = " ".join(_quoted(f"{name}:{summary}") for name, summary in command.commands)
            lines.append(f"commands=({inner})")
        rest = [_zsh_values(word) for word in command.arguments[:1] if word.kind in _OF_ARGUMENTS]
        lines += [f"[[ $cur == -* ]] || {{ {rest[0]}; }}"] if rest else []
        ends.append(f"        {_quoted(command.words)})\n            " + "\n            ".join(lines) + " ;;")
    return f"""\
#compdef rmqio
# zsh completion of rmqio; `rmqio completion zsh` makes it
_rmqio() {{
    local at='' skip='' word cur=$words[CURRENT] prev=$words[CURRENT-1] i
    local -a commands options
    if [[ $cur == --*=* ]]; then prev=${{cur%%=*}}; compset -P '*='; fi
    for ((i = 2; i < CURRENT; i++)); do
        word=$words[i]
        if [[ -n $skip ]]; then skip=''; continue; fi
        case $word in
            ({_alternatives(_taking(commands))}) skip=1; continue ;;
            (-*) continue ;;
        esac
        case "$at $word" in
            ({_alternatives(_paths(commands))}) at="${{at:+$at }}$word" ;;
        esac
    done
    case "$at $prev" in
{chr(10).join(values)}
    esac
    case $prev in
        ({_alternatives(_taking(commands))}) return ;;
    esac
    case $at in
{chr(10).join(ends)}
    esac
    if [[ $cur == -* ]]; then
        _describe -o option options
    elif (( $#commands )); then
        _describe command commands
    fi
}}
if [[ $funcstack[1] == _rmqio ]]; then _rmqio "$@"; else compdef _rmqio rmqio; fi"""


def fish(commands: Sequence[Command]) -> str:
    """Return the script for fish 3 or later."""
    lines = []
    for command in commands:
        at = f"complete -c rmqio -n {_fish(f'__rmqio_at {_fish(command.words)}')}"
        lines += [f"{at} -a {name} -d {_fish(summary)}" for name, summary in command.commands]
        lines += [f"{at} {_fish_value(word)}" for word in command.arguments[:1] if word.kind not in ("any", "flag")]
        for word in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in word.names)
            takes = "" if word.kind == "flag" else f" {'-r' if word.kind == 'file' else '-x'} {_fish_value(word)}"
            lines.append(f"{at} {names}{takes.rstrip()} -d {_fish(word.help)}")
    return f"""\
# fish completion of rmqio; `rmqio completion fish` makes it
function __rmqio_at
    set -l at
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word {" ".join(_taking(commands))}
            set skip 1
        else if contains -- "$at $word" {" ".join(map(_fish, _paths(commands)))}
            set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv[1]"
end
complete -c rmqio -f
{chr(10).join(lines)}"""


SCRIPTS: Final[dict[str, Callable[[Sequence[Command]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}


# ---- parts -----------------------------------------------------------------------------------------------------------


def _paths(commands: Iterable[Command]) -> list[str]:
    """Return each way from a command to one below it, as `$at $word`: ` topics`, `topics create`."""
    return [f"{command.words} {name}" for command in commands for name, _ in command.commands]


def _taking(commands: Iterable[Command]) -> list[str]:
    """Return the options that take a value, in whatever command."""
    words = (word for command in commands for word in command.options if word.kind != "flag")
    return sorted({name for word in words for name in word.names})


def _valued(commands: Sequence[Command]) -> Iterator[tuple[str, Word]]:
    """Yield the options whose values can be completed, as patterns of `$at $prev`."""
    found: dict[tuple[str, ...], dict[tuple[Kind, tuple[str, ...]], list[tuple[str, Word]]]] = {}
    for command in commands:
        for word in command.options:
            found.setdefault(word.names, {}).setdefault((word.kind, word.choices), []).append((command.words, word))
    for names, ways in found.items():
        for (kind, _), places in ways.items():
            if kind in ("flag", "any"):
                continue
            if len(ways) == 1:
                patterns = [f'*" {name}"' for name in names]
            else:
                patterns = [f'"{at} {name}"' for at, _ in places for name in names]
            yield "|".join(patterns), places[0][1]


def _joined(command: Command) -> str:
    return " ".join(name for word in command.options for name in word.names)


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(f'"{word}"' if " " in word else word for word in words)


def _bash_values(word: Word) -> str:
    if word.kind == "file":
        return "IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$cur\"))"
    words = f'$("${{COMP_WORDS[0]}}" {_LISTS[word.kind]})' if word.kind in _LISTS else " ".join(word.choices)
    return f'COMPREPLY=($(compgen -W "{words}" -- "$cur"))'


def _bash_argument(word: Word) -> str:
    return f"[[ $cur == -* ]] || {{ {_bash_values(word)}; }}"


def _zsh_values(word: Word) -> str:
    if word.kind == "file":
        return "_files"
    if word.kind in _LISTS:
        return f'compadd -- ${{(f)"$($words[1] {_LISTS[word.kind]})"}}'
    return f"compadd -- {' '.join(word.choices)}"


def _fish_value(word: Word) -> str:
    if word.kind == "file":
        return "-F"
    if word.kind in _LISTS:
        return f"-a '(rmqio {_LISTS[word.kind]})'"
    return f"-a '{' '.join(word.choices)}'" if word.choices else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


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
