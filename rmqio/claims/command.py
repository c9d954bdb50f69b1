"""`rmqio claims`: cleans the folder of a claim check."""

from __future__ import annotations

import argparse
from typing import Any, Final

from rmqio.claims.cleaning import clean
from rmqio.command_line.output import print_json
from rmqio.command_line.parser import Parser, optional_command
from rmqio.errors import counted
from rmqio.start import DURATION, SECONDS

_MORE: Final = """\
commands, each with its own --help:
  clean                     remove objects by age

examples:
  rmqio claims clean gs://bucket/claims --older_than 7d --dry_run
  rmqio claims clean /var/lib/claims --older_than 7d"""
_CLEAN_MORE: Final = """\
An object is as old as the end of the day (UTC) on which it was written. A message whose object is gone cannot be read:
keep objects longer than brokers keep messages (72 hours by default). HDFS also needs Beam's options --hdfs_host,
--hdfs_port and --hdfs_user, and takes --hdfs_full_urls.

examples:
  rmqio claims clean gs://bucket/claims --older_than 7d
  rmqio claims clean hdfs://claims --older_than 7d \\
    --hdfs_host=namenode --hdfs_port=9870 --hdfs_user=claims"""
_HDFS: Final = ("hdfs_host", "hdfs_port", "hdfs_user")


def add_options(parser: Parser) -> None:
    """Add the commands."""
    parser.epilog = _MORE
    cleaning = optional_command(parser, "clean", _clean, "remove objects by age", more=_CLEAN_MORE)
    add = cleaning.add_argument
    add("folder", metavar="FOLDER", help="the folder of the claim check, in any file system of Beam")
    add("--older_than", required=True, type=_age, metavar="TIME", help="age like 7d or 36h")
    for name in _HDFS:
        add(f"--{name}", metavar="VALUE", help=argparse.SUPPRESS)
    add("--hdfs_full_urls", action="store_true", help=argparse.SUPPRESS)
    add("--dry_run", action="store_true", help="show what would be removed, and remove nothing")
    add("--json", action="store_true", help="print one JSON document")


def show_help(arguments: argparse.Namespace) -> int:
    """Print the help: the command alone does nothing."""
    arguments.parser.print_help()
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    cleaned = clean(
        arguments.folder,
        older_than_s=arguments.older_than,
        dry_run=arguments.dry_run,
        options=_file_system_options(arguments),
    )
    if arguments.json:
        print_json(cleaned._asdict() | {"dry_run": arguments.dry_run})
        return 0
    of = f" of {cleaned.days[0]} to {cleaned.days[-1]}" if cleaned.days else ""
    what = "would be removed" if arguments.dry_run else "removed"
    print(f"{counted(cleaned.objects, 'object')}{of} {what}, {counted(cleaned.bytes, 'byte')}")
    return 0


def _file_system_options(arguments: argparse.Namespace) -> Any:
    """The options of Beam's HDFS; None for others, so that the command need not load Beam."""
    given = {name: getattr(arguments, name) for name in (*_HDFS, "hdfs_full_urls")}
    if not any(given.values()):
        return None
    from apache_beam.options.pipeline_options import PipelineOptions

    flags = [f"--{name}={given[name]}" for name in _HDFS if given[name] is not None]
    return PipelineOptions([*flags, *(["--hdfs_full_urls"] if given["hdfs_full_urls"] else [])])


def _age(text: str) -> int:
    found = DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not an age like 7d, 36h")
    return int(found[1]) * SECONDS[found[2]]
