"""`rmqio rules`: checks, explains and runs rules."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Final

from rmqio.command_line.arguments import parse_count, parse_from, parse_seconds, parse_topic
from rmqio.command_line.parser import Parser, Run, optional_command
from rmqio.errors import LocalError
from rmqio.rules.formats import FORMATS
from rmqio.start import Position

_MORE: Final = """\
commands, each with its own --help:
  check                     find mistakes in rules, and show what they cost
  explain                   show how a rule is evaluated
  fields                    list the fields that rules use
  run                       print the messages of a topic that match

examples:
  rmqio rules check 'rules/*.yml'
  rmqio rules run 'rules/*.yml' --topic events"""
_CHECK_MORE: Final = """\
The exit status is 1 if a rule is not valid, and 0 otherwise, with or without warnings.

examples:
  rmqio rules check 'rules/*.yml' --mapping mapping.yml --long
  rmqio rules check rules/*.yml --manifest rules/manifest.json"""
_EXPLAIN_MORE: Final = """\
A star marks the conditions that select the rule: it is evaluated only for messages that meet one of them.

example:
  rmqio rules explain rules/shell.yml"""
_RUN_MORE: Final = """\
The rules are loaded again when they change. If the new ones are not valid, the old ones stay. Ctrl-C ends the command,
with exit status 130.

examples:
  rmqio rules run 'rules/*.yml' --topic events
  rmqio rules run shop.sql --topic orders --from earliest --to_end --json"""


def add_options(parser: Parser) -> None:
    """Adds the commands."""
    parser.epilog = f"{_MORE}\n\n{parser.epilog or ''}".rstrip()
    check = _command(parser, "check", _check, "find mistakes in rules, and show what they cost", more=_CHECK_MORE)
    check.add_argument("-l", "--long", action="store_true", help="show the cost of each rule")
    check.add_argument("--manifest", metavar="FILE", help="if all rules are valid, write a manifest of the files")
    check.add_argument("--json", action="store_true", help="print one JSON document")
    explain = _command(parser, "explain", _explain, "show how a rule is evaluated", more=_EXPLAIN_MORE)
    explain.add_argument("--rule", metavar="ID", help="only this rule")
    fields = _command(parser, "fields", _fields, "list the fields that rules use")
    fields.add_argument("--json", action="store_true", help="print one JSON document")
    run = _command(parser, "run", _run, "print the messages of a topic that match", more=_RUN_MORE)
    run.add_argument(
        "--topic",
        type=parse_topic,
        required=True,
        metavar="TOPIC",
        help="the topic of the events, whose bodies are JSON",
    )
    run.add_argument(
        "--from", "--start", dest="begin", type=parse_from, default=Position("latest"), metavar="WHERE",
        help="latest (default): new messages only; earliest or a TIME: first the messages that were stored since then",
    )  # fmt: skip
    run.add_argument("--to_end", action="store_true", help="stop where the topic ends when the command starts")
    run.add_argument("-n", dest="number", type=parse_count, metavar="N", help="stop after N matches")
    run.add_argument(
        "--on_bad_rule", choices=("keep_previous", "skip"), default="keep_previous",
        help="if some rules cannot be used: keep_previous (default) keeps those before, or ends at the start; "
        "skip leaves them out, and lists them",
    )  # fmt: skip
    run.add_argument(
        "--refresh_s", type=parse_seconds, default=5.0, metavar="SECONDS",
        help="seconds between checks for changed rules; default: 5",
    )  # fmt: skip
    run.add_argument("--json", action="store_true", help="print each match as a JSON document on one line")


def _command(parent: Parser, name: str, run: Run, summary: str, *, more: str = "") -> Parser:
    parser = optional_command(parent, name, run, summary, more=more)
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="files of rules, patterns (in quotes), or a manifest.json")
    add("--rules_topic", type=parse_topic, metavar="TOPIC", help="read the rules from this topic instead of files")
    add("--format", choices=FORMATS, metavar="FORMAT", help="sigma, where or json; default: by the suffix of each file")
    add("--mapping", metavar="FILE", help="names of fields and log sources, or a pipeline of pySigma, as YAML")
    return parser


def show_help(arguments: argparse.Namespace) -> int:
    """Prints the help: the command alone does nothing."""
    arguments.parser.print_help()
    return 0


def _check(arguments: argparse.Namespace) -> int:
    with _explained():
        from rmqio.rules.command import check
    return check.run_check(arguments)


def _explain(arguments: argparse.Namespace) -> int:
    from rmqio.rules.command import check

    with check.each_on_its_line():
        return check.run_explain(arguments)


def _fields(arguments: argparse.Namespace) -> int:
    from rmqio.rules.command import check

    with check.each_on_its_line():
        return check.run_fields(arguments)


def _run(arguments: argparse.Namespace) -> int:
    with _explained():
        from rmqio.rules.command import check, run
    with check.each_on_its_line():
        return run.run(arguments)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        import rmqio.rules.engine  # noqa: F401

        yield
    except ImportError as error:
        raise LocalError(f"this needs the extra 'rules': pip install 'rmqio[rules]' ({error})") from error
