"""`rmqio claims`: cleans the folder of a claim check."""

from __future__ import annotations

import argparse
from typing import Final

from rmqio.claims.cleaning import clean
from rmqio.command_line.commands import optional_command
from rmqio.command_line.output import print_json
from rmqio.command_line.parser import Parser
from rmqio.start.texts import DURATION, SECONDS

_MORE: Final = """\
commands, each with its own --help:
  clean                     remove objects by age

examples:
  rmqio claims clean gs://bucket/claims --older_than 7d --dry_run
  rmqio claims clean /var/lib/claims --older_than 7d"""
_CLEAN_MORE: Final = """\
An object is as old as the end of the day (UTC) on which it was written. A message whose object is gone cannot be read:
keep objects longer than brokers keep messages (72 hours by default).

example:
  rmqio claims clean gs://bucket/claims --older_than 7d"""


def add_options(parser: Parser) -> None:
    """Add the commands."""
    parser.epilog = _MORE
    cleaning = optional_command(parser, "clean", _clean, "remove objects by age", more=_CLEAN_MORE)
    add = cleaning.add_argument
    add("folder", metavar="FOLDER", help="the folder of the claim check, in any file system of Beam")
    add("--older_than", required=True, type=_age, metavar="TIME", help="age like 7d or 36h")
    add("--dry_run", action="store_true", help="remove nothing, and say what would be removed")
    add("--json", action="store_true", help="print one JSON document")


def show_help(arguments: argparse.Namespace) -> int:
    """Print the help: the command alone does nothing."""
    arguments.parser.print_help()
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    cleaned = clean(arguments.folder, older_than_s=arguments.older_than, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(cleaned._asdict() | {"dry_run": arguments.dry_run})
        return 0
    of = f" of {cleaned.days[0]} to {cleaned.days[-1]}" if cleaned.days else ""
    what = "would be removed" if arguments.dry_run else "removed"
    print(f"{cleaned.objects:,} objects{of} {what}, {cleaned.bytes:,} bytes")
    return 0


def _age(text: str) -> int:
    found = DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not an age like 7d, 36h")
    return int(found[1]) * SECONDS[found[2]]
