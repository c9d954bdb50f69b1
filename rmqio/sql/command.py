"""`rmqio sql FILE`: runs the statements of a file as one job, on the runner of choice."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from rmqio import security
from rmqio.command_line.arguments import require_usable, start_parser, stop_parser
from rmqio.command_line.output import OK, WRONG_USAGE, is_statement
from rmqio.command_line.parser import Parser
from rmqio.jobs import command as jobs
from rmqio.jobs.state import UNCHANGED
from rmqio.runners.options import connects_from_here, flags_with_value, known_runner, strict_options, wrong_argument
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain, for_terminal
from rmqio.sql.job import check, run_job
from rmqio.sql.pieces import pieces
from rmqio.sql.planning.checks import require_files
from rmqio.sql.resuming import is_same
from rmqio.sql.scripts.catalog_file import load_catalogs
from rmqio.sql.scripts.script import Script
from rmqio.sql.shell import command as shell
from rmqio.sql.shell.processes import StatementFailed
from rmqio.start import TIME_HELP

_MORE: Final = """\
All other options go to Beam and its runner, such as --streaming --checkpoint_dir=/var/lib/job.

Statements on standard input are one job, or, if a SELECT or SHOW is among them, run one by one.

examples:
  rmqio sql job.sql --runner SparkRunner --streaming
  rmqio sql -e "SELECT * FROM orders LIMIT 5" --name_server 127.0.0.1:9876"""


def add_options(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = f"{_MORE}\n\n{parser.epilog or ''}".rstrip()
    parser.values_elsewhere = flags_with_value
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="SQL in UTF-8, run as one job; -: standard input; without it: a shell,"
        " on a terminal")  # fmt: skip
    add("-e", dest="execute", action="append", default=[], metavar="STATEMENT",
        help="run statements one by one, and print the rows of SELECT; repeatable; long: --execute")  # fmt: skip
    # Not in completions, whose scripts skip values before they know the command: elsewhere, --execute has none.
    add("--execute", action="append", default=[], help=argparse.SUPPRESS)
    add("--runner", type=known_runner, metavar="NAME", help="DirectRunner (default), FlinkRunner, SparkRunner")
    add(
        "--catalog",
        action="append",
        default=[],
        metavar="WHERE",
        help="a file of CREATE statements, or the URL of a schema registry; repeatable; default: none, but in the shell"
        " the user's own file",
    )
    add(
        "--explain",
        action="store_true",
        help="show the plan of the job, with --runner also what the runner does with it, and do not run it",
    )
    add(
        "--check",
        action="store_true",
        help="check the statements, with --runner and --stop as these would run them, and do not run them",
    )
    add(
        "--start",
        type=start_parser("earliest", "latest", "timestamp:TIME"),
        metavar="WHERE",
        help="where reads begin, if their table does not say: earliest, latest, timestamp:TIME; default: the"
        " offsets of their group, or latest without a group",
    )
    add(
        "--stop",
        type=stop_parser("none", "latest", "timestamp:TIME"),
        metavar="WHERE",
        help="where to stop: none (default), latest (where the topics end when the job starts) or timestamp:TIME;"
        f" {TIME_HELP}",
    )
    jobs.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and returns the exit status."""
    for place in filter(None, (arguments.file, arguments.jobs, arguments.runner, *arguments.catalog)):
        if is_statement(place) and not os.path.exists(place):
            arguments.parser.error("a statement is given in place of an argument: write -e in front of it")
    if arguments.jobs is not None:
        jobs.refuse_others(arguments)
    if wrong := wrong_argument(arguments.rest, arguments.parser.option_names):
        arguments.parser.error(wrong)
    if arguments.jobs is not None:
        return jobs.run(arguments)
    secured = security.from_arguments(arguments)
    if not arguments.check and not arguments.explain and connects_from_here(arguments.runner):
        require_usable(secured)
    script = Script()
    try:
        if shell.is_wanted(arguments):
            arguments.runner = arguments.runner or "DirectRunner"
            return shell.run(arguments)
        try:
            text = _text(arguments)
        except SqlError:
            if arguments.rest:  # the word behind an option that nobody knows is taken for the file
                strict_options(arguments.rest, runner=arguments.runner)
            raise
        if _is_for_session(arguments, text):
            arguments.runner = arguments.runner or "DirectRunner"
            return shell.run_text(arguments, text)
        load_catalogs(script, arguments.catalog)
        script.run(text, "" if arguments.file == "-" else arguments.file)
        if not script.sinks and not script.explained:
            raise SqlError(f"{arguments.file}: there is nothing to do: no INSERT INTO")
        if arguments.stop is None:
            script.require_no_feedback()
        if arguments.rest and arguments.runner is None and (arguments.explain or arguments.check):
            strict_options(arguments.rest)  # it is not used
        is_unchanged = is_same(script, arguments)
        if not arguments.explain and not arguments.check:
            require_files(script.sinks, runs_here=arguments.runner in (None, "DirectRunner"))
    except StatementFailed as failed:
        return failed.status
    except SqlError as error:
        print(f"rmqio sql: {error}", file=sys.stderr, flush=True)
        return WRONG_USAGE
    if script.explained and not arguments.check:
        print(for_terminal(explain(script.explained)), flush=True)
        if not script.sinks:
            return OK
    if arguments.explain:
        print(for_terminal(explain(script.sinks)))
        return OK if arguments.runner is None else run_job(script, arguments)
    if arguments.check:
        return check(script, arguments, UNCHANGED if is_unchanged else OK)
    return run_job(script, arguments)


def _text(arguments: argparse.Namespace) -> str:
    """Returns the statements of the command line, of the file or of standard input."""
    if arguments.execute and arguments.file is not None:
        raise SqlError(f"--execute has the statements: omit {arguments.file!r}")
    arguments.file = arguments.file or "-"
    if arguments.execute:
        text = "\n;\n".join(arguments.execute)  # a statement can end with a comment
        if all(each.is_empty for each in pieces(text)):
            raise SqlError("-e has no statement: is a variable of the command line empty?")
        return text
    return _text_of(arguments.text_of or arguments.file, arguments.file)


def _is_for_session(arguments: argparse.Namespace, text: str) -> bool:
    """Returns whether statements run one after the other. Standard input without a SELECT and the like is one job."""
    if arguments.check or arguments.explain or arguments.file != "-":
        return False
    return bool(arguments.execute) or shell.prints(text)


def _text_of(file: str, name: str) -> str:
    """Returns the text of a script. `name`: the file that the user knows, in errors."""
    if file == "-":
        return sys.stdin.read().removeprefix("\ufeff")
    try:
        return Path(file).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError(f"{name} is not UTF-8: byte {error.start} is not") from error
    except OSError as error:
        raise SqlError(f"cannot read {name}: {error.strerror}") from error
